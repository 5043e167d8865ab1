"""Trials of one case, watched while they run; what every counted experiment does with them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from specverify.cases import Case
from specverify.checks.account import Shard, first_trial_of, with_accounts
from specverify.checks.experiment import Progress, Settings
from specverify.checks.tables import Table
from specverify.checks.verdict import Asked, Family, Status, Verdict, exact_verdict
from specverify.checks.watch import TableWatch, schedule
from specverify.faults import SamplerFault
from specverify.subjects import Subject
from specverify.trials import block_size, run_trials

Judge = Callable[[Sequence[TableWatch], int], list[Verdict]]
"""Watches and the trials that were run to verdicts: one for each watch, then any others."""


def verdicts_of_trials(
    experiment: Asked,
    subject: Subject,
    case: Case,
    tables: Sequence[Table],
    settings: Settings,
    trials: int,
    judge: Judge,
    *,
    progress: Progress | None,
    started: float,
) -> list[Verdict]:
    """Run trials where the ledger says, judge them, and add the accounts of the tables.

    Args:
        experiment: whose verdicts they are.
        subject: the sampler under test.
        case: what it is given.
        tables: what is counted.
        settings: of the run.
        trials: the full budget.
        judge: makes the verdicts.
        progress: called with (done, planned) after each block.
        started: ``time.perf_counter()`` before anything was made for the run.

    Returns:
        the verdicts; one FAIL if the subject raises or emits something malformed.
    """
    shard = Shard.of_run(
        subject, experiment.suite, case.name, settings, trials, step_of(subject, case)
    )
    first = first_trial_of(shard, settings)
    try:
        watches, done = watch_trials(
            subject, case, tables, settings, trials, progress, first_trial=first
        )
    except SamplerFault as fault:
        verdict = exact_verdict(experiment, "contract", Status.FAIL, str(fault))
        return [dataclasses.replace(verdict, first_trial=first)]
    verdicts = judge(watches, done)
    count = len(watches)
    own = with_accounts(verdicts[:count], watches, shard, done, settings)
    return finished([*own, *verdicts[count:]], started, first)


def finished(verdicts: Sequence[Verdict], started: float, first_trial: int) -> list[Verdict]:
    """The verdicts of one run of trials, with its time shared out and the void ones marked.

    Args:
        verdicts: at least one.
        started: ``time.perf_counter()`` before the run.
        first_trial: where it began.
    """
    seconds = (time.perf_counter() - started) / len(verdicts)
    return void_if_dependent(
        [
            dataclasses.replace(verdict, seconds=seconds, first_trial=first_trial)
            for verdict in verdicts
        ]
    )


def step_of(subject: Subject, case: Case) -> int:
    """Trials that cannot be divided: with seeds of their own, calls may be cut anywhere."""
    return 2 if subject.capabilities.per_request_seeds else block_size(case)


def watch_trials(
    subject: Subject,
    case: Case,
    tables: Sequence[Table],
    settings: Settings,
    trials: int,
    progress: Progress | None,
    *,
    first_trial: int = 0,
) -> tuple[list[TableWatch], int]:
    """Run trials, looking at growing numbers of them, until a table is rejected or all are done.

    Args:
        subject: the sampler under test.
        case: what it is given.
        tables: what is counted.
        settings: of the run.
        trials: the full budget.
        progress: called with (done, planned) after each block.
        first_trial: where to begin; looks are counted from there.

    Returns:
        the watches with their counts, and the trials that were run.

    Raises:
        SamplerFault: as :func:`~specverify.trials.run_trials`.
    """
    looks = schedule(trials, step_of(subject, case))
    watches = [TableWatch(table, settings, len(looks) - 1) for table in tables]
    done = 0
    for look in looks:
        counts = run_trials(
            subject,
            case,
            tables,
            root_seed=settings.root_seed,
            trials=look - done,
            first_trial=first_trial + done,
            device=settings.device,
            progress=_shifted(progress, done, trials),
        )
        done = look
        for watch in watches:
            watch.look(counts[watch.table.name], last=done == trials)
        if any(watch.alarm is not None for watch in watches):
            break
    return watches, done


def _shifted(progress: Progress | None, done: int, trials: int) -> Progress | None:
    """The progress of one stretch of trials, told as part of the whole."""
    if progress is None:
        return None
    return lambda now, _planned: progress(done + now, trials)


def void_if_dependent(verdicts: list[Verdict]) -> list[Verdict]:
    """Withdraw passes where independence failed: with reused randomness no other p-value holds."""
    reused = [
        verdict.check
        for verdict in verdicts
        if verdict.family is Family.INDEPENDENCE and verdict.status is Status.FAIL
    ]
    if not reused:
        return verdicts
    return [
        dataclasses.replace(
            verdict, status=Status.INCONCLUSIVE, reason=f"void: randomness is reused ({reused[0]})"
        )
        if verdict.status is Status.PASS and verdict.family is not Family.INDEPENDENCE
        else verdict
        for verdict in verdicts
    ]
