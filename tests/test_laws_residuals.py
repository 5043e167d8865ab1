"""The recovered token's law and the acceptance numbers, against worked values and identities."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from specverify import laws

P = np.array([0.5, 0.3, 0.15, 0.05])
Q = np.array([0.4, 0.1, 0.1, 0.4])


@st.composite
def two_rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two distributions over one vocabulary, zeros and ties likely."""
    vocab = draw(st.integers(1, 6))
    weights = hnp.arrays(np.int64, (2, vocab), elements=st.integers(0, 5))
    rows = draw(weights.filter(lambda w: bool((w.sum(axis=1) > 0).all()))).astype(float)
    rows /= rows.sum(axis=1, keepdims=True)
    return rows[0], rows[1]


def test_residual_of_a_worked_example() -> None:
    np.testing.assert_allclose(laws.residual(P, Q), np.array([2, 4, 1, 0]) / 7, rtol=0, atol=1e-15)


def test_residual_of_equal_rows_is_p() -> None:
    np.testing.assert_array_equal(laws.residual(P, P), P)


def test_residual_broadcasts_rows() -> None:
    both = laws.residual(np.stack([P, Q]), Q)
    np.testing.assert_array_equal(both, np.stack([laws.residual(P, Q), Q]))


def test_residual_one_hot_removes_only_the_draft() -> None:
    got = laws.residual_one_hot(np.stack([P, P]), [0, 3])
    np.testing.assert_allclose(got[0], [0, 0.6, 0.3, 0.1], rtol=0, atol=1e-15)
    np.testing.assert_allclose(got[1], np.array([0.5, 0.3, 0.15, 0]) / 0.95, rtol=0, atol=1e-15)


def test_residual_one_hot_of_a_sure_draft_is_p() -> None:
    np.testing.assert_array_equal(laws.residual_one_hot([0.0, 1.0], 1), [0.0, 1.0])


@settings(deadline=None, derandomize=True)
@given(two_rows())
def test_one_ratio_step_emits_p(rows: tuple[np.ndarray, np.ndarray]) -> None:
    p, q = rows
    accepted = np.minimum(p, q)
    emitted = accepted + (1 - accepted.sum()) * laws.residual(p, q)
    np.testing.assert_allclose(emitted, p, rtol=0, atol=1e-14)


@settings(deadline=None, derandomize=True)
@given(two_rows())
def test_acceptance_identities(rows: tuple[np.ndarray, np.ndarray]) -> None:
    p, q = rows
    assert laws.acceptance_ratio(p, q) == pytest.approx(1 - laws.total_variation(p, q), abs=1e-14)
    by_draft = [q[d] * laws.accept_probability(p, d, q) for d in range(p.size)]
    assert sum(by_draft) == pytest.approx(laws.acceptance_ratio(p, q), abs=1e-14)
    by_draft = [q[d] * laws.accept_probability(p, d) for d in range(p.size)]
    assert sum(by_draft) == pytest.approx(laws.acceptance_one_hot(p, q), abs=1e-14)
    greedy = np.eye(p.size)[q.argmax()]
    for rule in (laws.acceptance_one_hot, laws.acceptance_ratio):
        assert rule(p, greedy) == laws.acceptance_greedy(p, q)
    # Not seeing q costs acceptance, never gains any.
    assert laws.acceptance_one_hot(p, q) <= laws.acceptance_ratio(p, q) + 1e-14


