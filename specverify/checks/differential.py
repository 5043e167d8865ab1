"""The differential layer: the same coins to subject and reference, token for token.

With injected coins a sampler is a function, and a fault that changes a share d of the decisions
shows after about ln(1/beta)/d of them instead of 1/d**2.  Layouts come from hypothesis, coins from
the thresholds of each layout; a disagreement within the float budget of its threshold is lawful and
counted, everything else is a FAIL with the request, the position, p, q, coin and both outcomes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from specverify import evidence
from specverify.checks.audit import Audit, Disagreement
from specverify.checks.branches import branch_at
from specverify.checks.diagnosis import Branch, Problem
from specverify.checks.exact_failure import answer
from specverify.checks.experiment import Plan, Progress, Settings
from specverify.checks.layout_experiment import parts_of, problem_of
from specverify.checks.layout_search import search
from specverify.checks.oracle import reference_for
from specverify.checks.snippets import differential_snippet
from specverify.checks.structural import structural_violations
from specverify.checks.threshold_coins import with_threshold_coins
from specverify.checks.verdict import Verdict
from specverify.contract import (
    AcceptanceRule,
    Batch,
    Capabilities,
    Emission,
    Topology,
)
from specverify.faults import SamplerFault, call
from specverify.reference import ChainSampler
from specverify.replicate import replicate
from specverify.streams import Purpose, Stream
from specverify.subjects import Subject

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def unsupported(capabilities: Capabilities) -> str | None:
    """Why a subject cannot be compared token for token, and what that costs."""
    if capabilities.final_coin is None:
        trials = evidence.trials_needed(16, 0.01, 1e-9, 0.999)
        return (
            "the sampler takes no injected coins, so its law alone is judged: a fault in 1 % of "
            f"the decisions shows after about 700 of them here, after about {trials:,} trials "
            "there, and one that only extreme coins show is not seen at all"
        )
    if capabilities.acceptance is AcceptanceRule.UNDECLARED:
        return "the sampler declares no acceptance rule, so equal coins promise no equal tokens"
    if capabilities.topology is not Topology.CHAIN:
        return f"the reference verifies chains; the sampler declares {capabilities.topology}"
    return None


@dataclasses.dataclass
class _Tally:
    """What has been compared so far."""

    requests: int = 0
    lawful: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DifferentialExperiment:
    """Generated layouts with injected coins, subject against reference.

    Attributes:
        suite, case: where it belongs.
        layouts: the strategy for a subject's capabilities.
        copies: sets of coins for each layout, in one call; fewer for samplers of one request a
            call (:meth:`Settings.copies`).
        share: layouts for each example of the profile; they are cheap beside trials.
    """

    suite: str
    case: str
    layouts: Callable[[Capabilities], SearchStrategy[Batch]]
    copies: int = 24
    share: float = 1.0

    def plan(self, capabilities: Capabilities) -> Plan:
        """No statistical test; or why equal coins promise nothing."""
        return Plan(0, unsupported(capabilities))

    def run(
        self, subject: Subject, settings: Settings, progress: Progress | None = None
    ) -> list[Verdict]:
        """Compare over many layouts; an unlawful disagreement shrinks and becomes one FAIL."""
        tally = _Tally()
        return answer(
            self,
            unsupported=unsupported(subject.capabilities),
            find=lambda: search(
                self._layouts(subject.capabilities),
                functools.partial(self._problems, subject, settings, tally),
                seed=int(self._stream(settings).bits64(0, 0, 0, Purpose.LAYOUT)),
                examples=settings.trials or round(settings.profile.examples * self.share),
                shrink=settings.shrink,
                progress=progress,
            ),
            snippet=lambda found: differential_snippet(
                subject, found, self._seed(settings), settings.device
            ),
            holds=lambda found: (
                f"{found.examples} layouts, {tally.requests:,} requests: all emitted as the "
                f"reference does, {tally.lawful} of them up to the float budget of a threshold"
            ),
        )

    def _layouts(self, capabilities: Capabilities) -> SearchStrategy[Batch]:
        """Layouts with injected coins, ordinary and extreme ones."""
        from specverify.layouts import coins_for

        final = capabilities.final_coin
        assert final is not None
        return self.layouts(capabilities).flatmap(
            lambda batch: coins_for(batch, final).map(
                lambda coins: batch.replace(coins=coins, check_values=False)
            )
        )

    def _stream(self, settings: Settings) -> Stream:
        return Stream.derive(settings.root_seed, "differential", self.suite, self.case)

    def _seed(self, settings: Settings) -> int:
        return int(self._stream(settings).bits64(0, 1, 0, Purpose.SEED))

    def _problems(
        self, subject: Subject, settings: Settings, tally: _Tally, batch: Batch
    ) -> list[Problem]:
        """The layout as it lies in memory, with its own coins; then copies with threshold coins."""
        seed, stream = self._seed(settings), self._stream(settings)
        capabilities = subject.capabilities
        count = settings.copies(capabilities, self.copies)
        copies = with_threshold_coins(
            replicate(batch.replace(coins=None, check_values=False), count, stream),
            reference_for(capabilities),
            capabilities,
            torch.Generator().manual_seed(seed >> 1),
        )
        requests = batch.num_requests
        for asked in (batch, copies):
            found = differences(subject, asked, seed, settings.device, tally, watch=asked is batch)
            if found:
                return [_smallest(subject, asked, found[0], requests, seed, settings.device)]
        return []


def differences(
    subject: Subject,
    batch: Batch,
    seed: int,
    device: str,
    tally: _Tally | None = None,
    *,
    watch: bool = True,
) -> list[Problem]:
    """What is wrong with the emission of one batch with coins, the worst first.

    Args:
        subject: under test.
        batch: on the CPU, with coins of the form that it takes.
        seed: for torch's global generator.
        device: torch device type that it runs on.
        tally: counts what was compared and excused.
        watch: whether changes of the input are looked for.
    """
    home = batch.to(device)
    kept = _copies_of_coins(home)
    try:
        emission = call(subject, home, seed, watch_input=watch)
    except SamplerFault as fault:
        return [Problem(text=str(fault))]
    changed = [
        name for name, old in kept.items() if not torch.equal(getattr(home.coins, name), old)
    ]
    if changed:
        said = f"the sampler changed its input: coins.{changed[0]} differs after the call"
        return [Problem(text=said)]
    broken = structural_violations(home, emission)
    if broken:
        return [problem_of(violation, home, emission, batch.num_requests) for violation in broken]
    got = Emission(emission.token_ids.cpu(), emission.num_emitted.cpu())
    capabilities = subject.capabilities
    reference = reference_for(capabilities)
    return compare(batch, got, reference, capabilities.acceptance, tally)


def _copies_of_coins(batch: Batch) -> dict[str, torch.Tensor]:
    """The injected coins as they are now."""
    fields = {name: getattr(batch.coins, name, None) for name in ("accept", "final", "noise")}
    return {name: value.clone() for name, value in fields.items() if value is not None}


def _smallest(
    subject: Subject, asked: Batch, problem: Problem, requests: int, seed: int, device: str
) -> Problem:
    """The problem on the smallest part of a batch that shows it."""
    for part in parts_of(asked, requests, problem.request):
        again = differences(subject, part, seed, device)
        if again:
            return dataclasses.replace(again[0], batch=part)
    return dataclasses.replace(problem, batch=asked)


def compare(
    batch: Batch,
    emission: Emission,
    reference: ChainSampler,
    rule: AcceptanceRule,
    tally: _Tally | None = None,
) -> list[Problem]:
    """The requests whose emission no correct sampler could have made of these coins.

    Args:
        batch: on the CPU, with coins.
        emission: of the subject, structurally valid, on the CPU.
        reference: as :func:`~specverify.checks.oracle.reference_for`.
        rule: that the subject declares.
        tally: counts what was compared and excused.

    Returns:
        one problem for each request, the worst first.
    """
    step = reference.begin(batch)
    step.accepted = reference.accepted_lengths(step, reference.accepts(step))
    expected = reference.emit(step, reference.draw(step, reference.final_weights(step)))
    found = Audit(batch, step.target, rule).disagreements(emission, expected)
    if tally is not None:
        tally.requests += batch.num_requests
        tally.lawful += sum(one.decision.lawful for one in found)
    wrong = [one for one in found if not one.decision.lawful]
    wrong.sort(key=lambda one: -one.decision.strain)
    return [_problem(batch, emission, one) for one in wrong]


def _problem(batch: Batch, emission: Emission, one: Disagreement) -> Problem:
    position = one.decision.position
    named = _BRANCHES.get(one.decision.kind)
    return Problem(
        text=f"request {one.request}, position {position}: {one.message}",
        request=one.request,
        position=position,
        branch=named or branch_at(batch, emission, one.request, position),
    )


_BRANCHES = {
    "accepted": Branch.ACCEPTED,
    "rejected": Branch.ACCEPTED,
    "recovered": Branch.RECOVERED,
    "bonus": Branch.BONUS,
}
"""The branch of a decision, by its kind; at temperature 0 the emission tells."""
