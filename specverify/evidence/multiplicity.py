"""Which of many tests are the culprits, with the error of the whole list under control.

A run splits its alpha before anything is drawn (Bonferroni). Afterwards a list of culprits may be
named by a step-down rule that never names fewer and keeps the same guarantee. E-values are kept as
logarithms: one failing check easily reaches e^10000.

=============  =========  =======================================  ====================
rule           input      guarantee                                dependence
=============  =========  =======================================  ====================
``holm``       p-values   P(any false culprit) <= alpha            any
``e_holm``     e-values   P(any false culprit) <= alpha            any, optional stopping
``e_closed``   e-values   the same, names at least as many         any, optional stopping
``e_bh``       e-values   E(false culprits / culprits) <= alpha    any
=============  =========  =======================================  ====================
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from specverify.evidence import validate


@dataclasses.dataclass(frozen=True, kw_only=True)
class Culprits:
    """Which tests of a family are rejected.

    Attributes:
        rule: name of the rule.
        alpha: the bound on the family-wise error rate, or on the false-discovery rate.
        tests: m, the size of the family.
        culprits: indices of the rejected tests, the strongest evidence first.
        adjusted: for every test, what is compared with the bound: an adjusted p-value (with alpha)
            or an adjusted log e-value (with ln(1/alpha)).
    """

    rule: str
    alpha: float
    tests: int
    culprits: tuple[int, ...]
    adjusted: tuple[float, ...]

    @property
    def rejected(self) -> bool:
        """Whether any test is rejected."""
        return bool(self.culprits)


def bonferroni_share(alpha: float, tests: SupportsIndex) -> float:
    """The alpha of each of m tests, so that all together spend at most ``alpha``.

    Args:
        alpha: of the family.
        tests: m >= 1.

    Returns:
        alpha / m.

    Raises:
        ValueError: naming the field that is wrong.
    """
    return validate.inside("alpha", alpha) / validate.whole("tests", tests, 1)


def bonferroni_shares(alpha: float, weights: Sequence[float]) -> tuple[float, ...]:
    """Unequal shares of alpha, fixed before the data are seen.

    Args:
        alpha: of the family.
        weights: [m] finite numbers > 0, in any unit.

    Returns:
        [m] shares that add up to at most ``alpha``.

    Raises:
        ValueError: naming the field that is wrong.
    """
    level = validate.inside("alpha", alpha)
    if not len(weights):
        raise ValueError("weights: got none; expected one for each test")
    checked = [validate.positive(f"weights[{i}]", weight) for i, weight in enumerate(weights)]
    total = math.fsum(checked)
    return tuple(level * weight / total for weight in checked)


def _family(field: str, values: npt.ArrayLike, low: float, high: float, expected: str
            ) -> npt.NDArray[np.float64]:  # fmt: skip
    """[m >= 1] numbers in [low, high], no NaN."""
    found = np.asarray(values)
    if found.ndim != 1 or found.shape[0] == 0 or found.dtype.kind not in "fiu":
        got = f"{found.dtype}{list(found.shape)}"
        raise ValueError(f"{field}: got {got}; expected a vector of m >= 1 numbers")
    found = found.astype(np.float64)
    bad = ~((found >= low) & (found <= high))
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"{field}[{at}]: got {found[at]}; expected {expected}")
    return found


def _log_e_values(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    return _family("log_e", values, -math.inf, math.inf, "a log e-value, infinities included")


def _name(rule: str, alpha: float, adjusted: npt.NDArray[np.float64],
          hit: npt.NDArray[np.bool_], order: npt.NDArray[np.intp]) -> Culprits:  # fmt: skip
    return Culprits(
        rule=rule,
        alpha=alpha,
        tests=int(adjusted.shape[0]),
        culprits=tuple(int(i) for i in order if hit[i]),
        adjusted=tuple(float(value) for value in adjusted),
    )


def holm(p_values: npt.ArrayLike, alpha: float) -> Culprits:
    """Holm's step-down rule (1979, Scand. J. Statist. 6:65).

    The i-th smallest p-value is compared with alpha / (m - i + 1) until one is larger. Adjusted
    p-values are the running maximum of (m - i + 1) p_(i), at most 1.

    Args:
        p_values: [m] in [0, 1].
        alpha: bound on the probability of naming any true hypothesis.

    Returns:
        The culprits.

    Raises:
        ValueError: naming the field that is wrong.
    """
    p = _family("p_values", p_values, 0.0, 1.0, "a p-value from 0 to 1")
    level, m = validate.inside("alpha", alpha), p.shape[0]
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(m)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(m, 0, -1)))
    return _name("holm", level, adjusted, adjusted <= level, order)


def e_holm(log_e: npt.ArrayLike, alpha: float) -> Culprits:
    """Holm's rule on e-values: 1/E is a p-value by Markov's inequality.

    Args:
        log_e: [m] ln E of each test.
        alpha: bound on the probability of naming any true hypothesis.

    Returns:
        The culprits; the i-th largest e-value needs E >= (m - i + 1) / alpha.

    Raises:
        ValueError: naming the field that is wrong.
    """
    logs, level = _log_e_values(log_e), validate.inside("alpha", alpha)
    m = logs.shape[0]
    order = np.argsort(-logs, kind="stable")
    adjusted = np.empty(m)
    adjusted[order] = np.minimum.accumulate(logs[order] - np.log(np.arange(m, 0, -1)))
    return _name("e-holm", level, adjusted, adjusted >= -math.log(level), order)


def global_log_e(log_e: npt.ArrayLike) -> float:
    """E-value of the hypothesis that every test's null is true: the mean of the e-values.

    The mean of e-values is one under any dependence, and no other symmetric way of merging
    dominates it (Vovk & Wang 2021, Ann. Statist. 49:1736).

    Args:
        log_e: [m] ln E of each test.

    Returns:
        ln of the mean; infinite if one is.

    Raises:
        ValueError: naming the field that is wrong.
    """
    logs = _log_e_values(log_e)
    return float(np.logaddexp.reduce(logs) - math.log(logs.shape[0]))


def e_closed(log_e: npt.ArrayLike, alpha: float) -> Culprits:
    """Closed testing with means of e-values (Vovk & Wang 2021, Algorithm 1).

    A test is named if every set of tests that contains it has a mean e-value of at least 1/alpha.
    The worst set of each size adds the smallest others, so the adjusted e-value of test k is the
    minimum over i of (e_k + the sum of the i smallest of the others) / (i + 1).
    It is never below the e-Holm value: the others add, where e-Holm counts them as 0.

    Args:
        log_e: [m] ln E of each test.
        alpha: bound on the probability of naming any true hypothesis.

    Returns:
        The culprits.

    Raises:
        ValueError: naming the field that is wrong.
    """
    logs, level = _log_e_values(log_e), validate.inside("alpha", alpha)
    order = np.argsort(-logs, kind="stable")
    adjusted = np.empty(logs.shape[0])
    # sums[i] = the i smallest. For k of rank r from below, sets of the r smallest others or more
    # would count k twice from sums; sets with a test above k have a larger mean than without it.
    sums = np.concatenate([[-math.inf], np.logaddexp.accumulate(logs[order][::-1])])
    for rank, k in enumerate(order[::-1]):
        means = np.logaddexp(logs[k], sums[: rank + 1]) - np.log(np.arange(1, rank + 2))
        adjusted[k] = means.min()
    return _name("e-closed", level, adjusted, adjusted >= -math.log(level), order)


def e_bh(log_e: npt.ArrayLike, alpha: float) -> Culprits:
    """The e-BH rule for exploratory sweeps (Wang & Ramdas 2022, J. R. Statist. Soc. B 84:822).

    Names the k tests with the largest e-values for the largest k with e_(k) >= m / (k alpha).

    Args:
        log_e: [m] ln E of each test.
        alpha: bound on the expected share of true hypotheses among the culprits.

    Returns:
        The culprits; adjusted values are running maxima, from the smallest e-value up, of
        k e_(k) / m.

    Raises:
        ValueError: naming the field that is wrong.
    """
    logs, level = _log_e_values(log_e), validate.inside("alpha", alpha)
    m = logs.shape[0]
    order = np.argsort(-logs, kind="stable")
    scaled = logs[order] + np.log(np.arange(1, m + 1)) - math.log(m)
    adjusted = np.empty(m)
    adjusted[order] = np.maximum.accumulate(scaled[::-1])[::-1]
    return _name("e-bh", level, adjusted, adjusted >= -math.log(level), order)
