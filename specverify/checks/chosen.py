"""Law tests of a case that is made for one kind of fault, with cells and trials chosen for it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from specverify.cases import Case, FloatArray
from specverify.checks.counted import CountedExperiment, capped
from specverify.checks.experiment import Settings
from specverify.checks.tables import Table
from specverify.checks.tail import as_is
from specverify.checks.verdict import Family
from specverify.contract import Capabilities
from specverify.trials import IntArray, Outcomes


@dataclasses.dataclass(frozen=True, eq=False)
class Counted:
    """Tokens of one request that are counted together.

    Attributes:
        request: of the case.
        positions: of its completed emission; its rows there do not depend on the prefix.
        cells: for each position, [V] int64: the cell of every token, 0 .. n - 1.
    """

    request: int
    positions: tuple[int, ...]
    cells: tuple[NDArray[np.int64], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells at each position."""
        return tuple(int(cells.max()) + 1 for cells in self.cells)

    def table(self, case: Case, convention: str) -> Table:
        """The table of these tokens, with its law."""
        rows = case.requests[self.request].target_tables(convention)
        law = np.ones(1)
        for position, cells in zip(self.positions, self.cells, strict=True):
            one = np.bincount(cells, weights=rows[position][0])
            law = np.multiply.outer(law, one).ravel()
        names = ", ".join(map(str, self.positions))
        many = "s" if len(self.positions) > 1 else ""
        return Table(
            name=f"request {self.request}: token{many} {names}",
            family=Family.LAW,
            shape=self.shape,
            index=functools.partial(_cell, counted=self),
            law=functools.partial(as_is, law),
            axes=tuple(f"cell of t{position}" for position in self.positions),
            horizon=max(self.positions) + 1,
            request=self.request,
            position=self.positions[-1],
        )


def _cell(outcomes: Outcomes, *, counted: Counted) -> IntArray:
    """[T] int64: the cell of every trial."""
    tokens = outcomes.completed[counted.request]
    found = np.zeros(tokens.shape[0], dtype=np.int64)
    for position, cells, size in zip(counted.positions, counted.cells, counted.shape, strict=True):
        found = found * size + cells[tokens[:, position]]
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class ChosenCase:
    """A case with what is counted of it.

    Attributes:
        case: no row depends on the prefix where it is counted.
        counted: one table each.
        trials: that notice the fault, from the run's settings.
    """

    case: Case
    counted: Sequence[Counted]
    trials: Callable[[Settings], int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChosenExperiment(CountedExperiment):
    """Trials of a chosen case.

    Attributes:
        suite, case: where it belongs.
        make: makes the case for the subjects of a kind; called when it is needed.
    """

    make: Callable[[Capabilities], ChosenCase]

    def asked_of(self, capabilities: Capabilities) -> tuple[Case, list[Table]]:
        """The case and its tables."""
        found = self.make(capabilities)
        return found.case, [one.table(found.case, capabilities.convention) for one in found.counted]

    def budget_of(self, capabilities: Capabilities, settings: Settings) -> tuple[int, int]:
        """Trials that are needed, and trials that will be run."""
        return capped(self.make(capabilities).trials(settings), settings)


def every_token(vocab: int) -> NDArray[np.int64]:
    """[V] int64: each token is a cell of its own."""
    return np.arange(vocab)


def log_row(probabilities: FloatArray) -> FloatArray:
    """Logits of probabilities; -inf where they are 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probabilities))
