"""Intervals and certificates that hold at every number of trials at once.

A fixed-n interval may be looked at once. A confidence sequence holds simultaneously for all n, so
one may look after every draw, stop whenever it suffices, and intersect what was seen so far
(Robbins 1970; Howard, Ramdas, McAuliffe & Sekhon 2021, Ann. Statist. 49:1055).
All three below are functions of counts, so the order of the draws inside a batch is irrelevant.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt
from scipy import special

from specverify.evidence import validate
from specverify.evidence.records import Certificate

_BETS = 2.0 ** -np.arange(0, 17)
"""Shares of the largest lawful bet; 2^-16 suits about 1e10 draws. Equal weights."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """A two-sided confidence sequence, looked at once.

    Attributes:
        estimate: the observed mean; the middle of the range without trials.
        low, high: limits. The true mean lies inside at every n at once, with ``confidence``.
        confidence: probability over all looks together.
        trials: n.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    trials: int


def _edge(refuted: Callable[[float], bool], outside: float, inside: float) -> float:
    """Where ``refuted`` ends between a refuted and an unrefuted point, on the refuted side."""
    for _ in range(60):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if refuted(middle) else (outside, middle)
    return outside


def rate_sequence(
    successes: SupportsIndex, trials: SupportsIndex, confidence: float = 0.999
) -> Interval:
    """Confidence sequence of a rate, for example of acceptance: Clopper-Pearson's anytime twin.

    Under rate r the ratio of the Beta(1/2, 1/2) mixture likelihood to the true one,
    B(x + 1/2, n - x + 1/2) / B(1/2, 1/2) / (r^x (1 - r)^(n - x)), is a martingale with mean 1, so
    it ever reaches 1/alpha with probability at most alpha (Ville). The rates at which it has not
    are an interval, since the likelihood has one peak (Robbins 1970; Howard et al. 2021, sec. 3).

    Args:
        successes: 0 .. trials.
        trials: n; with 0 trials the interval is [0, 1].
        confidence: 1 - alpha.

    Returns:
        The interval.

    Raises:
        ValueError: naming the field that is wrong.
    """
    n, x = validate.whole("trials", trials), validate.whole("successes", successes)
    if x > n:
        raise ValueError(f"successes: got {x}; expected at most trials = {n}")
    level = validate.inside("confidence", confidence)
    bound = float(special.betaln(x + 0.5, n - x + 0.5) - special.betaln(0.5, 0.5))
    bound += math.log1p(-level)

    def refuted(rate: float) -> bool:
        return bool(special.xlogy(x, rate) + special.xlog1py(n - x, -rate) <= bound)

    rate = x / n if n else 0.5
    low = _edge(refuted, 0.0, rate) if x else 0.0
    high = _edge(refuted, 1.0, rate) if x < n else 1.0
    return Interval(estimate=rate, low=low, high=high, confidence=level, trials=n)


def _lower(counts: npt.NDArray[np.int64], values: npt.NDArray[np.float64], alpha: float) -> float:
    """The limit below which bets refute every mean; values in [0, 1], some draw above 0."""
    hit = counts > 0
    seen, times = values[hit], counts[hit]
    target = math.log(_BETS.shape[0]) - math.log(alpha)

    def refuted(mean: float) -> bool:
        # bet c / mean on each draw: the factor is 1 - c + c x / mean, >= 0 and with mean 1
        with np.errstate(divide="ignore"):
            logs = np.log1p(np.outer(_BETS, seen / mean - 1)) @ times
        return bool(np.logaddexp.reduce(logs) >= target)

    return _edge(refuted, 0.0, float(times @ seen) / int(times.sum()))


