"""Two accuracies: exact level, power, coverage, agreement with scipy, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from evidence_cases import at_least, at_most
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specverify.evidence import accuracy_power as planning
from specverify.evidence import barnard
from specverify.evidence.accuracies import compare_paired, compare_unpaired, most_discordant
from specverify.evidence.accuracy_intervals import newcombe, tango, wilson


def every_table(n_a, n_b):
    return [(x, y) for x in range(n_a + 1) for y in range(n_b + 1)]


def chance(n_a, n_b, a, b):
    return np.outer(
        stats.binom.pmf(np.arange(n_a + 1), n_a, a), stats.binom.pmf(np.arange(n_b + 1), n_b, b)
    ).ravel()


@pytest.mark.parametrize(("n_a", "n_b"), [(9, 9), (25, 14), (4, 30)])
def test_barnards_test_keeps_its_level_at_every_rate(n_a, n_b):
    values = np.array([barnard.p_value(x, n_a, y, n_b) for x, y in every_table(n_a, n_b)])
    for rate in np.linspace(0.003, 0.997, 60):
        weights = chance(n_a, n_b, rate, rate)
        for alpha in (0.2, 0.05, 0.01, 1e-3):
            assert weights[values <= alpha].sum() <= alpha * (1 + 1e-9)


@given(st.integers(1, 40), st.integers(1, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_the_region_is_that_of_the_definition(n_a, n_b, data):
    x, y = data.draw(st.integers(0, n_a)), data.draw(st.integers(0, n_b))
    limit = float(barnard.score(x, y, n_a, n_b))
    if limit == 0:
        return
    tables = np.array(every_table(n_a, n_b))
    far = barnard.score(tables[:, 0], tables[:, 1], n_a, n_b) >= limit * (1 - 1e-12)
    region = barnard.region(n_a, n_b, np.arange(n_a + 1), limit)
    for rate in (0.1, 0.5, 0.83):
        expected = chance(n_a, n_b, rate, rate)[far].sum()
        assert region.probability([rate], [rate])[0] == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    "table", [(7, 12, 3, 15), (18, 20, 11, 20), (30, 40, 33, 38), (50, 60, 31, 55)]
)
def test_p_values_against_scipy(table):
    x, n_a, y, n_b = table
    usual = stats.barnard_exact([[x, y], [n_a - x, n_b - y]], n=128).pvalue
    found = barnard.p_value(x, n_a, y, n_b)
    # the confidence interval of the rate may only make it smaller
    assert 0.7 * usual < found < usual + 1e-3


def test_a_table_that_scipy_takes_seconds_for():
    # stats.barnard_exact says 0.2258 here, which it maximises over all rates
    assert barnard.p_value(1042, 1319, 1016, 1319) == pytest.approx(0.2228, abs=5e-4)
    assert barnard.p_value(790_000, 10**6, 789_000, 10**6) == pytest.approx(0.0827, abs=2e-3)


def test_an_all_right_or_all_wrong_pair_says_nothing():
    assert barnard.p_value(5, 5, 9, 9) == barnard.p_value(0, 5, 0, 9) == 1.0
    assert compare_unpaired(5, 5, 9, 9).difference == 0.0


@pytest.mark.parametrize(("n_a", "n_b", "a", "b"), [(30, 30, 0.9, 0.5), (25, 14, 0.8, 0.3)])
def test_unpaired_power_is_that_of_the_test(n_a, n_b, a, b):
    values = np.array([barnard.p_value(x, n_a, y, n_b) for x, y in every_table(n_a, n_b)])
    exact = chance(n_a, n_b, a, b)[values <= 0.05].sum()
    # the planned limit is for rates near the pooled one, the test's for those near each table's
    assert planning.unpaired_power(a, b, n_a, n_b, 0.05) == pytest.approx(exact, abs=0.03)


def test_unpaired_power_of_a_benchmark():
    n, runs = 300, 120
    rng = np.random.default_rng(1)
    x, y = rng.binomial(n, 0.8, runs), rng.binomial(n, 0.7, runs)
    hits = sum(barnard.p_value(int(i), n, int(j), n) <= 0.05 for i, j in zip(x, y, strict=True))
    predicted = planning.unpaired_power(0.8, 0.7, n, n, 0.05)
    assert 0.75 < predicted < 0.85
    assert at_least(predicted, runs) <= hits <= at_most(predicted, runs)


@pytest.mark.parametrize(
    ("difference", "share", "n"), [(0.1, 0.2, 150), (0.05, 0.1, 300), (0.02, 0.02, 500)]
)
def test_paired_power_is_that_of_the_test(difference, share, n):
    alpha, runs = 0.05, 3000
    law = [(share + difference) / 2, (share - difference) / 2, 1 - share]
    tables = np.random.default_rng(2).multinomial(n, law, size=runs)
    hits = sum(
        stats.binomtest(int(b), int(b + c), 0.5).pvalue <= alpha if b + c else False
        for b, c, _ in tables
    )
    predicted = planning.paired_power(difference, share, n, alpha)
    assert at_least(predicted, runs) <= hits <= at_most(predicted, runs)
    assert planning.paired_power(-difference, share, n, alpha) == predicted


def test_the_paired_test_is_mcnemars_and_keeps_its_level():
    found = compare_paired(950, 92, 66, 1319)
    assert found.p_value == pytest.approx(stats.binomtest(92, 158, 0.5).pvalue)
    assert (found.test, found.paired, found.only_a, found.rejected) == ("McNemar", True, 92, True)
    assert found.difference == pytest.approx(26 / 1319)
    for discordant in (7, 20):
        values = [compare_paired(0, x, discordant - x, 50).p_value for x in range(discordant + 1)]
        weights = stats.binom.pmf(np.arange(discordant + 1), discordant, 0.5)
        for alpha in (0.2, 0.05, 0.01):
            assert weights[np.array(values) <= alpha].sum() <= alpha


@pytest.mark.parametrize("accuracies", [(0.7, 0.65), (0.9, 0.6), (0.999, 0.98)])
def test_questions_needed_unpaired(accuracies):
    n = planning.unpaired_questions_needed(*accuracies, 0.05, 0.9)
    assert 0.9 <= planning.unpaired_power(*accuracies, n, n, 0.05) < 0.93
    turned = planning.unpaired_questions_needed(*accuracies[::-1], 0.05, 0.9)
    assert turned == pytest.approx(n, rel=0.01, abs=1)
    fewer = int(0.97 * n) - 1
    assert planning.unpaired_power(*accuracies, fewer, fewer, 0.05) < 0.9


@given(st.floats(0.02, 0.5), st.floats(0.0, 0.4), st.floats(1e-6, 0.2), st.floats(0.3, 0.999))
@settings(max_examples=25, deadline=None)
def test_questions_needed_paired(difference, more, alpha, power):
    share = min(1.0, difference + more)
    n = planning.paired_questions_needed(difference, share, alpha, power)
    assert planning.paired_power(difference, share, n, alpha) >= power
    if n > 40:
        assert planning.paired_power(difference, share, int(0.9 * n), alpha) < power


def test_questions_needed_by_the_hundred_thousand():
    n = planning.unpaired_questions_needed(0.5, 0.503)
    z = stats.norm.ppf(0.975) + stats.norm.ppf(0.9)
    assert n == pytest.approx(z**2 * 0.5 / 0.003**2, rel=0.01)


def test_a_difference_as_large_as_the_discordance():
    # 0.79 - 0.74 is a little more than 0.05 in float64
    n = planning.paired_questions_needed(0.79 - 0.74, 0.05)
    assert planning.paired_power(0.05, 0.05, n, 0.05) >= 0.9


def test_pairing_saves_questions_when_answers_agree():
    unpaired = planning.unpaired_questions_needed(0.79, 0.77)
    independent = planning.independent_discordance(0.79, 0.77)
    needed = [planning.paired_questions_needed(0.02, share) for share in (0.05, 0.1, independent)]
    assert needed == sorted(needed)
    assert needed[0] < 0.2 * unpaired < 0.95 * unpaired < needed[2] < 1.05 * unpaired


def test_what_is_promised_as_detectable_is_detected():
    found = compare_unpaired(1042, 1319, 1016, 1319)
    pooled = (found.accuracy_a + found.accuracy_b) / 2
    a, b = pooled + found.detectable / 2, pooled - found.detectable / 2
    assert planning.unpaired_power(a, b, 1319, 1319, 0.05) == pytest.approx(0.9, abs=0.005)
    paired = compare_paired(950, 92, 66, 1319)
    power = planning.paired_power(paired.detectable, 158 / 1319, 1319, 0.05)
    assert power == pytest.approx(0.9, abs=0.005)
    assert compare_paired(5, 1, 0, 6).detectable == 1.0
    assert compare_paired(5, 0, 0, 6).detectable == 1.0
    assert compare_paired(5, 0, 0, 6).p_value == 1.0
    assert compare_unpaired(1, 1, 0, 1).detectable == 1.0
    assert 0 < compare_unpaired(900, 900, 0, 900).detectable < 0.1


@pytest.mark.parametrize(("n_a", "n_b"), [(40, 40), (100, 60)])
def test_coverage_of_newcombes_interval(n_a, n_b):
    tables = every_table(n_a, n_b)
    limits = np.array([newcombe(x, n_a, y, n_b, 0.95) for x, y in tables])
    covered = []
    for a in (0.05, 0.3, 0.5, 0.79, 0.95):
        for b in (0.1, 0.5, 0.77, 0.9):
            inside = (limits[:, 0] <= a - b + 1e-12) & (a - b - 1e-12 <= limits[:, 1])
            covered.append(chance(n_a, n_b, a, b)[inside].sum())
    assert min(covered) > 0.93
    assert 0.945 < np.mean(covered) < 0.975


@pytest.mark.parametrize(
    ("a", "b", "c"), [(0.1, 0.05, 40), (0.15, 0.15, 60), (0.02, 0.1, 100), (0.3, 0.1, 30)]
)
def test_coverage_of_tangos_interval(a, b, c):
    """(chance that only A is right, only B, questions), by all tables."""
    n, covered, total = c, 0.0, 0.0
    tables = np.array([(x, y, n - x - y) for x in range(n + 1) for y in range(n + 1 - x)])
    weights = stats.multinomial.pmf(tables, n, [a, b, 1 - a - b])
    for (x, y, _), weight in zip(tables, weights, strict=True):
        if weight > 1e-7:
            low, high = tango(x, y, n, 0.95)
            covered += weight * (low <= a - b <= high)
            total += weight
    assert total > 0.999
    assert 0.93 < covered < 0.985


def test_intervals_of_known_examples():
    # Newcombe 1998, table II, method 10: 56/70 against 48/80
    assert newcombe(56, 70, 48, 80, 0.95) == pytest.approx((0.0524, 0.3339), abs=1e-4)
    assert wilson(0, 10, 0.95) == pytest.approx((0.0, 0.2775), abs=1e-4)
    # without a discordant pair Tango's limits are z^2 / (n + z^2) either way
    low, high = tango(0, 0, 50, 0.95)
    assert low == pytest.approx(-0.0713, abs=1e-4)
    assert high == pytest.approx(0.0713, abs=1e-4)
    low, high = tango(5, 0, 5, 0.95)
    assert low < 1.0 <= high


@given(st.integers(1, 200), st.integers(0, 200), st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_intervals_hold_the_estimate_and_turn_with_the_arms(n, b, c):
    b = min(b, n)
    c = min(c, n - b)
    low, high = tango(b, c, n, 0.9)
    assert -1 <= low <= (b - c) / n <= high <= 1
    assert tango(c, b, n, 0.9) == pytest.approx((-high, -low), abs=1e-9)
    low, high = newcombe(b, n, c, n, 0.9)
    assert low <= (b - c) / n <= high
    assert newcombe(c, n, b, n, 0.9) == pytest.approx((-high, -low), abs=1e-9)


@pytest.mark.parametrize(("gap", "n"), [(26, 1319), (10, 40), (6, 6)])
def test_the_most_discordant_answers(gap, n):
    most = most_discordant(gap, n, 0.05)
    assert most is not None
    assert (most - gap) % 2 == 0
    small = (most - gap) // 2
    assert stats.binomtest(small, most, 0.5).pvalue <= 0.05
    assert most + 2 > n or stats.binomtest(small + 1, most + 2, 0.5).pvalue > 0.05
    assert most_discordant(-gap, n, 0.05) == most


def test_too_few_to_tell_in_any_case():
    assert most_discordant(5, 100, 0.05) is None
    assert most_discordant(0, 100, 0.05) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare_paired(1, 1, 1, 0), "questions: got 0"),
        (lambda: compare_paired(1, 5, 0, 4), "only_a: got 5; expected at most questions = 4"),
        (lambda: compare_paired(1, 0, -1, 4), "only_b: got -1"),
        (lambda: compare_paired(3, 1, 1, 4), r"both: got 3; expected at most questions - only_a"),
        (lambda: compare_paired(1, 1, 1, 9, alpha=0), "alpha: got 0"),
        (lambda: compare_paired(1, 1, 1, 9, power=1), "power: got 1"),
        (lambda: compare_paired(1, 1, 1, 9, confidence=1), "confidence: got 1"),
        (lambda: compare_unpaired(5, 4, 1, 4), "right_a: got 5; expected at most questions_a = 4"),
        (lambda: compare_unpaired(1, 4, 5, 4), "right_b: got 5"),
        (lambda: compare_unpaired(1, 4, 1, 0), "questions_b: got 0"),
        (lambda: compare_unpaired(1.5, 4, 1, 4), r"right_a: got 1\.5"),
        (lambda: compare_unpaired(1, 4, 1, 4, alpha=1e-9), "alpha: got 1e-09; expected more"),
        (lambda: compare_unpaired(1, 4, 1, 4, confidence=0), "confidence: got 0"),
        (lambda: most_discordant(5, 4, 0.05), "difference: got 5"),
        (lambda: most_discordant(-5, 4, 0.05), "difference: got -5"),
        (lambda: most_discordant(1, 4, 5), "alpha: got 5"),
        (lambda: planning.independent_discordance(2, 0.1), "accuracy_a: got 2"),
        (lambda: planning.unpaired_power(0.5, 1, 5, 5, 0.1), "accuracy_b: got 1"),
        (lambda: planning.unpaired_power(0.5, 0.6, 0, 5, 0.1), "n_a: got 0"),
        (lambda: planning.unpaired_questions_needed(0.5, 0.5), "accuracy_b: got 0.5"),
        (lambda: planning.unpaired_questions_needed(0.5, 0.50001), "needs 5.25e\\+10 questions"),
        (lambda: planning.paired_power(0.3, 0.2, 5, 0.1), "difference: got 0.3; expected at most"),
        (lambda: planning.paired_power(0.3, 0, 5, 0.1), "discordance: got 0"),
        (lambda: planning.paired_power(0.1, 1.1, 5, 0.1), "discordance: got 1.1"),
        (lambda: planning.paired_questions_needed(0.0, 0.2), "difference: got 0; expected"),
        (lambda: planning.paired_questions_needed(0.1, 0.2, power=1), "power: got 1"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
