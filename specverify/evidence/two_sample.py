"""Two samplers and no known target: do two tables of counts come from one law?

The expected table is the pooled frequency times the size of each arm. Exchanging the arms changes
nothing; conditionally on the column sums the first arm is multivariate hypergeometric, whatever
the common law is, so permutation p-values are exact and merging rare cells by column sums is
lawful.

Power. With n_a and n_b draws and m = (n_a a + n_b b) / (n_a + n_b) the noncentrality is
h sum (a - b)^2 / m >= 4 h TV(a, b)^2, h = n_a n_b / (n_a + n_b) (Cauchy-Schwarz, as for one
sample). So equal arms need twice the trials of a one-sample test each: the price of not knowing
the target is four times the draws.
"""

from __future__ import annotations

import dataclasses
import math
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from specverify.evidence import validate
from specverify.evidence.goodness_of_fit import FAR_TAIL, power_divergence
from specverify.evidence.pooling import FLOOR, pool
from specverify.evidence.power import noncentrality

PERMUTE_FROM = 1e-4
"""From this alpha on p-values are permutation p-values; below, a chi-square tail."""

_EXCEEDANCES = 50
_BLOCK = 2000
_MOST_DRAWS = 10**9  # numpy's limit for hypergeometric tables; the chi-square is exact by then


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoSampleEvidence:
    """The answer of one comparison of two tables.

    Attributes:
        statistic: name of the statistic.
        value: of the statistic.
        p_value: probability of tables at least as different, if the laws are the same.
        method: "permutation", "chi-square", "hypergeometric" (two cells, exact), or "none" when
            an arm is empty or all draws are in one cell.
        alpha: false-alarm probability the test was asked to spend.
        trials_a, trials_b: draws in each arm.
        cells: cells compared, after merging.
        detectable_tv: smallest total variation between the two laws, on those cells, that is
            rejected with probability ``power``; 1 when the test is blind.
        power: of the promise.
        permutations: drawn for the p-value; 0 for the other methods.
        merged_mass: share of the draws in merged cells, inside which shifts are invisible.
    """

    statistic: str
    value: float
    p_value: float
    method: str
    alpha: float
    trials_a: int
    trials_b: int
    cells: int
    detectable_tv: float
    power: float
    permutations: int
    merged_mass: float

    @property
    def rejected(self) -> bool:
        """Whether one common law is rejected."""
        return self.p_value <= self.alpha


def two_tables(counts_a: npt.ArrayLike, counts_b: npt.ArrayLike
               ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:  # fmt: skip
    """Check two tables over the same cells.

    Args:
        counts_a: [k] integers >= 0.
        counts_b: [k] integers >= 0.

    Returns:
        Both as int64.

    Raises:
        ValueError: naming the field that is wrong.
    """
    size = np.asarray(counts_a).size
    a = validate.table("counts_a", counts_a, max(1, size))
    return a, validate.table("counts_b", counts_b, size)


def _statistic(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64], exponent: float) -> float:
    both, n = a + b, int(a.sum() + b.sum())
    expected = np.concatenate([both * (a.sum() / n), both * (b.sum() / n)])
    return power_divergence(np.concatenate([a, b]), expected, exponent)


def _cell_terms(arm: npt.NDArray[np.int64], expected: npt.NDArray[np.float64]
                ) -> npt.NDArray[np.float64]:  # fmt: skip
    return np.asarray(arm * (np.cbrt(arm / expected) ** 2 - 1), np.float64)


def _permuted(a: npt.NDArray[np.int64], both: npt.NDArray[np.int64], most: int, seed: int
              ) -> tuple[float, int]:  # fmt: skip
    """Sequential permutation p-value (Besag & Clifford 1991, Biometrika 78:301).

    Drawing stops at the 50th statistic that is at least the observed one: then p = 50 / draws,
    otherwise (exceedances + 1) / (most + 1). Either is valid; clear non-rejections cost little.
    """
    rng = np.random.default_rng(seed)
    size, n = int(a.sum()), int(both.sum())
    first = np.asarray(both * (size / n), np.float64)
    second = both - first

    def values(tables: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        terms = _cell_terms(tables, first) + _cell_terms(both - tables, second)
        return np.asarray(terms.sum(axis=1), np.float64)

    observed = float(values(a[None, :])[0])
    least = observed - 1e-10 * max(1.0, abs(observed))  # equal tables tie, whatever the rounding
    hits = 0
    for done in range(0, most, _BLOCK):
        draws = rng.multivariate_hypergeometric(
            both, size, size=min(_BLOCK, most - done), method="marginals"
        )
        above = hits + np.cumsum(values(draws) >= least)
        if above[-1] >= _EXCEEDANCES:
            total = done + 1 + int(np.searchsorted(above, _EXCEEDANCES))
            return _EXCEEDANCES / total, total
        hits = int(above[-1])
    return (hits + 1) / (most + 1), most


def _hypergeometric(a: npt.NDArray[np.int64], both: npt.NDArray[np.int64]) -> float:
    """Twice the smaller tail of Fisher's exact test."""
    law = stats.hypergeom(int(both.sum()), int(both[0]), int(a.sum()))
    return min(1.0, 2 * float(min(law.cdf(a[0]), law.sf(a[0] - 1))))


def _tail(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64], value: float) -> float:
    """Chi-square tail; far out the likelihood ratio has to agree, as in the one-sample test."""
    tail = float(special.chdtrc(a.shape[0] - 1, value))
    if tail >= FAR_TAIL:
        return tail
    other = float(special.chdtrc(a.shape[0] - 1, _statistic(a, b, 0.0)))
    return max(tail, min(FAR_TAIL, other))


