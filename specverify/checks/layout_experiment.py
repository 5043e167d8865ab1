"""An experiment that puts many generated layouts to a subject and checks an exact property of each.

No alpha is spent: one violation is a proof.  Layouts come from hypothesis with a seed derived from
the run's root seed, so a run is a function of its seed, and a failure shrinks to the smallest
layout that still shows it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from specverify.checks.branches import branch_at
from specverify.checks.diagnosis import Problem
from specverify.checks.exact_failure import answer
from specverify.checks.experiment import Plan, Progress, Settings
from specverify.checks.layout_search import Found, search
from specverify.checks.rebatch import select
from specverify.checks.snippets import property_snippet
from specverify.checks.structural import WHOLE_BATCH, Violation, structural_violations
from specverify.checks.verdict import Verdict
from specverify.contract import Batch, Capabilities, Emission
from specverify.faults import SamplerFault, call
from specverify.replicate import replicate
from specverify.streams import Purpose, Stream
from specverify.subjects import Subject

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Property = Callable[[Batch, Emission, Capabilities], list[Violation]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayoutExperiment:
    """Generated layouts, one exact property.

    Attributes:
        suite, case: where it belongs.
        layouts: the strategy for a subject's capabilities.
        holds: the property; returns what violates it.
        needs: names of capabilities without which the question makes no sense.
        coupling: whether the property is one of the acceptance rule and not of the text.
        copies: how often each layout is repeated in a call, with seeds of its own; fewer for
            samplers of one request a call (:meth:`Settings.copies`).
    """

    suite: str
    case: str
    layouts: Callable[[Capabilities], SearchStrategy[Batch]]
    holds: Property
    needs: tuple[str, ...] = ()
    copies: int = 1
    coupling: bool = False

    def plan(self, capabilities: Capabilities) -> Plan:
        """No statistical test; or why this subject cannot be asked."""
        missing = [name for name in self.needs if not getattr(capabilities, name)]
        reason = f"the sampler does not declare {' and '.join(missing)}" if missing else None
        if reason is None and self.coupling and capabilities.acceptance == "undeclared":
            reason = "the sampler declares no acceptance rule"
        return Plan(0, reason)

    def run(
        self, subject: Subject, settings: Settings, progress: Progress | None = None
    ) -> list[Verdict]:
        """Try the layouts; a violation shrinks and becomes one FAIL."""
        copies = settings.copies(subject.capabilities, self.copies)
        draws = "one call's" if copies == 1 else f"{copies} calls'"
        return answer(
            self,
            unsupported=self.plan(subject.capabilities).unsupported,
            find=lambda: search(
                self.layouts(subject.capabilities),
                functools.partial(self.problems, subject, settings),
                seed=int(self._stream(settings).bits64(0, 0, 0, Purpose.LAYOUT)),
                examples=settings.trials or settings.profile.examples,
                shrink=settings.shrink,
                progress=progress,
            ),
            snippet=functools.partial(self._snippet, subject, settings),
            holds=lambda found: (
                f"{found.examples} layouts, {draws} worth of draws each, no violation"
            ),
        )

    def _stream(self, settings: Settings) -> Stream:
        return Stream.derive(settings.root_seed, "layouts", self.suite, self.case)

    def problems(self, subject: Subject, settings: Settings, batch: Batch) -> list[Problem]:
        """What is wrong with the answer to one layout, shown on a part of it where that fails."""
        copies = settings.copies(subject.capabilities, self.copies)
        many = replicate(batch, copies, self._stream(settings))
        ask = functools.partial(
            self.asked, subject, seed=self._seed(settings), device=settings.device
        )
        found = ask(many, requests=batch.num_requests)
        if not found:
            return []
        for part in parts_of(many, batch.num_requests, found[0].request):
            again = ask(part)
            if again:
                return [dataclasses.replace(again[0], batch=part)]
        shown = many if copies == 1 else None  # so many copies are nothing to read
        return [dataclasses.replace(_of_layout(found[0], batch.num_requests), batch=shown)]

    def asked(
        self, subject: Subject, batch: Batch, *, seed: int, device: str, requests: int | None = None
    ) -> list[Problem]:
        """What is wrong with one emission; requests are numbered as they lie in the batch.

        Args:
            subject: under test.
            batch: a layout, or copies of one.
            seed: for torch's global generator.
            device: torch device type.
            requests: of the layout; those of the batch if ``None``.
        """
        home = batch.to(device)
        try:
            emission = call(subject, home, seed, watch_input=True)
        except SamplerFault as fault:
            return [Problem(text=str(fault))]
        found = structural_violations(home, emission) or self.holds(
            home, emission, subject.capabilities
        )
        count = requests or batch.num_requests
        return [problem_of(violation, home, emission, count) for violation in found]

    def _seed(self, settings: Settings) -> int:
        return int(self._stream(settings).bits64(0, 1, 0, Purpose.SEED))

    def _snippet(self, subject: Subject, settings: Settings, found: Found) -> str | None:
        if found.problem is None or found.problem.batch is None:
            return None  # it takes all of the copies
        return property_snippet(subject, found, self.holds, self._seed(settings), settings.device)


def problem_of(violation: Violation, batch: Batch, emission: Emission, requests: int) -> Problem:
    """A violation with the branch that it lies in.

    Args:
        violation: of the emission.
        batch: what was asked, which may hold several copies of a layout.
        emission: the answer.
        requests: of the layout.
    """
    where, at = violation.request, violation.position
    whole = where == WHOLE_BATCH
    placed = not whole and at is not None
    branch = branch_at(batch, emission, where, at) if placed and at is not None else None
    return Problem(
        text=sentence(violation, requests),
        request=None if whole else where,
        position=at,
        branch=branch,
    )


def parts_of(many: Batch, requests: int, at: int | None) -> Iterator[Batch]:
    """Parts of a batch that may show what it shows: the request alone, its copy of the layout.

    Args:
        many: copies of a layout, one behind the other.
        requests: of the layout.
        at: the request that is at fault, if one is.
    """
    if at is not None and many.num_requests > 1:
        yield select(many, [at])
    if requests < many.num_requests:
        start = 0 if at is None else at // requests * requests
        yield select(many, range(start, start + requests))


def _of_layout(problem: Problem, requests: int) -> Problem:
    if problem.request is None:
        return problem
    return dataclasses.replace(problem, request=problem.request % requests)


def sentence(violation: Violation, requests: int) -> str:
    """A violation in words, with the request of the layout that a copy stands for.

    Args:
        violation: of a batch that holds copies of a layout, one behind the other.
        requests: of the layout.
    """
    if violation.request == WHOLE_BATCH:
        return str(violation)
    place = f"request {violation.request % requests}"
    if violation.position is not None:
        place += f", position {violation.position}"
    return f"{place}: {violation.message}"
