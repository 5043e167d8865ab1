"""The exact test of a rate: valid for every n and level, and its promise kept exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specverify.evidence import (
    binomial_detectable,
    binomial_test,
    binomial_trials_needed,
    clopper_pearson,
)
from specverify.evidence.binomial import two_sided_p_value, zero_hit_tv

rates = st.floats(1e-6, 1 - 1e-6)
levels = st.floats(-12, -0.3).map(lambda x: 10**x)


@given(st.integers(1, 300), rates, levels)
def test_p_values_are_valid(n, rate, level):
    x = np.arange(n + 1)
    values = np.array([two_sided_p_value(int(k), n, rate) for k in x])
    assert stats.binom.pmf(x, n, rate)[values <= level].sum() <= level * (1 + 1e-9)


@given(st.integers(0, 500), st.integers(0, 500), rates)
def test_p_value_doubles_the_smaller_tail_of_scipy(a, b, rate):
    n = a + b
    found = binomial_test(a, n, rate, alpha=0.01)
    if n:
        sides = (stats.binomtest(a, n, rate, alternative=s).pvalue for s in ("less", "greater"))
        assert found.p_value == pytest.approx(min(1, 2 * min(sides)), rel=1e-9, abs=1e-300)
        assert found.value == a / n
    else:
        assert (found.p_value, found.value, found.detectable_tv) == (1.0, rate, 1.0)


def test_far_tails_at_a_thousand_million_trials():
    n = 10**9
    found = binomial_test(n // 2 + 100_000, n, 0.5, alpha=1e-9)
    assert found.p_value == pytest.approx(2 * stats.norm.sf(2e5 / np.sqrt(n)), rel=1e-3)
    assert found.rejected
    assert found.detectable_tv == pytest.approx(1.455e-4, rel=1e-3)


def power_at(rate, n, alpha, truth):
    x = np.arange(n + 1)
    rejected = np.array([two_sided_p_value(int(k), n, rate) <= alpha for k in x])
    return float(stats.binom.pmf(x, n, truth)[rejected].sum())


@given(st.integers(5, 150), rates, st.floats(1e-6, 0.2), st.floats(0.3, 0.999))
@settings(max_examples=60, deadline=None)
def test_the_promise_is_kept_exactly(n, rate, alpha, power):
    """Every rate at the detectable distance or beyond is rejected with this probability."""
    deviation = binomial_detectable(rate, n, alpha, power)
    for truth in (rate - deviation, rate + deviation, rate - 1.3 * deviation):
        if 0 <= truth <= 1:
            assert power_at(rate, n, alpha, truth) >= power - 1e-9


@given(st.integers(40, 150), st.floats(0.2, 0.8), st.floats(1e-4, 0.2), st.floats(0.5, 0.99))
@settings(max_examples=40, deadline=None)
def test_no_smaller_deviation_could_be_promised(n, rate, alpha, power):
    deviation = 0.98 * binomial_detectable(rate, n, alpha, power)
    truths = [truth for truth in (rate - deviation, rate + deviation) if 0 <= truth <= 1]
    assert min(power_at(rate, n, alpha, truth) for truth in truths) < power


@given(st.floats(0, 1), st.floats(1e-3, 0.5), levels, st.floats(0.3, 0.9999), st.floats(1, 2))
@settings(max_examples=100, deadline=None)
def test_planned_trials_detect_there_and_above(rate, deviation, alpha, power, factor):
    n = binomial_trials_needed(rate, deviation, alpha, power)
    assert binomial_detectable(rate, n, alpha, power) <= deviation
    assert binomial_detectable(rate, int(n * factor), alpha, power) <= deviation


def test_planned_trials_are_few():
    # the normal approximation of the same two-sided test
    z = stats.norm.isf(5e-10) + stats.norm.ppf(0.999)
    assert binomial_trials_needed(0.5, 0.01, 1e-9, 0.999) == pytest.approx(
        (z / 0.02) ** 2, rel=0.01
    )
    assert binomial_trials_needed(1e-7, 0.01, 1e-9, 0.999) < 1500


@pytest.mark.parametrize(("rate", "wrong"), [(0.0, 1), (1.0, 99)])
def test_certain_rates_are_exact(rate, wrong):
    found = binomial_test(wrong, 100, rate, alpha=1e-9)
    assert (found.p_value, found.zero_hits, found.rejected, found.cells) == (0.0, 1, True, 1)
    clean = binomial_test(int(100 * rate), 100, rate, alpha=1e-9)
    assert (clean.p_value, clean.zero_hits, clean.rejected) == (1.0, 0, False)
    assert clean.detectable_tv == pytest.approx(1 - 0.001**0.01)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_certain_rate_needs_one_hit_on_the_other_side(rate):
    assert binomial_trials_needed(rate, 0.1, 0.01, 0.9) == 22  # ln 0.1 / ln 0.9 = 21.9
    for n in range(2, 100):  # rounding must not leave the promise one unit above the deviation
        deviation = np.nextafter(zero_hit_tv(n, 0.9), 0)
        needed = binomial_trials_needed(rate, float(deviation), 0.01, 0.9)
        assert zero_hit_tv(needed, 0.9) <= deviation < zero_hit_tv(needed - 1, 0.9)
    just = [binomial_trials_needed(rate, zero_hit_tv(n, 0.9), 0.01, 0.9) for n in range(2, 100)]
    assert min(np.array(just) - np.arange(2, 100)) == 0


def test_blind_tests_say_so():
    assert binomial_detectable(0.5, 3, 1e-6, 0.9) == 1.0
    assert binomial_detectable(0.5, 0, 1e-6, 0.9) == 1.0
    # nothing lies below a tiny rate that could be missed by more than the rate itself
    assert binomial_detectable(1e-7, 10**5, 1e-9, 0.999) < 3e-4
    # no count rejects upwards: the whole upper side is missed
    assert binomial_detectable(0.99, 50, 1e-3, 0.5) > 0.01
    assert binomial_detectable(0.7, 8, 0.05, 0.05) == pytest.approx(0.3, abs=1e-12)
    # a single failure rejects
    assert binomial_detectable(0.999, 10, 0.05, 0.9) == pytest.approx(0.999 - 0.1**0.1, rel=1e-9)


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.3, 0.97, 1.0])
def test_intervals_cover(rate):
    n = 60
    x = np.arange(n + 1)
    limits = [clopper_pearson(int(k), n, 0.9) for k in x]
    covered = np.array([low <= rate <= high for low, high in limits])
    assert stats.binom.pmf(x, n, rate)[covered].sum() >= 0.9
    for k in (0, 7, n):
        theirs = stats.binomtest(k, n).proportion_ci(0.9)
        assert limits[k] == pytest.approx((theirs.low, theirs.high), abs=1e-9)
    assert clopper_pearson(0, 0) == (0.0, 1.0)
