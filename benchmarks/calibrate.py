"""Measure how well every statistic keeps its promises; the table of docs/calibration.md.

    python benchmarks/calibrate.py [--quick] [--write docs/calibration.md] [--workers 1] [--seed 0]

The truth is known: laws are made up and samplers simulated by numpy. Seeds are fixed, so all but
the seconds come out the same again. Exit code 1 if any row is NOT what was promised.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import datetime
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import scipy

sys.path.insert(0, str(Path(__file__).resolve().parent))

from calibration import alarms, coverage, futility, looks, null, power, stopping, tails
from calibration.rows import ERROR, FULL, QUICK, Row, Size, Task, band

import specverify

SECTIONS = {
    "null": null,
    "coverage": coverage,
    "stopping": stopping,
    "power": power,
    "tails": tails,
    "alarms": alarms,
    "futility": futility,
    "looks": looks,
}

FULLER = f"""
A full run, `nox -s calibrate -- --write docs/calibration.md`, takes {FULL.runs:,} runs of each and
laws of up to {FULL.cells:,} cells.
"""

COLUMNS = ("what", "setting", "runs", "expected", "observed", "verdict")


def _call(task: Task) -> Sequence[Row]:
    return task()


def measured(size: Size, sections: Sequence[str], workers: int) -> Iterator[Row]:
    """The rows in order, as they come.

    Args:
        size: how much is measured.
        sections: names of ``SECTIONS``.
        workers: processes; one measures in this one.

    Yields:
        Rows.
    """
    tasks = [task for name in sections for task in SECTIONS[name].tasks(size)]
    if workers == 1:
        for task in tasks:
            yield from task()
        return
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        for rows in pool.map(_call, tasks):
            yield from rows


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown, one table for each group."""
    lines: list[str] = []
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            lines += [f"\n## {group}\n", f"| {' | '.join(COLUMNS)} |", "| --- " * 6 + "|"]
        cells = (row.name, row.setting, f"{row.runs:,}", row.expected, row.observed, row.verdict)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def heading(size: Size, mode: str, command: str, seconds: float) -> str:
    """What the table rests on: command, versions, seed, machine, date."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = (
        f"specverify {specverify.__version__}, numpy {np.__version__}, scipy {scipy.__version__}, "
        f"Python {platform.python_version()}"
    )
    machine = f"{platform.system()} {platform.machine()}, {cores} cores, no GPU used"
    day = datetime.datetime.now(datetime.UTC).date()
    return f"""# Calibration

How well the statistics of `specverify.evidence` keep their promises, measured on laws where the
truth is known. This table is of a **{mode}** run: {size.runs:,} null and coverage runs of each
statistic, {size.power_runs:,} at the promised trials, {size.tables:,} tables for a far tail,
{size.streams} streams for the times at alarm, laws of up to {size.cells:,} cells.

- Command: `{command}` ({seconds:.0f} s)
- Versions: {versions}
- Machine: {machine}; seed {size.seed}; {day}

A count is judged by the exact binomial law: a promise that is just kept answers NOT with
probability {ERROR:g}. `ECDF` is the Dvoretzky-Kiefer-Wolfowitz band with Massart's constant, for
all points at once and for discrete p-values too: {band(size.runs):.3f} at {size.runs:,} runs.
Exact and proved p-values may be larger than uniform ones, chi-square p-values have to be uniform.
`shown` marks figures that nothing is promised about.
{FULLER if mode == "quick" else ""}"""


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="1,000 runs, up to 1,024 cells")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table here as well")
    parser.add_argument("--workers", type=int, default=1, help="processes (looks: use 1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=SECTIONS, action="append", help="sections; repeatable")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, write it if asked; exit code 1 if any row is NOT as promised."""
    options = _options(arguments)
    given = sys.argv[1:] if arguments is None else list(arguments)
    size = dataclasses.replace(QUICK if options.quick else FULL, seed=options.seed)
    started, rows = time.perf_counter(), []
    for row in measured(size, options.only or list(SECTIONS), options.workers):
        rows.append(row)
        spent = f"{time.perf_counter() - started:6.0f} s"
        line = f"{spent}  {row.verdict:<5}  {row.name} ({row.setting}): {row.observed}"
        print(line, file=sys.stderr, flush=True)
    command = " ".join(["python benchmarks/calibrate.py", *given])
    mode = "quick" if options.quick else "full"
    page = heading(size, mode, command, time.perf_counter() - started) + table(rows)
    print(page)
    if options.write:
        options.write.write_text(page, encoding="utf-8")
    wrong = [row for row in rows if row.ok is False]
    print(f"{len(rows)} rows, {len(wrong)} NOT as promised")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
