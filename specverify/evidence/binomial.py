"""One rate against its exact value: the law of a table of two cells.

The two-sided p-value doubles the smaller tail, so that P(p <= a) <= a for every a, every n and
every rate; all tails are incomplete beta functions, which cost the same for n = 10 and n = 1e9.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import SupportsIndex

from scipy import special

from specverify.evidence import validate
from specverify.evidence.records import Evidence


def _at_least(x: int, n: int, rate: float) -> float:
    """P(X >= x), X ~ Bin(n, rate): the incomplete beta function I_rate(x, n - x + 1)."""
    if x <= 0:
        return 1.0
    return float(special.betainc(x, n - x + 1, rate)) if x <= n else 0.0


def _at_most(x: int, n: int, rate: float) -> float:
    """P(X <= x), X ~ Bin(n, rate)."""
    if x >= n:
        return 1.0
    return float(special.betaincc(x + 1, n - x, rate)) if x >= 0 else 0.0


def two_sided_p_value(successes: int, n: int, rate: float) -> float:
    """Twice the smaller tail of the binomial law, at most 1.

    Args:
        successes: 0 .. n.
        n: number of trials.
        rate: in [0, 1].

    Returns:
        A valid p-value: P(p <= a) <= a.
    """
    tails = _at_least(successes, n, rate), _at_most(successes, n, rate)
    return min(1.0, 2 * min(tails))


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Smallest integer in [low, high) that holds, else high; ``holds`` must be monotone."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


@lru_cache(maxsize=4096)
def _detectable(rate: float, n: int, alpha: float, power: float, guard: int = 0) -> float:
    """See :func:`binomial_detectable`; ``guard`` moves both critical counts outwards."""
    high = _first(lambda x: 2 * _at_least(x, n, rate) <= alpha, 0, n + 1) + guard
    low = _first(lambda x: 2 * _at_most(x, n, rate) > alpha, 0, n + 1) - 1 - guard
    above, below = math.nextafter(1 - rate, 2), math.nextafter(rate, 2)
    blind_above, blind_below = high > n, low < 0
    if blind_above and blind_below:
        return 1.0
    if not blind_above:
        above = float(special.betaincinv(high, n - high + 1, power)) - rate
    if not blind_below:
        below = rate - float(special.betaincinv(low + 1, n - low, 1 - power))
    return min(1.0, max(above, below))


def binomial_detectable(
    probability: float, trials: SupportsIndex, alpha: float, power: float
) -> float:
    """Smallest deviation of the rate, up or down, that is rejected with probability ``power``.

    It is the total variation of a two-cell law. Exact: the critical counts come from the binomial
    tails, and the rates that pass them with probability ``power`` from the inverse incomplete beta
    function (Clopper & Pearson 1934). A side on which no count rejects counts in full, because
    every possible deviation on it is missed.

    Args:
        probability: expected rate in [0, 1].
        trials: n; 0 detects nothing.
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        The deviation; 1.0 when no count at all rejects.

    Raises:
        ValueError: naming the field that is wrong.
    """
    rate = validate.probability("probability", probability)
    n = validate.whole("trials", trials)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    if n == 0:
        return 1.0
    if rate in (0.0, 1.0):
        return zero_hit_tv(n, power)
    return _detectable(rate, n, alpha, power)


def zero_hit_tv(n: int, power: float) -> float:
    """Smallest mass on excluded cells that is hit in n draws with probability ``power``.

    Args:
        n: number of draws, at least 1.
        power: in (0, 1).

    Returns:
        1 - (1 - power)**(1/n).
    """
    return -math.expm1(math.log1p(-power) / n)


@lru_cache(maxsize=4096)
def binomial_trials_needed(probability: float, deviation: float, alpha: float, power: float) -> int:
    """Trials after which a deviation of the rate is rejected with probability ``power``.

    The power of a discrete test has teeth; the answer keeps one count of margin in both tails, so
    that the promise also holds for more trials than this.

    Args:
        probability: expected rate in [0, 1].
        deviation: of the rate, in (0, 1).
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        n >= 1.

    Raises:
        ValueError: naming the field that is wrong.
    """
    rate = validate.probability("probability", probability)
    deviation = validate.inside("deviation", deviation)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    if rate in (0.0, 1.0):
        n = math.ceil(math.log1p(-power) / math.log1p(-deviation))
        return n if zero_hit_tv(n, power) <= deviation else n + 1

    def holds(n: int) -> bool:
        return _detectable(rate, n, alpha, power, 1) <= deviation

    high = 2
    while not holds(high):
        high *= 2
    return _first(holds, high // 2, high)


def binomial_test(
    successes: SupportsIndex,
    trials: SupportsIndex,
    probability: float,
    *,
    alpha: float,
    power: float = 0.999,
) -> Evidence:
    """Exact two-sided test of a rate.

    Args:
        successes: 0 .. trials.
        trials: n.
        probability: expected rate; 0 and 1 are exact, a single draw on the wrong side is a proof.
        alpha: false-alarm probability.
        power: of the promise in ``detectable_tv``.

    Returns:
        Evidence; the value is the observed rate (the expected one if there were no trials).

    Raises:
        ValueError: naming the field that is wrong.
    """
    rate = validate.probability("probability", probability)
    n = validate.whole("trials", trials)
    hits = validate.whole("successes", successes)
    if hits > n:
        raise ValueError(f"successes: got {hits}; expected at most trials = {n}")
    impossible = {0.0: hits, 1.0: n - hits}.get(rate, 0)
    return Evidence(
        statistic="binomial",
        value=hits / n if n else rate,
        p_value=two_sided_p_value(hits, n, rate) if not impossible else 0.0,
        alpha=validate.inside("alpha", alpha),
        trials=n,
        cells=1 if rate in (0.0, 1.0) else 2,
        detectable_tv=binomial_detectable(rate, n, alpha, power),
        power=power,
        zero_hits=impossible,
    )


def clopper_pearson(
    successes: SupportsIndex, trials: SupportsIndex, confidence: float = 0.999
) -> tuple[float, float]:
    """Exact two-sided confidence interval of a rate (Clopper & Pearson 1934).

    Args:
        successes: 0 .. trials.
        trials: n; with 0 trials the interval is [0, 1].
        confidence: coverage is at least this, whatever the rate.

    Returns:
        Lower and upper limit.

    Raises:
        ValueError: naming the field that is wrong.
    """
    n = validate.whole("trials", trials)
    hits = validate.whole("successes", successes)
    if hits > n:
        raise ValueError(f"successes: got {hits}; expected at most trials = {n}")
    tail = (1 - validate.inside("confidence", confidence)) / 2
    low = float(special.betaincinv(hits, n - hits + 1, tail)) if hits else 0.0
    high = float(special.betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    return low, high
