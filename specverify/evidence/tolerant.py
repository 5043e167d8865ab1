"""A chi-square test that forgives what floats alone may do.

If the true law is within tau of p, cell by cell, the statistic of n draws is at worst noncentral
chi-square with lambda0 = n sum tau_g^2 / P_g over the live cells g. The tolerant test rejects
beyond that law's quantile, so its false-alarm probability is alpha for every lawful rounding. What
it detects must stand out above the allowance: no number of trials sees a total variation below
1/2 sqrt(sum tau_g^2 / P_g).
"""

from __future__ import annotations

import dataclasses
import math
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from specverify.evidence import validate
from specverify.evidence.binomial import binomial_detectable, two_sided_p_value
from specverify.evidence.float_budget import Allowance
from specverify.evidence.goodness_of_fit import FAR_TAIL, power_divergence
from specverify.evidence.pooling import FLOOR, Pooling, pool
from specverify.evidence.power import noncentrality


@dataclasses.dataclass(frozen=True, kw_only=True)
class TolerantEvidence:
    """The answer of a tolerant test.

    Attributes:
        value: Cressie-Read statistic (l = 2/3).
        p_value: largest over the laws within the allowance; 0 after an excluded draw.
        alpha: false-alarm probability the test was asked to spend.
        trials: n.
        cells: live cells, after pooling.
        lambda0: noncentrality that was forgiven.
        tv_allowed: largest total variation within the allowance, on the live cells.
        zero_hits: draws in cells of probability 0; never forgiven.
        detectable_tv: smallest total variation rejected with probability ``power``, 1 if none is.
        power: of the promise.
    """

    value: float
    p_value: float
    alpha: float
    trials: int
    cells: int
    lambda0: float
    tv_allowed: float
    zero_hits: int
    detectable_tv: float
    power: float

    @property
    def rejected(self) -> bool:
        """Whether every law within the allowance is rejected."""
        return self.p_value <= self.alpha or self.zero_hits > 0


def ratio(tau: npt.NDArray[np.float64], p: npt.NDArray[np.float64]) -> float:
    """The sum of tau^2 / p: the noncentrality that each trial may add, lawfully."""
    return float(np.sum(tau**2 / p))


