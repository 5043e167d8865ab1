"""False alarms far out, where simulation cannot look: exact sums and importance sampling."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from evidence_cases import mixture_tail, softmax_law, uniform_law
from scipy import special, stats

from specverify.evidence import cressie_read, pool
from specverify.evidence.goodness_of_fit import FAR_TAIL, power_divergence


@cache
def exact_tails(rare: int, floor: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probability, unguarded and guarded p-value of every table of ``rare`` Poisson cells.

    They stand beside a cell that holds the rest of very many draws and never deviates.
    """
    x = np.arange(int(6 * floor))
    grids = np.meshgrid(*[x] * rare, indexing="ij")
    weights = stats.poisson.pmf(x, floor)
    mass = np.prod([weights[grid] for grid in grids], axis=0)

    def tail(exponent):
        # a single cell keeps exponent * (N - np) inside its term, which is what is wanted here
        one = np.array([power_divergence(np.array([k]), np.array([floor]), exponent) for k in x])
        return special.chdtrc(rare, sum(one[grid] for grid in grids))

    unguarded = tail(2 / 3)
    guarded = np.maximum(unguarded, np.minimum(FAR_TAIL, tail(0.0)))
    return mass, unguarded, guarded


@pytest.mark.parametrize("rare", [2, 3])
def test_rare_cells_beside_a_large_one(rare):
    mass, _, guarded = exact_tails(rare, 20.0)
    for level in (1e-6, 1e-9, 1e-12):
        assert 0.2 * level <= mass[guarded <= level].sum() <= 1.1 * level


@pytest.mark.parametrize(("level", "times"), [(1e-6, 3), (1e-9, 15), (1e-12, 80)])
def test_without_the_guard_rare_cells_raise_false_alarms(level, times):
    mass, unguarded, _ = exact_tails(2, 20.0)
    assert mass[unguarded <= level].sum() > times * level


def test_the_statistic_in_use_is_the_guarded_one():
    n, floor, x = 10**7, 20.0, np.arange(0, 120, 7)
    p = np.array([floor / n, floor / n, 1 - 2 * floor / n])
    _, _, guarded = exact_tails(2, floor)
    for i in x:
        for j in x:
            found = cressie_read([i, j, n - i - j], p, alpha=1e-9).p_value
            assert found == pytest.approx(guarded[i, j], rel=1e-2)


@pytest.mark.parametrize(
    ("p", "n"), [(uniform_law(16), 320), (softmax_law(64), 4000), (uniform_law(100), 2000)]
)
def test_one_in_a_million(p, n):
    pooling = pool(p, n)

    def rejects(table):
        return cressie_read(table, pooling.p, alpha=1e-6).rejected

    found = mixture_tail(pooling.p, n, rejects, draws=4000, seed=12)
    assert 0.5e-6 <= found <= 2e-6


def test_the_tail_calculator_agrees_with_enumeration():
    n, p, level = 60, np.full(3, 1 / 3), 1e-6
    tables = [(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)]
    mass = stats.multinomial.pmf(tables, n, p)
    values = np.array([cressie_read(t, p, alpha=0.1).p_value for t in tables])
    exact = float(mass[values <= level].sum())

    def rejects(table):
        return cressie_read(table, p, alpha=level).rejected

    assert mixture_tail(p, n, rejects, draws=8000, seed=1) == pytest.approx(exact, rel=0.2)
