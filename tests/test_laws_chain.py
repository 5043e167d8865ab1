"""The joint law of a verified chain and its marginals, against enumeration in fractions."""

from __future__ import annotations

import itertools

import laws_oracle as oracle
import numpy as np
import pytest

from specverify import laws

SIZES = [(2, 0), (4, 1), (3, 2), (2, 3), (3, 3), (4, 3)]
PLACEHOLDERS = [(), (0,), (1,), (2, 1), (2,)]
CASES = [
    pytest.param(kind, vocab, k, holes, one_hot, id=f"{kind}-V{vocab}-k{k}-{holes}-{one_hot}")
    for kind in oracle.KINDS
    for vocab, k in SIZES
    for holes in PLACEHOLDERS
    for one_hot in (False, True)
    if max(holes, default=-1) < k
]


def enumerated(law: oracle.Outcomes, vocab: int, k: int, slots: int) -> np.ndarray:
    joint = np.zeros((vocab,) * slots + (k + 1, vocab))
    for (path, length, y), weight in law.items():
        joint[(*path, length, y)] = float(weight)
    return joint


def reached_slot(joint: np.ndarray, j: int, slots: int) -> np.ndarray:
    """[V (draft at j), k + 1, V]: the joint law with all drafts but the one at j summed out."""
    return joint.sum(axis=tuple(i for i in range(slots) if i != j))


@pytest.mark.parametrize(("kind", "vocab", "k", "holes", "one_hot"), CASES)
def test_every_marginal_equals_enumeration(
    kind: str, vocab: int, k: int, holes: tuple[int, ...], one_hot: bool
) -> None:
    targets, drafts = oracle.case(kind, vocab, k)
    slots = min(holes, default=k)
    joint = enumerated(oracle.outcomes(targets, drafts, one_hot, holes), vocab, k, slots)
    got = laws.chain_outcome_law(
        oracle.arrays(targets), oracle.arrays(drafts), one_hot=one_hot, placeholders=holes
    )

    def same(actual: np.ndarray, expected: np.ndarray) -> None:
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-15)

    same(got.joint().reshape(joint.shape), joint)
    assert got.joint().sum() == pytest.approx(1, abs=1e-14)
    by_last = joint.sum(axis=tuple(range(slots)))
    same(got.length_law(), by_last.sum(axis=1))
    for j in range(k + 1):
        same(got.last_token_law(j), by_last[j])
    for j in range(slots):
        by_draft = reached_slot(joint, j, slots)
        same(got.stopped_law(j), by_draft[:, j])
        rejected_accepted = [by_draft[:, j].sum(axis=1), by_draft[:, j + 1 :].sum(axis=(1, 2))]
        same(got.accept_by_draft(j), np.stack(rejected_accepted, axis=1))
    for j in range(slots, k):
        assert not got.stopped_law(j).any()
        assert not got.accept_by_draft(j).any()


@pytest.mark.parametrize("kind", oracle.KINDS)
def test_accept_iff_equal_has_the_one_hot_law(kind: str) -> None:
    targets, drafts = oracle.case(kind, 3, 2)
    match = enumerated(oracle.outcomes_of_match(targets, drafts), 3, 2, 2)
    got = laws.chain_outcome_law(oracle.arrays(targets), oracle.arrays(drafts), one_hot=True)
    np.testing.assert_allclose(got.joint().reshape(match.shape), match, rtol=0, atol=2e-15)


@pytest.mark.parametrize("kind", oracle.KINDS)
@pytest.mark.parametrize(("vocab", "k"), SIZES)
def test_draft_path_law_equals_enumeration(kind: str, vocab: int, k: int) -> None:
    _, drafts = oracle.case(kind, vocab, k)
    got = laws.draft_path_law(oracle.arrays(drafts))
    assert got.shape == (vocab,) * k
    for path, weight in oracle.paths(drafts, k, vocab):
        assert got[path] == pytest.approx(float(weight), abs=1e-15)


@pytest.mark.parametrize(("one_hot", "rate"), [(False, 0.65), (True, 0.265)])
def test_expected_length_of_equal_rows_is_leviathans(one_hot: bool, rate: float) -> None:
    p, q, k = np.array([[0.5, 0.3, 0.15, 0.05]]), np.array([[0.4, 0.1, 0.1, 0.4]]), 5
    rule = laws.acceptance_one_hot if one_hot else laws.acceptance_ratio
    assert rule(p[0], q[0]) == pytest.approx(rate, abs=1e-15)
    law = laws.chain_outcome_law([p] * (k + 1), [q] * k, one_hot=one_hot).length_law()
    np.testing.assert_allclose(law[:-1], rate ** np.arange(k) * (1 - rate), rtol=0, atol=1e-15)
    tokens = (1 - rate ** (k + 1)) / (1 - rate)
    assert laws.expected_accepted(law) + 1 == pytest.approx(tokens, abs=1e-14)


