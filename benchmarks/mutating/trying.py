"""One pytest session that measures the tests and then runs them against every mutant."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import gc
import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from mutmut.mutation import trampoline

from mutating.children import forked, ready, received, say
from mutating.making import ROOT, Mutant

PATIENCE = (3.0, 10.0)  # CPU seconds a test may take, and so many times what it took unmutated
OWN = 0.2  # how much faster a module's own tests count when tests are put in order
GRACE = 20.0  # seconds that the last mutants have to finish when the time is up

Timed = list[tuple[float, pytest.Item]]


class Trial:
    """The pytest plugin of this script: measures the tests, then tries every mutant on them.

    The parent never calls the code under test, so that no cache of an original value can hide a
    mutant.
    """

    def __init__(self, options: argparse.Namespace, mutants: list[Mutant]) -> None:
        self.options = options
        self.mutants = mutants
        self.failed = ""
        self.calls: set[str] = set()
        self.items: list[pytest.Item] = []
        trampoline.record_trampoline_hit = self._called

    def _called(self, name: str, **_caller: object) -> None:
        self.calls.add(name)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first test that failed."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Replace the ordinary run."""
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        self.items = list(session.items)
        if self.calls:
            say(f"called at import, so hidden from a mutant: {sorted(self.calls)}")
        tests = self._tests_of_functions()
        if not tests:
            raise session.Failed("no test calls the mutated package: is another one imported?")
        self._try_all(tests)
        return True

    def _tests_of_functions(self) -> dict[str, Timed]:
        """The tests that call each function, the fastest first."""
        started, count = time.monotonic(), self.options.workers
        shares = [self.items[start::count] for start in range(count)]
        children = [forked(self._measure, share) for share in shares]
        measured: dict[str, tuple[float, set[str], bool]] = {}
        for pid, pipe in children:
            measured |= received(pid, pipe)[0]
        broken = sorted(name for name, (_, _, failed) in measured.items() if failed)
        say(f"{len(measured)} tests in {time.monotonic() - started:.0f} s, broken: {broken}")
        tests: dict[str, Timed] = collections.defaultdict(list)
        for item in sorted(self.items, key=lambda one: measured[one.nodeid][0]):
            seconds, calls, failed = measured[item.nodeid]
            for name in calls if not failed else ():
                tests[name].append((seconds, item))
        return tests

    def _run(self, item: pytest.Item) -> bool:
        """Run one test; whether it failed."""
        self.failed = ""
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        return bool(self.failed)

    def _measure(self, items: list[pytest.Item]) -> dict[str, tuple[float, set[str], bool]]:
        """Seconds of every test, the functions it calls, and whether it fails unmutated."""
        trampoline.set_mutant_under_test("stats")
        found = {}
        for item in items:
            self.calls.clear()
            started = time.monotonic()
            failed = self._run(item)
            found[item.nodeid] = time.monotonic() - started, set(self.calls), failed
        return found

    def _examine(self, mutant: Mutant, tests: Timed) -> str:
        """In a child: the test that notices this mutant, if any does."""
        trampoline.set_mutant_under_test(mutant.name)
        for seconds, item in tests:
            # A test that takes too long kills the child; CPU time, so that a busy machine does not.
            signal.setitimer(signal.ITIMER_PROF, PATIENCE[0] + PATIENCE[1] * seconds)
            if self._run(item):
                return item.nodeid
        return ""

    def _try_all(self, tests: dict[str, Timed]) -> None:
        """Keep ``workers`` children busy until all is done, or the time is up."""
        gc.freeze()
        end = time.monotonic() + self.options.seconds
        waiting = collections.deque(self.mutants)
        running: dict[int, tuple[Mutant, int, float]] = {}
        done = 0
        with self.options.out.open("a", encoding="utf-8") as sink:
            while running or (waiting and time.monotonic() < end):
                while waiting and len(running) < self.options.workers and time.monotonic() < end:
                    mutant = waiting.popleft()
                    chosen = _within(self.options.budget, mutant, tests.get(mutant.called, []))
                    pid, pipe = forked(self._examine, mutant, chosen)
                    running[pipe] = mutant, pid, time.monotonic()
                for pipe in ready(list(running)):
                    mutant, pid, started = running.pop(pipe)
                    status, killer = _verdict(*received(pid, pipe))
                    _store(sink, mutant, status, killer, time.monotonic() - started)
                    done += 1
                if time.monotonic() > end + GRACE:
                    for _, pid, _ in running.values():
                        os.kill(pid, signal.SIGKILL)
                    break
        say(f"{done} mutants tried, {len(self.mutants) - done} left")


def _within(budget: float, mutant: Mutant, tests: Timed) -> Timed:
    """The tests for a mutant: fast ones first, those named after its module long before others."""
    own = f"_{mutant.module.rpartition('.')[2]}.py"
    ordered = sorted(tests, key=lambda test: test[0] * (OWN if own in test[1].nodeid else 1.0))
    spent = itertools.accumulate(seconds for seconds, _ in ordered)
    return [test for test, total in zip(ordered, spent, strict=True) if total <= budget]


def _verdict(killer: str | None, status: int) -> tuple[str, str]:
    """What became of a mutant, from what its child sent and how it ended."""
    if killer is not None:
        return ("killed", killer) if killer else ("survived", "")
    late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
    return ("timeout" if late else "crashed"), ""


def _store(sink: Any, mutant: Mutant, status: str, killer: str, seconds: float) -> None:
    record = dataclasses.asdict(mutant) | {
        "key": mutant.key,
        "status": status,
        "killer": killer,
        "seconds": round(seconds, 2),
    }
    sink.write(json.dumps(record, ensure_ascii=False) + "\n")
    sink.flush()


def run(tree: Path, options: argparse.Namespace, due: list[Mutant]) -> int:
    """One pytest session over the tests of the mutated packages, with the mutants in it."""
    sys.path.insert(0, str(tree))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tree), os.getenv("PYTHONPATH")]))
    # No plugin of the machine at hand, so that a result means the same everywhere.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    hypothesis.settings.register_profile(
        "mutation",
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=options.examples,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    trampoline.set_mutant_under_test("stats")  # so that calls at import are seen
    rooms = sorted({one.module.split(".")[1] for one in due})
    files = options.tests or [
        str(path) for room in rooms for path in sorted((ROOT / "tests").glob(f"test_{room}*"))
    ]
    flags = ["-qq", "--no-header", "--no-summary", "--capture=no", "-m", "not slow and not gpu"]
    flags += ["-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin"]
    flags += ["--hypothesis-profile=mutation"]
    flags += ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    flags += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*flags, *files], plugins=[Trial(options, due)]))
