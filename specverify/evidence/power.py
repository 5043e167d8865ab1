"""How many trials a chi-square test needs, and what it detects: two functions that invert.

Noncentrality. Counts of n draws from p' instead of p make the statistic noncentral chi-square with
lambda = n sum (p'_i - p_i)^2 / p_i. By Cauchy-Schwarz (sum |d_i|)^2 <= sum d_i^2 / p_i * sum p_i,
that is lambda >= 4 n TV(p', p)^2 whatever the law, with equality for |p' - p| proportional to p.
So n = lambda / (4 tv^2) is what the worst direction needs and an upper bound for every other.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from specverify.evidence import validate
from specverify.evidence.binomial import (
    binomial_detectable,
    binomial_trials_needed,
    zero_hit_tv,
)
from specverify.evidence.pooling import FLOOR, Pooling, group_ends, sorted_law

# The rate that is hardest to test lies at or just below 1/2 (the two variances add up there).
_TWO_CELL_RATES = (0.5, 0.49, 0.475, 0.45, 0.4, 0.35, 0.3, 0.25)


def _miss(critical: float, df: int, noncentrality: float) -> float:
    """P(noncentral chi-square <= critical).

    Where scipy gives up (older series diverge for large parameters), Sankaran's normal
    approximation (1963, Biometrika 50:199) is used: for df >= 1000 it is right to 0.2 % relative
    at a miss of 1e-3, and to 1 % at 1e-6.
    """
    exact = float(stats.ncx2.cdf(critical, df, noncentrality))
    if math.isfinite(exact):
        return exact
    total = df + noncentrality
    h = 1 - 2 * total * (df + 3 * noncentrality) / (3 * (df + 2 * noncentrality) ** 2)
    ratio = (df + 2 * noncentrality) / total**2
    m = (h - 1) * (1 - 3 * h)
    mean = 1 + h * ratio * (h - 1 - 0.5 * (2 - h) * m * ratio)
    deviation = h * math.sqrt(2 * ratio) * (1 + 0.5 * m * ratio)
    return float(special.ndtr(((critical / total) ** h - mean) / deviation))


@lru_cache(maxsize=4096)
def noncentrality(cells: int, alpha: float, power: float) -> float:
    """The lambda at which a chi-square test over ``cells`` cells rejects with this power.

    Args:
        cells: k >= 2.
        alpha: false-alarm probability.
        power: probability that ncx2(k - 1, lambda) exceeds chi2.isf(alpha, k - 1).

    Returns:
        lambda >= 0; 0 when ``power <= alpha``, which needs no deviation at all.
    """
    if power <= alpha:
        return 0.0
    df, target = cells - 1, 1 - power
    critical = float(stats.chi2.isf(alpha, df))
    high = 16.0
    while _miss(critical, df, high) > target:
        high *= 2
    return float(
        optimize.brentq(lambda x: _miss(critical, df, x) - target, 0.0, high, xtol=1e-9, rtol=1e-12)
    )


def trials_needed(cells: SupportsIndex, tv: float, alpha: float, power: float) -> int:
    """Trials after which a total variation of ``tv`` is rejected with probability ``power``.

    Valid as an upper bound for every law on ``cells`` cells (see the module). One cell: the law
    has one outcome, every deviation is a draw outside it, and n is what hits it once. Two cells:
    exact binomial, at the rate that is hardest to test.

    Args:
        cells: live cells of the table, that is after pooling.
        tv: total variation in (0, 1), between the laws on those cells.
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        n >= 1.

    Raises:
        ValueError: naming the field that is wrong.
    """
    k = validate.whole("cells", cells, 1)
    tv = validate.inside("tv", tv)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    if k <= 2:
        rates = (1.0,) if k == 1 else _TWO_CELL_RATES
        return max(binomial_trials_needed(rate, tv, alpha, power) for rate in rates)
    n = max(1, math.ceil(noncentrality(k, alpha, power) / (4 * tv**2)))
    # rounding may leave the inverse one unit in the last place above tv
    return n if detectable_tv(k, n, alpha, power) <= tv else n + 1


def detectable_tv(cells: SupportsIndex, n: SupportsIndex, alpha: float, power: float) -> float:
    """Smallest total variation that n trials reject with probability ``power``.

    The inverse of :func:`trials_needed`, under the same conditions.

    Args:
        cells: live cells of the table.
        n: number of trials; 0 detects nothing.
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        A total variation in (0, 1]; 1.0 when nothing is promised.

    Raises:
        ValueError: naming the field that is wrong.
    """
    k = validate.whole("cells", cells, 1)
    trials = validate.whole("n", n)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    if trials == 0:
        return 1.0
    if k <= 2:
        rates = (1.0,) if k == 1 else _TWO_CELL_RATES
        return max(binomial_detectable(rate, trials, alpha, power) for rate in rates)
    return min(1.0, math.sqrt(noncentrality(k, alpha, power) / (4 * trials)))


def pooled_detectable_tv(pooling: Pooling, n: int, alpha: float, power: float) -> float:
    """What the tests on a pooled table detect, excluded cells included.

    With excluded cells the miss probability of mass z on them and a deviation tv - z elsewhere is
    at most (1 - z)^n times the miss probability of tv - z. The first factor falls faster than the
    second grows, so the larger of the two pure cases is the promise.

    Args:
        pooling: of the law, at this n.
        n: number of trials.
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        A total variation in (0, 1]. A law with one outcome is covered by its excluded cells; if it
        has none, no other law exists and the promise is kept trivially.
    """
    if n == 0:
        return 1.0
    found = 0.0
    if pooling.cells == 2:
        found = binomial_detectable(float(pooling.p[0]), n, alpha, power)
    elif pooling.cells > 2:
        found = detectable_tv(pooling.cells, n, alpha, power)
    by_zeros = pooling.has_zeros or pooling.cells == 1
    return max(found, zero_hit_tv(n, power)) if by_zeros else found


def _needed_by_groups(
    cumulative: npt.NDArray[np.float64],
    ends: npt.NDArray[np.int64],
    tv: float,
    alpha: float,
    power: float,
) -> int:
    if ends.shape[0] == 2:
        return binomial_trials_needed(float(cumulative[ends[0]]), tv, alpha, power)
    return trials_needed(ends.shape[0], tv, alpha, power)


def trials_needed_for_law(
    p: npt.ArrayLike,
    tv: float,
    alpha: float,
    power: float,
    floor: float = FLOOR,
    slack: float = 0.05,
) -> int:
    """Smallest n for a law whose pooling depends on n (a fixed point).

    More trials mean more live cells, and more cells need more trials. The number of cells never
    decreases with n, so iterating n = trials_needed(cells(n)) from below ends at the least fixed
    point. The cells are those at ``(1 + slack) n``: the promise also holds when the caller rounds n
    up to whole batches within that margin.

    Args:
        p: [k] law.
        tv: total variation on the pooled cells, in (0, 1). Where rare cells are merged, shifts
            inside a group are outside the promise (``Pooling.merged_mass``); for a promise on the
            whole law take the larger of ``trials_needed(cells of the law)`` and
            ``floor / smallest probability``.
        alpha: false-alarm probability.
        power: of the promise.
        floor: of the pooling.
        slack: relative margin >= 0 for rounding up.

    Returns:
        n >= 1 with ``pooled_detectable_tv(pool(p, m), m) <= tv`` for n <= m <= (1 + slack) n.

    Raises:
        ValueError: naming the field that is wrong.
    """
    values = validate.law("p", p)
    tv, floor = validate.inside("tv", tv), validate.positive("floor", floor)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    if not (math.isfinite(slack) and slack >= 0):
        raise ValueError(f"slack: got {slack}; expected a finite number >= 0")
    _, cumulative = sorted_law(values)
    n = binomial_trials_needed(1.0, tv, alpha, power)
    while True:
        sizes = (n, math.ceil(n * (1 + slack)))
        poolings = [group_ends(cumulative, size, floor) for size in sizes]
        need = max(_needed_by_groups(cumulative, ends, tv, alpha, power) for ends in poolings)
        if need <= n:
            return n
        n = need
