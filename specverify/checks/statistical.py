"""An experiment that runs trials of one case and judges the tables of some families."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence

from specverify import evidence
from specverify.cases import Case
from specverify.checks.experiment import Plan, Progress, Settings
from specverify.checks.judge import Question, judge_early, judge_table
from specverify.checks.small_cases import SmallCase, bounds_of
from specverify.checks.tables import Table, tables_of
from specverify.checks.verdict import Family, Status, Verdict, exact_verdict
from specverify.checks.watch import LOOKING_SHARE, TableWatch
from specverify.checks.watched_trials import verdicts_of_trials
from specverify.contract import Capabilities, Guarantee
from specverify.subjects import Subject


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
        return verdicts_of_trials(
            self,
            subject,
            case,
            tables,
            settings,
            trials,
            functools.partial(self._judged, settings, requested, planned, trials),
            progress=progress,
            started=started,
        )

    def _judged(
        self,
        settings: Settings,
        requested: float,
        planned: int,
        trials: int,
        watches: Sequence[TableWatch],
        done: int,
    ) -> list[Verdict]:
        """One verdict for each table."""
        question = Question(
            suite=self.suite,
            case=self.case,
            settings=settings,
            planned=planned,
            trials=done,
            requested_tv=requested,
        )
        return [
            judge_table(watch.table, watch.counts, question, watch.looks)
            if watch.alarm is None and done == trials
            else judge_early(watch, question)
            for watch in watches
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