def _decide(
    a: npt.NDArray[np.int64],
    b: npt.NDArray[np.int64],
    value: float,
    alpha: float,
    most: int,
    seed: int,
) -> tuple[float, str, int]:
    """P-value, method and number of permutations of merged tables with two cells or more."""
    both = a + b
    if both.shape[0] == 2:
        return _hypergeometric(a, both), "hypergeometric", 0
    if alpha >= PERMUTE_FROM and both.sum() < _MOST_DRAWS:
        p_value, drawn = _permuted(a, both, most, seed)
        return p_value, "permutation", drawn
    return _tail(a, b, value), "chi-square", 0


def two_sample_detectable(
    cells: SupportsIndex,
    trials_a: SupportsIndex,
    trials_b: SupportsIndex,
    alpha: float,
    power: float,
) -> float:
    """Smallest total variation between two laws that is rejected with probability ``power``.

    Args:
        cells: of the table after merging; one cell has no second law.
        trials_a: draws in the first arm.
        trials_b: draws in the second arm.
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        A total variation in (0, 1]; 1 when nothing is promised.

    Raises:
        ValueError: naming the field that is wrong.
    """
    k = validate.whole("cells", cells, 1)
    n_a, n_b = validate.whole("trials_a", trials_a), validate.whole("trials_b", trials_b)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    if k == 1 or n_a == 0 or n_b == 0:
        return 1.0
    harmonic = n_a * n_b / (n_a + n_b)
    found = math.sqrt(noncentrality(k, alpha, power) / (4 * harmonic))
    # the exact test of two cells loses one count in each tail (Fleiss, Tytun & Ury 1980)
    return min(1.0, found + (1 / (2 * harmonic) if k == 2 else 0.0))


def two_sample_trials_needed(cells: SupportsIndex, tv: float, alpha: float, power: float) -> int:
    """Trials in each of two equal arms after which a total variation ``tv`` is rejected.

    Args:
        cells: of the table after merging, at least 2.
        tv: total variation between the two laws, in (0, 1).
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        n >= 1 for each arm.

    Raises:
        ValueError: naming the field that is wrong.
    """
    k, tv = validate.whole("cells", cells, 2), validate.inside("tv", tv)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    n = max(1, math.ceil(noncentrality(k, alpha, power) / (2 * tv**2)))
    while two_sample_detectable(k, n, n, alpha, power) > tv:
        n += max(1, n // 1000)
    return n


def two_sample_test(
    counts_a: npt.ArrayLike,
    counts_b: npt.ArrayLike,
    *,
    alpha: float,
    power: float = 0.999,
    floor: float = FLOOR,
    permutations: SupportsIndex | None = None,
    seed: SupportsIndex = 0,
) -> TwoSampleEvidence:
    """Two-sample Cressie-Read test (l = 2/3) of one common law.

    Cells are merged, from the column sums alone, until each expects ``floor`` draws in the smaller
    arm. Two cells are tested exactly (hypergeometric). For alpha >= 1e-4 the p-value is by
    permutation, exact for every table; below it is the chi-square tail.

    Args:
        counts_a: [k] integers >= 0.
        counts_b: [k] integers >= 0, over the same cells.
        alpha: false-alarm probability.
        power: of the promise in ``detectable_tv``.
        floor: least expected count of a merged cell in the smaller arm.
        permutations: most to draw, at least 1/alpha; 20/alpha if not given.
        seed: of the permutations.

    Returns:
        The evidence; an empty arm, or draws in a single cell, give p-value 1.

    Raises:
        ValueError: naming the field that is wrong.
    """
    a, b = two_tables(counts_a, counts_b)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    root, n_a, n_b = validate.whole("seed", seed), int(a.sum()), int(b.sum())
    least = math.ceil(1 / alpha)
    most = 20 * least
    if permutations is not None:
        most = validate.whole("permutations", permutations, least)
    blind = n_a == 0 or n_b == 0
    merging = pool(np.full(a.shape[0], 1 / a.shape[0]) if blind else (a + b) / (n_a + n_b),
                   min(n_a, n_b), floor)  # fmt: skip
    (a, _), (b, _) = merging.table(a), merging.table(b)
    value = 0.0 if blind else _statistic(a, b, 2 / 3)
    if blind or merging.cells == 1:
        p_value, method, drawn = 1.0, "none", 0
    else:
        p_value, method, drawn = _decide(a, b, value, alpha, most, root)
    return TwoSampleEvidence(
        statistic="two-sample cressie-read",
        value=value,
        p_value=p_value,
        method=method,
        alpha=alpha,
        trials_a=n_a,
        trials_b=n_b,
        cells=merging.cells,
        detectable_tv=two_sample_detectable(merging.cells, n_a, n_b, alpha, power),
        power=power,
        permutations=drawn,
        merged_mass=merging.merged_mass,
    )
