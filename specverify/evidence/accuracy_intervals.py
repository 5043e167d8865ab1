"""Intervals for the difference of two accuracies.

Unpaired: Newcombe's hybrid of two Wilson intervals (1998, Statist. Med. 17:873, method 10).
Paired: Tango's score interval (1998, Statist. Med. 17:891). Both are asymptotic, hold from a few
dozen questions on, and stay sensible when an accuracy is 0 or 1 or no answer differs, where the
textbook interval has width zero. A conditional exact interval exists for the ratio
of the discordant answers only, not for the difference of accuracies. Coverage is near the nominal
one, not bounded by it (measured in docs/comparing.md); the verdict is that of the exact tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import special


def _quantile(confidence: float) -> float:
    return -float(special.ndtri((1 - confidence) / 2))


def wilson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Wilson's score interval of one rate (1927, J. Am. Statist. Assoc. 22:209).

    Args:
        successes: 0 .. trials.
        trials: >= 1.
        confidence: nominal coverage.

    Returns:
        Lower and upper limit.
    """
    z = _quantile(confidence)
    rate, total = successes / trials, trials + z * z
    middle = (successes + z * z / 2) / total
    reach = z * math.sqrt(trials * rate * (1 - rate) + z * z / 4) / total
    return max(0.0, middle - reach), min(1.0, middle + reach)


def newcombe(x: int, n_a: int, y: int, n_b: int, confidence: float) -> tuple[float, float]:
    """Interval for rate A minus rate B from independent samples.

    Args:
        x: right answers of A, 0 .. n_a.
        n_a: >= 1.
        y: right answers of B, 0 .. n_b.
        n_b: >= 1.
        confidence: nominal coverage.

    Returns:
        Lower and upper limit.
    """
    a, b = x / n_a, y / n_b
    (low_a, high_a), (low_b, high_b) = wilson(x, n_a, confidence), wilson(y, n_b, confidence)
    return a - b - math.hypot(a - low_a, high_b - b), a - b + math.hypot(high_a - a, b - low_b)


def _tango_score(only_a: int, only_b: int, n: int, delta: float) -> float:
    """Score statistic of the hypothesis that the accuracies differ by ``delta``."""
    slope = -only_a - only_b + (2 * n - only_a + only_b) * delta
    root = math.sqrt(max(0.0, slope**2 + 8 * n * only_b * delta * (1 - delta)))
    only_b_rate = (root - slope) / (4 * n)  # most likely one, given delta
    variance = n * (2 * only_b_rate + delta * (1 - delta))
    distance = only_a - only_b - n * delta
    return distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance)


def _edge(accepted: Callable[[float], bool], inside: float, outside: float) -> float:
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if accepted(middle) else (inside, middle)
    return outside


def tango(only_a: int, only_b: int, n: int, confidence: float) -> tuple[float, float]:
    """Interval for accuracy A minus accuracy B on the same questions.

    Args:
        only_a: questions that only A answered rightly.
        only_b: questions that only B answered rightly; only_a + only_b <= n.
        n: >= 1 questions.
        confidence: nominal coverage.

    Returns:
        Lower and upper limit.
    """
    z, middle = _quantile(confidence), (only_a - only_b) / n
    low = _edge(lambda d: _tango_score(only_a, only_b, n, d) <= z, middle, -1.0)
    high = _edge(lambda d: _tango_score(only_a, only_b, n, d) >= -z, middle, 1.0)
    return low, high
