"""What a person sees while a run is going on: a bar on a terminal, one line a case elsewhere.

Both write to a duplicate of standard error that is made before pytest starts to capture output, so
that progress is seen while a sampler runs and nothing that the sampler prints can garble it.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO

import pytest
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from specverify import gate
from specverify._messages import CaseResult
from specverify.results import Outcome, RunResults


class LineWatcher:
    """Follows a run and prints a line for every finished case; also keeps its results.

    Args:
        cases: number of cases that will be run.
        command: the command line, for the record.
        stream: where lines go.
    """

    def __init__(self, cases: int, command: tuple[str, ...], stream: TextIO) -> None:
        self.command = command
        self.results: RunResults | None = None
        self.broken: list[str] = []
        self._cases = cases
        self._stream = stream
        self._finished = 0

    def trials(self, done: int, planned: int) -> None:
        """Ignore progress inside of a case."""

    def case_finished(self, result: CaseResult) -> None:
        """Print the case, its outcome, checks, trials and time."""
        self._finished += 1
        width = len(str(self._cases))
        self._print(f"[{self._finished:>{width}}/{self._cases}] {case_line(result)}")

    def run_finished(self, results: RunResults) -> None:
        """Keep the results for the command."""
        self.results = results

    def close(self) -> None:
        """Nothing to tidy up."""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep what pytest could not collect: with its own reporter off, nobody else would say."""
        if report.failed:
            self.broken.append(report.longreprtext)

    def _print(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


class BarWatcher(LineWatcher):
    """Follows a run with a progress bar; prints only the cases that did not pass."""

    def __init__(self, cases: int, command: tuple[str, ...], stream: TextIO) -> None:
        super().__init__(cases, command, stream)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeRemainingColumn(),
            console=Console(file=stream),
            transient=True,
        )
        self._task = self._progress.add_task("cases", total=cases, rate="")
        self._trials = 0
        self._started = time.monotonic()
        self._progress.start()

    def trials(self, done: int, planned: int) -> None:
        """Advance the bar inside of a case."""
        self._show(self._finished + min(done / max(planned, 1), 1.0), self._trials + done)

    def case_finished(self, result: CaseResult) -> None:
        """Advance the bar; say more only if there is something to look at."""
        self._finished += 1
        self._trials += max((verdict.trials for verdict in result.verdicts), default=0)
        self._show(self._finished, self._trials)
        if outcome_of(result) in (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE):
            self._progress.console.print(Text(case_line(result)))

    def close(self) -> None:
        """Take the bar off the screen."""
        self._progress.stop()

    def _show(self, completed: float, trials: int) -> None:
        rate = trials / max(time.monotonic() - self._started, 1e-3)
        self._progress.update(self._task, completed=completed, rate=f"{rate:,.0f} trials/s")


def make_watcher(cases: int, command: tuple[str, ...]) -> LineWatcher:
    """A bar if standard error is a terminal, lines otherwise."""
    try:
        stream = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace")
    except (OSError, ValueError):  # standard error has been replaced by something without a file
        stream = sys.stderr  # type: ignore[assignment]
    kind = BarWatcher if stream.isatty() else LineWatcher
    return kind(cases, command, stream)


def outcome_of(result: CaseResult) -> Outcome:
    """The worst of a case's checks."""
    if result.error is not None:
        return Outcome.ERROR
    return gate.overall(verdict.status for verdict in result.verdicts)


def case_line(result: CaseResult) -> str:
    """A finished case in one line."""
    if not result.verdicts:
        return "no check of that name"
    first = result.verdicts[0]
    trials = max(verdict.trials for verdict in result.verdicts)
    seconds = sum(verdict.seconds for verdict in result.verdicts)
    outcome = outcome_of(result)
    said = [f"{len(result.verdicts)} check{'s' if len(result.verdicts) > 1 else ''}"]
    unit = "trials" if any(verdict.alpha for verdict in result.verdicts) else "examples"
    said += [f"{trials:,} {unit}"] if trials else []
    said += [f"{seconds:.1f} s"] if seconds else []
    if outcome is not Outcome.PASS:
        worst = next((v for v in result.verdicts if v.status is outcome), first)
        said = (
            [worst.reason] if worst.check == "case" else [*said, f"{worst.check}: {worst.reason}"]
        )
    found = next((v.shrunk for v in result.verdicts if v.shrunk is not None), None)
    if found is not None and "smallest layout" not in said[-1]:
        said.append(f"smallest layout: {found.short}")
    return f"{outcome.word} {first.suite}/{first.case}: {', '.join(said)}"
