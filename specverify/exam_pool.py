"""Runs an exam: every subject in its own task, over worker processes."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed

from specverify.checks.experiment import PROFILES, Settings, Suite
from specverify.environment import PACKAGES, version_of
from specverify.exam import (
    DEEP,
    FIRST_STAGE,
    LAWFUL_PREFIX,
    QUICK_EXAMPLES,
    SHORT_BUDGET,
    STAGES,
    Role,
    Row,
    examine,
)
from specverify.exam_results import ExamResults, MarkRecord, RowRecord
from specverify.mutants import MUTANTS
from specverify.mutants.lawful import LAWFUL
from specverify.registry import resolve

CORRECT = ("reference", "reference-match", *(LAWFUL_PREFIX + name for name in sorted(LAWFUL)))
"""Samplers that must not be accused."""
EXAM_TV = 0.02
"""Deviation that the full budget of an exam is powered for."""
MUTANT_PREFIX = "mutant:"


QUICK_LAWFUL = ("gumbel-max", "less-or-equal", "shared-noise-row", "smaller-acceptance")
"""The lawful variants of a quick exam; the others sit longer ones."""


SHORTCUTS = [
    f"{', '.join(sorted(DEEP))} are asked only about mutants that are not caught without them, or "
    "not by a suite that they name",
    "of mutants with a drafter, drafting is asked first, and the others only if it does not catch",
    f"correct and slow samplers stop at {SHORT_BUDGET:,} trials, lawful variants at "
    f"{FIRST_STAGE:,}",
    f"exact properties are tried on {QUICK_EXAMPLES} layouts, but for those suites",
    f"of {len(LAWFUL)} lawful variants, {len(QUICK_LAWFUL)} are examined",
]
"""What an exam of the quick profile leaves out; ``full`` leaves out nothing."""


def subjects(*, thorough: bool = True) -> list[tuple[str, Role]]:
    """Everybody who sits the exam: correct samplers first, then the mutants by name."""
    left_out = (
        ()
        if thorough
        else {LAWFUL_PREFIX + name for name in LAWFUL}
        - {LAWFUL_PREFIX + name for name in QUICK_LAWFUL}
    )
    mutants = [(f"{MUTANT_PREFIX}{name}", Role.of(m.kind)) for name, m in sorted(MUTANTS.items())]
    correct = [(name, Role.CORRECT) for name in CORRECT if name not in left_out]
    return correct + mutants


def run_exam(
    suites: Sequence[Suite],
    *,
    profile: str,
    seed: int,
    alpha: float = 1e-6,
    workers: int = 1,
    done: Callable[[RowRecord, int, int], None] | None = None,
    full: bool = False,
) -> ExamResults:
    """Examine every subject.

    Args:
        suites: columns of the matrix.
        profile: of the settings.
        seed: root seed.
        alpha: false-alarm probability for each subject over all tests and stages.
        workers: processes; 1 runs everything in this one.
        done: called with (row, finished, all) as subjects finish.
        full: take no shortcut, as in every profile but the quick one.

    Returns:
        rows in the order of :func:`subjects`, whatever the order they finished in.
    """
    suites = [suite for suite in suites if suite.experiments]
    thorough = full or profile != "quick"
    everybody = subjects(thorough=thorough)
    settings = Settings(
        root_seed=seed, alpha=alpha, tv=EXAM_TV, profile=PROFILES[profile], shrink=False
    )
    rows: dict[str, RowRecord] = {}
    for row in _rows(everybody, suites, settings, workers, thorough):
        rows[row.subject] = row
        if done is not None:
            done(row, len(rows), len(everybody))
    return ExamResults(
        seed=seed,
        alpha=alpha,
        tv=EXAM_TV,
        power=settings.power,
        suites=[suite.name for suite in suites],
        rows=[rows[name] for name, _ in everybody],
        versions={name: found for name in PACKAGES if (found := version_of(name))},
        shortcuts=[] if thorough else SHORTCUTS,
    )


def _rows(
    everybody: Sequence[tuple[str, Role]],
    suites: Sequence[Suite],
    settings: Settings,
    workers: int,
    thorough: bool,
) -> Iterable[RowRecord]:
    if workers == 1:
        yield from (_sit(name, role, suites, settings, thorough) for name, role in everybody)
        return
    spawn = multiprocessing.get_context("spawn")  # forking a process that ran torch may hang
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=_one_thread) as pool:
        tasks: list[Future[RowRecord]] = [
            pool.submit(_sit, name, role, suites, settings, thorough) for name, role in everybody
        ]
        try:
            yield from (task.result() for task in as_completed(tasks))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _sit(
    name: str, role: Role, suites: Sequence[Suite], settings: Settings, thorough: bool
) -> RowRecord:
    import dataclasses

    started = time.perf_counter()
    subject = resolve(name)
    tests = sum(e.plan(subject.capabilities).tests for suite in suites for e in suite.experiments)
    share = settings.alpha / (max(tests, 1) * STAGES)
    row = examine(
        subject,
        role,
        suites,
        dataclasses.replace(settings, alpha=share),
        thorough=thorough,
        mutant=MUTANTS.get(name.removeprefix(MUTANT_PREFIX)),
    )
    return _record(row, time.perf_counter() - started)


def _record(row: Row, seconds: float) -> RowRecord:
    mutant = MUTANTS.get(row.subject.removeprefix(MUTANT_PREFIX))
    variant = LAWFUL.get(row.subject.removeprefix(LAWFUL_PREFIX))
    return RowRecord(
        subject=row.subject,
        role=row.role.value,
        summary=mutant.summary if mutant else variant.summary if variant else "correct",
        seen_at=mutant.seen_at if mutant else "",
        right=row.right,
        layers=list(row.layers),
        formula=row.formula,
        detected=row.detected,
        marks={
            name: MarkRecord(
                caught=mark.caught,
                trials=mark.trials,
                check=mark.check,
                complete=mark.complete,
                supported=mark.supported,
                side=mark.side.value,
                exact=mark.exact,
            )
            for name, mark in row.marks.items()
        },
        seconds=seconds,
    )
