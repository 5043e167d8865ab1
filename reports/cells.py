"""The cells of a table that deviate most: observed against expected, as bars and in words."""

from __future__ import annotations

import dataclasses
import math

from specverify.reports.numbers import percent

from specverify.results import CellRecord, VerdictRecord

WIDTH = 240
"""Length of the longest bar."""


@dataclasses.dataclass(frozen=True)
class CellBar:
    """One cell.

    Attributes:
        label: what the cell stands for.
        observed, expected: trials.
        observed_width, expected_width: lengths of the bars.
        change: the deviation in percent and in standard deviations of a binomial count.
    """

    label: str
    observed: int
    expected: float
    observed_width: int
    expected_width: int
    change: str


def cell_bars(verdict: VerdictRecord) -> tuple[CellBar, ...]:
    """The worst cells of a check, on one scale."""
    largest = max((max(c.observed, c.expected) for c in verdict.worst), default=0.0) or 1.0
    return tuple(
        CellBar(
            label=cell.label,
            observed=cell.observed,
            expected=cell.expected,
            observed_width=round(WIDTH * cell.observed / largest),
            expected_width=round(WIDTH * cell.expected / largest),
            change=change(cell, verdict.trials),
        )
        for cell in verdict.worst
    )


def change(cell: CellRecord, trials: int) -> str:
    """How far a count is from its expectation."""
    if cell.expected <= 0:
        return "impossible under the law" if cell.observed else "never, as the law says"
    relative = percent(cell.observed / cell.expected - 1)
    variance = cell.expected * (1 - cell.expected / trials) if trials > cell.expected else 0.0
    if variance <= 0:
        return relative
    deviation = (cell.observed - cell.expected) / math.sqrt(variance)
    return f"{relative}, {abs(deviation):.1f} s.d."
