"""Two tables and no known target: level, power, exactness, faults, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evidence_cases import (
    at_least,
    at_most,
    draft_leak,
    softmax_law,
    temperature,
    total_variation,
    uniform_law,
    worst_direction,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from specverify.evidence import two_sample
from specverify.evidence.two_sample import (
    two_sample_detectable,
    two_sample_test,
    two_sample_trials_needed,
)
from specverify.evidence.two_sample_sequential import SequentialTwoSample


@pytest.mark.parametrize(
    ("cells", "n_a", "n_b"), [(2, 300, 200), (8, 2000, 1500), (64, 1500, 3000)]
)
def test_null_p_values_of_the_tail_are_calibrated(cells, n_a, n_b):
    p, runs = softmax_law(cells, 0, 1.0), 800 if cells == 2 else 2000
    rng = np.random.default_rng(1)
    values = np.array(
        [
            two_sample_test(rng.multinomial(n_a, p), rng.multinomial(n_b, p), alpha=1e-6).p_value
            for _ in range(runs)
        ]
    )
    for level in (0.3, 0.1, 0.01, 1e-3):
        hits = np.sum(values <= level)
        assert hits <= at_most(level, runs)
        assert cells == 2 or hits >= at_least(level, runs)


def test_null_p_values_by_permutation_are_valid():
    p, runs = softmax_law(6, 3, 1.0), 600
    rng = np.random.default_rng(2)
    values = []
    for seed in range(runs):
        tables = rng.multinomial(90, p), rng.multinomial(140, p)
        found = two_sample_test(*tables, alpha=0.05, floor=3, permutations=200, seed=seed)
        assert found.method == "permutation"
        values.append(found.p_value)
    for level in (0.5, 0.2, 0.05):
        hits = np.sum(np.array(values) <= level)
        assert at_least(level * 0.9, runs) <= hits <= at_most(level, runs)


def skewed_tail(rare, column, large, share, level):
    """True level of the chi-square p-value, by all tables with ``rare`` columns of one sum."""
    sums = np.array([column] * rare + [large])
    n_a = int(sums.sum() * share)
    small = np.indices((column + 1,) * rare).reshape(rare, -1).T
    tables = np.column_stack([small, n_a - small.sum(axis=1)])
    logs = -(special.gammaln(tables + 1) + special.gammaln(sums - tables + 1)).sum(axis=1)
    weights = np.exp(logs - special.logsumexp(logs))
    first = sums * (n_a / sums.sum())
    likely = np.argsort(weights)[::-1]
    hits = 0.0
    for i in likely[np.cumsum(weights[likely]) > 0.9]:
        a, b = tables[i], sums - tables[i]
        # a cheap bound first: far tables only
        if np.sum((a - first) ** 2 / first) > 5 and weights[i] > 1e-16:
            hits += weights[i] * (two_sample_test(a, b, alpha=1e-9, floor=5).p_value <= level)
    return hits / level


def test_the_far_tail_is_not_exceeded_too_often():
    assert 0.05 < skewed_tail(2, 60, 10**5, 0.5, 1e-6) < 1.2
    assert skewed_tail(2, 120, 10**5, 0.2, 1e-8) < 1.2


@pytest.mark.parametrize(
    ("cells", "alpha"), [(2, 1e-3), (2, 1e-9), (4, 1e-9), (64, 1e-9), (4, 1e-3)]
)
def test_the_promised_power_is_kept(cells, alpha):
    p, tv, power = uniform_law(cells), 0.1, 0.99
    n = two_sample_trials_needed(cells, tv, alpha, power)
    runs = 100 if alpha == 1e-3 else 1000
    rng = np.random.default_rng(3)
    hits = sum(
        two_sample_test(
            rng.multinomial(n, worst_direction(p, tv)), rng.multinomial(n, p), alpha=alpha
        ).rejected
        for _ in range(runs)
    )
    assert hits >= at_least(power, runs)


@pytest.mark.parametrize("fault", ["leak", "temperature"])
def test_a_faulty_engine_is_told_from_a_sound_one(fault):
    p = softmax_law(64, 0, 1.5)
    q = draft_leak(p, 0.3) if fault == "leak" else temperature(p, 1.15)
    n = two_sample_trials_needed(64, total_variation(p, q), 1e-9, 0.999)
    rng = np.random.default_rng(4)
    for _ in range(20):
        a, b, c = (rng.multinomial(n, law) for law in (p, q, p))
        assert two_sample_test(a, b, alpha=1e-9).rejected
        assert not two_sample_test(a, c, alpha=1e-9).rejected


def test_exchange_changes_nothing():
    rng = np.random.default_rng(5)
    a, b = rng.multinomial(900, softmax_law(30)), rng.multinomial(400, softmax_law(30, 1))
    first, second = two_sample_test(a, b, alpha=1e-6), two_sample_test(b, a, alpha=1e-6)
    assert first.value == pytest.approx(second.value, rel=1e-12)
    assert (first.cells, first.p_value) == (second.cells, pytest.approx(second.p_value))
    assert (first.trials_a, first.trials_b, first.method) == (900, 400, "chi-square")
    assert first.merged_mass > 0


def test_two_cells_are_fishers_test():
    found = two_sample_test([30, 70], [45, 55], alpha=1e-3)
    # equal arms: the conditional law is symmetric, so doubling the tail is the usual p-value
    assert found.p_value == pytest.approx(stats.fisher_exact([[30, 70], [45, 55]]).pvalue)
    assert (found.method, found.permutations) == ("hypergeometric", 0)


def test_the_statistic_is_that_of_a_contingency_table():
    a, b = [120, 80, 60, 240], [150, 70, 90, 190]
    expected = stats.chi2_contingency([a, b], lambda_="cressie-read", correction=False)
    found = two_sample_test(a, b, alpha=1e-5)
    assert found.value == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue)


def test_a_permutation_p_value_agrees_with_the_tail_and_replays():
    a, b = [120, 80, 60, 240], [130, 90, 75, 205]
    tail = two_sample_test(a, b, alpha=1e-5)
    drawn = two_sample_test(a, b, alpha=1e-3, seed=1)
    assert drawn.p_value == pytest.approx(tail.p_value, rel=0.5)
    assert drawn == two_sample_test(a, b, alpha=1e-3, seed=1)
    assert drawn.permutations <= 20_000
    far = two_sample_test([500, 100, 100], [100, 500, 100], alpha=1e-2, permutations=300)
    assert (far.p_value, far.permutations) == (1 / 301, 300)


def _permutations_by_hand(a, b, sizes):
    seed, most = 5, sum(sizes)
    both, rng, share = a + b, np.random.default_rng(seed), a.sum() / (a.sum() + b.sum())
    blocks = [
        rng.multivariate_hypergeometric(both, a.sum(), size=size, method="marginals")
        for size in sizes
    ]
    draws = np.concatenate(blocks)

    def values(x):
        arms = np.concatenate([x, both - x], axis=1)
        expected = np.concatenate([both * share, both * (1 - share)])
        return stats.power_divergence(arms, expected, axis=1, lambda_="cressie-read").statistic

    hits = np.cumsum(values(draws) >= values(a[None]) * (1 - 1e-9))
    found = two_sample_test(a, b, alpha=0.01, permutations=most, seed=seed)
    drawn = int(np.searchsorted(hits, 50)) + 1
    p_value = (hits[-1] + 1) / (most + 1) if drawn > most else 50 / drawn
    assert (found.method, found.p_value, found.permutations) == (
        "permutation",
        p_value,
        min(drawn, most),
    )


def test_permutations_stop_at_the_fiftieth_exceedance_or_at_the_most(monkeypatch):
    """The same draws, counted by hand: blocks of 2,000 tables from the seed's generator."""
    a, b, most = np.array([25, 45, 30]), np.array([40, 22, 38]), 3000
    _permutations_by_hand(a, b, [2000, 1000])
    _permutations_by_hand(a, np.array([55, 55, 90]), [2000, 1000])
    unlike = np.array([33, 148, 128, 133]), np.array([74, 184, 235, 241])
    _permutations_by_hand(*unlike, [2000, 1000])
    monkeypatch.setattr(two_sample, "_BLOCK", 20)
    _permutations_by_hand(*unlike, [20] * 150)
    monkeypatch.undo()
    usual = two_sample_test(a, b, alpha=0.01, permutations=most)
    assert usual == two_sample_test(a, b, alpha=0.01, permutations=most, seed=0)
    assert usual != two_sample_test(a, b, alpha=0.01, permutations=most, seed=1)
    near = two_sample_test(a, a + np.array([0, 3, -3]), alpha=0.01, seed=1)
    assert (near.permutations >= 50, near.p_value) == (True, 50 / near.permutations)
    assert two_sample_test([9, 9, 0], [0, 0, 9], alpha=0.03, floor=1).permutations == 680


