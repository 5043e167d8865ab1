"""Two samplers, no known target: trials at alarm, and the level of the chi-square p-value."""

from __future__ import annotations

import collections
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from calibration.rows import Floats, Row, Size, Task
from calibration.worlds import uniform, worst
from specverify.evidence.two_sample import two_sample_test, two_sample_trials_needed
from specverify.evidence.two_sample_sequential import SequentialTwoSample

ALARM = "Two samplers: trials at alarm over the fixed plan"
LEVEL = "Two samplers: true over nominal level of the chi-square p-value, all tables"
ALPHA, POWER = 1e-9, 0.999
LEVELS = (1e-3, 1e-6, 1e-9)
NEGLIGIBLE = math.log(1e-17)  # probability of a table; all of those together stay below 1e-11


def alarms(cells: int, tv: float, size: Size) -> list[Row]:
    """Mean alarm of the sequential test in the worst direction, batches of a twentieth."""
    n = two_sample_trials_needed(cells, tv, ALPHA, POWER)
    a = worst(uniform(cells), tv / 2)
    b = 2 * uniform(cells) - a
    rng, shares = size.rng("pairs", cells, tv), []
    for _ in range(size.streams):
        test, total = SequentialTwoSample(cells, alpha=ALPHA), 0
        while True:
            batch = max(10, total // 20)
            total += batch
            if test.add(rng.multinomial(batch, a), rng.multinomial(batch, b)).rejected:
                break
        shares.append(total / n)
    found = np.array(shares)
    error = found.std() / math.sqrt(size.streams)
    return [
        Row(
            group=ALARM,
            name=f"uniform {cells}, worst direction",
            setting=f"TV {tv:g}, fixed n {n:,} each, alpha {ALPHA:g}",
            runs=size.streams,
            expected="mean <= 0.85 of the fixed n",
            observed=f"{found.mean():.2f} +- {error:.2f} (max {found.max():.2f})",
            ok=bool(found.mean() <= 0.85),
        )
    ]


def true_levels(rare: int, cells: int, share: float, large: int = 100_000) -> Floats:
    """P(p-value <= level) given the column sums, for each of ``LEVELS``.

    Args:
        rare: sum of each rare column.
        cells: how many rare columns.
        share: of the draws that are the first arm's.
        large: sum of the last column.
    """
    total = rare * cells + large
    first = math.ceil(share * total)
    columns = np.array([rare] * cells + [large])
    log_all = _log_choose(total, first)
    log_rare = [_log_choose(rare, x) for x in range(rare + 1)]
    found = np.zeros(len(LEVELS))
    # The p-value does not depend on the order of equal columns.
    for hits in itertools.combinations_with_replacement(range(rare + 1), cells):
        orders = math.factorial(cells)
        for times in collections.Counter(hits).values():
            orders //= math.factorial(times)
        log_mass = sum(log_rare[x] for x in hits) + _log_choose(large, first - sum(hits)) - log_all
        if log_mass < NEGLIGIBLE:
            continue
        a = np.array([*hits, first - sum(hits)])
        p_value = two_sample_test(a, columns - a, alpha=ALPHA).p_value
        found += orders * math.exp(log_mass) * (p_value <= np.array(LEVELS))
    return found


def _log_choose(n: int, k: int) -> float:
    return float(special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1))


def level(rare: int, cells: int, against: int, size: Size) -> list[Row]:  # noqa: ARG001
    """One row: the chi-square p-value of skewed tables may be too large, never twice too small."""
    ratios = true_levels(rare, cells, 1 / (1 + against)) / np.array(LEVELS)
    return [
        Row(
            group=LEVEL,
            name="two_sample_test, chi-square",
            setting=f"{cells} columns of {rare}, one of 100,000; arms 1 : {against}",
            runs=math.comb(rare + cells, cells),
            expected="at 1e-3 / 1e-6 / 1e-9: at most 2",
            observed=" / ".join(f"{ratio:.2f}" for ratio in ratios),
            ok=bool(np.all(ratios <= 2)),
        )
    ]


def tasks(size: Size) -> Sequence[Task]:
    """Small tables for the alarms; the skewed ones that chi-square likes least for the level."""
    tables = ((40, 3, 1), (60, 3, 2), (100, 3, 4), (220, 2, 9))
    if size.cells < 1024:
        tables = tables[:1]
    return [
        *(functools.partial(alarms, v, tv, size)
          for tv in (0.1, 0.03) for v in (2, 4, 8, 16, 32, 64)),
        *(functools.partial(level, *table, size) for table in tables),
    ]  # fmt: skip
