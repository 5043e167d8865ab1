"""How many different values turn up: the law of the birthday problem, and a test for coarse coins.

``n`` draws of ``m`` equally likely values show ``D`` different ones.  Each new draw repeats one of
the ``d`` values seen so far with probability ``d / m``, so the law of ``D`` is a recursion
of positive terms, which loses no digits however far into the tail (the classical occupancy law:
Johnson & Kotz 1977, *Urn Models and Their Application*, section 3.1).  Randomness of ``b`` bits can
lead to ``2**b`` values at most, and shows fewer different ones than it should; no frequency of a
single value, of which each is rare, tells that.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray

from specverify.evidence import validate
from specverify.evidence.records import Evidence

F64 = NDArray[np.float64]

STEADY = 1.1
"""A planned number of draws keeps its promise up to so many times more of them."""


def distinct_law(draws: SupportsIndex, values: SupportsIndex) -> F64:
    """The law of the number of different values among ``draws`` of ``values`` equally likely ones.

    Args:
        draws: n.
        values: m, at least 1.

    Returns:
        [min(n, m) + 1] float64: the probability of 0, 1, 2, ... different values.

    Raises:
        ValueError: naming the field that is wrong.
    """
    return _law(validate.whole("draws", draws), validate.whole("values", values, 1)).copy()


@lru_cache(maxsize=256)
def _law(draws: int, values: int) -> F64:
    steps = _laws(draws, values)
    law = next(steps)
    for _ in range(draws):
        law = next(steps)
    return law


def _laws(most: int, values: int) -> Iterator[F64]:
    """[min(most, values) + 1] float64: the law after 0, 1, 2, ... draws, without end."""
    repeats = np.arange(min(most, values) + 1) / values
    law = np.zeros(repeats.size)
    law[0] = 1.0
    while True:
        yield law
        fresh = law[:-1] * (1 - repeats[:-1])
        law = law * repeats
        law[1:] += fresh


def distinct_test(
    distinct: SupportsIndex,
    draws: SupportsIndex,
    values: SupportsIndex,
    *,
    alpha: float,
    power: float,
) -> Evidence:
    """Test whether ``draws`` of ``values`` equally likely values show too few different ones.

    The p-value P(D <= distinct) is exact.  What is detected is told by reach: draws of only r
    equally likely values out of the m are 1 - r/m away in total variation, and the largest r that
    is rejected with probability ``power`` makes the promise.

    Args:
        distinct: different values that were seen.
        draws: n.
        values: m, at least 1.
        alpha: false-alarm probability.
        power: of the promise.

    Raises:
        ValueError: naming the field that is wrong.
    """
    n, m = validate.whole("draws", draws), validate.whole("values", values, 1)
    seen = validate.whole("distinct", distinct)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    if seen > min(n, m) or (seen == 0) != (n == 0):
        raise ValueError(
            f"distinct: got {seen}; expected at most the {n} draws and the {m} values, "
            "and 0 without draws only"
        )
    return Evidence(
        statistic="different values",
        value=float(seen),
        p_value=min(1.0, float(_law(n, m)[: seen + 1].sum())),
        alpha=alpha,
        trials=n,
        cells=m,
        detectable_tv=1 - _reach(n, m, alpha, power) / m,
        power=power,
    )


def distinct_detectable(
    draws: SupportsIndex, values: SupportsIndex, alpha: float, power: float
) -> float:
    """Smallest deviation of a source that reaches some of the values only, told by reach.

    Args:
        draws: n.
        values: m, at least 1.
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        1 - r/m for the largest r equally likely values out of m whose draws are rejected with
        probability ``power``; 1.0 when none are.

    Raises:
        ValueError: naming the field that is wrong.
    """
    n, m = validate.whole("draws", draws), validate.whole("values", values, 1)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    return 1 - _reach(n, m, alpha, power) / m


@lru_cache(maxsize=256)
def _reach(draws: int, values: int, alpha: float, power: float) -> int:
    """The most values out of all that draws may be confined to and be rejected; 0 if blind."""
    critical = _critical(_law(draws, values), alpha)
    low, high = 0, values  # rejected, and not
    while high - low > 1:
        middle = (low + high) // 2
        found = _law(draws, middle)[: critical + 1].sum() >= power
        low, high = (middle, high) if found else (low, middle)
    return low


def _critical(law: F64, alpha: float) -> int:
    """The largest number of different values that is rejected; -1 if none is."""
    return int(np.searchsorted(law.cumsum(), alpha, side="right")) - 1


def distinct_draws_needed(
    values: SupportsIndex, reached: SupportsIndex, alpha: float, power: float
) -> int:
    """Draws after which a source that reaches ``reached`` of the values is rejected.

    Args:
        values: m, at least 2.
        reached: equally likely values that are ever drawn, 1 .. m - 1.
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        The number of draws from which on the promise is kept, up to ``STEADY`` times as many.

    Raises:
        ValueError: naming the field that is wrong.
    """
    m, r = validate.whole("values", values, 2), validate.whole("reached", reached, 1)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    if r >= m:
        raise ValueError(f"reached: got {r}; expected fewer than the {m} values")
    free, confined = _laws(m, m), _laws(m, r)
    n, since = 0, 1  # all numbers of draws from ``since`` to n - 1 reject
    while n <= STEADY * since:
        critical = _critical(next(free), alpha)
        if next(confined)[: critical + 1].sum() < power:
            since = n + 1
        n += 1
    return since
