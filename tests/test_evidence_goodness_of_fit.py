"""Cressie-Read and Pearson: values against scipy, null laws, full enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from evidence_cases import LAWS, at_least, at_most, uniform_law
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specverify.evidence import cressie_read, pearson, pool
from specverify.evidence.goodness_of_fit import FAR_TAIL, power_divergence

TESTS = {"cressie-read": cressie_read, "pearson": pearson}


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("law", ["uniform-4", "uniform-64", "zipf-100", "softmax-256"])
def test_value_and_p_value_are_those_of_scipy(name, law):
    p, n = LAWS[law], 20_000
    counts = np.random.default_rng(3).multinomial(n, p)
    pooling = pool(p, n)
    pooled, _ = pooling.table(counts)
    theirs = stats.power_divergence(pooled, n * pooling.p, lambda_=name)
    ours = TESTS[name](counts, p, alpha=1e-6)
    assert ours.value == pytest.approx(theirs.statistic, rel=1e-9)
    assert ours.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (ours.statistic, ours.trials, ours.cells) == (name, n, len(pooled))
    assert not ours.rejected


def test_likelihood_ratio_is_that_of_scipy():
    counts, expected = np.array([5, 0, 12, 3]), np.array([5.0, 5.0, 6.0, 4.0])
    theirs = stats.power_divergence(counts, expected, lambda_="log-likelihood").statistic
    assert power_divergence(counts, expected, 0.0) == pytest.approx(theirs)


def test_value_does_not_cancel_at_a_thousand_million_draws():
    n = 10**9
    shift = np.array([3000, -1000, -2000, 0])
    counts = np.full(4, n // 4) + shift
    ours = cressie_read(counts, uniform_law(4), alpha=1e-9).value
    excess = shift / (n / 4)
    assert ours == pytest.approx(np.sum(n / 4 * (excess**2 - excess**3 / 9)), rel=1e-7)


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("law", LAWS)
def test_null_tail_counts(name, law):
    p, runs, n = LAWS[law], 2000, 5000
    tables = np.random.default_rng(11).multinomial(n, p, size=runs)
    values = np.array([TESTS[name](table, p, alpha=1e-6).p_value for table in tables])
    for level in (0.1, 0.01, 1e-3):
        assert np.sum(values <= level) <= at_most(level, runs)
    if law != "two-cells":  # chi-square tables are not conservative either
        assert np.sum(values <= 0.1) >= at_least(0.1, runs)
        assert np.sum(values >= 0.9) >= at_least(0.1, runs)


@pytest.mark.parametrize("p", [[0.25] * 4, [0.7, 0.1, 0.1, 0.1], [0.5, 0.3, 0.2, 0.0]])
def test_enumeration_of_every_small_table(p):
    """P(p-value <= a) by summing over all tables; pooled to two cells it is exact."""
    n, p = 24, np.array(p)
    tables = [t for t in itertools.product(range(n + 1), repeat=4) if sum(t) == n]
    mass = stats.multinomial.pmf(tables, n, p)
    values = np.array([cressie_read(t, p, alpha=0.1).p_value for t in tables])
    for level in (0.2, 0.1, 0.01, 1e-3, 1e-6):
        assert mass[values <= level].sum() <= level
    assert mass[values <= 0.2].sum() > 0.02


def test_enumeration_of_three_live_cells():
    n, p = 66, np.array([0.31, 0.33, 0.36])
    tables = [(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)]
    mass = stats.multinomial.pmf(tables, n, p)
    values = np.array([cressie_read(t, p, alpha=0.1).p_value for t in tables])
    for level, least, most in ((0.1, 0.8, 1.2), (0.01, 0.8, 1.2), (1e-5, 0.4, 1.5)):
        assert least * level <= mass[values <= level].sum() <= most * level


def test_an_impossible_draw_is_a_proof():
    for test in TESTS.values():
        found = test([50, 49, 1], [0.5, 0.5, 0.0], alpha=1e-9)
        assert (found.p_value, found.zero_hits, found.rejected) == (0.0, 1, True)
        only = test([0, 0, 5], [0.5, 0.5, 0.0], alpha=1e-9)
        assert (only.value, only.p_value, only.zero_hits) == (0.0, 0.0, 5)


def test_one_live_cell():
    clean = cressie_read([0, 1000, 0], [0.0, 1.0, 0.0], alpha=1e-9)
    assert (clean.p_value, clean.cells, clean.rejected) == (1.0, 1, False)
    assert clean.detectable_tv == pytest.approx(1 - 0.001 ** (1 / 1000))
    assert cressie_read([1, 999, 0], [0.0, 1.0, 0.0], alpha=1e-9).rejected
    assert cressie_read([7], [1.0], alpha=1e-9).p_value == 1.0


def test_no_trials_promise_nothing():
    empty = pearson([0, 0, 0], [0.2, 0.3, 0.5], alpha=1e-3)
    assert (empty.trials, empty.value, empty.p_value, empty.detectable_tv) == (0, 0.0, 1.0, 1.0)
    assert not empty.rejected


def test_far_tail_takes_the_larger_p_value():
    # a spike in a rare cell: N^(5/3) outgrows the true N ln N tail
    p = np.array([20, 20, 20, 10**6 - 60]) / 10**6
    spike = np.array([60, 20, 20, 10**6 - 100])
    found = cressie_read(spike, p, alpha=1e-9)
    alone = stats.power_divergence(spike, 10**6 * p, lambda_="cressie-read").pvalue
    ratio = stats.power_divergence(spike, 10**6 * p, lambda_="log-likelihood").pvalue
    assert alone < ratio < FAR_TAIL
    assert found.p_value == pytest.approx(ratio)


@given(
    st.lists(st.integers(0, 200), min_size=3, max_size=3),
    st.permutations(range(3)),
)
def test_order_of_cells_is_immaterial(counts, order):
    p = np.array([0.2, 0.35, 0.45])
    one = cressie_read(counts, p, alpha=0.01)
    other = cressie_read(np.array(counts)[order], p[list(order)], alpha=0.01)
    assert one.value == pytest.approx(other.value)
    assert one.p_value == pytest.approx(other.p_value)
    assert 0 <= one.p_value <= 1
