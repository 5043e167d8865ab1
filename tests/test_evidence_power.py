"""The promise: trials needed, deviation detected, each other's inverse, and kept in simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evidence_cases import (
    LAWS,
    at_least,
    at_most,
    softmax_law,
    total_variation,
    uniform_law,
    worst_direction,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specverify.evidence import (
    cressie_read,
    detectable_tv,
    pool,
    trials_needed,
    trials_needed_for_law,
)
from specverify.evidence import power as power_module
from specverify.evidence.power import noncentrality, pooled_detectable_tv

levels = st.floats(-12, -1).map(lambda x: 10**x)
powers = st.sampled_from([0.5, 0.9, 0.99, 0.999, 0.999999])


@pytest.mark.parametrize(
    ("cells", "at_6", "at_9", "at_12"),
    [
        (4, 72, 93, 114),
        (64, 142, 172, 199),
        (1024, 410, 483, 545),
        (32768, 2065, 2401, 2681),
        (152064, 4383, 5087, 5672),
    ],
)
def test_known_noncentralities(cells, at_6, at_9, at_12):
    for alpha, known in ((1e-6, at_6), (1e-9, at_9), (1e-12, at_12)):
        found = noncentrality(cells, alpha, 0.999)
        assert found == pytest.approx(known, rel=4e-3)
        critical = stats.chi2.isf(alpha, cells - 1)
        assert stats.ncx2.sf(critical, cells - 1, found) == pytest.approx(0.999, rel=1e-9)


def test_a_library_that_gives_up_is_replaced(monkeypatch):
    exact = noncentrality(50_000, 1e-9, 0.999)
    noncentrality.cache_clear()
    monkeypatch.setattr(power_module.stats.ncx2, "cdf", lambda *_: math.nan)
    approximate = noncentrality(50_000, 1e-9, 0.999)
    noncentrality.cache_clear()
    assert approximate == pytest.approx(exact, rel=1e-5)


@given(st.integers(1, 152_064), st.floats(1e-4, 0.5), levels, powers)
@settings(deadline=None)
def test_trials_and_deviation_invert(cells, tv, alpha, power):
    n = trials_needed(cells, tv, alpha, power)
    assert detectable_tv(cells, n, alpha, power) <= tv
    if cells > 2 and n > 1:
        assert detectable_tv(cells, n - 1, alpha, power) > tv
    elif n > 100:
        assert detectable_tv(cells, int(0.9 * n), alpha, power) > tv


@given(st.integers(3, 10**5), st.floats(1e-3, 0.4), levels, powers)
@settings(deadline=None)
def test_harder_questions_need_more_trials(cells, tv, alpha, power):
    n = trials_needed(cells, tv, alpha, power)
    assert trials_needed(2 * cells, tv, alpha, power) >= n
    assert trials_needed(cells, tv / 2, alpha, power) >= n
    assert trials_needed(cells, tv, alpha / 10, power) >= n
    assert trials_needed(cells, tv, alpha, (1 + power) / 2) >= n


def test_corners():
    assert detectable_tv(5, 0, 1e-6, 0.9) == 1.0
    assert detectable_tv(5, 1, 1e-6, 0.9) == 1.0
    assert noncentrality(5, 0.5, 0.4) == 0.0
    for cells, level in ((3, 0.1), (5, 0.5), (50, 0.01), (1000, 0.3)):
        assert noncentrality(cells, level, level) == 0.0
    assert trials_needed(5, 0.1, 0.5, 0.4) == 1
    assert trials_needed(1, 0.01, 1e-9, 0.999) == math.ceil(math.log(0.001) / math.log(0.99))
    assert pooled_detectable_tv(pool([0.5, 0.5], 0), 0, 1e-6, 0.9) == 1.0
    assert pooled_detectable_tv(pool([1.0, 0.0], 0), 0, 1e-6, 0.9) == 1.0
    assert pooled_detectable_tv(pool([1.0, 0.0], 1), 1, 1e-6, 0.9) == pytest.approx(0.9)
    # two cells need what the rate 1/2 needs, and never less than the formula
    assert trials_needed(2, 0.01, 1e-9, 0.999) >= 85 / (4 * 0.01**2) * 0.99


def test_excluded_cells_never_make_the_promise_larger():
    tight, loose = pool([0.5, 0.5], 40), pool([0.5, 0.5, 0.0], 40)
    for n in (1, 40, 10**6):
        without = pooled_detectable_tv(tight, n, 1e-6, 0.999)
        assert pooled_detectable_tv(loose, n, 1e-6, 0.999) >= without
        assert pooled_detectable_tv(loose, n, 1e-6, 0.999) >= 1 - 0.001 ** (1 / n)


@pytest.mark.parametrize("name", ["uniform-4", "uniform-64", "zipf-100", "softmax-256"])
def test_the_promised_power_is_kept_in_the_worst_direction(name):
    p, tv, alpha, runs = LAWS[name], 0.1, 1e-9, 3000
    n = trials_needed_for_law(p, tv, alpha, 0.999)
    pooling = pool(p, n)
    alternative = worst_direction(pooling.p, tv)
    assert total_variation(alternative, pooling.p) == pytest.approx(tv)
    rng = np.random.default_rng(5)
    # draws on the pooled cells; each pooled cell hands its draws to its first member
    first = [int(np.argmax(pooling.index == cell)) for cell in range(pooling.cells)]
    missed = 0
    for pooled in rng.multinomial(n, alternative, size=runs):
        counts = np.zeros(len(p), dtype=np.int64)
        counts[first] = pooled
        found = cressie_read(counts, p, alpha=alpha)
        assert found.detectable_tv <= tv
        missed += not found.rejected
    assert missed <= at_most(0.001, runs)


@pytest.mark.parametrize("cells", [3, 16, 256])
def test_flat_laws_need_no_fewer_trials_than_planned(cells):
    """At power 0.9 the simulated power is 0.9: the plan is neither short nor wasteful."""
    n = trials_needed(cells, 0.05, 1e-6, 0.9)
    p, runs = uniform_law(cells), 2000
    alternative = worst_direction(p, 0.05)
    tables = np.random.default_rng(9).multinomial(n, alternative, size=runs)
    hits = sum(cressie_read(table, p, alpha=1e-6).rejected for table in tables)
    assert hits >= at_least(0.9, runs)
    assert hits <= at_most(0.93, runs)


@pytest.mark.parametrize(
    "p",
    [
        uniform_law(4),
        uniform_law(1000),
        softmax_law(2000),
        np.array([1 - 1e-7, 1e-7]),
        np.array([0.5, 0.5 - 1e-6, 1e-6]),
        np.array([0.9, 0.09, 0.009, 0.001, 0.0]),
        np.array([0.0, 1.0]),
    ],
)
@pytest.mark.parametrize("tv", [0.2, 0.03])
def test_a_plan_for_a_law_holds_there_and_a_little_above(p, tv):
    n = trials_needed_for_law(p, tv, 1e-9, 0.999)
    for factor in (1, 1.001, 1.02, 1.05):
        trials = int(n * factor)
        assert pooled_detectable_tv(pool(p, trials), trials, 1e-9, 0.999) <= tv
    if n > 200:  # below, the one count of margin of the binomial plan is a large part of n
        fewer = int(0.85 * n)
        assert pooled_detectable_tv(pool(p, fewer), fewer, 1e-9, 0.999) > tv


def test_a_plan_for_a_vocabulary():
    n = trials_needed_for_law(softmax_law(152_064), 0.03, 1e-9, 0.999)
    assert 2e5 < n < 3e5
