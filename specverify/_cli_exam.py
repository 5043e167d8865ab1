"""The ``mutants`` command: run the exam, show its progress, print and write the matrix."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from specverify.exam_pool import run_exam
from specverify.exam_results import ExamResults, RowRecord
from specverify.reports import matrix
from specverify.suites import all_suites


def main(*, profile: str, seed: int, workers: int, out: Path | None, full: bool = False) -> int:
    """Run the exam and return the exit code: 0 if nothing survived and nobody was accused, else 1.

    Args:
        profile: quick, gate or nightly.
        seed: root seed.
        workers: processes.
        full: take no shortcut.
        out: folder for exam.json and exam.md; nothing is written if ``None``.
    """
    console = Console()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("examining", total=None)

        def done(row: RowRecord, finished: int, total: int) -> None:
            progress.update(task, completed=finished, total=total, description=row.subject)
            if not console.is_terminal:
                word = "right" if row.right else "WRONG"
                console.print(f"{finished}/{total} {row.subject}: {word} ({row.seconds:.1f} s)")

        results = run_exam(
            list(all_suites().values()),
            profile=profile,
            seed=seed,
            workers=workers,
            done=done,
            full=full,
        )
    if out is not None:
        _write(results, out)
    console.print(matrix.table(results))
    console.print(f"{matrix.LEGEND}; {matrix.BOLD}.", style="dim")
    console.print(matrix.shortcuts(results), style="dim")
    console.print(matrix.verdict(results))
    return 0 if results.passed else 1


def _write(results: ExamResults, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "exam.json").write_text(results.model_dump_json(indent=1), encoding="utf-8")
    (out / "exam.md").write_text(matrix.markdown(results), encoding="utf-8")
