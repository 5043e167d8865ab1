"""Edges of the laws that a wrong formula would pass elsewhere: many rows, and rounded rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from specverify import laws
from specverify.laws import completed
from specverify.laws.steps import StepLaw

P = np.array([[0.5, 0.25, 0.25], [0.125, 0.5, 0.375]])
Q = np.array([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25]])

# By hand, row by row: 1/2 sum |p - q|, sum min(p, q), sum p q and p[argmax q].
RATES: list[tuple[Callable[..., np.ndarray], list[float]]] = [
    (laws.total_variation, [0.25, 0.375]),
    (laws.acceptance_ratio, [0.75, 0.625]),
    (laws.acceptance_one_hot, [0.3125, 0.28125]),
    (laws.acceptance_greedy, [0.25, 0.125]),
]


@pytest.mark.parametrize(("rate", "by_hand"), RATES)
def test_every_row_has_its_own_rate(rate: Callable[..., np.ndarray], by_hand: list[float]) -> None:
    np.testing.assert_array_equal(rate(P, Q), by_hand)
    np.testing.assert_array_equal(rate(P[None], Q[:, None]).shape, (2, 2))
    np.testing.assert_array_equal(rate(P[0], Q), [rate(P[0], Q[0]), rate(P[0], Q[1])])


def test_a_certain_draft_is_not_accepted_more_than_always() -> None:
    rounded = [1 + 2**-21, 0.0]  # within the tolerance of a row
    assert laws.accept_probability(rounded, 0) == 1.0
    assert laws.accept_probability(rounded, 0, [1.0, 0.0]) == 1.0


def test_prefixes_that_no_later_table_tells_apart_are_counted_as_one() -> None:
    """What keeps marginals cheap: only prefixes that a table still looks at have a mass each."""
    shared, by_prefix = P[:1, :2] / 0.75, np.array([[0.5, 0.5], [0.25, 0.75]])
    by_pair = np.array([[0.5, 0.5]] * 4)
    law = laws.chain_outcome_law([shared, by_prefix, by_pair], [shared, by_prefix], one_hot=False)
    assert [mass.shape for mass in law._reached] == [(1,), (2,), (4,)]
    # Once no table looks at the prefix any more, one mass is enough again.
    late = laws.chain_outcome_law([shared, by_prefix, shared], [shared, shared], one_hot=False)
    assert [mass.shape for mass in late._reached] == [(1,), (2,), (1,)]
    # After a placeholder at slot 1 the last table is out of reach, so it splits no prefix.
    cut = laws.chain_outcome_law(
        [shared, shared, by_pair], [shared, by_prefix], one_hot=False, placeholders=[1]
    )
    assert [mass.shape for mass in cut._reached] == [(1,), (1,)]


def test_the_rule_that_is_asked_for_is_the_one_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both rules are lossless, so only a lossy one in their place tells which was used."""

    def always(p: np.ndarray, q: np.ndarray) -> StepLaw:
        return StepLaw(q * np.ones_like(p), np.zeros_like(p), np.zeros_like(p))

    p, q = [[0.5, 0.5]], [[0.25, 0.75]]
    lossy, lossless = np.outer(q, p).ravel(), np.outer(p, p).ravel()
    for name, other in (("one_hot_step", False), ("ratio_step", True)):
        with monkeypatch.context() as patch:
            patch.setattr(completed, name, always)
            found = [laws.completed_law_of_rule([p, p], [q], one_hot=x) for x in (other, not other)]
        np.testing.assert_allclose(found, [lossless, lossy], rtol=1e-15)


def test_what_a_placeholder_cuts_off_is_zero_in_its_usual_shape() -> None:
    shared = np.full((1, 3), 1 / 3)
    for one_hot in (True, False):
        law = laws.chain_outcome_law([shared] * 3, [shared] * 2, one_hot=one_hot, placeholders=[0])
        np.testing.assert_array_equal(law.accept_by_draft(1), np.zeros((3, 2)), strict=True)
        np.testing.assert_array_equal(law.stopped_law(0), np.zeros((3, 3)), strict=True)
        np.testing.assert_array_equal(law.last_token_law(2), np.zeros(3), strict=True)
