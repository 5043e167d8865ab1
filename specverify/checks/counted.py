"""Trials of a case whose tables it brings itself: by id, by rank, by what is likely.

The cases of :mod:`specverify.checks.statistical` are small, and their tables follow from them.
Where the vocabulary is large, a table of all tokens would say nothing, so an experiment chooses its
cells and plans its trials by what it wants to notice.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence

from specverify import evidence
from specverify.cases import Case, FloatArray
from specverify.checks.experiment import Plan, Progress, Settings
from specverify.checks.judge import Question, judge_early, judge_table
from specverify.checks.tables import Table
from specverify.checks.verdict import Status, Verdict, exact_verdict
from specverify.checks.watch import LOOKING_SHARE, TableWatch
from specverify.checks.watched_trials import verdicts_of_trials
from specverify.contract import Capabilities, Guarantee
from specverify.subjects import Subject


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountedExperiment:
    """Trials of one case, judged by tables of its own.

    Attributes:
        suite, case: where it belongs.
    """

    suite: str
    case: str

    def asked_of(self, capabilities: Capabilities) -> tuple[Case, list[Table]]:
        """What is run for subjects of a kind, and what is counted."""
        raise NotImplementedError

    def budget_of(self, capabilities: Capabilities, settings: Settings) -> tuple[int, int]:
        """Trials that are needed for subjects of a kind, and trials that will be run."""
        raise NotImplementedError

    def promised(self, law: FloatArray, planned: int, settings: Settings) -> float:
        """The deviation that the planned trials catch in a table."""
        alpha = settings.alpha * (1 - LOOKING_SHARE)
        pooling = evidence.pool(law, planned)
        return evidence.pooled_detectable_tv(pooling, planned, alpha, settings.power)

    def beyond(
        self,
        subject: Subject,  # noqa: ARG002
        watches: Sequence[TableWatch],  # noqa: ARG002
        question: Question,  # noqa: ARG002
        *,
        stopped: bool,  # noqa: ARG002
    ) -> list[Verdict]:
        """What the counts say beyond the laws of their tables.

        Args:
            subject: under test.
            watches: the tables with their counts.
            question: what they have in common.
            stopped: whether a table was rejected before all trials were run.
        """
        return []

    def plan(self, capabilities: Capabilities) -> Plan:
        """One test for each table; or why this subject cannot be asked."""
        reason = self.unsupported(capabilities)
        return Plan(0, reason) if reason else Plan(len(self.asked_of(capabilities)[1]))

    def unsupported(self, capabilities: Capabilities) -> str | None:
        """Why a subject cannot be asked; ``None`` if it can."""
        if capabilities.guarantee is not Guarantee.LOSSLESS:
            return f"the sampler declares itself {capabilities.guarantee}, so no law is promised"
        return self.asked_of(capabilities)[0].unsupported(capabilities)

    def run(
        self, subject: Subject, settings: Settings, progress: Progress | None = None
    ) -> list[Verdict]:
        """Run the trials and judge every table; a fault of the subject is one FAIL."""
        started = time.perf_counter()
        reason = self.unsupported(subject.capabilities)
        if reason:
            return [exact_verdict(self, "case", Status.NOT_SUPPORTED, reason)]
        case, tables = self.asked_of(subject.capabilities)
        planned, trials = self.budget_of(subject.capabilities, settings)
        return verdicts_of_trials(
            self,
            subject,
            case,
            tables,
            settings,
            trials,
            functools.partial(self._judged, subject, settings, planned),
            progress=progress,
            started=started,
        )

    def _judged(
        self,
        subject: Subject,
        settings: Settings,
        planned: int,
        watches: Sequence[TableWatch],
        done: int,
    ) -> list[Verdict]:
        """One verdict for each table, then what is beyond them."""
        question = Question(
            suite=self.suite,
            case=self.case,
            settings=settings,
            planned=planned,
            trials=done,
            requested_tv=0.0,
        )
        stopped = any(watch.alarm is not None for watch in watches)
        verdicts = []
        for watch in watches:
            own = self.promised(watch.law, planned, settings)
            asked = dataclasses.replace(question, requested_tv=own)
            verdicts.append(
                judge_early(watch, asked)
                if stopped
                else judge_table(watch.table, watch.counts, asked)
            )
        return verdicts + self.beyond(subject, watches, question, stopped=stopped)


def capped(needed: int, settings: Settings) -> tuple[int, int]:
    """Trials that are needed, made even, and trials that will be run.

    A run that fixes the number of trials gets it, but never more than are needed: what is beyond
    them costs minutes and says nothing new.
    """
    needed += needed % 2
    return needed, min(needed, settings.trials or needed, settings.profile.max_trials)
