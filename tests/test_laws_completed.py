"""The completed law: equal for every right rule, different for every wrong one."""

from __future__ import annotations

import laws_oracle as oracle
import numpy as np
import pytest

from specverify import laws

SIZES = [(2, 0), (4, 1), (3, 2), (2, 3), (3, 3), (4, 3)]
P = np.array([[0.5, 0.3, 0.15, 0.05]])
Q = np.array([[0.4, 0.1, 0.1, 0.4]])


def tv(a: np.ndarray, b: np.ndarray) -> float:
    return 0.5 * float(np.abs(a - b).sum())


@pytest.mark.parametrize("kind", oracle.KINDS)
@pytest.mark.parametrize(("vocab", "k"), SIZES)
def test_completed_laws_equal_enumeration(kind: str, vocab: int, k: int) -> None:
    exact, _ = oracle.case(kind, vocab, k)
    targets = oracle.arrays(exact)
    joint = laws.completed_law(targets)
    cells = dict(oracle.paths(exact, k + 1, vocab))
    assert tv(joint, oracle.flat(cells, vocab, k + 1)) < 1e-15
    shaped = joint.reshape((vocab,) * (k + 1))
    for j in range(k + 1):
        others = tuple(i for i in range(k + 1) if i != j)
        assert tv(laws.completed_marginal(targets, j), shaped.sum(axis=others)) < 1e-15
    for j in range(k):
        others = tuple(i for i in range(k + 1) if i not in (j, j + 1))
        assert tv(laws.completed_pair(targets, j), shaped.sum(axis=others)) < 1e-15


@pytest.mark.parametrize("one_hot", [False, True], ids=["dense", "one-hot"])
@pytest.mark.parametrize("holes", [(), (0,), (1,), (2, 1)], ids=str)
@pytest.mark.parametrize("kind", oracle.KINDS)
@pytest.mark.parametrize(("vocab", "k"), SIZES)
def test_both_rules_are_lossless(
    kind: str, vocab: int, k: int, holes: tuple[int, ...], one_hot: bool
) -> None:
    holes = tuple(hole for hole in holes if hole < k)
    exact_p, exact_q = oracle.case(kind, vocab, k)
    targets, drafts = oracle.arrays(exact_p), oracle.arrays(exact_q)
    rule = laws.completed_law_of_rule(targets, drafts, one_hot=one_hot, placeholders=holes)
    assert tv(rule, laws.completed_law(targets)) < 1e-15
    # Enumeration says the same in exact arithmetic: not nearly lossless, lossless.
    emitted = oracle.completed(exact_p, oracle.outcomes(exact_p, exact_q, one_hot, holes))
    for path, weight in oracle.paths(exact_p, k + 1, vocab):
        assert emitted.get(path, 0) == weight


def recover_from_target(p: np.ndarray, q: np.ndarray) -> laws.StepLaw:
    right = laws.ratio_step(p, q)
    lost = right.rejected.sum(axis=-1, keepdims=True)
    return laws.StepLaw(right.accepted, right.rejected, lost * p)


def recover_without_the_draft(p: np.ndarray, q: np.ndarray) -> laws.StepLaw:
    right = laws.ratio_step(p, q)
    rest = np.where(p < 1, right.rejected / np.where(p < 1, 1 - p, 1), 0.0)
    return laws.StepLaw(
        right.accepted, right.rejected, p * (rest.sum(axis=-1, keepdims=True) - rest)
    )


WRONG = {
    "recover-from-target": (recover_from_target, oracle.target_as_residual),
    "only-draft-removed": (recover_without_the_draft, oracle.only_draft_removed),
}


