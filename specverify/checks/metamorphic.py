"""The metamorphic layer: a request is verified twice in different company and must emit the same.

A relation changes what must not matter (the order and number of requests, their neighbours, the
padding of the vocabulary, where the logits lie in memory) and compares; or changes what must matter
(the seed, the position) and asks for a difference.  Nothing is known of the right answer, so these
hold for every rule.  They need the same randomness twice: per-request seeds, or injected coins.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from scipy import stats

from specverify.checks.branches import decision_that_differs
from specverify.checks.diagnosis import Problem
from specverify.checks.exact_failure import answer
from specverify.checks.experiment import Plan, Progress, Settings
from specverify.checks.float_budget import expected_differences
from specverify.checks.layout_experiment import sentence
from specverify.checks.layout_search import search
from specverify.checks.poison import poisoned_memory
from specverify.checks.rebatch import changed_requests
from specverify.checks.snippets import relation_snippet
from specverify.checks.structural import structural_violations
from specverify.checks.threshold_coins import race_noise
from specverify.checks.verdict import Verdict
from specverify.contract import AcceptanceRule, Batch, Capabilities, Coins, Emission, FinalCoin
from specverify.faults import SamplerFault, call
from specverify.replicate import replicate
from specverify.streams import Purpose, Stream
from specverify.subjects import Subject

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

CHANCE = 1e-12
"""Rounding alone makes more requests differ than are excused with at most this probability."""

Repeat = tuple[int, int]
"""A request of the first call and the request of the second that stands for it."""


class Asked:
    """A subject that is asked about one layout, again and again, with the same randomness.

    Args:
        subject: under test.
        settings: of the run; the device is theirs.
        seed: for torch's global generator, the same at every call.
        requests: of the layout, of which a batch may hold several copies.
    """

    def __init__(self, subject: Subject, settings: Settings, seed: int, requests: int) -> None:
        self.subject, self.settings, self.seed = subject, settings, seed
        self.requests = requests
        self.capabilities = subject.capabilities

    @property
    def repeats(self) -> bool:
        """Whether the same call must give the same emission."""
        return repeats(self.capabilities)

    @property
    def generator(self) -> torch.Generator:
        """A fresh generator for the choices of a relation: the same for every layout."""
        return torch.Generator().manual_seed(self.seed >> 1)

    def emit(self, batch: Batch, *, poisoned: bool = False) -> Emission:
        """Call the subject and check the structure of what it emits.

        Raises:
            SamplerFault: if it raises, changes its input or emits something malformed.
        """
        home = batch.to(self.settings.device)
        with poisoned_memory() if poisoned else nullcontext():
            emission = call(self.subject, home, self.seed)
        found = structural_violations(home, emission)
        if found:
            raise SamplerFault(sentence(found[0], self.requests))
        return emission

    def with_coins(self, batch: Batch) -> Batch:
        """The batch with ordinary coins of the form that the subject takes."""
        generator, count, dtype = self.generator, batch.num_requests, torch.float64
        accept = torch.rand(batch.num_drafts, dtype=dtype, generator=generator)
        if self.capabilities.final_coin is FinalCoin.RACE:
            coins = Coins(accept=accept, noise=race_noise(count, batch.vocab_size, generator))
        else:
            coins = Coins(accept=accept, final=torch.rand(count, dtype=dtype, generator=generator))
        return batch.replace(coins=coins, check_values=False)

    def same(
        self,
        batch: Batch,
        other: Batch,
        pairs: list[Repeat] | None = None,
        *,
        rounding: bool = False,
        extra: float = 0.0,
        poisoned: bool = False,
    ) -> list[Problem]:
        """Ask twice and name the requests that changed.

        Args:
            batch: the first call.
            other: the second.
            pairs: which request stands for which; all in order if ``None``.
            rounding: whether the second call may round differently; then a few may differ.
            extra: relative change of the inputs between the calls.
            poisoned: fill uninitialised memory in the second call.
        """
        alone = pairs is None and not poisoned
        pairs = pairs or [(b, b) for b in range(batch.num_requests)]
        before, after = self.emit(batch), self.emit(other, poisoned=poisoned)
        changed = changed_requests(before, after, pairs)
        if not changed or (rounding and _excused(len(changed), batch, extra)):
            return []
        first, second = changed[0]
        said = f"emitted {_tokens(before, first)}, then {_tokens(after, second)}"
        more = f" ({len(changed)} of {len(pairs)} requests changed)" if len(changed) > 1 else ""
        request = first % self.requests
        position, branch = parting(before, first, after, second), None
        if alone:  # the request itself was put in another way: one of its own decisions is at fault
            decision = decision_that_differs(batch, before, after, first)
            assert decision is not None
            position, branch = decision
        text = f"request {request}: {said}{more}"
        return [Problem(text=text, request=request, position=position, branch=branch)]


def parting(before: Emission, first: int, after: Emission, second: int) -> int | None:
    """The position at which two emissions part; ``None`` if they do not.

    Args:
        before: with the request ``first``.
        first: index.
        after: with the request ``second``.
        second: index.
    """
    one, two = _tokens(before, first), _tokens(after, second)
    if one == two:
        return None
    same = (j for j, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1])
    return next(same, min(len(one), len(two)))


def repeats(capabilities: Capabilities) -> bool:
    """Whether a sampler can be given the same randomness twice."""
    return capabilities.per_request_seeds or capabilities.final_coin is not None


def _excused(changed: int, batch: Batch, extra: float) -> bool:
    """Whether rounding explains so many differences (a sum of rare independent events)."""
    mean = expected_differences(batch, extra)
    return bool(stats.poisson.sf(changed - 1, mean) > CHANCE)


def _tokens(emission: Emission, request: int) -> list[int]:
    count = int(emission.num_emitted[request])
    return [int(token) for token in emission.token_ids[request, :count]]


Problems = Callable[[Asked, Batch], list[Problem]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetamorphicExperiment:
    """Generated layouts, one relation.

    Attributes:
        suite, case: where it belongs.
        layouts: the strategy for a subject's capabilities.
        holds: the relation; returns what violates it.
        needs: names of capabilities without which the question makes no sense.
        repeats: whether the relation needs the same randomness twice.
        coins: whether it needs that randomness to be injected.
        coupling: whether it concerns the acceptance rule and not the text.
        share: layouts for each example of the profile.
        copies: of each layout in a call, with seeds of their own; fewer for samplers of one
            request a call (:meth:`Settings.copies`).
    """

    suite: str
    case: str
    layouts: Callable[[Capabilities], SearchStrategy[Batch]]
    holds: Problems
    needs: tuple[str, ...] = ()
    repeats: bool = True
    coins: bool = False
    coupling: bool = False
    share: float = 0.5
    copies: int = 1

    def plan(self, capabilities: Capabilities) -> Plan:
        """No statistical test; or why this subject cannot be asked."""
        missing = [name for name in self.needs if not getattr(capabilities, name)]
        if missing:
            return Plan(0, f"the sampler does not declare {' and '.join(missing)}")
        if self.coins and capabilities.final_coin is None:
            return Plan(0, "the sampler takes no injected coins")
        if self.repeats and not repeats(capabilities):
            return Plan(
                0,
                "the sampler declares neither per-request seeds nor injected coins, so a second "
                "call may lawfully emit something else; its law is judged by the other suites",
            )
        if self.coupling and capabilities.acceptance is AcceptanceRule.UNDECLARED:
            return Plan(0, "the sampler declares no acceptance rule")
        return Plan(0)

    def run(
        self, subject: Subject, settings: Settings, progress: Progress | None = None
    ) -> list[Verdict]:
        """Try the layouts; a broken relation shrinks and becomes one FAIL."""
        return answer(
            self,
            unsupported=self.plan(subject.capabilities).unsupported,
            find=lambda: search(
                self.layouts(subject.capabilities),
                functools.partial(self.problems, subject, settings),
                seed=int(self._stream(settings).bits64(0, 0, 0, Purpose.LAYOUT)),
                examples=settings.trials or max(1, round(settings.profile.examples * self.share)),
                shrink=settings.shrink,
                progress=progress,
            ),
            snippet=lambda found: relation_snippet(subject, found, self, settings),
            holds=lambda found: f"{found.examples} layouts, the relation holds in each",
        )

    def _stream(self, settings: Settings) -> Stream:
        return Stream.derive(settings.root_seed, "metamorphic", self.suite, self.case)

    def problems(
        self, subject: Subject, settings: Settings, batch: Batch, copies: int | None = None
    ) -> list[Problem]:
        """What is wrong with the answers to one layout.

        Args:
            subject: under test.
            settings: of the run.
            batch: the layout.
            copies: of it in a call; as many as this subject is asked if ``None``.
        """
        stream = self._stream(settings)
        seed = int(stream.bits64(0, 1, 0, Purpose.SEED))
        asked = Asked(subject, settings, seed, batch.num_requests)
        capabilities = subject.capabilities
        copies = copies or settings.copies(capabilities, self.copies)
        many = replicate(batch, copies, stream)
        injects = self.coins or not capabilities.per_request_seeds
        if injects and capabilities.final_coin is not None:
            many = asked.with_coins(many)
        try:
            return self.holds(asked, many)
        except SamplerFault as fault:
            return [Problem(text=str(fault))]
