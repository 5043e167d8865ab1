"""Two independent rates: the exact unconditional test of Barnard, for tables of any size.

Tables (x of n_a, y of n_b) are ordered by the pooled score statistic
z^2 = (x/n_a - y/n_b)^2 / (r (1 - r) (1/n_a + 1/n_b)), r = (x + y) / (n_a + n_b) (Suissa & Shuster
1985). The p-value is the largest probability, over the common rate, of a table at least as far
out. Following Berger & Boos (1994, J. Am. Statist. Assoc. 89:1012) the maximum is taken over a
confidence interval of the rate and its miss probability is added: still valid, and cheaper.
`scipy.stats.barnard_exact` builds the whole table of (n_a + 1)(n_b + 1) outcomes, seconds at 1319
questions and gigabytes at 10,000; here each x has one interval of acceptable y, so work and memory
grow like sqrt(n). The tests compare the two.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from specverify.evidence.binomial import clopper_pearson

MISS = 1e-9
"""Added to every p-value: the chance that the rate lies outside the interval searched."""

_TRIMMED = 1e-12  # mass of rows x that are not looked at, added to every p-value as well
_STEP = 0.2  # of a standard error of the rate; the probability is smooth on that scale

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def score(x: npt.ArrayLike, y: npt.ArrayLike, n_a: int, n_b: int) -> Floats:
    """Pooled score statistic z^2, broadcast; 0 where both samples are all wrong or all right."""
    first, second = np.asarray(x, np.float64), np.asarray(y, np.float64)
    both, n = first + second, n_a + n_b
    spread = both * (n - both) * n_a * n_b
    distance = n * (first * n_b - second * n_a) ** 2
    return np.asarray(np.divide(distance, spread, out=np.zeros_like(distance), where=spread > 0))


@dataclasses.dataclass(frozen=True, eq=False)
class Region:
    """Tables at least as far out as a limit: y <= low or y >= high, for each x looked at."""

    n_a: int
    n_b: int
    x: Ints
    low: Ints
    high: Ints

    def probability(self, rate_a: npt.ArrayLike, rate_b: npt.ArrayLike) -> Floats:
        """Probability of the region for rates [T] strictly between 0 and 1."""
        a, b = np.asarray(rate_a)[:, None], np.asarray(rate_b)[:, None]
        x, n = self.x[None, :], self.n_a
        logs = special.gammaln(n + 1) - special.gammaln(x + 1) - special.gammaln(n - x + 1)
        rows = np.exp(logs + x * np.log(a) + (n - x) * np.log1p(-a))
        low, high = np.maximum(self.low, 0), np.minimum(self.high, self.n_b)
        below = special.betaincc(low + 1, self.n_b - low, b) * (self.low >= 0)
        above = special.betainc(high, self.n_b - high + 1, b) * (self.high <= self.n_b)
        return np.asarray((rows * (below + above)).sum(axis=1))


def region(n_a: int, n_b: int, x: Ints, least: float) -> Region:
    """The tables with z^2 >= least (up to rounding), for the rows x.

    For each x, z^2 grows as y moves away from x n_b / n_a to either side, so two bisections find
    the limits.

    Args:
        n_a: size of the first sample.
        n_b: size of the second sample.
        x: [X] int64, rows to look at.
        least: limit of z^2, > 0.

    Returns:
        The region.
    """
    limit = least * (1 - 1e-12)
    even = x * n_b // n_a  # at or below the y of equal rates
    low_in, low_out = np.full_like(x, -1), even + 1
    high_out, high_in = even, np.full_like(x, n_b + 1)
    for _ in range(n_b.bit_length() + 1):
        middle = (low_in + low_out) // 2
        inside = (middle < 0) | (score(x, middle, n_a, n_b) >= limit)
        low_in, low_out = np.where(inside, middle, low_in), np.where(inside, low_out, middle)
        middle = (high_in + high_out + 1) // 2
        inside = (middle > n_b) | (score(x, middle, n_a, n_b) >= limit)
        high_in, high_out = np.where(inside, middle, high_in), np.where(inside, high_out, middle)
    return Region(n_a, n_b, x, low_in, high_in)


def rows(n: int, low: float, high: float) -> Ints:
    """The x of Bin(n, rate) with all but 1e-12 of the mass, for every rate in [low, high]."""
    first = stats.binom.ppf(_TRIMMED / 4, n, low)
    last = stats.binom.isf(_TRIMMED / 4, n, high)
    return np.arange(max(0, int(first)), min(n, int(last)) + 1, dtype=np.int64)


def rates(low: float, high: float, n: int) -> Floats:
    """Rates in [low, high], strictly inside (0, 1), a fifth of a standard error apart."""
    # on the scale arcsin sqrt(rate) every standard error is 1 / (2 sqrt n)
    left, right = math.asin(math.sqrt(low)), math.asin(math.sqrt(high))
    points = 2 + math.ceil((right - left) * 2 * math.sqrt(n) / _STEP)
    grid = np.sin(np.linspace(left, right, points)) ** 2
    return np.asarray(np.clip(grid, 1e-300, 1 - 1e-16), np.float64)


def p_value(x: int, n_a: int, y: int, n_b: int) -> float:
    """Two-sided p-value of x of n_a against y of n_b.

    Args:
        x: 0 .. n_a.
        n_a: >= 1.
        y: 0 .. n_b.
        n_b: >= 1.

    Returns:
        A valid p-value, never below ``MISS``.
    """
    observed = float(score(x, y, n_a, n_b))
    if observed == 0:
        return 1.0
    low, high = clopper_pearson(x + y, n_a + n_b, 1 - MISS)
    found = region(n_a, n_b, rows(n_a, low, high), observed)
    grid = rates(low, high, n_a + n_b)
    return min(1.0, float(found.probability(grid, grid).max()) + MISS + _TRIMMED)


def critical(n_a: int, n_b: int, rate: float, alpha: float) -> float:
    """Least z^2 whose region has probability <= alpha at all rates near a given one.

    Args:
        n_a: size of the first sample.
        n_b: size of the second sample.
        rate: common rate in (0, 1); rates within three standard errors are looked at.
        alpha: false-alarm probability.

    Returns:
        The limit; the test rejects about when z^2 reaches it. For planning.
    """
    reach = 3 * math.sqrt(rate * (1 - rate) / (n_a + n_b))
    low, high = max(0.0, rate - reach), min(1.0, rate + reach)
    grid, looked = rates(low, high, n_a + n_b)[::3], rows(n_a, low, high)
    inside, outside = 0.0, 4 * float(stats.chi2.isf(alpha, 1))
    for _ in range(20):
        middle = (inside + outside) / 2
        level = region(n_a, n_b, looked, middle).probability(grid, grid).max()
        inside, outside = (inside, middle) if level + MISS <= alpha else (middle, outside)
    return outside