def mean_sequence(
    counts: npt.ArrayLike, values: npt.ArrayLike, confidence: float = 0.999
) -> Interval:
    """Confidence sequence of the mean of a bounded quantity, for example the acceptance length.

    Betting (Waudby-Smith & Ramdas 2024, J. R. Statist. Soc. B 86:1; Orabona & Jun 2024). Rescale
    to [0, 1]. If the mean is m, the capital prod (1 - c + c x_t / m) is a martingale for every
    c in [0, 1], hence so is the mean over a fixed list of c; it reaches 2/alpha ever with
    probability at most alpha/2. Each factor falls with m, so the means that are refuted lie below
    one limit. The upper limit is the same for 1 - x. No variance is assumed: the bets adapt to it.

    Args:
        counts: [k] integers >= 0, how often each value was seen.
        values: [k] finite; the smallest and the largest are the bounds, seen or not.
        confidence: 1 - alpha.

    Returns:
        The interval; without draws it is the range of the values.

    Raises:
        ValueError: naming the field that is wrong.
    """
    points = np.asarray(values)
    if points.ndim != 1 or points.shape[0] < 2 or points.dtype.kind not in "fiu":
        got = f"{points.dtype}{list(points.shape)}"
        raise ValueError(f"values: got {got}; expected a vector of two numbers or more")
    points = points.astype(np.float64)
    if not np.isfinite(points).all() or np.ptp(points) == 0:
        raise ValueError(f"values: got {points}; expected finite numbers that are not all the same")
    table = validate.table("counts", counts, points.shape[0])
    level, n = validate.inside("confidence", confidence), int(table.sum())
    least, span = float(points.min()), float(np.ptp(points))
    unit = (points - least) / span
    mean = float(table @ unit) / n if n else 0.5
    # a mean on the bound itself leaves nothing below it to refute
    low = _lower(table, unit, (1 - level) / 2) if n and mean > 0 else 0.0
    high = 1 - (_lower(table, 1 - unit, (1 - level) / 2) if n and mean < 1 else 0.0)
    return Interval(
        estimate=least + span * mean,
        low=least + span * low,
        high=least + span * high,
        confidence=level,
        trials=n,
    )


def tv_drift(n: SupportsIndex, confidence: float, planned: SupportsIndex) -> float:
    """How far the observed total variation may lie below the true one, at all n at once.

    Proof. There is a set A of cells with TV(p', p) = p'(A) - p(A), fixed by the two laws. For
    every n, TVhat >= phat(A) - p(A), so TV - TVhat <= p'(A) - phat(A) = S_n / n: the mean of n
    independent terms p'(A) - 1{x in A}, each sub-Gaussian with variance 1/4 (Hoeffding 1963).
    So exp(l S_n - l^2 n / 8) is a supermartingale for each l > 0, and so is its mean over
    l ~ |N(0, 1/r)|, which is 2 sqrt(r / (v + r)) exp(z^2 / 2) Phi(z) with v = n/4 and
    z = S_n / sqrt(v + r). With Phi(z) >= 1 - exp(-z^2 / 2) / 2 for z >= 0 it has reached 1/beta
    once z^2 >= 2 ln(1/2 + sqrt((v + r) / r) / (2 beta)), which by Ville's inequality ever happens
    with probability at most beta. QED. (One-sided normal mixture: Howard et al. 2021, sec. 3.2.)

    The scale r decides where the bound is tightest. At confidence 0.999 it is 8 % above the fixed-n
    drift sqrt(ln(1/beta) / 2n) at n = ``planned``, 25 % at a tenth and 13 % at ten times that.

    Args:
        n: number of draws, at least 1.
        confidence: 1 - beta.
        planned: number of draws, at least 1, that the bound is made for; fixed beforehand.

    Returns:
        The drift, > 0; it may exceed 1.

    Raises:
        ValueError: naming the field that is wrong.
    """
    draws, aim = validate.whole("n", n, 1), validate.whole("planned", planned, 1)
    miss = 1 - validate.inside("confidence", confidence)
    v, log = draws / 4, -math.log(miss)
    r = aim / 4 / (2 * log + math.log1p(2 * log))
    z = math.sqrt(2 * math.log(0.5 + math.sqrt((v + r) / r) / (2 * miss)))
    return math.sqrt(v + r) * z / draws


class CertificateSequence:
    """A certificate that may be looked at after every batch: it only ever gets tighter."""

    def __init__(
        self, p: npt.ArrayLike, *, planned: SupportsIndex, confidence: float = 0.999
    ) -> None:
        """Fix law, level and the number of draws that it is made for.

        Args:
            p: [k] law.
            planned: number of draws where it is tightest.
            confidence: 1 - beta, over all looks together.

        Raises:
            ValueError: naming the field that is wrong.
        """
        self._p = validate.law("p", p)
        self._planned = validate.whole("planned", planned, 1)
        self._confidence = validate.inside("confidence", confidence)
        self._counts = np.zeros(self._p.shape[0], dtype=np.int64)
        self._upper = 1.0

    def add(self, counts: npt.ArrayLike) -> Certificate:
        """Add new draws and look.

        Args:
            counts: [k] integers >= 0, the draws since the last call.

        Returns:
            The certificate of all draws so far; its bound is the least of all looks.

        Raises:
            ValueError: naming the field that is wrong.
        """
        self._counts = self._counts + validate.table("counts", counts, self._p.shape[0])
        n = int(self._counts.sum())
        observed = 0.5 * float(np.abs(self._counts / n - self._p).sum()) if n else 0.0
        if n:
            drift = tv_drift(n, self._confidence, self._planned)
            self._upper = min(self._upper, observed + drift)
        return Certificate(tv_observed=observed, tv_upper=self._upper, confidence=self._confidence)
