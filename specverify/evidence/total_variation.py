"""Total variation between frequencies and a law, with proved bounds and no asymptotics.

TVhat = 1/2 sum |N_i/n - p_i|. One draw moves it by at most 1/n, so by McDiarmid's inequality it
leaves its mean by t with probability at most exp(-2 n t^2) on either side. Its mean under the law
is exact; under any other law p' it is at least TV(p', p), because TV is convex in its first
argument (Jensen). Threshold, power and certificate below follow from these two facts alone.
"""

from __future__ import annotations

import math
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt
from scipy import stats

from specverify.evidence import validate
from specverify.evidence.records import Certificate, Evidence


def _drift(level: float, n: int) -> float:
    """The t of McDiarmid's inequality: exp(-2 n t^2) = level."""
    return math.sqrt(-math.log(level) / (2 * n))


def _observed(counts: npt.NDArray[np.int64], p: npt.NDArray[np.float64]) -> float:
    return 0.5 * float(np.abs(counts / counts.sum() - p).sum())


def _null_mean(p: npt.NDArray[np.float64], n: int) -> float:
    inner = p[(p > 0) & (p < 1)]
    m = np.floor(n * inner) + 1
    # m C(n, m) p^m (1-p)^(n-m+1) is m (1-p) times the binomial probability of m; the library's
    # form keeps 10 digits at n = 1e9, where differences of log-gammas keep 5.
    return float(np.sum(m * (1 - inner) * stats.binom.pmf(m, n, inner))) / n


def expected_tv(p: npt.ArrayLike, n: SupportsIndex) -> float:
    """Exact mean of TVhat under the law.

    De Moivre's formula for the mean absolute deviation of a binomial (Diaconis & Zabell 1991,
    Statist. Sci. 6:284): E|N - np| = 2 m C(n, m) p^m (1-p)^(n-m+1), m = floor(np) + 1.

    Args:
        p: [k] law.
        n: number of draws, at least 1.

    Returns:
        E TVhat.

    Raises:
        ValueError: naming the field that is wrong.
    """
    return _null_mean(validate.law("p", p), validate.whole("n", n, 1))


def tv_threshold(p: npt.ArrayLike, n: SupportsIndex, alpha: float) -> float:
    """The value that TVhat exceeds with probability at most alpha under the law.

    Args:
        p: [k] law.
        n: number of draws, at least 1.
        alpha: false-alarm probability.

    Returns:
        E TVhat + sqrt(ln(1/alpha) / 2n) (McDiarmid 1989).

    Raises:
        ValueError: naming the field that is wrong.
    """
    mean = expected_tv(p, n)
    return mean + _drift(validate.inside("alpha", alpha), validate.whole("n", n, 1))


def tv_detectable(p: npt.ArrayLike, n: SupportsIndex, alpha: float, power: float) -> float:
    """Total variation from which on the test rejects with probability ``power``; proved.

    Proof. Let eps = TV(p', p) and beta = 1 - power. E' TVhat >= eps (Jensen), and by McDiarmid
    TVhat <= E' TVhat - sqrt(ln(1/beta) / 2n) has probability at most beta. So if
    eps >= threshold + sqrt(ln(1/beta) / 2n), TVhat exceeds the threshold with probability
    1 - beta at least. QED. No other property of p' is used.

    Args:
        p: [k] law.
        n: number of draws; 0 detects nothing.
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        A total variation, at most 1.0 (then nothing is promised).

    Raises:
        ValueError: naming the field that is wrong.
    """
    law, trials = validate.law("p", p), validate.whole("n", n)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    return _detectable(law, trials, alpha, power)


def _detectable(p: npt.NDArray[np.float64], n: int, alpha: float, power: float) -> float:
    if n == 0:
        return 1.0
    return min(1.0, _null_mean(p, n) + _drift(alpha, n) + _drift(1 - power, n))


def tv_trials_needed(p: npt.ArrayLike, tv: float, alpha: float, power: float) -> int:
    """Smallest n with ``tv_detectable(p, n, alpha, power) <= tv``.

    The detectable deviation never increases with n (the mean of |frequency - p| does not: averages
    are a reverse martingale), so bisection between a bound without the mean and one with
    E TVhat <= 1/2 sum sqrt(p (1 - p) / n) finds it.

    Args:
        p: [k] law.
        tv: total variation in (0, 1).
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        n >= 1.

    Raises:
        ValueError: naming the field that is wrong.
    """
    law, tv = validate.law("p", p), validate.inside("tv", tv)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    drift = _drift(alpha, 1) + _drift(1 - power, 1)
    spread = 0.5 * float(np.sqrt(law * (1 - law)).sum())
    low = max(1, math.floor((drift / tv) ** 2))
    high = math.ceil(((spread + drift) / tv) ** 2) + 1
    while low < high:
        middle = (low + high) // 2
        if _detectable(law, middle, alpha, power) <= tv:
            high = middle
        else:
            low = middle + 1
    return low


def tv_test(
    counts: npt.ArrayLike, p: npt.ArrayLike, *, alpha: float, power: float = 0.999
) -> Evidence:
    """Test of counts against a law by total variation; valid for every n, law and alpha.

    Args:
        counts: [k] integers >= 0.
        p: [k] law.
        alpha: false-alarm probability.
        power: of the promise in ``detectable_tv``.

    Returns:
        Evidence on all k cells, none pooled; the p-value is McDiarmid's bound
        exp(-2 n (TVhat - E TVhat)^2), 0 after a draw that the law excludes.

    Raises:
        ValueError: naming the field that is wrong.
    """
    law = validate.law("p", p)
    table = validate.table("counts", counts, law.shape[0])
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    n, zero_hits = int(table.sum()), int(table[law == 0].sum())
    value = _observed(table, law) if n else 0.0
    excess = max(0.0, value - _null_mean(law, n)) if n else 0.0
    return Evidence(
        statistic="total-variation",
        value=value,
        p_value=0.0 if zero_hits else math.exp(-2 * n * excess**2),
        alpha=alpha,
        trials=n,
        cells=int(np.count_nonzero(law)),
        detectable_tv=_detectable(law, n, alpha, power),
        power=power,
        zero_hits=zero_hits,
    )


def certificate(counts: npt.ArrayLike, p: npt.ArrayLike, confidence: float = 0.999) -> Certificate:
    """Upper bound on the total variation between the true law and ``p``.

    TV(p', p) <= E' TVhat (Jensen) <= TVhat + sqrt(ln(1/beta) / 2n) with probability 1 - beta
    (McDiarmid), for every true law p', k and n. The bias of TVhat is in the bound already, so it
    is honest but wide while n is below k.

    Args:
        counts: [k] integers >= 0.
        p: [k] law.
        confidence: 1 - beta.

    Returns:
        The certificate; without draws it says TV <= 1.

    Raises:
        ValueError: naming the field that is wrong.
    """
    law = validate.law("p", p)
    table = validate.table("counts", counts, law.shape[0])
    confidence, n = validate.inside("confidence", confidence), int(table.sum())
    observed = _observed(table, law) if n else 0.0
    upper = min(1.0, observed + _drift(1 - confidence, n)) if n else 1.0
    return Certificate(tv_observed=observed, tv_upper=upper, confidence=confidence)
