"""Faults that samplers really have are rejected at the promised number of trials."""

from __future__ import annotations

import numpy as np
import pytest
from evidence_cases import (
    at_most,
    draft_leak,
    lost_tail,
    softmax_law,
    temperature,
    total_variation,
    zipf_law,
)

from specverify.evidence import (
    cressie_read,
    pool,
    trials_needed_for_law,
    tv_test,
    tv_trials_needed,
    worst_cells,
)
from specverify.evidence.power import pooled_detectable_tv
from specverify.evidence.residuals import freeman_tukey

ALPHA, POWER = 1e-9, 0.999
LAWS = {"softmax-8": softmax_law(8, 3, 1.5), "softmax-64": softmax_law(64), "zipf-32": zipf_law(32)}
FAULTS = {
    "draft leak": lambda p: draft_leak(p, 0.1),
    "lost tail": lambda p: lost_tail(p, 0.15),
    "temperature 5 % high": lambda p: temperature(p, 1.05),
    "temperature 5 % low": lambda p: temperature(p, 0.95),
}


def planned(p, faulty):
    """Trials at which the promise covers what is left of the fault after pooling."""
    n = trials_needed_for_law(p, total_variation(p, faulty), ALPHA, POWER)
    while True:
        pooling = pool(p, n)
        left = total_variation(pooling.p, np.bincount(pooling.index, weights=faulty))
        if pooled_detectable_tv(pooling, n, ALPHA, POWER) <= left:
            return n
        n = int(1.1 * n)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("law", LAWS)
def test_cressie_read_rejects_at_the_promised_trials(law, fault):
    p = LAWS[law]
    faulty, runs = FAULTS[fault](p), 200
    assert total_variation(p, faulty) > 0.005
    n = planned(p, faulty)
    rng = np.random.default_rng(21)
    faulty_tables, fair_tables = (rng.multinomial(n, q, size=runs) for q in (faulty, p))
    missed = sum(not cressie_read(t, p, alpha=ALPHA).rejected for t in faulty_tables)
    assert missed <= at_most(1 - POWER, runs)
    assert not any(cressie_read(t, p, alpha=ALPHA).rejected for t in fair_tables)


@pytest.mark.parametrize("fault", FAULTS)
def test_total_variation_rejects_at_the_promised_trials(fault):
    p = LAWS["softmax-64"]
    faulty = FAULTS[fault](p)
    n = tv_trials_needed(p, total_variation(p, faulty), ALPHA, POWER)
    tables = np.random.default_rng(22).multinomial(n, faulty, size=200)
    assert sum(not tv_test(t, p, alpha=ALPHA).rejected for t in tables) <= at_most(1 - POWER, 200)


def test_a_token_outside_the_filter_is_found_at_once():
    p = np.where(np.arange(64) < 40, softmax_law(64), 0)
    p /= p.sum()
    faulty = 0.99 * p + 0.01 * np.eye(64)[63]
    n = 2000
    missed = 0
    for table in np.random.default_rng(23).multinomial(n, faulty, size=300):
        found = cressie_read(table, p, alpha=ALPHA)
        missed += not found.rejected
        assert (found.zero_hits > 0) == (found.p_value == 0)
    assert missed == 0  # 0.99 ** 2000 = 2e-9


def test_worst_cells_point_at_the_fault():
    p = np.array([0.0, 0.5, 0.3, 0.1999, 1e-4, 0.0])
    counts = np.array([0, 5000, 3600, 1398, 1, 1])
    assert worst_cells(counts, p).tolist() == [5, 3, 2, 4, 1]
    assert worst_cells(counts, p, 2).tolist() == [5, 3]
    counts = np.array([2, 5000, 3000, 1997, 1, 7])
    assert worst_cells(counts, p, 3)[:2].tolist() == [5, 0]
    assert worst_cells([0, 0], [0.5, 0.5]).tolist() == [0, 1]


def test_deviations_are_about_standard_normal_for_rare_cells_too():
    p = np.array([1e-3, 0.1, 0.899])
    tables = np.random.default_rng(24).multinomial(4000, p, size=3000)
    spread = np.array([freeman_tukey(table, 4000 * p) for table in tables]).std(axis=0)
    assert spread == pytest.approx([1, np.sqrt(0.9), np.sqrt(0.101)], rel=0.1)
