"""An experiment that puts many generated layouts to a subject and checks an exact property of each.

No alpha is spent: one violation is a proof.  Layouts come from hypothesis with a seed derived from
the run's root seed, so a run is a function of its seed, and a failure shrinks to the smallest
layout that still shows it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from specverify.checks.experiment import Plan, Progress, Settings
from specverify.checks.structural import Violation, structural_violations
from specverify.checks.verdict import Family, Status, Verdict
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
        copies: how often each layout is repeated in a call, with seeds of its own.
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
        started = time.perf_counter()
        reason = self.plan(subject.capabilities).unsupported
        if reason:
            return [self._verdict(Status.NOT_SUPPORTED, reason, 0, started)]
        planned = settings.trials or settings.profile.examples
        search = _Search(self, subject, settings, planned, progress)
        found = search.smallest_violation()
        if found is not None:
            return [self._verdict(Status.FAIL, found, search.examples, started)]
        text = f"{search.examples} layouts, {self.copies} calls' worth of draws each, no violation"
        return [self._verdict(Status.PASS, text, search.examples, started)]

    def _verdict(self, status: Status, reason: str, examples: int, started: float) -> Verdict:
        return Verdict(
            suite=self.suite,
            case=self.case,
            check=f"{Family.EXACT}/{self.case}",
            family=Family.EXACT,
            status=status,
            reason=reason,
            trials=examples,
            seconds=time.perf_counter() - started,
        )


class _Search:
    """One hypothesis search; remembers the last failing layout, which is the smallest."""

    def __init__(
        self,
        experiment: LayoutExperiment,
        subject: Subject,
        settings: Settings,
        planned: int,
        progress: Progress | None,
    ) -> None:
        self.experiment, self.subject, self.settings = experiment, subject, settings
        self.planned, self.progress = planned, progress
        self.stream = Stream.derive(
            settings.root_seed, "layouts", experiment.suite, experiment.case
        )
        self.examples = 0
        self.failure: str | None = None

    def smallest_violation(self) -> str | None:
        """Run the search; the diagnosis of the smallest failing layout, ``None`` if none fails."""
        import hypothesis

        strategy = self.experiment.layouts(self.subject.capabilities)
        search: Any = hypothesis.given(strategy)(self._example)
        search = hypothesis.seed(int(self.stream.bits64(0, 0, 0, Purpose.LAYOUT)))(search)
        search = hypothesis.settings(
            max_examples=self.planned,
            database=None,
            deadline=None,
            derandomize=False,
            phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
            suppress_health_check=list(hypothesis.HealthCheck),
            verbosity=hypothesis.Verbosity.quiet,
            print_blob=False,
            report_multiple_bugs=False,
        )(search)
        try:
            search()
        except _ViolatedError:
            return self.failure
        except hypothesis.errors.Flaky:
            if self.failure is None:
                raise
            return f"{self.failure}\nasked again, the sampler answered otherwise: it keeps a state"
        return None

    def _example(self, batch: Batch) -> None:
        self.examples += 1
        problems = self._problems(batch)
        if self.progress is not None and self.failure is None:
            self.progress(min(self.examples, self.planned), self.planned)
        if problems:
            from specverify.layouts import describe

            self.failure = f"{problems[0]}\nsmallest layout that shows it:\n{describe(batch)}"
            raise _ViolatedError

    def _problems(self, batch: Batch) -> list[str]:
        seed = int(self.stream.bits64(0, 1, 0, Purpose.SEED))
        many = replicate(batch, self.experiment.copies, self.stream).to(self.settings.device)
        try:
            emission = call(self.subject, many, seed, watch_input=True)
        except SamplerFault as fault:
            return [str(fault)]
        found = structural_violations(many, emission) or self.experiment.holds(
            many, emission, self.subject.capabilities
        )
        return [self._sentence(violation, batch.num_requests) for violation in found]

    @staticmethod
    def _sentence(violation: Violation, requests: int) -> str:
        # Copies stand one behind the other, so the remainder is the request of the layout.
        place = f"request {violation.request % requests}"
        if violation.position is not None:
            place += f", position {violation.position}"
        return f"{place}: {violation.message}"


class _ViolatedError(AssertionError):
    """Raised inside the search so that hypothesis shrinks."""
