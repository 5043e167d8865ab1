"""The far tail of pooled Cressie-Read, where no simulation looks: importance sampling.

Tables come from a mixture of Dirichlet-multinomial laws whose deviations are as large as those at
the level asked for, and each is weighted by its likelihood ratio back to the null.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from calibration.rows import Floats, Row, Size, Task
from calibration.worlds import LAWS
from specverify.evidence import cressie_read, pool, trials_needed
from specverify.evidence.importance import mixture_tables

GROUP = "Far tail of pooled Cressie-Read: true over nominal false alarms"
LEVELS = (1e-6, 1e-9)
ERRORS = 3.0  # standard errors that the factor of two is given


def scales(cells: int, n: int) -> Floats:
    """Concentrations c whose tables reach the levels: mean X2 = (k - 1)(1 + (n - 1)/(c + 1))."""
    found = []
    for level in LEVELS:
        excess = stats.chi2.isf(level, cells - 1) / (cells - 1) - 1
        fitting = (n - 1) / excess - 1
        # With few cells the deviations of one c vary much, and a mixture over c covers them.
        spread = 4.0 if cells < 100 else 1.3
        found += [fitting / spread, fitting, fitting * spread]
    return np.array(found)


def ratios(p: Floats, n: int, tables: int, rng: np.random.Generator) -> list[tuple[float, float]]:
    """True over nominal false-alarm probability at each level, with standard errors.

    Args:
        p: [m] pooled law.
        n: draws of a table.
        tables: to sample.
        rng: source of randomness.

    Returns:
        A ratio and its standard error for each of ``LEVELS``.
    """
    weights, values = [], []
    for block, logs in mixture_tables(p, n, scales(p.shape[0], n), tables, rng):
        weights.append(np.exp(logs))
        values += [cressie_read(table, p, alpha=LEVELS[-1]).p_value for table in block]
    weight, value = np.concatenate(weights), np.array(values)
    hits = [weight * (value <= level) / level for level in LEVELS]
    return [(float(hit.mean()), float(hit.std()) / math.sqrt(tables)) for hit in hits]


def judged(setting: str, level: float, cells: int, tables: int, found: tuple[float, float],
         few: bool) -> Row:  # fmt: skip
    """Compare a ratio with the factor of two that the tail may be off.

    Args:
        setting: law and trials.
        level: nominal false-alarm probability.
        cells: after pooling.
        tables: sampled.
        found: ratio and standard error.
        few: see :func:`measure`.

    Returns:
        The row.
    """
    ratio, error = found
    # Two cells are tested by the exact binomial law; below any plan a table takes few values.
    most, least = (1.0 if cells == 2 else 2.0), (0.0 if cells == 2 or few else 0.5)
    return Row(
        group=GROUP,
        name=f"cressie_read at {level:g}",
        setting=setting,
        runs=tables,
        expected=f"{least:g} .. {most:g}, up to {ERRORS:g} standard errors",
        observed=f"{ratio:.2f} +- {error:.2f}",
        ok=ratio > 0 and ratio - ERRORS * error <= most and ratio + ERRORS * error >= least,
    )


def measure(law: str, cells: int, n: int, few: bool, size: Size) -> list[Row]:
    """The rows of one law: one for each level.

    Args:
        law: of ``LAWS``.
        cells: V, before pooling.
        n: draws of a table.
        few: whether there are fewer draws than a plan would take; a ratio below 0.5 is then no
            fault, only a loss of power.
        size: number of tables.

    Returns:
        Two rows.
    """
    p = pool(LAWS[law](cells), n).p
    live = p.shape[0]
    # a table of many cells costs milliseconds, and its weights vary less
    tables = size.tables if live <= 2048 else max(500, size.tables // 10)
    found = ratios(p, n, tables, size.rng("tail", law, cells, n))
    setting = f"{law} {cells:,}, n {n:,}, {live:,} pooled cells"
    return [
        judged(setting, level, live, tables, answer, few)
        for level, answer in zip(LEVELS, found, strict=True)
    ]


def tasks(size: Size) -> Sequence[Task]:
    """All laws at the trials of a plan for TV 0.1 and at ten times that, small ones with less."""
    found: list[Task] = []
    for law in LAWS:
        for cells in (v for v in (4, 32, 256, 1024, 32_768) if v <= size.cells):
            plan = max(20 * cells, trials_needed(cells, 0.1, 1e-9, 0.999))
            if cells <= 32:
                found.append(functools.partial(measure, law, cells, 20 * cells, True, size))
            found.append(functools.partial(measure, law, cells, plan, False, size))
            if cells < 32_768:
                found.append(functools.partial(measure, law, cells, 10 * plan, False, size))
    return found
