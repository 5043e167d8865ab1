"""Experiments on drafts and rounds.

*Draft law*: the drafts of a subject's own drafter against the law q that it reports, by position,
prefix, request and round.  No test of the verifier alone can see a drafter that misreports.
*Rounds*: draft, verify, advance, twice; the text of all rounds follows the target's product law,
and no round knows the randomness of another.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from specverify.checks._coin_drafts import by_injected_coins
from specverify.checks._reported import Reported
from specverify.checks._rounds import RoundCase, RoundRunner
from specverify.checks.account import Shard, first_trial_of, with_accounts
from specverify.checks.diagnosis import Branch
from specverify.checks.experiment import Plan, Progress, Settings
from specverify.checks.judge import Question, judge_table
from specverify.checks.round_tables import reported_tables, text_tables, transform_tables
from specverify.checks.small_cases import SmallCase, bounds_of
from specverify.checks.statistical import budget
from specverify.checks.tables import Table
from specverify.checks.verdict import Status, Verdict, exact_verdict
from specverify.checks.watch import TableWatch
from specverify.checks.watched_trials import finished
from specverify.contract import Capabilities, Guarantee
from specverify.drafting import Drafter, DraftingCapabilities, TableDrafter, drafter_of
from specverify.faults import SamplerFault
from specverify.subjects import Subject
from specverify.trials import IntArray

ROUND_DRAFTS, ROUND_VOCAB = 2, 4
"""Bounds of small cases: the tables of all rounds together hold V ** (rounds * (k + 1)) rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundsExperiment:
    """The text of several rounds of one case.

    Attributes:
        suite: name of the suite.
        case: name of the case.
        make: makes the case; called when it is needed, so that declaring is free.
    """

    suite: str
    case: str
    make: Callable[[], RoundCase]

    @property
    def what(self) -> str:
        """Its kind, for the search of the smallest case that fails like it."""
        return "rounds"

    def bounds(self, request: int | None) -> SmallCase:
        """The largest small case that is worth a try when it fails (at a request)."""
        plan = self.make()
        most = bounds_of(plan.case, request)
        requests = tuple(
            dataclasses.replace(one, drafts=min(plan.drafts[one.number], ROUND_DRAFTS))
            for one in most.requests
        )
        return dataclasses.replace(most, vocab=min(most.vocab, ROUND_VOCAB), requests=requests)

    def plan(self, capabilities: Capabilities) -> Plan:
        """Count the tests, or say why this subject cannot be asked."""
        reason = self.unsupported(capabilities)
        return Plan(0, reason) if reason else Plan(len(self.tables(capabilities)))

    def unsupported(self, capabilities: Capabilities) -> str | None:
        """Why this subject cannot be asked; ``None`` if it can."""
        if capabilities.guarantee is not Guarantee.LOSSLESS:
            return f"the sampler declares itself {capabilities.guarantee}, so no law is promised"
        return self._misfit(capabilities)

    def _misfit(self, capabilities: Capabilities) -> str | None:
        plan = self.make()
        if isinstance(capabilities, DraftingCapabilities):
            if capabilities.reports_q != plan.case.dense:
                has = "reports" if capabilities.reports_q else "does not report"
                return f"the sampler's own drafter {has} q"
            if not capabilities.reports_q and not capabilities.zero_drafts:
                return "the sampler does not declare zero_drafts, and its drafter may find none"
        return plan.unsupported(capabilities)

    def tables(self, capabilities: Capabilities) -> list[Table]:
        """Every table, in a stable order."""
        return text_tables(self.make(), capabilities.convention)

    def run(
        self, subject: Subject, settings: Settings, progress: Progress | None = None
    ) -> list[Verdict]:
        """Run the rounds and judge every table; a fault of the subject is one FAIL."""
        reason = self.unsupported(subject.capabilities)
        if reason:
            return [exact_verdict(self, "case", Status.NOT_SUPPORTED, reason)]
        try:
            drafter = drafter_of(subject.sampler)
        except ValueError as error:
            return [exact_verdict(self, "contract", Status.FAIL, str(error))]
        try:
            return self._verdicts(subject, drafter, settings, progress)
        except SamplerFault as fault:
            return [exact_verdict(self, "contract", Status.FAIL, str(fault))]

    def _verdicts(
        self,
        subject: Subject,
        drafter: Drafter | None,
        settings: Settings,
        progress: Progress | None,
    ) -> list[Verdict]:
        started = time.perf_counter()
        plan, tables = self.make(), self.tables(subject.capabilities)
        requested = settings.requested_tv(subject.capabilities)
        planned, trials = budget(settings, requested)
        runner = RoundRunner(
            subject, drafter or TableDrafter(), plan, settings.root_seed, settings.device
        )
        reported = Reported(plan)
        whole = drafter is not None or not subject.capabilities.per_request_seeds
        step = plan.block if whole else 2
        shard = Shard.of_run(subject, self.suite, plan.case.name, settings, trials, step)
        first = first_trial_of(shard, settings)
        counts = run_rounds(
            runner,
            tables,
            trials,
            whole=whole,
            reported=reported,
            progress=progress,
            first_trial=first,
        )
        question = Question(
            suite=self.suite,
            case=self.case,
            settings=settings,
            planned=planned,
            trials=trials,
            requested_tv=requested,
        )
        judged = {
            table.name: self._judge(table, counts[table.name], question, reported)
            for table in tables
        }
        if shard is not None:
            watches = self._watches(tables, counts, settings)
            alone = [judged[watch.table.name] for watch in watches]
            added = with_accounts(alone, watches, shard, trials, settings)
            names = [watch.table.name for watch in watches]
            judged.update(zip(names, added, strict=True))
        return finished([*self.exact(runner, reported, settings), *judged.values()], started, first)

    def _watches(
        self, tables: Sequence[Table], counts: Mapping[str, IntArray], settings: Settings
    ) -> list[TableWatch]:
        """The tables that keep an account, with the counts of this run."""
        watches = []
        for table in tables:
            if self.settled_by_drafts(table):
                continue
            watch = TableWatch(table, settings, 1)
            watch.look(counts[table.name], last=True)
            watches.append(watch)
        return watches

    def settled_by_drafts(self, table: Table) -> bool:  # noqa: ARG002
        """Whether the law of a table is another one in every run, so that nothing adds up."""
        return False

    def exact(
        self,
        runner: RoundRunner,  # noqa: ARG002
        reported: Reported,  # noqa: ARG002
        settings: Settings,  # noqa: ARG002
    ) -> list[Verdict]:
        """Checks that spend no alpha."""
        return []

    def _judge(
        self, table: Table, counts: IntArray, question: Question, reported: Reported
    ) -> Verdict:
        settled = self.settle(table, counts, reported)
        if settled is None:
            return self._beside(
                table,
                Status.NOT_SUPPORTED,
                "the drafter reports different laws for one prefix: there is none to compare with; "
                "the transformed drafts say whether they follow them",
            )
        if not counts.any():
            return self._beside(table, Status.INCONCLUSIVE, "nothing was proposed here")
        return judge_table(settled, counts, question)

    def settle(self, table: Table, counts: IntArray, reported: Reported) -> Table | None:  # noqa: ARG002
        """The table with the law that it is judged by."""
        return table

    def _beside(self, table: Table, status: Status, reason: str) -> Verdict:
        return dataclasses.replace(
            exact_verdict(self, table.name, status, reason),
            check=f"{table.family}/{table.name}",
            family=table.family,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DraftLawExperiment(RoundsExperiment):
    """The drafts of the subject's own drafter against the law that it reports."""

    @property
    def what(self) -> str:
        """Its kind, for the search of the smallest case that fails like it."""
        return "drafts"

    def unsupported(self, capabilities: Capabilities) -> str | None:
        """Why this subject cannot be asked; ``None`` if it can."""
        if not isinstance(capabilities, DraftingCapabilities):
            return "the sampler brings no drafter"
        if not capabilities.reports_q:
            return "the sampler's drafter reports no q: its drafts are one-hot"
        return self._misfit(capabilities)

    def tables(self, capabilities: Capabilities) -> list[Table]:  # noqa: ARG002
        """Every table, in a stable order."""
        plan = self.make()
        return [*reported_tables(plan), *transform_tables(plan)]

    def settle(self, table: Table, counts: IntArray, reported: Reported) -> Table | None:
        """Reported tables get their law; the others have one."""
        return reported.settle(table, counts) if self.settled_by_drafts(table) else table

    def settled_by_drafts(self, table: Table) -> bool:
        """Whether its law is put together from the drafts of the run."""
        return table.name in {known.name for known in reported_tables(self.make())}

    def exact(self, runner: RoundRunner, reported: Reported, settings: Settings) -> list[Verdict]:
        """No draft outside the support of its q; and the drafts that given coins must draw."""
        outside = exact_verdict(
            self,
            "support of q",
            Status.FAIL if reported.excluded else Status.PASS,
            f"{reported.excluded} of {reported.drafts} drafts have probability 0 under the "
            "reported q",
        )
        drafted = Branch.DRAFTED
        answers = [dataclasses.replace(outside, trials=reported.drafts, branch=drafted)]
        if runner.drafter.takes_coins:
            found = by_injected_coins(runner, settings.profile.examples)
            answers.append(
                dataclasses.replace(
                    exact_verdict(self, "drafts by injected coins", found.status, found.reason),
                    trials=found.drafts,
                    branch=drafted,
                )
            )
        return answers


def run_rounds(
    runner: RoundRunner,
    tables: list[Table],
    trials: int,
    *,
    whole: bool,
    reported: Reported,
    progress: Progress | None = None,
    first_trial: int = 0,
) -> dict[str, IntArray]:
    """Run ``trials`` trials block by block and count.

    Args:
        runner: of the case.
        tables: what is counted.
        trials: how many.
        whole: run the last block whole although fewer trials are left: for drafters whose
            randomness may belong to the call. Samplers without per-request seeds always need it.
        reported: also told of every trial.
        progress: called with (done, planned) after each block.
        first_trial: where to begin; with ``whole`` at the start of a block.

    Returns:
        counts [cells] for each table, by name.

    Raises:
        SamplerFault: naming what the sampler or the drafter did.
    """
    counts = {table.name: np.zeros(table.cells, dtype=np.int64) for table in tables}
    size = runner.plan.block
    whole = whole or not runner.subject.capabilities.per_request_seeds
    for start in range(0, trials, size):
        length = min(size, trials - start)
        outcomes = runner.run(first_trial + start, size if whole else length, watch=start == 0)
        if length < size:
            outcomes = outcomes.head(length)
        reported.add(outcomes)
        for table in tables:
            counts[table.name] += np.bincount(table.index(outcomes), minlength=table.cells)
        if progress is not None:
            progress(start + length, trials)
    return counts
