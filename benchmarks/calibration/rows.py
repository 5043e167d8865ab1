"""One row of the table, how large a measurement is, and when a count contradicts a promise."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]

ERROR = 1e-6
"""Probability that one comparison with a kept promise answers NOT."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One measured promise.

    Attributes:
        group: heading that the row belongs to.
        name: what makes the promise.
        setting: law, trials, level.
        runs: how often it was tried.
        expected: what must come out.
        observed: what came out.
        ok: whether the two agree; ``None`` for a figure that promises nothing.
    """

    group: str
    name: str
    setting: str
    runs: int
    expected: str
    observed: str
    ok: bool | None

    @property
    def verdict(self) -> str:
        """The last column: ``ok``, ``NOT`` or ``shown``."""
        return "shown" if self.ok is None else "ok" if self.ok else "NOT"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured.

    Attributes:
        runs: null runs and coverage runs of each statistic.
        power_runs: runs at the promised number of trials.
        tables: sampled for a far tail.
        streams: of the alarm times.
        cells: most cells of the laws of far tails and alarm times.
        look_cells: cells of the large law on which a look is timed.
        seed: root of every stream of random numbers.
    """

    runs: int
    power_runs: int
    tables: int
    streams: int
    cells: int
    look_cells: int
    seed: int = 0

    @property
    def costly_runs(self) -> int:
        """Runs of what takes ten milliseconds each: half as many."""
        return max(1, self.runs // 2)

    def rng(self, *path: object) -> np.random.Generator:
        """A generator for one measurement: adding another one changes no number of this one."""
        return np.random.default_rng([self.seed, zlib.crc32(repr(path).encode())])


FULL = Size(
    runs=20_000, power_runs=20_000, tables=20_000, streams=100, cells=32_768, look_cells=152_064
)
QUICK = Size(
    runs=1_000, power_runs=1_000, tables=3_000, streams=20, cells=1_024, look_cells=152_064
)

Task = Callable[[], Sequence[Row]]
"""A measurement that can be sent to another process: a partial of a module's function."""


def at_most(rate: float, runs: int) -> int:
    """Number of hits that Bin(runs, rate) exceeds with probability at most ``ERROR``."""
    return int(stats.binom.isf(ERROR, runs, rate))


def at_least(rate: float, runs: int) -> int:
    """Number of hits that Bin(runs, rate) stays below with probability at most ``ERROR``."""
    return int(stats.binom.ppf(ERROR, runs, rate))


def band(runs: int) -> float:
    """Half-width of the band around the empirical distribution function, for all points at once.

    Dvoretzky, Kiefer & Wolfowitz 1956 with Massart's constant (1990): P(sup (F_n - F) > e) is at
    most exp(-2 n e^2), for each side and for discrete laws too.
    """
    return math.sqrt(-math.log(ERROR) / (2 * runs))


def excess(values: Floats) -> tuple[float, float]:
    """How far the empirical distribution function rises above and falls below the diagonal.

    Args:
        values: [B] p-values in [0, 1].

    Returns:
        sup (F_n(x) - x) and sup (x - F_n(x)), both at least 0.
    """
    points, counts = np.unique(values, return_counts=True)
    after = np.cumsum(counts) / values.size
    before = after - counts / values.size
    return max(0.0, float((after - points).max())), max(0.0, float((points - before).max()))


def counted(group: str, name: str, setting: str, hits: int, runs: int, rate: float,
            *, least: bool = False, what: str = "misses") -> Row:  # fmt: skip
    """A row that compares a count with a promised rate by an exact binomial bound.

    Args:
        group: heading.
        name: of what promises.
        setting: law and trials.
        hits: counted.
        runs: out of these.
        rate: promised.
        least: whether the promise is "at least this often" rather than "at most".
        what: is counted.

    Returns:
        The row; its bound is passed with probability ``ERROR`` by a promise that is just kept.
    """
    limit = at_least(rate, runs) if least else at_most(rate, runs)
    sign, ok = (">=", hits >= limit) if least else ("<=", hits <= limit)
    return Row(
        group=group,
        name=name,
        setting=setting,
        runs=runs,
        expected=f"{what} {sign} {rate:g}: {sign} {limit:,} runs",
        observed=f"{hits:,} ({hits / runs:.4g})",
        ok=ok,
    )


def cached(function: Callable[..., Any]) -> Callable[..., Any]:
    """Remember answers: the tables of a small law come again and again."""
    known: dict[Any, Any] = {}

    def found(*args: Any) -> Any:
        if args not in known:
            known[args] = function(*args)
        return known[args]

    return found