def test_the_last_exceedance_may_be_the_last_of_a_block(monkeypatch):
    monkeypatch.setattr(two_sample, "_BLOCK", 40)
    monkeypatch.setattr(two_sample, "_EXCEEDANCES", 40)
    found = two_sample_test([30, 30, 30], [30, 30, 30], alpha=0.01)
    assert (found.p_value, found.permutations) == (1.0, 40)


def test_equal_values_tie_whatever_the_rounding(monkeypatch):
    monkeypatch.setattr(two_sample, "_BLOCK", 100)
    a = (np.arange(2801) < 1801).astype(int)  # one draw in each cell: all tables are alike
    found = two_sample_test(a, 1 - a, alpha=0.01, floor=0.1)
    assert (found.cells, found.p_value, found.permutations) == (2801, 1.0, 50)


def test_tables_too_large_to_permute_take_the_tail():
    a = np.array([4, 3, 3]) * 10**8
    found = two_sample_test(a, a + np.array([10**5, -(10**5), 0]), alpha=0.01)
    assert (found.method, found.rejected) == ("chi-square", True)


@pytest.mark.parametrize(
    "tables", [([0, 0], [3, 4]), ([3, 4], [0, 0]), ([0, 0], [0, 0]), ([5, 0], [7, 0])]
)
def test_nothing_to_compare_promises_nothing(tables):
    found = two_sample_test(*tables, alpha=0.05)
    assert (found.p_value, found.detectable_tv, found.method) == (1.0, 1.0, "none")
    assert not found.rejected


