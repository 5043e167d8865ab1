"""An experiment that puts many generated layouts to a subject and checks an exact property of each.

No alpha is spent: one violation is a proof.  Layouts come from hypothesis with a seed derived from
the run's root seed, so a run is a function of its seed, and a failure shrinks to the smallest
layout that still shows it.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from specverify.checks.experiment import Plan, Progress, Settings
from specverify.checks.layout_search import search
from specverify.checks.structural import WHOLE_BATCH, Violation, structural_violations
from specverify.checks.verdict import Status, Verdict, exact_verdict
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
            return [
                exact_verdict(
                    self, self.case, Status.NOT_SUPPORTED, reason, trials=0, started=started
                )
            ]
        stream = Stream.derive(settings.root_seed, "layouts", self.suite, self.case)
        found = search(
            self.layouts(subject.capabilities),
            functools.partial(self._problems, subject, settings, stream),
            seed=int(stream.bits64(0, 0, 0, Purpose.LAYOUT)),
            examples=settings.trials or settings.profile.examples,
            shrink=settings.shrink,
            progress=progress,
        )
        if found.failure is not None:
            return [
                exact_verdict(
                    self,
                    self.case,
                    Status.FAIL,
                    found.failure,
                    trials=found.examples,
                    started=started,
                )
            ]
        text = f"{found.examples} layouts, {self.copies} calls' worth of draws each, no violation"
        return [
            exact_verdict(
                self, self.case, Status.PASS, text, trials=found.examples, started=started
            )
        ]

    def _problems(
        self, subject: Subject, settings: Settings, stream: Stream, batch: Batch
    ) -> list[str]:
        """What is wrong with the answer to one layout."""
        seed = int(stream.bits64(0, 1, 0, Purpose.SEED))
        many = replicate(batch, self.copies, stream).to(settings.device)
        try:
            emission = call(subject, many, seed, watch_input=True)
        except SamplerFault as fault:
            return [str(fault)]
        found = structural_violations(many, emission) or self.holds(
            many, emission, subject.capabilities
        )
        return [sentence(violation, batch.num_requests) for violation in found]


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
