"""Parts of the statistics by themselves: limits, grids, searches, suspects, allowances."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from evidence_cases import uniform_law
from scipy import stats

from specverify import evidence
from specverify.evidence import accuracy_power as planning
from specverify.evidence import barnard
from specverify.evidence.accuracy_intervals import _tango_score, wilson
from specverify.evidence.confidence import tv_drift
from specverify.evidence.eprocess import _stirling_rest, concentrations
from specverify.evidence.residuals import freeman_tukey


def test_every_test_rejects_at_alpha_itself() -> None:
    found = [
        evidence.pearson([10, 20], [0.5, 0.5], alpha=0.01),
        evidence.tolerant_test([10, 20], [0.5, 0.5], evidence.Allowance(), alpha=0.01),
        evidence.two_sample_test([10, 20], [20, 10], alpha=0.01),
        evidence.compare_paired(1, 2, 3, 9),
    ]
    for one in found:
        assert dataclasses.replace(one, p_value=one.alpha).rejected
        assert not dataclasses.replace(one, p_value=math.nextafter(one.alpha, 1)).rejected
    for one in found[:2]:
        assert dataclasses.replace(one, p_value=1.0, zero_hits=1).rejected


def test_the_score_of_two_rates() -> None:
    x, y = np.array([7, 0, 12, 5]), np.array([3, 0, 15, 9])
    pooled = (x + y) / 27
    with np.errstate(invalid="ignore"):
        usual = (x / 12 - y / 15) ** 2 / (pooled * (1 - pooled) * (1 / 12 + 1 / 15))
    np.testing.assert_allclose(barnard.score(x, y, 12, 15), np.nan_to_num(usual), rtol=1e-12)
    assert barnard.score(1, 0, 1, 1) == 2
    assert barnard.score([[1], [2]], [3, 4, 5], 12, 15).shape == (2, 3)


def test_rows_that_are_looked_at_hold_all_but_a_trifle() -> None:
    ranges = [(n, 0.2, 0.3) for n in range(400, 430)] + [(1000, 0.5, 0.5), (30, 0.0, 1.0)]
    for n, low, high in ranges:
        rows = barnard.rows(n, low, high)
        assert rows.tolist() == list(range(rows[0], rows[-1] + 1))
        assert rows[0] == 0 or stats.binom.cdf(rows[0] - 1, n, low) < 2.5e-13
        assert rows[0] == 0 or stats.binom.cdf(rows[0], n, low) >= 2.5e-13
        assert rows[-1] == n or stats.binom.sf(rows[-1], n, high) <= 2.5e-13
        assert rows[-1] == n or stats.binom.sf(rows[-1] - 1, n, high) > 2.5e-13


def test_rates_are_a_fifth_of_a_standard_error_apart() -> None:
    grid = barnard.rates(0.25, 0.75, 100)
    assert len(grid) == 2 + math.ceil(math.pi / 6 * 20 / 0.2)
    np.testing.assert_allclose(np.diff(np.arcsin(np.sqrt(grid))), math.pi / 6 / 54, rtol=1e-9)
    assert (grid[0], grid[-1]) == (pytest.approx(0.25), pytest.approx(0.75))
    assert (barnard.rates(0.0, 1.0, 9)[0], barnard.rates(0.0, 1.0, 9)[-1]) == (1e-300, 1 - 1e-16)


@pytest.mark.parametrize(("n_a", "n_b"), [(7, 9), (10, 10), (3, 17)])
def test_the_region_of_every_limit_row_by_row(n_a: int, n_b: int) -> None:
    x, y = np.indices((n_a + 1, n_b + 1))
    scores = barnard.score(x, y, n_a, n_b)
    for limit in np.unique(scores[scores > 0]):
        found = barnard.region(n_a, n_b, np.arange(n_a + 1), float(limit))
        inside = (y <= found.low[:, None]) | (y >= found.high[:, None])
        np.testing.assert_array_equal(inside, scores >= limit * (1 - 1e-12))
        assert (found.low < found.high).all()


@pytest.mark.parametrize(("x", "n_a", "y", "n_b"), [(10, 12, 4, 15), (4, 9, 2, 9)])  # z^2 = 1
def test_a_p_value_of_two_rates_by_all_tables(x: int, n_a: int, y: int, n_b: int) -> None:
    tables = np.indices((n_a + 1, n_b + 1))
    scores = barnard.score(*tables, n_a, n_b)
    far = scores >= float(barnard.score(x, y, n_a, n_b)) * (1 - 1e-12)
    low, high = evidence.clopper_pearson(x + y, n_a + n_b, 1 - 1e-9)
    most = max(
        np.outer(
            stats.binom.pmf(np.arange(n_a + 1), n_a, rate),
            stats.binom.pmf(np.arange(n_b + 1), n_b, rate),
        )[far].sum()
        for rate in barnard.rates(low, high, n_a + n_b)
    )
    assert barnard.p_value(x, n_a, y, n_b) == pytest.approx(most + 1e-9 + 1e-12, rel=1e-9)


def test_the_p_values_of_two_rates_at_the_far_and_the_near_end() -> None:
    assert barnard.p_value(0, 900, 900, 900) == pytest.approx(1e-9 + 1e-12, rel=1e-6)
    # all tables but two are at least as far out: a miss of 2**-40, less than what is added
    assert barnard.p_value(1, 20, 1, 21) == 1.0


def test_the_limit_of_a_plan_keeps_alpha_near_the_rate_and_no_less_would() -> None:
    n_a, n_b, rate = 60, 40, 0.3
    reach = 3 * math.sqrt(rate * (1 - rate) / 100)
    grid = barnard.rates(rate - reach, rate + reach, 100)[::3]

    def level(least: float) -> float:
        found = barnard.region(n_a, n_b, np.arange(n_a + 1), least)
        return float(found.probability(grid, grid).max())

    for alpha in (0.05, 0.5):
        limit = barnard.critical(n_a, n_b, rate, alpha)
        assert level(limit) + 1e-9 <= alpha < level(limit * (1 - 1e-4))


def test_a_limit_is_lawful_as_soon_as_its_level_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """To 1e-9, the chance that the rate is elsewhere, on every third rate around the given one."""
    n_a, n_b, rate = 12, 10, 0.3
    usual, asked = barnard.rates, []
    scores = np.unique(barnard.score(*np.indices((n_a + 1, n_b + 1)), n_a, n_b))
    reach = 3 * math.sqrt(rate * (1 - rate) / 22)
    grid = usual(rate - reach, rate + reach, 22)[::3]
    for limit in ((scores[:-1] + scores[1:]) / 2)[20:24]:
        found = barnard.region(n_a, n_b, np.arange(n_a + 1), float(limit))
        level = float(found.probability(grid, grid).max())
        assert barnard.critical(n_a, n_b, rate, level + 1.5e-9) < limit
        assert barnard.critical(n_a, n_b, rate, level + 0.5e-9) > limit
        # a bisection of twenty steps from four times the limit of the chi-square law
        steps = barnard.critical(n_a, n_b, rate, level) / (4 * stats.chi2.isf(level, 1)) * 2**20
        assert steps == pytest.approx(round(steps), abs=1e-6)
    monkeypatch.setattr(barnard, "rates", lambda *ends: asked.append(ends) or usual(*ends))
    barnard.critical(n_a, n_b, rate, 0.05)
    assert asked == [pytest.approx((rate - reach, rate + reach, 22))]


def test_large_samples_take_the_limit_of_the_chi_square_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(barnard, "critical", lambda *_: -1.0)
    for small in ((10**5, 10**5), (50, 10**6), (10**6, 50)):
        assert planning._critical(*small, 0.123, 0.05) == -1.0
    for large in ((10**5 + 1, 10**6), (10**6, 10**5 + 1)):
        assert planning._critical(*large, 0.123, 0.05) == stats.chi2.isf(0.05, 1)


def test_wilsons_interval() -> None:
    for x, n in ((0, 9), (3, 9), (9, 9)):
        theirs = stats.binomtest(x, n).proportion_ci(0.9, "wilson")
        assert wilson(x, n, 0.9) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    for n in range(1, 200):  # rounding must not lead out of the rates there are
        assert wilson(0, n, 0.95)[0] >= 0
        assert wilson(n, n, 0.95)[1] <= 1


def test_tangos_score_where_only_one_of_the_two_is_ever_right() -> None:
    """Without answers that only B has right, their most likely rate is 0 or -(slope) / 2n."""
    for a, n, delta in ((5, 20, 5 / 35), (5, 20, 0.15), (0, 10, 0.05), (5, 20, -0.1)):
        slope = -a + (2 * n - a) * delta
        rate = max(0.0, -slope) / (2 * n)
        variance = n * (2 * rate + delta * (1 - delta))
        expected = (a - n * delta) / math.sqrt(variance)
        assert _tango_score(a, 0, n, delta) == pytest.approx(expected, rel=1e-9)
    assert _tango_score(0, 0, 10, 0.0) == math.copysign(math.inf, 0)


def test_unpaired_power_by_all_tables() -> None:
    n_a, n_b = 20, 30
    limit = planning._critical(n_a, n_b, (20 * 0.8 + 30 * 0.4) / 50, 0.05)
    weights = np.outer(
        stats.binom.pmf(np.arange(n_a + 1), n_a, 0.8), stats.binom.pmf(np.arange(n_b + 1), n_b, 0.4)
    )
    scores = barnard.score(*np.indices((n_a + 1, n_b + 1)), n_a, n_b)
    assert planning.unpaired_power(0.8, 0.4, n_a, n_b, 0.05) == pytest.approx(
        weights[scores >= limit].sum(), abs=2e-12
    )
    assert planning.independent_discordance(0.8, 0.3) == pytest.approx(0.62, rel=1e-12)


def test_paired_power_by_all_tables() -> None:
    n, difference, share, alpha = 14, 0.3, 0.5, 0.05
    law = [(share + difference) / 2, (share - difference) / 2, 1 - share]
    tables = [(b, c, n - b - c) for b in range(n + 1) for c in range(n + 1 - b)]
    reject = [
        2 * stats.binom.cdf(min(b, c), b + c, 0.5) <= alpha and b + c > 0 for b, c, _ in tables
    ]
    exact = stats.multinomial.pmf(tables, n, law)[reject].sum()
    assert planning.paired_power(difference, share, n, alpha) == pytest.approx(exact, abs=2e-12)
    assert planning.paired_power(0.5, 0.5, 40, alpha) <= 1.0
    assert planning.paired_power(0.5 + 1e-12, 0.5, 40, alpha) == planning.paired_power(
        0.5, 0.5, 40, alpha
    )


def test_mcnemars_limits() -> None:
    for alpha in (0.05, 0.25, 1e-4):
        sizes = np.r_[1:40, 200, 500, 1500]
        expected = [
            int((2 * stats.binom.cdf(np.arange(d + 1), d, 0.5) <= alpha).sum()) - 1 for d in sizes
        ]
        assert planning._mcnemar_limits(sizes, alpha).tolist() == expected


def test_a_search_goes_down_by_twentieths_and_up_by_two_hundredths() -> None:
    assert planning._search(lambda n: n / 1000, 1000.9, 0.5) == 501  # .. 509, 483, 485, .., 501
    assert planning._search(lambda n: n / 1000, 490.0, 0.5) == 500
    assert planning._search(lambda n: n / 1000, 500.0, 0.5) == 501  # 475, 477, .., 501
    assert planning._search(lambda n: n / 10, 3.0, 0.5) == 5
    assert planning._search(lambda _: 1.0, 40.0, 0.5) == 1
    assert planning._search(lambda n: float(n >= 2), 0.3, 0.5) == 2
    assert planning._search(lambda n: n / 1000, 400.0, 0.401) == 402  # not by 401sts


def test_the_last_steps_of_a_plan_are_two_hundredths_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, ...]] = []
    begin = 401
    monkeypatch.setattr(planning, "_search", lambda *_: begin)
    monkeypatch.setattr(planning, "unpaired_power", lambda _a, _b, n, _m, _level: n / 1000)
    monkeypatch.setattr(planning, "_critical", lambda *sizes: asked.append(sizes) or 1.0)
    for promise in (0.402, 0.403):
        assert planning.unpaired_questions_needed(0.6, 0.5, 0.05, promise) == 403
    begin = 100
    assert planning.unpaired_questions_needed(0.6, 0.5, 0.05, 0.101) == 101
    # even where the normal approximation asks for less than one question
    planning.unpaired_questions_needed(0.999, 0.001, 0.5, 0.4)
    assert asked[-1] == (1, 1, 0.5, 0.5)


def test_a_pooled_rate_stays_off_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, ...]] = []
    monkeypatch.setattr(planning, "_critical", lambda *sizes: asked.append(sizes) or 1.0)
    for rate in (0.0, 0.1, 0.101, 0.9, 1.0):
        planning.unpaired_detectable(rate, 3, 5, 0.05, 0.9)
    assert [inside for _, _, inside, _ in asked] == [0.1, 0.1, 0.101, 0.9, 0.9]


def test_where_the_searches_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[float] = []
    z_alpha, z_power = stats.norm.isf(0.01), stats.norm.ppf(0.8)
    usual = planning._search

    def search(power_at, start, power):
        begun.append(start)
        return usual(power_at, start, power)

    monkeypatch.setattr(planning, "_search", search)
    planning.unpaired_questions_needed(0.7, 0.5, 0.02, 0.8)
    planning.paired_questions_needed(-0.1, 0.3, 0.02, 0.8)
    unpaired = (z_alpha * math.sqrt(2 * 0.6 * 0.4) + z_power * math.sqrt(0.21 + 0.25)) / 0.2
    paired = (z_alpha * math.sqrt(0.3) + z_power * math.sqrt(0.3 - 0.01)) / 0.1
    assert begun == pytest.approx([unpaired**2, paired**2], rel=1e-9)
    assert planning._start(-3.0, 0.1, "x") == 0.0
    assert planning._start(1.0, 10**-4.5, "x") == pytest.approx(1e9)


def test_the_least_difference_that_is_found() -> None:
    assert planning._least(lambda d: d >= 0.3, 0.8) == pytest.approx(0.3, abs=1e-9)
    assert planning._least(lambda d: d >= 0.3, 0.3) == pytest.approx(0.3, abs=1e-9)
    assert planning._least(lambda _: False, 0.8) == 1.0
    assert planning.unpaired_detectable(0.5, 4, 4, 0.05, 1 - 1e-8) == 1.0
    for rate in (0.0, 0.2, 0.5, 1.0):
        found = planning.unpaired_detectable(rate, 300, 200, 0.05, 0.9)
        inside = min(max(rate, 1 / 502), 501 / 502)
        high = min(1 - 1e-9, inside + found / 2)
        low = max(1e-9, high - found)
        a, limit = min(1 - 1e-9, low + found), planning._critical(300, 200, inside, 0.05)
        assert planning._power_at(a, low, 300, 200, limit) == pytest.approx(0.9, abs=1e-6)


def test_the_drift_of_a_certificate() -> None:
    for n, planned, beta in ((50, 700, 0.1), (3, 1, 0.001)):
        variance, logarithm = n / 4, math.log(1 / beta)
        scale = (planned / 4) / (2 * logarithm + math.log(1 + 2 * logarithm))
        square = 2 * math.log(0.5 + math.sqrt(1 + variance / scale) / (2 * beta))
        expected = math.sqrt(square * (variance + scale)) / n
        assert tv_drift(n, 1 - beta, planned) == pytest.approx(expected, rel=1e-9)


def test_stirlings_series_to_its_last_term() -> None:
    for x in (10.0, 12.0, 20.0):
        exact = math.lgamma(x) - ((x - 0.5) * math.log(x) - x + math.log(2 * math.pi) / 2)
        next_terms = 1 / (1188 * x**9) - 691 / (360360 * x**11) + 1 / (156 * x**13)
        found = float(_stirling_rest(np.array(x)))
        assert found + next_terms == pytest.approx(exact, abs=1e-14)


def test_concentrations_of_the_bets() -> None:
    expected = [4.0**i for i in range(1, 8)] + [
        9 / (4 * tv**2) for tv in (0.3, 0.1, 0.03, 0.01, 0.003)
    ]
    np.testing.assert_allclose(concentrations(10), expected, rtol=1e-12)
    assert concentrations(1)[-1] == concentrations(2)[-1] == pytest.approx(1 / (4 * 0.003**2))


def test_what_suspects_emit() -> None:
    p, other = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.25] * 4)
    half = evidence.leaks(p, other, "leak", (0.5,))[0]
    np.testing.assert_allclose(half.law, [0.375, 0.275, 0.225, 0.125], rtol=1e-12)
    hot, cold = evidence.temperatures(p, (2.0, 0.5))
    roots = np.sqrt(p)
    np.testing.assert_allclose(hot.law, roots / roots.sum(), rtol=1e-12)
    np.testing.assert_allclose(cold.law, p**2 / (p**2).sum(), rtol=1e-12)
    assert (hot.name, cold.name) == ("temperature x 2", "temperature x 0.5")
    third, most = evidence.thin_tails([0.125, 0.5, 0.125, 0.25], (0.25, 0.6))
    np.testing.assert_allclose(third.law, np.array([1, 8, 1, 4]) / 14, rtol=1e-12)
    np.testing.assert_allclose(most.law, np.array([1, 8, 1, 2]) / 12, rtol=1e-12)
    assert (third.name, most.name) == ("lost tail 0.25", "lost tail 0.6")
    # ties by cell id: of a hundred rare cells alike, the first thirty make up the tail
    law = np.tile([2.0, 1.0], 100) / 300
    tied = evidence.thin_tails(law, (0.101,))[0].law / law
    assert np.flatnonzero(tied < 1).tolist() == list(range(1, 60, 2))
    # a cold law of many cells, none of which is large
    np.testing.assert_allclose(evidence.temperatures([1e-3] * 1000, (0.01,))[0].law, 1e-3)


def test_deviations_and_the_worst_cells() -> None:
    found = freeman_tukey(np.array([0, 9, 16]), np.array([2.0, 6.0, 16.0]))
    np.testing.assert_allclose(
        found, [1 - 3, 3 + math.sqrt(10) - 5, 4 + math.sqrt(17) - math.sqrt(65)], rtol=1e-12
    )
    tied = evidence.worst_cells(np.tile([4, 2], 30), uniform_law(60), 60)
    assert tied.tolist() == [*range(0, 60, 2), *range(1, 60, 2)]
    assert evidence.worst_cells([4, 2] * 4, uniform_law(8)).tolist() == [0, 2, 4, 6, 1]
    assert tied.dtype == np.int64
    assert evidence.worst_cells([2, 2, 0, 0], [0.5, 0.5, 0.0, 0.0]).tolist() == [0, 1]
    assert evidence.worst_cells([2, 2, 0, 1], [0.5, 0.5, 0.0, 0.0]).tolist() == [3, 0, 1]


def test_rounding_by_vocabulary() -> None:
    sizes, measured = (1024, 32_000, 151_936), (5e-6, 1.6e-4, 7.5e-4)
    for vocab, near in ((64, 0), (1024, 0), (5000, 0), (32_000, 1), (10**5, 1), (10**6, 1)):
        slope = math.log(measured[near + 1] / measured[near]) / math.log(
            sizes[near + 1] / sizes[near]
        )
        expected = measured[near] * (vocab / sizes[near]) ** slope
        assert evidence.float_tv(["float32-cumsum"], vocab) == pytest.approx(expected, rel=1e-9)
    half = evidence.allowance(["float16-probabilities", "float32-softmax"], 1000)
    assert half.relative == pytest.approx(2.01 * 2**-11 + 1000 * 2**-25 + 2**-17, rel=1e-12)
    assert (half.absolute, half.last) == (2.0**-24, 0.0)
    large = evidence.allowance(["float16-probabilities", "float32-cumsum"], 10**9)
    assert (large.relative, large.last) == (0.5, 0.5)
    with pytest.raises(ValueError, match="steps") as caught:
        evidence.float_tv(["fp8"], 10)
    assert str(caught.value) == (
        "steps: got 'fp8'; expected one of float32-softmax, bfloat16-probabilities, "
        "float16-probabilities, float32-cumsum, uniform-24-bits, uniform-23-bits, "
        "uniform-32-bits, race-24-bits, race-24-bits-with-zero, race-31-bits"
    )


def test_what_an_envelope_costs_and_hides() -> None:
    p, allowed = [0.5, 0.3, 0.2, 0.0], evidence.Allowance(relative=0.1, absolute=0.01)
    grown = [math.log(1.12), math.log(1 + 0.04 / 0.3), math.log(1.15)]
    assert evidence.envelope_cost([3, 0, 2, 0], p, allowed) == pytest.approx(
        3 * grown[0] + 2 * grown[2], rel=1e-12
    )
    assert evidence.envelope_cost([3, 1, 2, 5], p, allowed) == pytest.approx(
        3 * grown[0] + grown[1] + 2 * grown[2], rel=1e-12
    )
    cost = 0.5 * grown[0] + 0.3 * grown[1] + 0.2 * grown[2]
    assert evidence.envelope_limit(p, allowed) == pytest.approx(math.sqrt(cost / 2), rel=1e-12)
    wide = evidence.Allowance(relative=0.99, absolute=0.99, last=0.99)
    assert evidence.envelope_limit(uniform_law(1000), wide) == 1.0


def test_the_mass_of_pooled_cells_is_one_however_many_there_are() -> None:
    assert evidence.pool(uniform_law(151_936), 1).p.sum() == pytest.approx(1, abs=3e-16)
