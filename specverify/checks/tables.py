"""The tables that trials of a case fill, each with the exact law that its counts must follow.

``law`` tables hold for every lossless method, ``coupling`` tables for the acceptance rule that a
method declares, ``independence`` tables pair outcomes that must not know of each other.  Every
table is a partition of all trials: what does not belong falls into a last cell, so n is fixed, the
law is unconditional, and a branch is blamed by its probability.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from specverify.cases import Case, FloatArray
from specverify.checks.diagnosis import Branch
from specverify.checks.verdict import Family
from specverify.contract import AcceptanceRule, Capabilities
from specverify.evidence import Allowance, Suspect, allowance
from specverify.trials import IntArray, Outcomes

EXACT = Allowance()
"""Nothing is forgiven."""

JOINT_CELLS = 4096
"""The largest table of several tokens that is counted; beyond it, smaller tables must do."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Table:
    """One table: a tally (how to count) with its law (what to expect).

    Attributes:
        name: unique in the case, for example ``request 1: tokens 0-1``.
        family: LAW, COUPLING or INDEPENDENCE.
        shape: of the table before flattening, without the last cell.
        rest: whether there is a last cell for trials that do not belong.
        horizon: how many completed tokens it looks at.
        index: cell of every trial (pairs of trials: of every pair).
        law: [cells] float64, computed when asked for.
        axes: what each axis of ``shape`` holds, for labels.
        suspects: the directed bets, from the law.
        allowed: what the subject's arithmetic alone may do to each cell.
        request, position: where it looks.
        branch: the part of a verification step that it looks at; ``None`` for text.
    """

    name: str
    family: Family
    shape: tuple[int, ...]
    index: Callable[[Outcomes], IntArray]
    law: Callable[[], FloatArray]
    axes: tuple[str, ...]
    rest: bool = False
    horizon: int = 0
    suspects: Callable[[FloatArray], list[Suspect]] | None = None
    allowed: Allowance = EXACT
    request: int | None = None
    position: int | None = None
    branch: Branch | None = None

    @property
    def cells(self) -> int:
        """Number of cells, the last one included."""
        return int(np.prod(self.shape)) + self.rest

    def label(self, cell: int) -> str:
        """A cell in words."""
        if self.rest and cell == self.cells - 1:
            return "any other outcome"
        place = np.unravel_index(cell, self.shape)
        return ", ".join(f"{axis} {int(i)}" for axis, i in zip(self.axes, place, strict=True))


def tables_of(
    case: Case, families: tuple[Family, ...], capabilities: Capabilities
) -> tuple[Table, ...]:
    """Every table of these families that a subject can be asked, in a stable order.

    Tables depend on the filter convention, the acceptance rule and the arithmetic that a subject
    declares, and on nothing else of it, so they and their laws are computed once for all subjects
    of a kind.
    """
    return _allowing_tables(
        case,
        families,
        capabilities.convention,
        capabilities.acceptance,
        tuple(capabilities.arithmetic),
    )


@functools.lru_cache(maxsize=256)
def _allowing_tables(
    case: Case,
    families: tuple[Family, ...],
    convention: str,
    acceptance: AcceptanceRule,
    arithmetic: tuple[str, ...],
) -> tuple[Table, ...]:
    found = _tables(case, families, convention, acceptance)  # the laws are shared
    return tuple(allowing(table, arithmetic, case.vocab_size) for table in found)


def allowing(table: Table, arithmetic: tuple[str, ...], vocab: int) -> Table:
    """The table with what the subject's arithmetic may do to it.

    A cell of several tokens is a product of as many probabilities, each of which may be off.

    Raises:
        ValueError: if an arithmetic is declared that has no name.
    """
    if not arithmetic:
        return table
    one, tokens = allowance(arithmetic, vocab), max(1, len(table.shape))
    return dataclasses.replace(
        table,
        allowed=Allowance(
            relative=min(0.5, one.relative * tokens),
            absolute=one.absolute * tokens,
            last=min(0.5, one.last * tokens),
        ),
    )


@functools.lru_cache(maxsize=256)
def _tables(
    case: Case, families: tuple[Family, ...], convention: str, acceptance: AcceptanceRule
) -> tuple[Table, ...]:
    from specverify.checks.coupling_tables import coupling_tables
    from specverify.checks.law_tables import independence_tables, law_tables

    make: dict[Family, Callable[[], list[Table]]] = {
        Family.LAW: lambda: law_tables(case, convention),
        Family.INDEPENDENCE: lambda: independence_tables(case, convention),
        Family.COUPLING: lambda: coupling_tables(case, convention, acceptance),
    }
    found = [table for family in families for table in make[family]()]
    return tuple(dataclasses.replace(table, law=functools.cache(table.law)) for table in found)
