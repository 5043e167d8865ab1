"""The matrix of an exam: mutant x suite, with the trials at detection."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from specverify.exam_results import ExamResults, MarkRecord, RowRecord

_SHORT = {
    "acceptance": "accept",
    "differential": "differ",
    "drafting": "draft",
    "exclusion": "exclud",
    "independence": "indep",
    "metamorphic": "metam",
    "support": "supp",
}


def cell(mark: MarkRecord | None) -> str:
    """``412`` caught at 412 trials; ``> 8k`` not caught by 8,000; ``ok`` followed to the end."""
    if mark is None:
        return "."
    if not mark.supported:
        return "-"
    if mark.caught and mark.trials == 0:
        return "fault"  # the very first call broke the contract
    if mark.caught:
        return _count(mark.trials)
    return "ok" if mark.complete else f"> {_count(mark.trials)}"


def _count(trials: int) -> str:
    if trials < 1000:
        return str(trials)
    return f"{trials / 1000:.3g}k" if trials < 999_500 else f"{trials / 1e6:.3g}M"


def verdict(results: ExamResults) -> str:
    """One sentence."""
    mutants = sum(row.role != "correct" for row in results.rows)
    correct = len(results.rows) - mutants
    if results.passed:
        return (
            f"PASS: all {mutants} mutants were caught, none of {correct} correct samplers was "
            f"accused (false-alarm probability at most {results.alpha:g} for each)"
        )
    parts = []
    if results.survivors:
        parts.append(f"{len(results.survivors)} survived: {', '.join(results.survivors)}")
    if results.accused:
        parts.append(f"falsely accused: {', '.join(results.accused)}")
    return "FAIL: " + "; ".join(parts)


def table(results: ExamResults) -> Table:
    """For a terminal of 80 columns."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    grid.add_column("subject", overflow="fold")
    for suite in results.suites:
        grid.add_column(_SHORT.get(suite, suite), justify="right")
    for row in results.rows:
        name = Text(row.subject.removeprefix("mutant:"), style=_style(row))
        grid.add_row(name, *(_cell(row.marks.get(suite)) for suite in results.suites))
    return grid


def _style(row: RowRecord) -> str:
    if not row.right:
        return "bold red"
    return "green" if row.role == "correct" else ""


def _cell(mark: MarkRecord | None) -> Text:
    return Text(cell(mark), style="bold" if mark is not None and mark.caught else "dim")


LEGEND = (
    "fault: broke the contract in its first call; a number: caught at this many trials "
    "(layouts, for the exact suites); > n: not caught by n, "
    "where the suite stopped; . not asked; - not supported; ok: followed to the full budget and "
    "not rejected"
)


def markdown(results: ExamResults) -> str:
    """The same with what is wrong with each mutant."""
    head = ["subject", *results.suites, "what goes wrong", "seen at"]
    lines = [
        f"**{verdict(results)}**",
        "",
        f"seed {results.seed}; {LEGEND}",
        "",
        "| " + " | ".join(head) + " |",
        "| " + " | ".join("---" for _ in head) + " |",
    ]
    for row in results.rows:
        cells = [cell(row.marks.get(suite)) for suite in results.suites]
        name = f"`{row.subject.removeprefix('mutant:')}`"
        summary = row.summary.replace("|", "\\|")  # |p - q| is no border of a cell
        lines.append("| " + " | ".join([name, *cells, summary, row.seen_at]) + " |")
    return "\n".join(lines) + "\n"
