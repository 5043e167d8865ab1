"""How often a whole quick run accuses a correct sampler: many seeds of many correct samplers.

    python benchmarks/accusations.py [--seeds 30] [--samplers NAME ...] [--workers 2]
        [--seconds 3600] [--rows FILE] [--markdown docs/accusations.md] [--table-only] [--any-code]

Every run is what `specverify run --profile quick` does: all suites, alpha = 1e-6 split over all
statistical tests before anything runs, and every exact check beside them.  Samplers are the
registered references, the lawful variants and the samplers of other projects.  A run with any FAIL
is an accusation; the bar is none.  At that alpha a false alarm of a statistical test would be seen
once in a million runs, so what the figure bears on is everything else: exact checks that a correct
sampler breaks in rare layouts, float budgets that are too tight, laws that are wrong.

Runs take turns over the samplers, so whenever the time is up all have equally many seeds (one that
``--fewer NAME=COUNT`` lists has fewer).  Each run is written as one line of JSON when it ends; runs
that the file holds for the same code and seed are not repeated.

The package need not be installed: with its tree on PYTHONPATH, registered names are read from
pyproject.toml.  Exit code 1 if anything was accused, 3 if no run was made.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import multiprocessing
import os
import platform
import sys
import time
import tomllib
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import specverify
from specverify import evidence

ROOT = Path(__file__).resolve().parent.parent
GROUP = "specverify.samplers"
ALPHA, PROFILE, CONFIDENCE = 1e-6, "quick", 0.95
FIRST_SEED = 1000
"""Root seeds count up from here; those of other jobs of the project count up from 0."""
REFERENCES = ("reference", "reference-match", "reference-rowwise")
ENGINES = ("flashspec", "transformers")


@dataclasses.dataclass(frozen=True)
class Run:
    """One quick run of one sampler, as one line of the file.

    Attributes:
        sampler, version: what was verified.
        seed: root seed.
        code: digest of the package's source.
        verdict: pass, fail or inconclusive.
        tests: statistical tests, among which alpha was split.
        checks: all answers.
        accusations: check and reason of every FAIL.
        errors: what went wrong in the harness itself.
        not_supported: cases that the sampler could not be asked.
        seconds: processor time.
        python, torch, machine: where.
    """

    sampler: str
    version: str | None
    seed: int
    code: str
    verdict: str
    tests: int
    checks: int
    accusations: list[str]
    errors: list[str]
    not_supported: int
    seconds: float
    python: str = platform.python_version()
    torch: str = ""
    machine: str = f"{platform.machine()}, {os.cpu_count()} cores"

    @classmethod
    def of(cls, line: str) -> Run:
        """Read a line."""
        return cls(**json.loads(line))


@functools.cache
def digest() -> str:
    """Digest of the package's source, so that runs of different code are told apart."""
    found = hashlib.sha256()
    for room in (Path(specverify.__file__).parent, ROOT / "suites"):
        for path in sorted(room.rglob("*.py")):
            found.update(path.relative_to(room).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def everybody() -> list[str]:
    """The samplers of a complete measurement."""
    from specverify.mutants.lawful import LAWFUL

    return [*REFERENCES, *(f"lawful:{name}" for name in LAWFUL), *ENGINES]


def subject(name: str) -> Any:
    """The sampler of that name, also where the package is not installed.

    Raises:
        ValueError: as :func:`specverify.registry.resolve`.
    """
    from specverify._optional import version_of
    from specverify.registry import available, resolve

    if name in {entry.name for entry in available()} or ":" in name:
        return resolve(name)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    origin = project["entry-points"][GROUP].get(name, name)
    found = resolve(origin)
    engine = getattr(found.sampler, "requires", None)
    version = version_of(engine) if engine else specverify.__version__
    return dataclasses.replace(found, name=name, version=version)


def run_once(task: tuple[str, int]) -> Run:
    """One quick run, in this process."""
    import torch
    from specverify.suites import all_suites

    from specverify import gate
    from specverify._runner import answer
    from specverify.checks.experiment import PROFILES, Settings
    from specverify.results import Outcome

    torch.set_num_threads(1)
    name, seed = task
    started = time.process_time()
    tested = subject(name)
    experiments = [one for suite in all_suites().values() for one in suite.experiments]
    plans = [one.plan(tested.capabilities) for one in experiments]
    tests = sum(plan.tests for plan in plans if plan.unsupported is None)
    settings = Settings(root_seed=seed, alpha=gate.split(ALPHA, tests), profile=PROFILES[PROFILE])
    answers = [answer(one, tested, settings) for one in experiments]
    verdicts = [verdict for found in answers for verdict in found.verdicts]
    return Run(
        sampler=name,
        version=tested.version,
        seed=seed,
        code=digest(),
        verdict=gate.overall(verdict.status for verdict in verdicts).value,
        tests=tests,
        checks=len(verdicts),
        accusations=[f"{one.name}: {one.reason}" for one in verdicts if one.status is Outcome.FAIL],
        errors=[found.error.message for found in answers if found.error is not None],
        not_supported=sum(plan.unsupported is not None for plan in plans),
        seconds=round(time.process_time() - started, 2),
        torch=torch.__version__,
    )


def tasks(
    samplers: Sequence[str], seeds: int, fewer: dict[str, int], done: set[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Sampler and seed of every run that is left, all samplers in turn."""
    return [
        (name, FIRST_SEED + number)
        for number in range(seeds)
        for name in samplers
        if number < fewer.get(name, seeds) and (name, FIRST_SEED + number) not in done
    ]


def measured(todo: Sequence[tuple[str, int]], workers: int, seconds: float) -> Iterator[Run]:
    """Runs as they end; none is begun after ``seconds``, nor one that would end long after them.

    How long a run takes is known from the runs of the same sampler before it.
    """
    started, longest = time.monotonic(), collections.defaultdict[str, float](float)
    waiting = collections.deque(todo)
    spawn = multiprocessing.get_context("spawn")  # forking a process that ran torch may hang
    begun: dict[concurrent.futures.Future[Run], tuple[str, float]] = {}
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        while waiting or begun:
            while waiting and len(begun) < workers:
                task = waiting.popleft()
                now = time.monotonic()
                if now - started + longest[task[0]] < seconds:
                    begun[pool.submit(run_once, task)] = (task[0], now)
            if not begun:
                return
            ended, _ = concurrent.futures.wait(
                begun, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for future in ended:
                name, since = begun.pop(future)
                longest[name] = max(longest[name], time.monotonic() - since)
                try:
                    yield future.result()
                except Exception:
                    sys.stderr.write(f"{name}: could not be run\n{traceback.format_exc()}")


def load(path: Path) -> list[Run]:
    """The runs of a file; none if there is no file."""
    if not path.exists():
        return []
    return [Run.of(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def upper_bound(accused: int, runs: int) -> float:
    """Exact upper bound on the rate of accused runs (Clopper & Pearson 1934), one-sided."""
    # A two-sided interval of confidence 2c - 1 has the one-sided bound of confidence c at its end.
    return float(evidence.clopper_pearson(accused, runs, 2 * CONFIDENCE - 1)[1])


def markdown(runs: Sequence[Run]) -> str:
    """The table of docs/accusations.md."""
    by_name = collections.defaultdict[str, list[Run]](list)
    for run in runs:
        by_name[run.sampler].append(run)
    accused = sum(bool(run.accusations) for run in runs)
    broken = sum(bool(run.errors) for run in runs)
    places = sorted({f"Python {run.python}, torch {run.torch}, {run.machine}" for run in runs})
    lines = [
        "# No accusations",
        "",
        "Correct samplers, each put through whole quick runs (`specverify run --profile quick`,",
        "all suites, alpha = 1e-6 a run) with different root seeds. An accusation is a run with",
        "any FAIL.",
        "",
        f"**{accused} of {len(runs)} runs accused a correct sampler**; the harness failed in "
        f"{broken}. The true rate of accused runs is at most "
        f"{upper_bound(accused, len(runs)):.2g}, with {CONFIDENCE:.0%} confidence (Clopper and "
        "Pearson, exact, one-sided).",
        "",
        "| sampler | version | runs | accused | rate at most | inconclusive | tests a run | "
        "checks a run | cases not supported | processor seconds a run |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    known = [name for name in everybody() if name in by_name]
    lines += [_line(name, by_name[name]) for name in known + sorted(set(by_name) - {*known})]
    lines += ["", "Accusations:", ""] if accused else []
    lines += [
        f"- `{run.sampler}`, seed {run.seed}: {text.splitlines()[0]}"
        for run in runs
        for text in run.accusations[:3]
    ]
    lines += [
        "",
        f"Measured by `python benchmarks/accusations.py` on {'; '.join(places)}. Code "
        f"{', '.join(sorted({run.code for run in runs}))}, seeds {min(run.seed for run in runs)} "
        f"to {max(run.seed for run in runs)}.",
    ]
    return "\n".join(lines) + "\n"


def _line(name: str, runs: Sequence[Run]) -> str:
    accused = sum(bool(run.accusations) for run in runs)
    unsure = sum(run.verdict == "inconclusive" for run in runs)
    last = runs[-1]
    versions = ", ".join(sorted({run.version for run in runs if run.version}))
    cells = (
        f"`{name}`", versions, len(runs), accused,
        f"{upper_bound(accused, len(runs)):.3g}", unsure, last.tests, last.checks,
        last.not_supported, f"{sum(run.seconds for run in runs) / len(runs):.0f}",
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=30, help="runs of each sampler")
    parser.add_argument("--samplers", nargs="+", help="all correct ones if none is named")
    parser.add_argument("--fewer", nargs="+", default=[], metavar="NAME=COUNT")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run later")
    parser.add_argument("--rows", type=Path, default=Path("accusations.jsonl"))
    parser.add_argument("--markdown", type=Path, help="write the table here")
    parser.add_argument("--any-code", action="store_true", help="go on with runs of other code")
    parser.add_argument("--table-only", action="store_true", help="of the rows that there are")
    options = parser.parse_args(given)
    options.fewer = {
        name: int(count) for name, _, count in (o.rpartition("=") for o in options.fewer)
    }
    return options


def main(given: Sequence[str] | None = None) -> int:
    """Make the runs that are missing, write the table, and say whether anybody was accused."""
    options = arguments(given)
    before = load(options.rows)
    code = digest()
    done = {(run.sampler, run.seed) for run in before if options.any_code or run.code == code}
    todo = tasks(options.samplers or everybody(), options.seeds, options.fewer, done)
    new: Iterable[Run] = (
        () if options.table_only else measured(todo, options.workers, options.seconds)
    )
    runs = list(before)
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    with options.rows.open("a", encoding="utf-8") as file:
        for run in new:
            file.write(json.dumps(dataclasses.asdict(run)) + "\n")
            file.flush()
            runs.append(run)
            words = run.accusations or run.errors or [run.verdict]
            print(f"{run.sampler} seed {run.seed}: {words[0].splitlines()[0]} "
                  f"({run.tests} tests, {run.seconds:.0f} s)", flush=True)  # fmt: skip
    if not runs:
        return 3
    text = markdown(runs)
    if options.markdown is not None:
        options.markdown.write_text(text, encoding="utf-8")
    print(text)
    return 1 if any(run.accusations or run.errors for run in runs) else 0


if __name__ == "__main__":
    raise SystemExit(main())