@pytest.mark.parametrize(("step", "residual"), WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize(("vocab", "k"), [(3, 1), (3, 2), (3, 3), (4, 3)])
def test_a_wrong_residual_has_its_own_exact_law(
    step: object, residual: oracle.Residual, vocab: int, k: int
) -> None:
    exact_p, exact_q = oracle.case("random", vocab, k)
    targets, drafts = oracle.arrays(exact_p), oracle.arrays(exact_q)
    got = laws.completed_law_of_rule(targets, drafts, one_hot=False, step=step)  # type: ignore[arg-type]
    law = oracle.outcomes(exact_p, exact_q, one_hot=False, residual=residual)
    expected = oracle.flat(oracle.completed(exact_p, law), vocab, k + 1)
    assert tv(got, expected) < 1e-15
    assert tv(got, laws.completed_law(targets)) > 0.01


def test_recovering_from_the_target_is_off_by_a_known_amount() -> None:
    # min(p, q) + 0.35 p = (.575, .205, .1525, .0675), which is 0.095 from p.
    got = laws.completed_law_of_rule([P, P], [Q], one_hot=False, step=recover_from_target)
    first = got.reshape(4, 4).sum(axis=1)
    np.testing.assert_allclose(first, [0.575, 0.205, 0.1525, 0.0675], rtol=0, atol=1e-15)
    assert tv(first, P[0]) == pytest.approx(0.095, abs=1e-15)


@pytest.mark.parametrize("w", [0.25, 0.5, 0.75])
def test_static_ensemble_rule_emits_the_mixture(w: float) -> None:
    def ensemble(p: np.ndarray, q: np.ndarray) -> laws.StepLaw:
        accepted = q * np.minimum(1, (1 - w) + w * p / q)
        lost = q - accepted
        rest = laws.residual(p, q)  # of the target: that of the mixture is the same
        return laws.StepLaw(accepted, lost, lost.sum(axis=-1, keepdims=True) * rest)

    got = laws.completed_law_of_rule([P, P], [Q], one_hot=False, step=ensemble)
    first = got.reshape(4, 4).sum(axis=1)
    np.testing.assert_allclose(first, laws.static_ensemble_law(P[0], Q[0], w), rtol=0, atol=1e-15)


def test_filtered_bonus_with_unfiltered_verification_matches_no_target() -> None:
    """The numbers of docs/filtering.md: p, q, top-k 2, one draft."""
    kept = np.array([[0.625, 0.375, 0.0, 0.0]])
    assert laws.acceptance_ratio(P[0], Q[0]) == pytest.approx(0.65, abs=1e-15)
    assert laws.acceptance_ratio(kept[0], Q[0]) == pytest.approx(0.5, abs=1e-15)
    np.testing.assert_allclose(laws.residual(kept[0], Q[0]), [0.45, 0.55, 0, 0], rtol=0, atol=1e-15)
    assert laws.acceptance_ratio(kept[0], [0.8, 0.2, 0, 0]) == pytest.approx(0.825, abs=1e-15)
    right = laws.completed_law_of_rule([kept, kept], [Q], one_hot=False)
    assert tv(right, laws.completed_law([kept, kept])) < 1e-15

    # Verified rows are p. The bonus is filtered; after a rejection the next round draws from p.
    step = laws.ratio_step(P, Q)
    mixed = step.accepted.T * kept + step.recovered.T * P
    assert mixed.sum() == pytest.approx(1, abs=1e-15)
    filtered, plain = laws.completed_law([kept, kept]), laws.completed_law([P, P])
    assert tv(mixed.reshape(-1), filtered) == pytest.approx(0.26, abs=1e-12)
    assert tv(mixed.reshape(-1), plain) == pytest.approx(0.13, abs=1e-12)
    by_first = mixed[:, 2:].sum(axis=1) / mixed.sum(axis=1)  # second token outside the filter
    np.testing.assert_allclose(by_first, [0.04, 0.4 / 3, 0.2 / 3, 0.0], rtol=0, atol=1e-15)


def test_a_long_joint_law_is_lossless_too() -> None:
    rng, vocab, k = np.random.default_rng(11), 16, 4
    targets = [rng.dirichlet(np.ones(vocab), vocab**j) for j in range(k + 1)]
    drafts = [rng.dirichlet(np.ones(vocab), vocab**j) for j in range(k)]
    expected = laws.completed_law(targets)
    for one_hot in (False, True):
        rule = laws.completed_law_of_rule(targets, drafts, one_hot=one_hot)
        assert tv(rule, expected) < 1e-15


def test_marginals_of_a_large_vocabulary_need_no_joint_law() -> None:
    vocab = 20_000
    p = np.random.default_rng(5).dirichlet(np.ones(vocab))[None]
    tables = [p] * 4
    np.testing.assert_allclose(laws.completed_marginal(tables, 3), p[0], rtol=1e-14)
    for call in (
        lambda: laws.completed_law(tables),
        lambda: laws.completed_law_of_rule(tables, tables[:3], one_hot=False),
    ):
        with pytest.raises(ValueError, match=r"^target_tables: got a joint law of .* cells"):
            call()
    with pytest.raises(ValueError, match=r"^completed_pair: got a joint law"):
        laws.completed_pair(tables, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: laws.completed_law([]), r"^target_tables: got no table"),
        (lambda: laws.completed_law([P * 2]), r"^target_tables\[0\]: got a row that sums to 2"),
        (lambda: laws.completed_marginal([P, P], 2), r"^j: got 2"),
        (lambda: laws.completed_pair([P, P], 1), r"^j: got 1"),
        (lambda: laws.completed_pair([P], 0), r"^j: got 0"),
        (lambda: laws.completed_law_of_rule([P], [Q], one_hot=True), r"^draft_tables: got 1 table"),
        (
            lambda: laws.completed_law_of_rule([P, P], [Q], one_hot=True, placeholders=[2]),
            r"^placeholders: got 2",
        ),
    ],
)
def test_bad_input_is_named(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
