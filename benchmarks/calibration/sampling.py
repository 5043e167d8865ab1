"""Small p-values by importance sampling where a full enumeration knows them, down to 1e-20."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from calibration.rows import Floats, Row, Size, Task
from specverify.evidence.importance import Statistic, cressie_read_values, exact_p_value

GROUP = "Small p-values by importance sampling, beside full enumeration"
DRAWS = 20_000  # the default: with a few hundred, weights far out are too rare to judge
LEVELS = (1e-3, 1e-6, 1e-9, 1e-15, 1e-20)
TRIALS = 120  # over four cells there are just too many tables for the library to list
ERRORS = 5.0
REPEATS = 4

LAWS = {
    "flat": (0.25, 0.25, 0.25, 0.25),
    "falling": (0.5, 0.3, 0.15, 0.05),
    "one rare cell": (0.6, 0.3, 0.099, 0.001),
    "three rare cells": (0.97, 0.01, 0.01, 0.01),
    "very skewed": (0.9, 0.09, 0.009, 0.001),
}


def total_variation(tables: npt.NDArray[np.int64], expected: Floats) -> Floats:
    """Sum of the absolute deviations, [B]."""
    return np.asarray(np.abs(tables - expected).sum(axis=1))


STATISTICS: dict[str, Statistic] = {"Cressie-Read": cressie_read_values, "TV": total_variation}


def _all_tables(n: int) -> npt.NDArray[np.int64]:
    """Every table of n draws over four cells, [B, 4]."""
    grid = np.indices((n + 1, n + 1, n + 1)).reshape(3, -1).T
    grid = grid[grid.sum(axis=1) <= n]
    return np.column_stack([grid, n - grid.sum(axis=1)])


def measure(law: str, name: str, size: Size) -> list[Row]:
    """The rows of one law and statistic: one for each level."""
    p, statistic, rows = np.array(LAWS[law]), STATISTICS[name], []
    tables = _all_tables(TRIALS)
    logs = special.gammaln(TRIALS + 1) - special.gammaln(tables + 1).sum(axis=1)
    mass, values = np.exp(logs + tables @ np.log(p)), statistic(tables, TRIALS * p)
    order = np.argsort(-values, kind="stable")
    tail = np.cumsum(mass[order])
    for level in LEVELS:
        table = tables[order[np.searchsorted(tail, level)]]
        value = float(statistic(table[None], TRIALS * p)[0])
        exact = float(mass[values >= value * (1 - 1e-10)].sum())
        seed = int(size.rng("sampled", law, name, level).integers(2**31))
        found = [
            exact_p_value(table, p, statistic, draws=DRAWS, seed=seed + i) for i in range(REPEATS)
        ]
        far = max(abs(each.p_value - exact) / max(each.standard_error, 1e-300) for each in found)
        error = np.sqrt(np.mean([(each.p_value / exact - 1) ** 2 for each in found]))
        stated = np.mean([each.standard_error / exact for each in found])
        effective = min(each.effective for each in found)
        rows.append(
            Row(
                group=GROUP,
                name=f"exact_p_value, {name}",
                setting=f"{law} law, n {TRIALS}, {DRAWS:,} tables: {exact:.2g}",
                runs=REPEATS,
                expected=f"all within {ERRORS:g} standard errors, all reliable",
                observed=f"error {error:.1%}, stated {stated:.1%}, largest {far:.1f} standard "
                f"errors; effective tables >= {effective:.0f}",
                ok=bool(far <= ERRORS and all(each.reliable for each in found)),
            )
        )
    return rows


def tasks(size: Size) -> Sequence[Task]:
    """Five laws of four cells, two statistics."""
    return [functools.partial(measure, law, name, size) for law in LAWS for name in STATISTICS]