@given(st.integers(2, 300), st.floats(0.01, 0.9), st.floats(1e-9, 0.1), st.floats(0.5, 0.999))
@settings(max_examples=30, deadline=None)
def test_trials_and_deviation_invert(cells, tv, alpha, power):
    n = two_sample_trials_needed(cells, tv, alpha, power)
    assert two_sample_detectable(cells, n, n, alpha, power) <= tv
    fewer = math.floor(0.99 * n) - 2
    assert fewer < 2 or two_sample_detectable(cells, fewer, fewer, alpha, power) > tv
    # a larger second arm helps, up to a factor of two in the draws
    assert two_sample_detectable(cells, n, 10 * n, alpha, power) <= tv


def test_bad_input_is_refused_by_name():
    good = {"alpha": 0.05}
    for a, b, message in (
        ([1, -1], [1, 1], r"counts_a\[1\]: got -1"),
        ([1, 1], [1, 1, 1], r"counts_b: got int64\[3\]"),
        ([1.0, 1.0], [1, 1], "counts_a: got float64"),
        ([], [], "counts_a: got"),
    ):
        with pytest.raises(ValueError, match=message):
            two_sample_test(a, b, **good)
    for arguments, message in (
        ({"alpha": 0.0}, "alpha: got"),
        ({"alpha": 0.1, "power": 1.0}, "power: got"),
        ({"alpha": 0.1, "permutations": 9}, "permutations: got 9; expected an integer >= 10"),
        ({"alpha": 0.1, "seed": -1}, "seed: got -1"),
        ({"alpha": 0.1, "floor": 0}, "floor: got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            two_sample_test([1, 2], [2, 1], **arguments)
    with pytest.raises(ValueError, match="cells: got 1"):
        two_sample_trials_needed(1, 0.1, 0.1, 0.9)
    with pytest.raises(ValueError, match="tv: got 1"):
        two_sample_trials_needed(2, 1, 0.1, 0.9)
    with pytest.raises(ValueError, match="trials_b: got -1"):
        two_sample_detectable(2, 1, -1, 0.1, 0.9)


def exact_mean(test_of, p, batches):
    """Mean of E over all outcomes of batches of (n_a, n_b) draws from two cells."""
    total = 0.0
    outcomes = [(i, j) for n_a, n_b in [batches[0]] for i in range(n_a + 1) for j in range(n_b + 1)]
    n_a, n_b = batches[0]
    m_a, m_b = batches[1]
    for i, j in outcomes:
        for k in range(m_a + 1):
            for m in range(m_b + 1):
                test = test_of()
                test.add([i, n_a - i], [j, n_b - j])
                found = test.add([k, m_a - k], [m, m_b - m])
                chance = np.prod(stats.binom.pmf([i, j, k, m], [n_a, n_b, m_a, m_b], p))
                total += chance * math.exp(found.log_e)
    return total


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("batches", [((3, 3), (4, 4)), ((4, 2), (1, 5)), ((3, 0), (2, 2))])
def test_the_e_value_has_mean_one_at_most(p, batches):
    mean = exact_mean(lambda: SequentialTwoSample(2, alpha=0.05), p, batches)
    assert 0.5 < mean <= 1 + 1e-12


@pytest.mark.parametrize("alpha", [0.1, 0.01])
def test_looking_often_costs_no_alpha(alpha):
    p, runs, alarms = softmax_law(4, 0, 1.0), 400, 0
    rng = np.random.default_rng(6)
    for _ in range(runs):
        test = SequentialTwoSample(4, alpha=alpha)
        for _ in range(40):
            found = test.add(rng.multinomial(20, p), rng.multinomial(20, p))
        alarms += found.rejected
    assert alarms <= at_most(alpha, runs)


@pytest.mark.parametrize(("cells", "most"), [(4, 0.75), (16, 0.75), (64, 0.8)])
def test_the_alarm_comes_before_the_fixed_plan(cells, most):
    p = uniform_law(cells)
    q = worst_direction(p, 0.1)
    fixed = two_sample_trials_needed(cells, 0.1, 1e-9, 0.999)
    rng, shares = np.random.default_rng(7), []
    for _ in range(15):
        test = SequentialTwoSample(cells, alpha=1e-9)
        found = test.add(rng.multinomial(50, p), rng.multinomial(50, q))
        while not found.rejected:
            step = max(50, found.trials_a // 20)
            found = test.add(rng.multinomial(step, p), rng.multinomial(step, q))
        assert found.p_value <= 1e-9
        shares.append(found.trials_a / fixed)
    assert np.mean(shares) < most


def test_an_empty_batch_changes_nothing():
    test = SequentialTwoSample(3, alpha=0.05)
    test.add([5, 6, 7], [1, 2, 9])
    before = test.add([5, 6, 7], [1, 2, 9])
    after = test.add([0, 0, 0], [0, 0, 0])
    assert (after.log_e, after.trials_a, after.trials_b) == (before.log_e, 36, 24)
    assert SequentialTwoSample(2, alpha=0.5).add([0, 0], [0, 0]).p_value == 1


def test_bad_batches_are_refused_by_name():
    with pytest.raises(ValueError, match="cells: got 1"):
        SequentialTwoSample(1, alpha=0.05)
    with pytest.raises(ValueError, match="alpha: got 2"):
        SequentialTwoSample(2, alpha=2)
    with pytest.raises(ValueError, match="counts_b: got"):
        SequentialTwoSample(2, alpha=0.05).add([1, 2], [1, 2, 3])
