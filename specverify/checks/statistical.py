"""An experiment that runs trials of one case and judges the tables of some families."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from specverify import evidence
from specverify.cases import Case
from specverify.checks.account import Shard, first_trial_of, with_accounts
from specverify.checks.experiment import Plan, Progress, Settings
from specverify.checks.judge import Question, judge_early, judge_table
from specverify.checks.small_cases import SmallCase, bounds_of
from specverify.checks.tables import Table, tables_of
from specverify.checks.verdict import Family, Status, Verdict, exact_verdict
from specverify.checks.watch import LOOKING_SHARE, TableWatch, schedule
from specverify.contract import Capabilities, Guarantee
from specverify.faults import SamplerFault
from specverify.subjects import Subject
from specverify.trials import block_size, run_trials


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatisticalExperiment:
    """Trials of one case, judged by the tables of its families.

    Attributes:
        suite: name of the suite.
        case: name of the case.
        make: makes the case; called when it is needed, so that declaring is free.
        families: which tables are judged.
    """

    suite: str
    case: str
    make: Callable[[], Case]
    families: tuple[Family, ...] = (Family.LAW, Family.INDEPENDENCE)

    @property
    def what(self) -> str:
        """Its kind, for the search of the smallest case that fails like it."""
        return "step"

    def bounds(self, request: int | None) -> SmallCase:
        """The largest small case that is worth a try when it fails (at a request)."""
        return bounds_of(self.make(), request)

    def plan(self, capabilities: Capabilities) -> Plan:
        """Count the tests, or say why this subject cannot be asked."""
        reason = self._unsupported(capabilities)
        return Plan(0, reason) if reason else Plan(len(self.tables(self.make(), capabilities)))

    def requested_tv(self, settings: Settings, capabilities: Capabilities) -> float:
        """The deviation that this case promises to catch."""
        return settings.requested_tv(capabilities)

    def _unsupported(self, capabilities: Capabilities) -> str | None:
        if capabilities.guarantee is not Guarantee.LOSSLESS:
            return f"the sampler declares itself {capabilities.guarantee}, so no law is promised"
        reason = self.make().unsupported(capabilities)
        if reason is None and not self.tables(self.make(), capabilities):
            return "the sampler declares no acceptance rule, so there is no coupling law to check"
        return reason

    def tables(self, case: Case, capabilities: Capabilities) -> tuple[Table, ...]:
        """Every table of the families, in a stable order."""
        return tables_of(case, self.families, capabilities)

    def run(
        self, subject: Subject, settings: Settings, progress: Progress | None = None
    ) -> list[Verdict]:
        """Run the trials and judge every table; a fault of the subject is one FAIL."""
        started = time.perf_counter()
        capabilities = subject.capabilities
        reason = self._unsupported(capabilities)
        if reason:
            return [exact_verdict(self, "case", Status.NOT_SUPPORTED, reason)]
        case = self.make()
        tables = self.tables(case, capabilities)
        requested = self.requested_tv(settings, capabilities)
        planned, trials = budget(settings, requested)
        shard = Shard.of_run(
            subject, self.suite, case.name, settings, trials, step_of(subject, case)
        )
        first = first_trial_of(shard, settings)
        try:
            watches, done = watch_trials(
                subject, case, tables, settings, trials, progress, first_trial=first
            )
        except SamplerFault as fault:
            verdict = exact_verdict(self, "contract", Status.FAIL, str(fault))
            return [dataclasses.replace(verdict, first_trial=first)]
        question = Question(
            suite=self.suite,
            case=self.case,
            settings=settings,
            planned=planned,
            trials=done,
            requested_tv=requested,
        )
        verdicts = [
            judge_table(watch.table, watch.counts, question, watch.looks)
            if watch.alarm is None and done == trials
            else judge_early(watch, question)
            for watch in watches
        ]
        verdicts = with_accounts(verdicts, watches, shard, done, settings)
        return finished(verdicts, started, first)


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


def budget(settings: Settings, requested_tv: float) -> tuple[int, int]:
    """Trials that the requested deviation needs, and trials that will be run (fewer if capped)."""
    needed = evidence.trials_needed(
        settings.profile.tv_cells,
        requested_tv,
        settings.alpha * (1 - LOOKING_SHARE),
        settings.power,
    )
    needed += needed % 2
    if settings.trials is not None:
        return needed, settings.trials
    return needed, min(needed, settings.profile.max_trials)
