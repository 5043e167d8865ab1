"""Edges of the statistics on which a nearly right formula differs from the right one."""

from __future__ import annotations

import numpy as np
import pytest
from evidence_cases import uniform_law
from scipy import stats

from specverify.evidence import binomial_test, cressie_read, pearson, pool, validate
from specverify.evidence.goodness_of_fit import power_divergence


def test_only_a_law_with_excluded_cells_has_zeros() -> None:
    assert not pool([0.25] * 4, 100).has_zeros
    assert pool([0.5, 0.5, 0.0], 100).has_zeros


def test_a_single_draw_can_be_pooled_too() -> None:
    """floor / n is the share of a group; n = 1 is no special case, n = 0 counts as 1."""
    assert pool([0.25] * 4, 1, 0.4).index.tolist() == [0, 0, 1, 1]
    assert pool([0.25] * 4, 0, 0.4).index.tolist() == [0, 0, 1, 1]
    assert pool([0.25] * 4, 2, 0.4).cells == 4


def test_two_groups_that_reach_the_floor_are_left_as_they_are() -> None:
    """Cutting in two near one half is for a single group; these two would be 0.4 and 0.6."""
    assert pool([0.1, 0.15, 0.15, 0.6], 100).index.tolist() == [0, 0, 1, 1]


def test_a_single_group_is_cut_as_near_to_one_half_as_it_can_be() -> None:
    assert pool(uniform_law(4), 0).index.tolist() == [0, 0, 1, 1]
    assert pool([0.1, 0.2, 0.3, 0.4], 1).index.tolist() == [0, 0, 0, 1]
    np.testing.assert_allclose(pool([0.1, 0.2, 0.3, 0.4], 1).p, [0.6, 0.4], rtol=1e-15)


def test_a_law_as_far_off_as_may_be_is_taken_and_a_wrong_count_is_pointed_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(validate, "MASS_TOLERANCE", 0.25)
    np.testing.assert_allclose(validate.law("p", [0.5, 0.75]), [0.4, 0.6])  # exact in binary
    with pytest.raises(ValueError, match=r"^counts\[2\]: got -2; expected a count >= 0$"):
        validate.table("counts", [0, 1, -2], 3)


def test_pooled_laws_sum_to_one() -> None:
    assert pool([0.1] * 10, 10**4).p.sum() == pytest.approx(1, abs=1e-15)


def test_two_cells_take_the_binomial_law_and_three_the_chi_square_tail() -> None:
    two = cressie_read([40, 60], [0.3, 0.7], alpha=0.01)
    assert two.p_value == binomial_test(40, 100, 0.3, alpha=0.01).p_value
    three = pearson([40, 35, 45], [0.3, 0.3, 0.4], alpha=0.01)
    assert three.p_value == pytest.approx(stats.chi2.sf(three.value, 2), rel=1e-12)
    assert cressie_read([1, 0], [0.001, 0.999], alpha=0.01).p_value == pytest.approx(0.002)


def test_after_an_impossible_draw_the_rest_is_compared_by_itself() -> None:
    found = cressie_read([50, 40, 3], [0.5, 0.5, 0.0], alpha=0.01, power=0.9)
    theirs = stats.power_divergence([50, 40], [45, 45], lambda_="cressie-read").statistic
    assert found.value == pytest.approx(theirs, rel=1e-12)
    assert (found.trials, found.zero_hits, found.power, found.merged_mass) == (93, 3, 0.9, 0.0)
    merged = pearson([5, 0, 0], [0.9, 0.05, 0.05], alpha=0.01)
    assert merged.merged_mass == pytest.approx(0.1)
    assert (merged.power, merged.alpha) == (0.999, 0.01)


@pytest.mark.parametrize("exponent", [0.0, 2 / 3, 1.0, 2.0])
def test_cells_seen_once_or_never_count_as_well(exponent: float) -> None:
    counts, expected = np.array([1, 0, 9, 10]), np.array([4.0, 3.0, 6.0, 7.0])
    theirs = stats.power_divergence(counts, expected, lambda_=exponent).statistic
    assert power_divergence(counts, expected, exponent) == pytest.approx(theirs, rel=1e-12)
    assert power_divergence(expected.astype(int), expected, exponent) == 0.0
