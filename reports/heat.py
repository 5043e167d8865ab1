"""The matrix of an exam as a heat map: the stronger, the sooner the mutant was caught."""

from __future__ import annotations

import dataclasses

from specverify.reports import matrix

from specverify.exam_results import ExamResults, MarkRecord, RowRecord

_LEVELS = (100, 1_000, 10_000, 100_000)


@dataclasses.dataclass(frozen=True)
class HeatCell:
    """One cell.

    Attributes:
        text: as in the Markdown matrix.
        kind: its class in the style sheet; ``h5`` is caught soonest, ``h1`` last.
        check: what failed first, empty if nothing did.
    """

    text: str
    kind: str
    check: str


@dataclasses.dataclass(frozen=True)
class HeatRow:
    """One subject of the exam with its cells, in the order of the suites."""

    record: RowRecord
    name: str
    cells: tuple[HeatCell, ...]


@dataclasses.dataclass(frozen=True)
class Heat:
    """The whole map.

    Attributes:
        exam: what it is drawn from.
        verdict: one sentence.
        legend: what the cells say, and what the exam left out.
        rows: correct samplers first, then the mutants.
    """

    exam: ExamResults
    verdict: str
    legend: str
    rows: tuple[HeatRow, ...]


def heat(exam: ExamResults) -> Heat:
    """Lay out the matrix of an exam."""
    rows = tuple(
        HeatRow(
            record=row,
            name=row.subject.removeprefix("mutant:"),
            cells=tuple(_cell(row, row.marks.get(suite)) for suite in exam.suites),
        )
        for row in exam.rows
    )
    legend = f"{matrix.LEGEND}. {matrix.shortcuts(exam)}".removesuffix(".")
    return Heat(exam, matrix.verdict(exam), legend, rows)


def _cell(row: RowRecord, mark: MarkRecord | None) -> HeatCell:
    text = matrix.cell(mark)
    if mark is None or not mark.supported:
        return HeatCell(text, "none", "")
    if not mark.caught:
        return HeatCell(text, "ok" if mark.complete else "short", "")
    # A mutant that is slow but lossless may be caught only where acceptance is judged.
    kind = "accused" if row.role == "correct" else f"h{_level(mark.trials)}"
    return HeatCell(text, kind, mark.check or "")


def _level(trials: int) -> int:
    return 5 - sum(trials > limit for limit in _LEVELS)
