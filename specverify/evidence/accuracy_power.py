"""How many questions tell two accuracies apart, and what a number of questions can tell.

Power is that of the exact tests, computed and not simulated. Unpaired: over the tables that
Barnard's test rejects. Paired: over the number of questions on which the answers differ, binomial
with the discordance, and McNemar's exact test for each. What pairing saves depends on the
discordance: the less the two answer differently, the fewer questions are needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import lru_cache
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from specverify.evidence import barnard, validate

_MOST_QUESTIONS = 10**9
_LARGE = 10**5
_ROUNDING = 1e-12  # 0.79 - 0.74 is a little more than 0.05


def independent_discordance(accuracy_a: float, accuracy_b: float) -> float:
    """Share of questions answered differently if the two err independently: the usual worst case.

    Args:
        accuracy_a: in [0, 1].
        accuracy_b: in [0, 1].

    Returns:
        a (1 - b) + b (1 - a).

    Raises:
        ValueError: naming the field that is wrong.
    """
    a = validate.probability("accuracy_a", accuracy_a)
    b = validate.probability("accuracy_b", accuracy_b)
    return a * (1 - b) + b * (1 - a)


def _accuracies(accuracy_a: float, accuracy_b: float) -> tuple[float, float]:
    return validate.inside("accuracy_a", accuracy_a), validate.inside("accuracy_b", accuracy_b)


@lru_cache(maxsize=256)
def _critical(n_a: int, n_b: int, rate: float, alpha: float) -> float:
    if min(n_a, n_b) > _LARGE:
        return float(stats.chi2.isf(alpha, 1))  # the exact limit differs by less than 1e-4 of it
    return barnard.critical(n_a, n_b, rate, alpha)


def unpaired_power(
    accuracy_a: float,
    accuracy_b: float,
    n_a: SupportsIndex,
    n_b: SupportsIndex,
    alpha: float,
) -> float:
    """Probability that Barnard's test tells two accuracies apart.

    Args:
        accuracy_a: in (0, 1).
        accuracy_b: in (0, 1).
        n_a: questions asked of A, at least 1.
        n_b: other questions, or other samples, asked of B, at least 1.
        alpha: false-alarm probability.

    Returns:
        The power.

    Raises:
        ValueError: naming the field that is wrong.
    """
    a, b = _accuracies(accuracy_a, accuracy_b)
    first, second = validate.whole("n_a", n_a, 1), validate.whole("n_b", n_b, 1)
    level = validate.inside("alpha", alpha)
    pooled = (first * a + second * b) / (first + second)
    return _power_at(a, b, first, second, _critical(first, second, pooled, level))


def _power_at(a: float, b: float, n_a: int, n_b: int, limit: float) -> float:
    found = barnard.region(n_a, n_b, barnard.rows(n_a, a, a), limit)
    return min(1.0, float(found.probability([a], [b])[0]))


def paired_power(difference: float, discordance: float, n: SupportsIndex, alpha: float) -> float:
    """Probability that McNemar's exact test tells two accuracies apart.

    Args:
        difference: of the accuracies, at most ``discordance`` in size.
        discordance: share of questions that only one of the two answers rightly, in (0, 1].
        n: questions asked of both, at least 1.
        alpha: false-alarm probability.

    Returns:
        The power.

    Raises:
        ValueError: naming the field that is wrong.
    """
    share = validate.positive("discordance", validate.probability("discordance", discordance))
    if not abs(difference) <= share + _ROUNDING:
        raise ValueError(
            f"difference: got {difference}; expected at most the discordance {share:g} in size"
        )
    questions, level = validate.whole("n", n, 1), validate.inside("alpha", alpha)
    return _paired_power(abs(difference), share, questions, level)


def _mcnemar_limits(discordant: npt.NDArray[np.int64], alpha: float) -> npt.NDArray[np.int64]:
    """The largest c with 2 P(Bin(d, 1/2) <= c) <= alpha, -1 if there is none."""
    limit = np.asarray(stats.binom.ppf(alpha / 2, discordant, 0.5)).astype(np.int64)
    return limit - (2 * special.bdtr(limit, discordant, 0.5) > alpha)


def _paired_power(difference: float, share: float, n: int, alpha: float) -> float:
    discordant = barnard.rows(n, share, share)
    discordant = discordant[discordant > 0]
    weights = stats.binom.pmf(discordant, n, share)
    limits = _mcnemar_limits(discordant, alpha)
    up = min(1.0, (share + difference) / (2 * share))  # of a discordant question, for the better
    reject = stats.binom.cdf(limits, discordant, up) + stats.binom.cdf(limits, discordant, 1 - up)
    return min(1.0, float(weights @ reject))


def _start(spread: float, difference: float, what: str) -> float:
    """Questions by the normal approximation: where a search begins.

    Raises:
        ValueError: if there are too many.
    """
    start = max(0.0, spread / difference) ** 2
    if start > _MOST_QUESTIONS:
        raise ValueError(f"{what}: got a difference that needs {start:.3g} questions; expected a "
                         f"larger one, for at most {_MOST_QUESTIONS:g}")  # fmt: skip
    return start


def _search(power_at: Callable[[int], float], start: float, power: float) -> int:
    """Smallest n, to half a per cent, that reaches the power, searched upwards from below."""
    n = max(1, math.floor(start))
    while n > 1 and power_at(n) >= power:
        n = n * 19 // 20
    while power_at(n) < power:
        n += max(1, n // 200)
    return n


def unpaired_questions_needed(
    accuracy_a: float, accuracy_b: float, alpha: float = 0.05, power: float = 0.9
) -> int:
    """Questions for each of two independent samples to tell two accuracies apart.

    Args:
        accuracy_a: in (0, 1).
        accuracy_b: in (0, 1), another one.
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        n for each side, about half a per cent above the smallest at most.

    Raises:
        ValueError: naming the field that is wrong.
    """
    a, b = _accuracies(accuracy_a, accuracy_b)
    if a == b:
        raise ValueError(f"accuracy_b: got {b}; expected another one than accuracy_a")
    level, promise = validate.inside("alpha", alpha), validate.inside("power", power)
    z_alpha, z_power = -special.ndtri(level / 2), special.ndtri(promise)
    middle = (a + b) / 2
    spread = z_alpha * math.sqrt(2 * middle * (1 - middle))
    spread += z_power * math.sqrt(a * (1 - a) + b * (1 - b))
    start = _start(float(spread), abs(a - b), "accuracy_b")
    # the limit hardly moves with n: one for the search, the right one for the last steps
    limit = _critical(max(1, math.floor(start)), max(1, math.floor(start)), middle, level)
    n = _search(lambda size: _power_at(a, b, size, size, limit), start, promise)
    steps = itertools.count(n, max(1, n // 200))
    return next(m for m in steps if unpaired_power(a, b, m, m, level) >= promise)


def paired_questions_needed(
    difference: float, discordance: float, alpha: float = 0.05, power: float = 0.9
) -> int:
    """Questions, asked of both, to tell two accuracies apart.

    Args:
        difference: of the accuracies, not 0, at most ``discordance`` in size.
        discordance: share of questions that only one of the two answers rightly, in (0, 1].
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        n, about half a per cent above the smallest at most.

    Raises:
        ValueError: naming the field that is wrong.
    """
    paired_power(difference, discordance, 1, alpha)  # the same checks of the fields
    if difference == 0:
        raise ValueError("difference: got 0; expected a difference to look for")
    promise, size = validate.inside("power", power), abs(difference)
    spread = -special.ndtri(alpha / 2) * math.sqrt(discordance)
    spread += special.ndtri(promise) * math.sqrt(discordance - size**2)
    start = _start(float(spread), size, "difference")
    return _search(lambda n: _paired_power(size, discordance, n, alpha), start, promise)


def _least(reaches: Callable[[float], bool], high: float) -> float:
    """Smallest difference in (0, high] that is found; 1 if not even ``high`` is."""
    if not reaches(high):
        return 1.0
    low = 0.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


def unpaired_detectable(
    rate: float, n_a: SupportsIndex, n_b: SupportsIndex, alpha: float, power: float
) -> float:
    """Smallest difference around a pooled rate that is told with probability ``power``.

    Args:
        rate: pooled accuracy, in [0, 1].
        n_a: questions of A, at least 1.
        n_b: questions of B, at least 1.
        alpha: false-alarm probability, above ``barnard.MISS``.
        power: of the promise.

    Returns:
        The difference, 1 if nothing is promised.

    Raises:
        ValueError: naming the field that is wrong.
    """
    first, second = validate.whole("n_a", n_a, 1), validate.whole("n_b", n_b, 1)
    promise, end = validate.inside("power", power), 1 / (first + second + 2)
    inside = min(max(validate.probability("rate", rate), end), 1 - end)
    limit = _critical(first, second, inside, validate.inside("alpha", alpha))

    def reaches(difference: float) -> bool:
        high = min(1 - 1e-9, inside + difference / 2)
        low = max(1e-9, high - difference)
        return _power_at(min(1 - 1e-9, low + difference), low, first, second, limit) >= promise

    return _least(reaches, 1 - 1e-8)


def paired_detectable(discordance: float, n: SupportsIndex, alpha: float, power: float) -> float:
    """Smallest difference, at a discordance, that is told with probability ``power``.

    Args:
        discordance: share of questions that only one answers rightly, in [0, 1].
        n: questions, at least 1.
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        The difference; 1 if even a difference as large as the discordance would be missed.

    Raises:
        ValueError: naming the field that is wrong.
    """
    share, questions = validate.probability("discordance", discordance), validate.whole("n", n, 1)
    level, promise = validate.inside("alpha", alpha), validate.inside("power", power)
    if share == 0:
        return 1.0
    return _least(lambda d: _paired_power(d, share, questions, level) >= promise, share)
