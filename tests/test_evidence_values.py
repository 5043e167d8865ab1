"""Whole records of the tests of counts, every field from its formula by other means."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evidence_cases import uniform_law
from evidence_records import lambda_of, same
from scipy import optimize, stats

from specverify import evidence
from specverify.evidence.binomial import _detectable
from specverify.evidence.contingency import _statistic
from specverify.evidence.goodness_of_fit import power_divergence
from specverify.evidence.power import _TWO_CELL_RATES, _miss, pooled_detectable_tv


def by_enumeration(rate: float, n: int, alpha: float, power: float) -> float:
    """The deviation of a rate that is rejected with this power, from the binomial law itself."""
    x = np.arange(n + 1)
    high = 2 * stats.binom.sf(x - 1, n, rate) <= alpha
    low = 2 * stats.binom.cdf(x, n, rate) <= alpha

    def lacking(truth: float, rejected: np.ndarray) -> float:
        return float(stats.binom.pmf(x, n, truth)[rejected].sum()) - power

    up = optimize.brentq(lacking, rate, 1, (high,), xtol=1e-13) - rate
    return max(up, rate - optimize.brentq(lacking, 0, rate, (low,), xtol=1e-13))


def test_cressie_read_and_pearson() -> None:
    counts, p = [40, 35, 45], [0.3, 0.3, 0.4]
    common = {"alpha": 0.01, "trials": 120, "cells": 3, "power": 0.9, "zero_hits": 0}
    common |= {"merged_mass": 0.0, "detectable_tv": math.sqrt(lambda_of(3, 0.01, 0.9) / 480)}
    for name, rule in (("cressie-read", evidence.cressie_read), ("pearson", evidence.pearson)):
        theirs = stats.power_divergence(counts, [36, 36, 48], lambda_=name)
        value, tail = float(theirs.statistic), float(theirs.pvalue)
        same(rule(counts, p, alpha=0.01, power=0.9), statistic=name, value=value, p_value=tail,
             **common)  # fmt: skip
    assert evidence.pearson(counts, p, alpha=0.01).power == 0.999


def test_a_far_tail_is_the_larger_of_the_two() -> None:
    p = np.array([0.001, 0.001, 0.998])
    for counts in ([52, 20, 19928], [60, 20, 19920], [20, 75, 19905]):
        found = evidence.cressie_read(counts, p, alpha=1e-9)
        first, second = (
            float(stats.power_divergence(counts, 20_000 * p, lambda_=name).pvalue)
            for name in ("cressie-read", "log-likelihood")
        )
        assert first < min(1e-4, second)
        assert found.p_value == pytest.approx(min(1e-4, second), rel=1e-9)


def test_the_statistic_of_a_table_of_two_cells_does_not_decide() -> None:
    for counts in ([7, 3], [1, 0], [0, 1], [0, 0]):
        n, x = sum(counts), counts[0]
        found = evidence.pearson(counts, [0.3, 0.7], alpha=0.01)
        tails = stats.binom.cdf(x, n, 0.3), stats.binom.sf(x - 1, n, 0.3)
        assert found.p_value == pytest.approx(min(1.0, 2 * min(tails)), rel=1e-12)


def test_total_variation_and_its_certificate() -> None:
    counts, p, n = [9, 1, 0, 0], [0.5, 0.3, 0.2, 0.0], 10
    x = np.arange(n + 1)
    mean = sum(0.5 * float(stats.binom.pmf(x, n, r) @ np.abs(x / n - r)) for r in p)
    drift = math.sqrt(math.log(1 / 0.05) / 20), math.sqrt(math.log(1 / 0.2) / 20)
    same(
        evidence.tv_test(counts, p, alpha=0.05, power=0.8),
        statistic="total-variation",
        value=0.4,
        p_value=math.exp(-20 * (0.4 - mean) ** 2),
        alpha=0.05,
        trials=10,
        cells=3,
        detectable_tv=min(1.0, mean + sum(drift)),
        power=0.8,
        zero_hits=0,
        merged_mass=0.0,
    )
    assert evidence.tv_threshold(p, n, 0.05) == pytest.approx(mean + drift[0], rel=1e-12)
    assert evidence.tv_detectable(p, 1000, 0.05, 0.8) == pytest.approx(
        evidence.expected_tv(p, 1000) + sum(drift) / 10, rel=1e-12
    )
    same(
        evidence.certificate(counts, p, 0.8),
        tv_observed=0.4,
        tv_upper=0.4 + drift[1],
        confidence=0.8,
    )
    near = evidence.tv_test([5, 3, 2, 0], p, alpha=0.05)
    assert (near.value, near.p_value, near.power) == (pytest.approx(0, abs=1e-16), 1.0, 0.999)
    assert evidence.certificate([9, 1, 0, 0], p, 0.9999).tv_upper == 1.0


def test_a_rate() -> None:
    same(
        evidence.binomial_test(14, 40, 0.25, alpha=0.05, power=0.8),
        statistic="binomial",
        value=0.35,
        p_value=2 * float(stats.binom.sf(13, 40, 0.25)),
        alpha=0.05,
        trials=40,
        cells=2,
        detectable_tv=by_enumeration(0.25, 40, 0.05, 0.8),
        power=0.8,
        zero_hits=0,
        merged_mass=0.0,
    )
    # at n = 10 and alpha 0.01 only none and all reject
    assert evidence.binomial_detectable(0.5, 10, 0.01, 0.9) == pytest.approx(
        0.9**0.1 - 0.5, rel=1e-9
    )
    # at n = 3 the p-value of none and of all is 1/4, the level itself
    assert evidence.binomial_detectable(0.5, 3, 0.25, 0.9) == pytest.approx(
        0.9 ** (1 / 3) - 0.5, rel=1e-9
    )
    certain = evidence.binomial_test(3, 4, 1.0, alpha=0.05)
    assert (certain.value, certain.zero_hits, certain.p_value) == (0.75, 1, 0.0)
    assert (certain.cells, certain.power) == (1, 0.999)


def test_trials_needed_for_what_is_just_detected() -> None:
    """A plan holds at its bound: the trials needed for what n trials detect are no more than n."""
    deviation = _detectable(0.5, 104, 0.01, 0.9, 1)
    assert evidence.binomial_trials_needed(0.5, deviation, 0.01, 0.9) == 104


def test_independence() -> None:
    counts = np.array([[300, 200, 130], [190, 250, 230], [0, 0, 7]])
    rows, columns = [0.5, 0.5, 0.0], [0.3, 0.3, 0.4]
    live = counts[:2]
    theirs = stats.chi2_contingency(live, lambda_="cressie-read", correction=False)
    ratio = stats.chi2_contingency(live, lambda_="log-likelihood", correction=False)
    same(
        evidence.independence(counts, rows, columns, alpha=0.01, power=0.9),
        statistic="cressie-read independence",
        value=float(theirs.statistic),
        p_value=max(float(theirs.pvalue), min(1e-4, float(ratio.pvalue))),
        alpha=0.01,
        trials=1307,
        cells=3,
        detectable_tv=math.sqrt(lambda_of(3, 0.01, 0.9) / (4 * 1307)),
        power=0.9,
        zero_hits=0,
        merged_mass=0.0,
    )
    assert evidence.independence_detectable(
        rows, columns, 1307, alpha=0.01, power=0.9
    ) == pytest.approx(math.sqrt(lambda_of(3, 0.01, 0.9) / (4 * 1307)), rel=1e-9)


def test_independence_of_a_small_table_is_that_of_the_pooled_one() -> None:
    """At n = 135 both margins must expect sqrt(20 n) = 51.96: 67.5 and 67.5, but 40.5 twice."""
    counts, rows, columns = [[30, 20, 10], [10, 25, 40]], [0.5, 0.5], [0.3, 0.3, 0.4]
    found = evidence.independence(counts, rows, columns, alpha=0.01)
    theirs = stats.chi2_contingency([[50, 10], [35, 40]], lambda_=2 / 3, correction=False)
    assert found.value == pytest.approx(theirs.statistic, rel=1e-12)
    assert (found.cells, found.power) == (2, 0.999)
    turned = evidence.independence(np.transpose(counts), columns, rows, alpha=0.01)
    assert (turned.value, turned.cells) == (pytest.approx(found.value, rel=1e-12), 2)
    assert found.detectable_tv == evidence.detectable_tv(2, 135, 0.01, 0.999)
    assert evidence.independence_detectable(
        rows, columns, 135, alpha=0.01, power=0.999
    ) == pytest.approx(found.detectable_tv)
    apart = evidence.independence(counts, rows, columns, alpha=0.01, floor=40.5**2 / 135)
    whole = stats.chi2_contingency(counts, lambda_=2 / 3, correction=False)
    assert (apart.value, apart.cells) == (pytest.approx(whole.statistic, rel=1e-12), 3)
    assert apart.p_value == pytest.approx(
        max(whole.pvalue, min(1e-4, stats.chi2.sf(stats.chi2_contingency(
            counts, lambda_=0, correction=False).statistic, 2))), rel=1e-9)  # fmt: skip


def test_independence_without_a_second_row_or_column_detects_excluded_pairs_only() -> None:
    found = evidence.independence([[60, 0], [40, 0]], [0.5, 0.5], [0.5, 0.5], alpha=0.01)
    assert (found.value, found.p_value, found.cells) == (0.0, 1.0, 1)
    assert found.detectable_tv == pytest.approx(1 - 0.001**0.01, rel=1e-12)
    assert evidence.independence_detectable(
        [1.0], [0.5, 0.5], 50, alpha=0.01, power=0.9
    ) == pytest.approx(1 - 0.1**0.02, rel=1e-12)


def test_a_row_or_column_of_one_pair_counts() -> None:
    counts, law = np.array([[1, 0], [40, 59]]), [0.5, 0.5]
    theirs = stats.chi2_contingency(counts, lambda_=2 / 3, correction=False)
    for table in (counts, counts[:, ::-1], counts.T, counts.T[::-1]):
        found = evidence.independence(table, law, law, alpha=0.01)
        assert (found.value, found.cells) == (pytest.approx(theirs.statistic, rel=1e-9), 2)
    for table in ([[60, 40], [0, 0]], [[0, 60], [0, 40]]):
        assert evidence.independence(table, law, law, alpha=0.01).cells == 1
    few = {"alpha": 0.5, "power": 0.55, "floor": 0.1}
    assert evidence.independence_detectable(
        uniform_law(3), uniform_law(3), 1, **few
    ) == pytest.approx(math.sqrt(lambda_of(5, 0.5, 0.55) / 4), rel=1e-9)


def test_a_moderate_tail_of_a_table_is_taken_as_it_is() -> None:
    for table in ([[30, 20], [20, 30]], [[31, 20, 9], [20, 30, 10]]):
        counts = np.array(table)
        theirs = stats.chi2_contingency(counts, lambda_=2 / 3, correction=False)
        found = _statistic(counts, int(theirs.dof))
        assert found == pytest.approx((theirs.statistic, theirs.pvalue), rel=1e-9)


def test_a_tolerant_test() -> None:
    counts, p, allowed = [80, 120, 200], [0.2, 0.3, 0.5], evidence.Allowance(absolute=0.01)
    value = float(stats.power_divergence(counts, [80, 120, 200], lambda_="cressie-read").statistic)
    assert value == 0
    counts, n = [70, 115, 215], 400
    value = float(stats.power_divergence(counts, [80, 120, 200], lambda_="cressie-read").statistic)
    per_trial = 1e-4 * (1 / 0.2 + 1 / 0.3 + 1 / 0.5)
    limit = stats.ncx2.isf(0.01, 2, n * per_trial)
    needed = optimize.brentq(lambda x: stats.ncx2.sf(limit, 2, x) - 0.9, 1e-6, 1e3, xtol=1e-11)
    same(
        evidence.tolerant_test(counts, p, allowed, alpha=0.01, power=0.9),
        value=value,
        p_value=float(stats.ncx2.sf(value, 2, n * per_trial)),
        alpha=0.01,
        trials=400,
        cells=3,
        lambda0=n * per_trial,
        tv_allowed=0.015,
        zero_hits=0,
        detectable_tv=math.sqrt(needed / (4 * n)),
        power=0.9,
    )


def test_a_tolerant_test_of_two_cells() -> None:
    same(
        evidence.tolerant_test([30, 70], [0.4, 0.6], evidence.Allowance(relative=0.1), alpha=0.01),
        value=float(stats.power_divergence([30, 70], [40, 60], lambda_=2 / 3).statistic),
        p_value=2 * float(stats.binom.cdf(30, 100, 0.36)),
        alpha=0.01,
        trials=100,
        cells=2,
        lambda0=100 * 0.04**2 * (1 / 0.4 + 1 / 0.6),  # the other cell may be off by no more
        tv_allowed=0.04,
        zero_hits=0,
        detectable_tv=0.04
        + max(
            evidence.binomial_detectable(0.36, 100, 0.01, 0.999),
            evidence.binomial_detectable(0.44, 100, 0.01, 0.999),
        ),
        power=0.999,
    )


def test_the_edge_of_a_tolerant_rate_that_is_harder_to_tell_counts() -> None:
    for counts, p in (([10, 90], [0.1, 0.9]), ([90, 10], [0.9, 0.1])):
        found = evidence.tolerant_test(counts, p, evidence.Allowance(absolute=0.05), alpha=0.01)
        by_edge = [evidence.binomial_detectable(rate, 100, 0.01, 0.999) for rate in (0.05, 0.15)]
        assert by_edge[0] < by_edge[1]
        assert found.detectable_tv == pytest.approx(0.05 + by_edge[1], rel=1e-9)


def test_a_single_draw_may_tell_something() -> None:
    found = evidence.tolerant_test([0, 1], [0.1, 0.9], evidence.Allowance(), alpha=0.5, power=0.6)
    assert found.detectable_tv == pytest.approx(0.5, rel=1e-9)  # one success rejects: 0.6 - 0.1


def test_a_far_tolerant_tail_is_the_larger_of_the_two() -> None:
    p, allowed = np.array([0.001, 0.001, 0.998]), evidence.Allowance(absolute=1e-5)
    counts, n = np.array([60, 20, 19920]), 20_000
    lambda0 = n * 1e-10 * float((1 / p).sum())
    ratio = stats.power_divergence(counts, n * p, lambda_=0).statistic
    found = evidence.tolerant_test(counts, p, allowed, alpha=1e-9)
    assert found.lambda0 == pytest.approx(lambda0, rel=1e-9)
    assert stats.ncx2.sf(found.value, 2, lambda0) < found.p_value
    assert found.p_value == pytest.approx(min(1e-4, stats.ncx2.sf(ratio, 2, lambda0)), rel=1e-6)


def test_after_an_excluded_draw_a_tolerant_test_compares_the_rest() -> None:
    found = evidence.tolerant_test(
        [50, 40, 3], [0.5, 0.5, 0.0], evidence.Allowance(absolute=0.01), alpha=0.01
    )
    assert found.value == pytest.approx(power_divergence(np.array([50, 40]), np.full(2, 45), 2 / 3))
    assert (found.trials, found.zero_hits, found.lambda0) == (93, 3, pytest.approx(93 * 4e-4))
    wide = evidence.tolerant_test([3, 4], [0.5, 0.5], evidence.Allowance(relative=0.9), alpha=0.01)
    assert (wide.tv_allowed, wide.p_value, wide.detectable_tv) == (pytest.approx(0.45), 1.0, 1.0)


def test_a_plan_with_tolerance_needs_trials_for_both() -> None:
    assert evidence.tolerant_trials_needed(3, 0.5, 0.0, 0.01, 0.9) == math.ceil(
        lambda_of(3, 0.01, 0.9)
    )
    assert evidence.tolerant_detectable(3, 100, 0.0, 0.01, 0.9) == pytest.approx(
        math.sqrt(lambda_of(3, 0.01, 0.9) / 400), rel=1e-9
    )
    assert evidence.tolerant_detectable(3, 1, 0.0, 0.01, 0.9) == 1.0
    limit = stats.ncx2.isf(0.01, 2, 400)  # a forgiven noncentrality of 1 for each trial
    seen = evidence.tolerant_detectable(3, 400, 1.0, 0.01, 0.9)
    assert stats.ncx2.sf(limit, 2, 1600 * seen**2) == pytest.approx(0.9, rel=1e-6)
    for n in (64, 100):
        tv = evidence.tolerant_detectable(3, n, 1e-6, 0.01, 0.9)
        assert evidence.tolerant_trials_needed(3, tv, 1e-6, 0.01, 0.9) == n
    few = evidence.tolerant_trials_needed(3, 0.999, 1e-6, 0.3, 0.4)
    assert few == 1


def test_plans_by_noncentrality() -> None:
    needed = lambda_of(5, 0.01, 0.9)
    assert evidence.trials_needed(5, 0.1, 0.01, 0.9) == math.ceil(needed / 0.04)
    assert evidence.detectable_tv(5, 700, 0.01, 0.9) == pytest.approx(
        math.sqrt(needed / 2800), rel=1e-9
    )
    two = [evidence.binomial_detectable(rate, 500, 0.01, 0.9) for rate in _TWO_CELL_RATES]
    assert evidence.detectable_tv(2, 500, 0.01, 0.9) == max(two)
    two = [evidence.binomial_trials_needed(rate, 0.1, 0.01, 0.9) for rate in _TWO_CELL_RATES]
    assert evidence.trials_needed(2, 0.1, 0.01, 0.9) == max(two)
    assert evidence.tv_trials_needed([1.0], 0.99, 0.9, 0.05) == 1
    just = evidence.tv_detectable([0.7, 0.3], 50, 0.01, 0.9)
    assert evidence.tv_trials_needed([0.7, 0.3], just, 0.01, 0.9) == 50
    drift = math.sqrt(math.log(100) / 2) + math.sqrt(math.log(10) / 2)
    assert evidence.tv_trials_needed([1.0], 0.1, 0.01, 0.9) == math.ceil(100 * drift**2)
    assert evidence.detectable_tv(1, 10, 0.01, 0.9) == pytest.approx(1 - 0.1**0.1, rel=1e-12)
    for n in range(60, 80):  # what n trials detect, less a rounding, needs one more
        tv = math.nextafter(evidence.detectable_tv(3, n, 0.01, 0.9), 0)
        assert evidence.trials_needed(3, tv, 0.01, 0.9) == n + 1
    just = [evidence.detectable_tv(3, n, 0.01, 0.9) for n in range(60, 80)]
    needed = [evidence.trials_needed(3, tv, 0.01, 0.9) for tv in just]
    assert min(n - m for n, m in zip(needed, range(60, 80), strict=True)) == 0
    for law in (uniform_law(5), [0.25] * 4 + [0.0]):
        n = evidence.trials_needed_for_law(law, 0.1, 0.01, 0.9)
        assert n == evidence.trials_needed(np.count_nonzero(law), 0.1, 0.01, 0.9)
    four = evidence.trials_needed(4, 0.1, 0.01, 0.9)
    assert evidence.trials_needed_for_law([0.3, 0.3, 0.39, 0.01], 0.1, 0.01, 0.9, floor=1) == four


def test_where_the_library_gives_up_the_middle_of_the_law_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = [(df, extra, q) for df, extra in ((50, 30), (200, 100)) for q in (0.5, 0.99)]
    cases += [(20, 300, 0.3), (20, 300, 0.9)]
    limits = [stats.ncx2.ppf(q, df, extra) for df, extra, q in cases]
    monkeypatch.setattr(stats.ncx2, "cdf", lambda *_: math.nan)
    found = [_miss(limit, df, extra) for limit, (df, extra, _) in zip(limits, cases, strict=True)]
    assert found == pytest.approx([q for _, _, q in cases], rel=1e-4)
    # and the formula is Sankaran's, in his letters, also where it is not very good
    x, v, b = 9.0, 3, 4.0
    h, p = 1 - 2 * (v + b) * (v + 3 * b) / (3 * (v + 2 * b) ** 2), (v + 2 * b) / (v + b) ** 2
    m = (h - 1) * (1 - 3 * h)
    z = (x / (v + b)) ** h - 1 - h * p * (h - 1 - (2 - h) * m * p / 2)
    z /= h * math.sqrt(2 * p) * (1 + m * p / 2)
    assert _miss(x, v, b) == pytest.approx(stats.norm.cdf(z), rel=1e-12)


def test_excluded_cells_and_a_single_one_are_part_of_the_promise() -> None:
    """Ten draws of a fair coin tell at most 1/2; that none is outside it takes 0.6 to tell."""
    excluded = evidence.pool([0.5, 0.5, 0.0], 10)
    assert pooled_detectable_tv(excluded, 10, 0.4, 0.9999) == pytest.approx(1 - 1e-4**0.1)
    assert pooled_detectable_tv(evidence.pool([0.5, 0.5], 10), 10, 0.4, 0.9999) <= 0.5
    single = evidence.pool([1.0], 5)
    assert pooled_detectable_tv(single, 5, 0.01, 0.9) == pytest.approx(1 - 0.1**0.2, rel=1e-12)


def test_a_plan_counts_the_cells_that_rounding_up_to_batches_would_add() -> None:
    three, four = (evidence.trials_needed(k, 0.1, 0.01, 0.9) for k in (3, 4))
    rare = 20 / (1.02 * three)  # a cell of its own from 2 % more trials on
    law = [rare, 0.3, 0.3, 0.4 - rare]
    assert evidence.trials_needed_for_law(law, 0.1, 0.01, 0.9, slack=0.0) == three < four
    assert evidence.trials_needed_for_law(law, 0.1, 0.01, 0.9, slack=0.05) == four
