"""Measure how well every statistic keeps its promises; the table of docs/calibration.md.

    python benchmarks/calibrate.py [--quick] [--write docs/calibration.md] [--workers 1] [--seed 0]

The truth is known: laws are made up and samplers simulated by numpy. Seeds are fixed, so all but
the seconds come out the same again. Exit code 1 if any row is NOT what was promised.

With --write, finished measurements are kept beside the page, in a file that ends in .rows.jsonl,
until the page is written: the same command goes on where an interrupted one was stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy

sys.path.insert(0, str(Path(__file__).resolve().parent))

from calibration import (
    alarms,
    coverage,
    futility,
    looks,
    null,
    pairs,
    power,
    sampling,
    stopping,
    tails,
)
from calibration.journal import Journal, measured
from calibration.rows import ERROR, FULL, QUICK, Row, Size, band

import specverify

SECTIONS = {
    "null": null,
    "sampling": sampling,
    "coverage": coverage,
    "stopping": stopping,
    "power": power,
    "tails": tails,
    "alarms": alarms,
    "pairs": pairs,
    "futility": futility,
    "looks": looks,
}

FULLER = f"""
A full run, `nox -s calibrate -- --write docs/calibration.md`, takes {FULL.runs:,} runs of each and
laws of up to {FULL.cells:,} cells.
"""

COLUMNS = ("what", "setting", "runs", "expected", "observed", "verdict")


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
statistic (half as many of the costliest), {size.power_runs:,} at the promised trials,
{size.tables:,} tables for a far tail, {size.streams} streams for the times at alarm,
laws of up to {size.cells:,} cells.

- Command: `{command}` ({seconds:.0f} s of one core, all measurements together)
- Versions: {versions}
- Machine: {machine}; seed {size.seed}; {day}

A count is judged by the exact binomial law: a promise that is just kept answers NOT with
probability {ERROR:g}. `ECDF` is the Dvoretzky-Kiefer-Wolfowitz band with Massart's constant, for
all points at once and for discrete p-values too: {band(size.runs):.3f} at {size.runs:,} runs.
Exact and proved p-values may be larger than uniform ones, chi-square p-values have to be uniform.
`shown` marks figures that nothing is promised about.
{"" if mode == "full" else FULLER}"""


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="1,000 runs, up to 1,024 cells")
    parser.add_argument("--runs", type=int, help="null, coverage and power runs instead of 20,000")
    parser.add_argument("--tables", type=int, help="for a far tail instead of 20,000")
    parser.add_argument("--streams", type=int, help="for a time at alarm instead of 100")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table here as well")
    parser.add_argument("--workers", type=int, default=1, help="processes (looks: use 1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=SECTIONS, action="append", help="sections; repeatable")
    return parser.parse_args(arguments)


def sized(options: argparse.Namespace) -> Size:
    """How much is measured: quick or full, single figures replaced where told so."""
    size = dataclasses.replace(QUICK if options.quick else FULL, seed=options.seed)
    runs = {"runs": options.runs, "power_runs": options.runs}
    told = {**runs, "tables": options.tables, "streams": options.streams}
    return dataclasses.replace(size, **{key: n for key, n in told.items() if n is not None})


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, write it if asked; exit code 1 if any row is NOT as promised."""
    options = _options(arguments)
    given = sys.argv[1:] if arguments is None else list(arguments)
    size = sized(options)
    tasks = [task for name in options.only or SECTIONS for task in SECTIONS[name].tasks(size)]
    journal = Journal(options.write.with_suffix(".rows.jsonl") if options.write else None)
    started, answers = time.perf_counter(), {}
    for index, found, seconds in measured(tasks, options.workers, journal):
        answers[index] = found, seconds
        for row in found:
            spent = f"{time.perf_counter() - started:6.0f} s"
            line = f"{spent}  {row.verdict:<5}  {row.name} ({row.setting}): {row.observed}"
            print(line, file=sys.stderr, flush=True)
    rows = [row for index in sorted(answers) for row in answers[index][0]]
    command = " ".join(["python benchmarks/calibrate.py", *given])
    cut = dataclasses.replace(size, seed=FULL.seed) != FULL
    mode = "quick" if options.quick else "reduced" if cut else "full"
    page = heading(size, mode, command, sum(s for _, s in answers.values())) + table(rows)
    print(page)
    if options.write:
        options.write.write_text(page, encoding="utf-8")
        journal.remove()
    wrong = [row for row in rows if row.ok is False]
    print(f"{len(rows)} rows, {len(wrong)} NOT as promised")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
