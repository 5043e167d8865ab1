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
    """``412`` caught at 412 trials; ``> 8k`` not caught by 8,000; ``ok`` followed to the end.

    Suites without trials are always followed to the end, which is that of their layouts.
    """
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
            f"PASS: all {mutants} mutants were caught by a suite that they name, "
            f"{sum(row.formula for row in results.rows)} wrong formulas within 20,000 trials each; "
            f"none of {correct} correct samplers was accused (false-alarm probability at most "
            f"{results.alpha:g} for each)"
        )
    parts = []
    if results.survivors:
        late = {row.subject for row in results.rows if _late(row)}
        said = [f"{name} (late)" if name in late else name for name in results.survivors]
        parts.append(f"{len(said)} survived: {', '.join(said)}")
    if results.misjudged:
        parts.append(
            f"{len(results.misjudged)} lossless, yet their text was rejected: "
            f"{', '.join(results.misjudged)}"
        )
    if results.accused:
        parts.append(f"falsely accused: {', '.join(results.accused)}")
    return "FAIL: " + "; ".join(parts)


def _late(row: RowRecord) -> bool:
    """Caught by a suite that it names, but a wrong formula should have been caught sooner."""
    return row.formula and row.detected is not None and not row.right


def shortcuts(results: ExamResults) -> str:
    """One sentence on what the exam left out."""
    if not results.shortcuts:
        return "Full exam: nothing was left out."
    return f"Quick exam, --full leaves nothing out: {'; '.join(results.shortcuts)}."


def table(results: ExamResults) -> Table:
    """For a terminal of 80 columns."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    grid.add_column("subject", overflow="fold")
    grid.add_column("at", justify="right")
    for suite in results.suites:
        grid.add_column(_SHORT.get(suite, suite), justify="right")
    for row in results.rows:
        name = Text(row.subject.removeprefix("mutant:"), style=_style(row))
        marks = (_cell(row, suite) for suite in results.suites)
        grid.add_row(name, Text(_detected(row), style=_style(row)), *marks)
    return grid


def _style(row: RowRecord) -> str:
    if not row.right:
        return "bold red"
    return "green" if row.role == "correct" else ""


def _detected(row: RowRecord) -> str:
    """Trials at detection by a suite that the mutant names."""
    return "" if row.detected is None else _count(row.detected)


def _cell(row: RowRecord, suite: str) -> Text:
    """Bold where caught by a suite that the mutant names."""
    mark = row.marks.get(suite)
    caught = mark is not None and mark.caught
    bold = caught and (suite in row.layers or not row.layers)
    return Text(cell(mark), style="bold" if bold else "" if caught else "dim")


LEGEND = (
    "fault: broke the contract in its first call; a number: caught at this many trials "
    "(layouts, for the exact suites); > n: not caught by n, "
    "where the suite stopped; . not asked; - not supported; ok: followed to the full budget (to "
    "the last layout, for the exact suites) and not rejected"
)


BOLD = "bold, and the number of its own column: by a suite that the mutant names"


def markdown(results: ExamResults) -> str:
    """The same with what is wrong with each mutant."""
    head = ["subject", *results.suites, "caught at", "what goes wrong", "seen at"]
    lines = [
        f"**{verdict(results)}**",
        "",
        f"seed {results.seed}; {LEGEND}; {BOLD}",
        "",
        shortcuts(results),
        "",
        "| " + " | ".join(head) + " |",
        "| " + " | ".join("---" for _ in head) + " |",
    ]
    for row in results.rows:
        cells = [_marked(row, suite) for suite in results.suites]
        name = f"`{row.subject.removeprefix('mutant:')}`"
        summary = row.summary.replace("|", "\\|")  # |p - q| is no border of a cell
        cells += [_detected(row), summary, row.seen_at]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines) + "\n"


def _marked(row: RowRecord, suite: str) -> str:
    mark = row.marks.get(suite)
    text = cell(mark)
    return f"**{text}**" if mark is not None and mark.caught and suite in row.layers else text
