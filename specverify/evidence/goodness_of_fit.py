"""Counts against exact probabilities: power-divergence statistics on pooled cells.

CR(l) = 2 / (l (l + 1)) sum N ((N / np)^l - 1): l = 1 is Pearson's X2, l -> 0 the likelihood ratio
G, l = 2/3 the compromise of Cressie & Read (1984, J. R. Statist. Soc. B 46:440). All are
chi-square with k - 1 degrees of freedom when every expectation is large, but their far tails are
not: with few cells of expectation 20 beside a large one, l = 2/3 alone rejects at 1e-9 up to 18
times too often (a rare cell is Poisson, and N^(5/3) outgrows the N ln N of its tail), while with
many cells G does. A far-tail p-value is therefore the larger of the two; docs/statistics.md has
the measured ratios.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special

from specverify.evidence import validate
from specverify.evidence.binomial import two_sided_p_value
from specverify.evidence.pooling import FLOOR, pool
from specverify.evidence.power import pooled_detectable_tv
from specverify.evidence.records import Evidence

FAR_TAIL = 1e-4
"""Below this p-value the likelihood ratio has to agree."""


def power_divergence(
    counts: npt.NDArray[np.int64], expected: npt.NDArray[np.float64], exponent: float
) -> float:
    """The power-divergence statistic of a table.

    Every term has exponent * (N - np) taken off, which sums to 0: the terms are then >= 0 and do
    not cancel, so that tables of 1e9 draws keep their digits.

    Args:
        counts: [m] int64.
        expected: [m] float64, all > 0, with the same sum.
        exponent: l > -1; 0 is the likelihood ratio.

    Returns:
        The statistic, >= 0.
    """
    excess = counts - expected
    hit = counts > 0
    log_ratio = np.log1p(excess[hit] / expected[hit])
    terms = -(exponent or 1.0) * excess
    terms[hit] += counts[hit] * (np.expm1(exponent * log_ratio) if exponent else log_ratio)
    scale = exponent * (exponent + 1) if exponent else 1.0
    return max(0.0, 2 / scale * float(terms.sum()))


def _p_value(table: npt.NDArray[np.int64], law: npt.NDArray[np.float64], value: float) -> float:
    """P-value of a pooled table without excluded draws."""
    n, cells = int(table.sum()), table.shape[0]
    if cells == 1 or n == 0:
        return 1.0
    if cells == 2:
        return two_sided_p_value(int(table[0]), n, float(law[0]))
    tail = float(special.chdtrc(cells - 1, value))
    if tail >= FAR_TAIL:
        return tail
    likelihood_ratio = power_divergence(table, n * law, 0.0)
    return max(tail, min(FAR_TAIL, float(special.chdtrc(cells - 1, likelihood_ratio))))


def _test(
    statistic: str,
    exponent: float,
    counts: npt.ArrayLike,
    p: npt.ArrayLike,
    alpha: float,
    power: float,
    floor: float,
) -> Evidence:
    law = validate.law("p", p)
    table = validate.table("counts", counts, law.shape[0])
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    n = int(table.sum())
    pooling = pool(law, n, floor)
    pooled, zero_hits = pooling.table(table)
    # after an impossible draw the rest is compared by itself, for the report
    value = (
        power_divergence(pooled, (n - zero_hits) * pooling.p, exponent) if n > zero_hits else 0.0
    )
    return Evidence(
        statistic=statistic,
        value=value,
        p_value=0.0 if zero_hits else _p_value(pooled, pooling.p, value),
        alpha=alpha,
        trials=n,
        cells=pooling.cells,
        detectable_tv=pooled_detectable_tv(pooling, n, alpha, power),
        power=power,
        zero_hits=zero_hits,
        merged_mass=pooling.merged_mass,
    )


def cressie_read(
    counts: npt.ArrayLike,
    p: npt.ArrayLike,
    *,
    alpha: float,
    power: float = 0.999,
    floor: float = FLOOR,
) -> Evidence:
    """Cressie-Read test (l = 2/3) of counts against a law, on cells pooled to the floor.

    Cells of probability 0 are exact: one draw there gives p-value 0. Two live cells are tested by
    the exact binomial law. More take the chi-square tail, guarded by the likelihood ratio below
    ``FAR_TAIL``.

    Args:
        counts: [k] integers >= 0.
        p: [k] law.
        alpha: false-alarm probability.
        power: of the promise in ``detectable_tv``.
        floor: least expected count of a pooled cell.

    Returns:
        Evidence. With one live cell the p-value is 1 (or 0 after an excluded draw) and
        ``detectable_tv`` is what the excluded cells alone catch.

    Raises:
        ValueError: naming the field that is wrong.
    """
    return _test("cressie-read", 2 / 3, counts, p, alpha, power, floor)


def pearson(
    counts: npt.ArrayLike,
    p: npt.ArrayLike,
    *,
    alpha: float,
    power: float = 0.999,
    floor: float = FLOOR,
) -> Evidence:
    """Pearson's chi-square test (l = 1), otherwise as :func:`cressie_read`.

    Args:
        counts: [k] integers >= 0.
        p: [k] law.
        alpha: false-alarm probability.
        power: of the promise in ``detectable_tv``.
        floor: least expected count of a pooled cell.

    Returns:
        Evidence, as :func:`cressie_read`.

    Raises:
        ValueError: naming the field that is wrong.
    """
    return _test("pearson", 1.0, counts, p, alpha, power, floor)
