"""The smallest layout in which a statistical failure still shows.

A law that is rejected on requests of eight tokens and three drafts says little of the bug.  So a
family of small cases is searched by hypothesis for the least member that still fails.  Seeds are
fixed, n is fixed by the power function from the deviation that is looked for and alpha is that of
the run, so "it fails" is a function of the layout alone and the search can be repeated.

The search is no test of the sampler, which has failed already, and spends no alpha.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from specverify import evidence
from specverify.checks.branches import first_fault
from specverify.checks.diagnosis import Branch, Shrunk, ShrunkRequest
from specverify.checks.experiment import Settings
from specverify.checks.judge import LIKELY, Question, judge_table
from specverify.checks.layout_search import layouts_of_the_seed_alone
from specverify.checks.small_cases import SmallCase, SmallRequest, within
from specverify.checks.small_experiments import small_experiment
from specverify.checks.snippets import statistical_snippet
from specverify.checks.suspicion import branch_of
from specverify.checks.tables import tables_of
from specverify.checks.verdict import Family, Status, Verdict
from specverify.checks.watch import LOOKING_SHARE
from specverify.contract import AcceptanceRule
from specverify.faults import SamplerFault
from specverify.streams import Stream
from specverify.subjects import Subject
from specverify.trials import block_size, run_trials

RUNGS = (0.1, 0.03)
"""Deviations that are looked for, the plain ones first; then that of the run."""
CELLS = 16
"""Cells of the table that n is planned for."""
TRIED = 50
"""Layouts that are drawn at a rung before it is given up."""
SHRINKS = 120
"""Layouts that are looked at in all at a rung."""
SECONDS = 40.0
"""After which a search ends with what it has; only slow samplers come to it."""
MOST = 3
"""Failures of one process that are shrunk: one of each kind."""


@runtime_checkable
class Shrinkable(Protocol):
    """An experiment that can be asked of small cases."""

    @property
    def what(self) -> str:
        """Its kind: step, rounds or drafts."""
        ...

    def bounds(self, request: int | None) -> SmallCase:
        """The largest small case that is worth a try."""
        ...


class Shrinking:
    """What a process has shrunk: the first failures of different kinds, and no more.

    Args:
        most: how many.
        seconds: for each.
        wanted: name of the only check that is shrunk, when it is replayed.
    """

    def __init__(
        self, most: int = MOST, seconds: float = SECONDS, wanted: str | None = None
    ) -> None:
        self._most, self._seconds, self._wanted = most, seconds, wanted
        self._seen: set[tuple[object, ...]] = set()

    def explain(
        self, experiment: object, subject: Subject, settings: Settings, verdicts: list[Verdict]
    ) -> list[Verdict]:
        """The same verdicts, one of which may have a smallest layout and a branch.

        Args:
            experiment: that gave them; left alone if it is not :class:`Shrinkable`.
            subject: that failed.
            settings: of the run.
            verdicts: of the experiment.
        """
        known = [v for v in verdicts if self._wanted in (None, v.check)]
        chosen = _plainest(known)
        if chosen is None or not settings.shrink or not isinstance(experiment, Shrinkable):
            return verdicts
        bounds = experiment.bounds(chosen.request)
        kind = (chosen.family, bounds.dense, experiment.what)
        if kind in self._seen or len(self._seen) >= self._most:
            return verdicts
        self._seen.add(kind)
        search = _Search(experiment, subject, settings, chosen.family, self._seconds)
        found = search.run(bounds)
        if found is None:
            return verdicts
        branch = found.shrunk.branch or chosen.branch
        cause = chosen.cause if branch_of(chosen.cause) in (None, branch) else None
        named = dataclasses.replace(
            chosen,
            branch=branch,
            cause=cause,
            reason=chosen.reason if cause else chosen.reason.partition(LIKELY)[0],
            shrunk=found.shrunk,
            snippet=found.snippet,
        )
        return [named if verdict is chosen else verdict for verdict in verdicts]


def _plainest(verdicts: Sequence[Verdict]) -> Verdict | None:
    """The failure to shrink: dependence first (it voids the rest), then the smallest table."""
    failed = [v for v in verdicts if v.status is Status.FAIL]
    order = (Family.EXACT, Family.INDEPENDENCE, Family.COUPLING, Family.LAW)
    return min(
        failed, key=lambda v: (order.index(v.family), v.cause is None, _cells(v)), default=None
    )


def _cells(verdict: Verdict) -> int:
    return verdict.cells or len(verdict.worst)


@dataclasses.dataclass(frozen=True)
class _Result:
    shrunk: Shrunk
    snippet: str


class _Search:
    """One search; remembers what every layout came to."""

    def __init__(
        self,
        experiment: Shrinkable,
        subject: Subject,
        settings: Settings,
        family: Family,
        seconds: float,
    ) -> None:
        self.experiment, self.subject = experiment, subject
        # What depends on a neighbour has a wrong law as well, where the neighbour is always alike.
        also = (Family.LAW,) if family is Family.INDEPENDENCE else ()
        self.families = (family, *also)
        self.settings = dataclasses.replace(
            settings, shrink=False, ledger=None, first_trial=None, trials=None
        )
        self.requested = settings.requested_tv(subject.capabilities)
        self.end = time.monotonic() + seconds
        self.known: dict[SmallCase, bool] = {}
        self.complete = True

    def run(self, bounds: SmallCase) -> _Result | None:
        """The smallest failing layout within bounds, ``None`` if none was found."""
        tried = 0
        for tv in [*(rung for rung in RUNGS if rung > self.requested), self.requested]:
            self.known, self.complete = {}, True
            settings = self._at(tv)
            smallest = self._find(bounds, lambda small: self._fails(small, settings))  # noqa: B023
            tried += len(self.known)
            if smallest is not None:
                return self._told(smallest, settings, tried)
            if time.monotonic() > self.end:
                break
        return None

    def _at(self, tv: float) -> Settings:
        """The settings with n fixed by the power function."""
        alpha = self.settings.alpha * (1 - LOOKING_SHARE)
        trials = evidence.trials_needed(CELLS, tv, alpha, self.settings.power)
        return dataclasses.replace(self.settings, tv=tv, trials=trials + trials % 2)

    def _find(self, bounds: SmallCase, fails: Callable[[SmallCase], bool]) -> SmallCase | None:
        import hypothesis

        one_hot = self.subject.capabilities.one_hot
        stream = Stream.derive(self.settings.root_seed, "shrink")
        chosen = hypothesis.settings(
            max_examples=TRIED,
            database=None,
            deadline=None,
            derandomize=False,
            phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
            verbosity=hypothesis.Verbosity.quiet,
        )
        with layouts_of_the_seed_alone():
            try:
                return hypothesis.find(
                    within(bounds, one_hot=one_hot),
                    fails,
                    settings=chosen,
                    random=random.Random(stream.key),
                )
            except hypothesis.errors.NoSuchExample:
                return None

    def _fails(self, small: SmallCase, settings: Settings) -> bool:
        if small not in self.known:
            if len(self.known) >= SHRINKS or time.monotonic() > self.end:
                self.complete = False
                return False
            self.known[small] = bool(self._failures(small, settings))
        return self.known[small]

    def _failures(self, small: SmallCase, settings: Settings) -> list[Verdict]:
        """The failed checks of the family on one layout; none where it cannot be asked."""
        try:
            experiment = small_experiment(small, self.experiment.what, self.families)
            if experiment.plan(self.subject.capabilities).unsupported:
                return []
        except ValueError:  # no rows suit its filters
            return []
        verdicts = experiment.run(self.subject, settings)
        return [v for v in verdicts if v.status is Status.FAIL and v.family in self.families]

    def _told(self, small: SmallCase, settings: Settings, tried: int) -> _Result:
        """What there is to say of the smallest layout."""
        failed = self._failures(small, settings)
        text = _plainest(failed) or failed[0]
        # Of text, a branch is only a bet that won, and over two tokens many bets are one law.
        fault = first_fault(v for v in failed if v.family is not Family.LAW)
        fault = fault or first_fault(self._rule(small, settings)) or first_fault(failed)
        shown = fault if fault is not None and fault.family in self.families else text
        trials = settings.trials
        assert trials is not None
        shrunk = Shrunk(
            requests=tuple(_request(request) for request in small.requests),
            vocab=small.vocab,
            dense=small.dense,
            rows=small.rows.words,
            check=shown.check,
            reason=shown.reason,
            request=shown.request if fault is None else fault.request,
            position=shown.position if fault is None else fault.position,
            branch=_draftless(small, shown) if fault is None else fault.branch,
            trials=shown.trials,
            p_value=shown.p_value,
            worst=shown.worst,
            tried=tried,
            complete=self.complete,
        )
        snippet = statistical_snippet(self.subject, small, shown, settings, self.experiment.what)
        return _Result(shrunk, snippet)

    def _rule(self, small: SmallCase, settings: Settings) -> list[Verdict]:
        """Every table of the declared rule, counted to the end: nothing stops at a first alarm."""
        capabilities = self.subject.capabilities
        undeclared = capabilities.acceptance is AcceptanceRule.UNDECLARED
        if undeclared or small.case.unsupported(capabilities):
            return []
        return rule_verdicts(self.subject, small, settings)


def _draftless(small: SmallCase, shown: Verdict) -> Branch | None:
    """A request without drafts has but one branch."""
    at = 0 if shown.request is None and len(small.requests) == 1 else shown.request
    return Branch.BONUS if at is not None and small.requests[at].drafts == 0 else None


def rule_verdicts(subject: Subject, small: SmallCase, settings: Settings) -> list[Verdict]:
    """The verdict on every coupling table of a small case, all counted over the same trials.

    Args:
        subject: that declares an acceptance rule.
        small: that it can be asked.
        settings: with ``trials``.
    """
    case = small.case
    tables = tables_of(case, (Family.COUPLING,), subject.capabilities)
    assert settings.trials is not None
    size = block_size(case)
    trials = -(-settings.trials // size) * size
    try:
        counts = run_trials(
            subject, case, tables, root_seed=settings.root_seed, trials=trials,
            device=settings.device,
        )  # fmt: skip
    except SamplerFault:
        return []
    question = Question(
        suite="small",
        case=case.name,
        settings=settings,
        planned=trials,
        trials=trials,
        requested_tv=settings.tv or 0.0,
    )
    return [judge_table(table, counts[table.name], question) for table in tables]


def _request(request: SmallRequest) -> ShrunkRequest:
    return ShrunkRequest(
        drafts=request.drafts,
        placeholders=request.placeholders,
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        min_p=request.min_p,
    )