def _at_least_zero(field: str, value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{field}: got {value}; expected a finite number >= 0")
    return float(value)


def threshold(cells: SupportsIndex, lambda0: float, alpha: float) -> float:
    """The value that a lawful statistic exceeds with probability alpha.

    Args:
        cells: k >= 2.
        lambda0: forgiven noncentrality >= 0.
        alpha: false-alarm probability.

    Returns:
        ncx2.isf(alpha, k - 1, lambda0).

    Raises:
        ValueError: naming the field that is wrong.
    """
    df = validate.whole("cells", cells, 2) - 1
    lambda0 = _at_least_zero("lambda0", lambda0)
    level = validate.inside("alpha", alpha)
    central = float(stats.chi2.isf(level, df))
    return float(stats.ncx2.isf(level, df, lambda0)) if lambda0 else central


def tolerant_detectable(
    cells: SupportsIndex, n: SupportsIndex, per_trial: float, alpha: float, power: float
) -> float:
    """Smallest total variation that a tolerant test rejects with probability ``power``.

    Args:
        cells: live cells, at least 3 (two are tested by the binomial law).
        n: number of trials; 0 detects nothing.
        per_trial: forgiven noncentrality for each trial (:func:`ratio`).
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        A total variation in (0, 1].

    Raises:
        ValueError: naming the field that is wrong.
    """
    k, trials = validate.whole("cells", cells, 3), validate.whole("n", n)
    per_trial = _at_least_zero("per_trial", per_trial)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    limit = threshold(k, trials * per_trial, alpha)
    if trials == 0:
        return 1.0
    if per_trial == 0:
        return min(1.0, math.sqrt(noncentrality(k, alpha, power) / (4 * trials)))

    def missing(found: float) -> float:
        return float(stats.ncx2.cdf(limit, k - 1, found)) - (1 - power)

    high = 2 * limit + 16.0
    while missing(high) > 0:
        high *= 2
    found = optimize.brentq(missing, 1e-9, high, xtol=1e-9) if missing(1e-9) > 0 else 0.0
    return min(1.0, math.sqrt(float(found) / (4 * trials)))


def tolerant_trials_needed(
    cells: SupportsIndex, tv: float, per_trial: float, alpha: float, power: float
) -> int:
    """Trials after which a tolerant test rejects ``tv`` with probability ``power``.

    Args:
        cells: live cells, at least 3 (two are tested by the binomial law).
        tv: total variation in (0, 1), above sqrt(per_trial) / 2.
        per_trial: forgiven noncentrality for each trial.
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        n >= 1.

    Raises:
        ValueError: naming the field that is wrong; also if floats alone may do as much as ``tv``.
    """
    tv, hidden = validate.inside("tv", tv), math.sqrt(_at_least_zero("per_trial", per_trial)) / 2
    if tv <= hidden:
        raise ValueError(f"tv: got {tv:g}; expected more than {hidden:g}, what floats may do")
    low, high = 0, 64
    while tolerant_detectable(cells, high, per_trial, alpha, power) > tv:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        found = tolerant_detectable(cells, middle, per_trial, alpha, power) <= tv
        low, high = (low, middle) if found else (middle, high)
    return high


def _two_cells(x: int, n: int, rate: float, tau: float) -> float:
    """Largest two-sided binomial p-value over the rates within tau."""
    low, high = max(0.0, rate - tau), min(1.0, rate + tau)
    if low <= x / n <= high:
        return 1.0
    return two_sided_p_value(x, n, high if x / n > high else low)


def _detectable(pooling: Pooling, tau: npt.NDArray[np.float64], n: int, alpha: float, power: float
                ) -> float:  # fmt: skip
    if pooling.cells == 1 or n == 0:
        return 1.0
    if pooling.cells > 2:
        return tolerant_detectable(pooling.cells, n, ratio(tau, pooling.p), alpha, power)
    rate, off = float(pooling.p[0]), float(tau[0])
    edges = (max(0.0, rate - off), min(1.0, rate + off))
    return min(1.0, off + max(binomial_detectable(edge, n, alpha, power) for edge in edges))


def _p_value(
    table: npt.NDArray[np.int64], pooling: Pooling, value: float, lambda0: float, tau: float
) -> float:
    n, df = int(table.sum()), pooling.cells - 1
    if df == 0 or n == 0:
        return 1.0
    if df == 1:
        return _two_cells(int(table[0]), n, float(pooling.p[0]), tau)
    law = stats.ncx2(df, lambda0) if lambda0 else stats.chi2(df)
    tail = float(law.sf(value))
    if tail >= FAR_TAIL:
        return tail
    other = float(law.sf(power_divergence(table, n * pooling.p, 0.0)))
    return max(tail, min(FAR_TAIL, other))


def tolerant_test(
    counts: npt.ArrayLike,
    p: npt.ArrayLike,
    allowed: Allowance,
    *,
    alpha: float,
    power: float = 0.999,
    floor: float = FLOOR,
) -> TolerantEvidence:
    """Cressie-Read test of counts against every law within an allowance of ``p``.

    Args:
        counts: [k] integers >= 0.
        p: [k] law.
        allowed: how far each cell may be off; within a pooled cell the deviations add up.
        alpha: false-alarm probability.
        power: of the promise in ``detectable_tv``.
        floor: least expected count of a pooled cell.

    Returns:
        The evidence. An allowance of 0 gives the p-value of the ordinary test.

    Raises:
        ValueError: naming the field that is wrong.
    """
    law = validate.law("p", p)
    table = validate.table("counts", counts, law.shape[0])
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    n = int(table.sum())
    pooling = pool(law, n, floor)
    pooled, zero_hits = pooling.table(table)
    live = pooling.index >= 0
    tau = np.bincount(pooling.index[live], weights=allowed.cells(law)[live])
    # deviations add up to 0: no cell is off by more than all the others together
    tau, left = np.minimum(tau, tau.sum() - tau), n - zero_hits
    value = power_divergence(pooled, left * pooling.p, 2 / 3) if left else 0.0
    per_trial = ratio(tau, pooling.p)
    return TolerantEvidence(
        value=value,
        p_value=0.0
        if zero_hits
        else _p_value(pooled, pooling, value, n * per_trial, float(tau[0])),
        alpha=alpha,
        trials=n,
        cells=pooling.cells,
        lambda0=n * per_trial,
        tv_allowed=min(1.0, float(tau.sum()) / 2),
        zero_hits=zero_hits,
        detectable_tv=_detectable(pooling, tau, n, alpha, power),
        power=power,
    )