def test_equal_rows_accept_everything_and_disjoint_rows_nothing() -> None:
    for kind, length in (("equal", 3), ("disjoint", 0)):
        targets, drafts = map(oracle.arrays, oracle.case(kind, 4, 3))
        law = laws.chain_outcome_law(targets, drafts, one_hot=False).length_law()
        np.testing.assert_allclose(law, np.eye(4)[length], rtol=0, atol=1e-14)


@pytest.mark.parametrize("one_hot", [False, True])
def test_a_chain_too_large_to_write_out_has_its_marginals(one_hot: bool) -> None:
    rng, vocab, k = np.random.default_rng(7), 16, 4
    targets = [rng.dirichlet(np.ones(vocab), vocab**j) for j in range(k + 1)]
    drafts = [rng.dirichlet(np.ones(vocab), vocab**j) for j in range(k)]
    law = laws.chain_outcome_law(targets, drafts, one_hot=one_hot)
    length = law.length_law()
    assert length.sum() == pytest.approx(1, abs=1e-13)
    reached = 1.0
    for j in range(k):
        by_draft = law.accept_by_draft(j)
        assert by_draft.sum() == pytest.approx(reached, abs=1e-13)
        stopped = law.stopped_law(j)
        np.testing.assert_allclose(stopped.sum(axis=1), by_draft[:, 0], rtol=0, atol=1e-15)
        np.testing.assert_allclose(stopped.sum(axis=0), law.last_token_law(j), rtol=0, atol=1e-15)
        reached = by_draft[:, 1].sum()
    assert length[k] == pytest.approx(reached, abs=1e-14)


def test_a_large_vocabulary_with_shared_rows_is_cheap() -> None:
    vocab = 50_000
    p, q = np.random.default_rng(3).dirichlet(np.ones(vocab), 2)[:, None]
    law = laws.chain_outcome_law([p, p, p], [q, q], one_hot=False)
    rate = laws.acceptance_ratio(p[0], q[0])
    expected = [1 - rate, rate * (1 - rate), rate**2]
    np.testing.assert_allclose(law.length_law(), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(law.last_token_law(2), rate**2 * p[0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(
        law.accept_by_draft(0)[:, 1], np.minimum(p, q)[0], rtol=0, atol=1e-18
    )
    with pytest.raises(ValueError, match=r"^stopped_law: got a joint law of 2500000000 cells"):
        law.stopped_law(0)
    with pytest.raises(ValueError, match=r"^joint: "):
        law.joint()
    with pytest.raises(ValueError, match=r"^draft_tables: got a joint law"):
        laws.draft_path_law([q, q])


GOOD_P, GOOD_Q = [[[0.5, 0.5]], [[0.5, 0.5]] * 2], [[[0.5, 0.5]]]


@pytest.mark.parametrize(
    ("targets", "drafts", "holes", "message"),
    [
        ([], [], (), r"^target_tables: got no table"),
        (GOOD_P, [], (), r"^draft_tables: got 0 tables; expected 1"),
        (GOOD_P, GOOD_Q * 2, (), r"^draft_tables: got 2 tables"),
        ([GOOD_P[0], [[0.5, 0.5]] * 3], GOOD_Q, (), r"^target_tables\[1\]: got shape \[3, 2\]"),
        ([GOOD_P[0], [[1.0]]], GOOD_Q, (), r"^target_tables\[1\]: got shape \[1, 1\]"),
        ([[0.5, 0.5], GOOD_P[1]], GOOD_Q, (), r"^target_tables\[0\]: got shape \[2\]"),
        ([[[0.7, 0.5]], GOOD_P[1]], GOOD_Q, (), r"^target_tables\[0\]: got a row that sums to 1.2"),
        (GOOD_P, [[[1.0, np.nan]]], (), r"^draft_tables\[0\]: got the entry nan"),
        (GOOD_P, [[[1.0]]], (), r"^draft_tables\[0\]: got shape \[1, 1\]"),
        (GOOD_P, [[[2.0, -1.0]]], (), r"^draft_tables\[0\]: got the entry -1"),
        (GOOD_P, GOOD_Q, (1,), r"^placeholders: got 1; expected an integer in \[0, 1\)"),
        (GOOD_P, GOOD_Q, (-1,), r"^placeholders: got -1"),
    ],
)
def test_bad_tables_are_named(
    targets: list, drafts: list, holes: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        laws.chain_outcome_law(targets, drafts, one_hot=False, placeholders=holes)


def test_positions_outside_the_chain_are_named() -> None:
    law = laws.chain_outcome_law(GOOD_P, GOOD_Q, one_hot=False)
    calls = [(law.last_token_law, 2), (law.accept_by_draft, 1), (law.stopped_law, 1)]
    for (method, end), sign in itertools.product(calls, (True, False)):
        with pytest.raises(ValueError, match=r"^j: got "):
            method(end if sign else -1)