@settings(deadline=None, derandomize=True)
@given(two_rows(), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_static_ensemble_accepts_what_its_own_law_overlaps(
    rows: tuple[np.ndarray, np.ndarray], w: float
) -> None:
    p, q = rows
    mixed = laws.static_ensemble_law(p, q, w)
    accepted = 1 - w * laws.total_variation(p, q)
    assert laws.acceptance_ratio(mixed, q) == pytest.approx(accepted, abs=1e-14)


def test_static_ensemble_of_weight_one_is_the_target() -> None:
    np.testing.assert_array_equal(laws.static_ensemble_law(P, Q, 1.0), P)


def test_greedy_draft_takes_the_lowest_id_on_ties() -> None:
    assert laws.acceptance_greedy(P, Q) == P[0]  # q is tied between tokens 0 and 3


def test_acceptance_works_on_whole_tables() -> None:
    p, q = np.stack([P, Q]), np.stack([Q, Q])
    np.testing.assert_allclose(laws.acceptance_ratio(p, q), [0.65, 1.0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(laws.total_variation(p, Q), [0.35, 0.0], rtol=0, atol=1e-15)
    np.testing.assert_array_equal(laws.acceptance_greedy(p, Q), [0.5, 0.4])


@pytest.mark.parametrize(("draft", "expected"), [(0, 1.0), (1, 0.5), (2, 1.0), (3, 0.0), (4, 0.0)])
def test_accept_probability_at_the_edges(draft: int, expected: float) -> None:
    p = [0.5, 0.25, 0.25, 0.0, 0.0]
    q = [0.25, 0.5, 0.0, 0.25, 0.0]  # token 2 cannot be drafted, nor can 4, which p excludes too
    assert laws.accept_probability(p, draft, q) == expected


def test_accept_probability_survives_a_ratio_that_overflows() -> None:
    assert laws.accept_probability([0.5, 0.5], 0, [5e-324, 1.0]) == 1.0


def test_expected_accepted() -> None:
    assert laws.expected_accepted([0.5, 0.25, 0.25]) == 0.75
    assert laws.expected_accepted([1.0]) == 0.0


BAD_ROWS = {
    "negative": [1.5, -0.5],
    "nan": [np.nan, 1.0],
    "infinite": [np.inf, 0.0],
    "mass": [0.5, 0.4],
    "scalar": 1.0,
    "empty": [],
    "ragged": [[0.5, 0.5], [1.0]],
    "words": ["a", "b"],
}


@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=BAD_ROWS.keys())
@pytest.mark.parametrize(
    "law",
    [
        laws.residual,
        laws.total_variation,
        laws.acceptance_ratio,
        laws.acceptance_one_hot,
        laws.acceptance_greedy,
        lambda p, q: laws.static_ensemble_law(p, q, 0.5),
    ],
)
def test_bad_rows_are_named(law: object, bad: object) -> None:
    with pytest.raises(ValueError, match=r"^p: got .*; expected "):
        law(bad, [0.5, 0.5])  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"^q: got .*; expected "):
        law([0.5, 0.5], bad)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: laws.residual(P, Q[None, :2] * 2), r"^q: "),
        (lambda: laws.residual(np.stack([P] * 2), np.stack([Q] * 3)), r"^q: .*broadcasts to p's"),
        (lambda: laws.residual_one_hot(P, [0]), r"^draft_ids: got \[1\]"),
        (lambda: laws.residual_one_hot(P, 4), r"^draft_ids: got the id 4"),
        (lambda: laws.residual_one_hot(P, -1), r"^draft_ids: got the id -1"),
        (lambda: laws.residual_one_hot(P, 1.0), r"^draft_ids: .*float64"),
        (lambda: laws.residual_one_hot([0.5], 0), r"^p: "),
        (lambda: laws.accept_probability(P[None], 0), r"^p_row: got shape \[1, 4\]"),
        (lambda: laws.accept_probability(P, 4), r"^draft: got 4"),
        (lambda: laws.accept_probability(P, 0.5), r"^draft: got float"),  # type: ignore[arg-type]
        (lambda: laws.accept_probability(P, 0, [0.5, 0.5]), r"^q_row: got shape \[2\]"),
        (lambda: laws.accept_probability(P, 0, [0.5] * 4), r"^q_row: got a row that sums to 2"),
        (lambda: laws.static_ensemble_law(P, Q, 1.5), r"^w: got 1.5"),
        (lambda: laws.static_ensemble_law(P, Q, float("nan")), r"^w: got nan"),
        (lambda: laws.expected_accepted([[1.0]]), r"^length_law: got shape \[1, 1\]"),
    ],
)
def test_other_bad_input_is_named(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
