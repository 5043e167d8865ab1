"""Trials of rows with many equally likely tokens, and what the number of different ones says.

Three questions are asked of each draw and two of all of them together: whether its tokens follow
their law, and whether those of the run are as many as they should be, and as different.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from scipy import stats

from specverify import evidence
from specverify.cases import Case
from specverify.checks.counted import CountedExperiment, capped
from specverify.checks.experiment import Plan, Settings
from specverify.checks.judge import LIKELY, Question
from specverify.checks.resolution import FineCase, Place, make_fine_case
from specverify.checks.tables import Table
from specverify.checks.tail import as_is
from specverify.checks.verdict import Family, Status, Verdict
from specverify.checks.watch import TableWatch
from specverify.contract import Capabilities
from specverify.evidence import Evidence
from specverify.subjects import Subject
from specverify.trials import IntArray, Outcomes

CAUSE = "the coin of the last token, or a running sum, is too coarse"
TOGETHER = ("quick",)
"""Profiles whose trials are planned for all draws together; in the others each alone suffices."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoarseCoinExperiment(CountedExperiment):
    """Draws among many equally likely tokens: enough of them, and enough different ones.

    Attributes:
        suite, case: where it belongs.
        bits: of the finest coin that is noticed.
        bits_unbatched: the same for samplers of one request a call.
        flat: whether all tokens of the vocabulary are equally likely.
    """

    bits: int
    bits_unbatched: int
    flat: bool = False

    def found(self, capabilities: Capabilities) -> FineCase:
        """The case for subjects of a kind."""
        return make_fine_case(
            f"{self.suite}/{self.case}",
            self.bits if capabilities.batched else self.bits_unbatched,
            flat=self.flat,
            idle=capabilities.zero_drafts,
            dense=capabilities.dense,
        )

    def plan(self, capabilities: Capabilities) -> Plan:
        """Two tests for each draw, and two for all of them."""
        reason = self.unsupported(capabilities)
        return Plan(0, reason) if reason else Plan(2 * len(self.found(capabilities).places) + 2)

    def asked_of(self, capabilities: Capabilities) -> tuple[Case, list[Table]]:
        """The case, and for each draw a table of all tokens."""
        found = self.found(capabilities)
        return found.case, [_table(found, place, capabilities.convention) for place in found.places]

    def budget_of(self, capabilities: Capabilities, settings: Settings) -> tuple[int, int]:
        """Trials after which a coin of so many bits shows, and trials that will be run."""
        found = self.found(capabilities)
        draws = evidence.distinct_draws_needed(
            found.equal.size, found.reached, settings.alpha, half(settings.power)
        )
        mass = found.mass(capabilities.convention)
        together = settings.profile.name in TOGETHER
        needed = trials_for(draws, mass, half(settings.power))
        needed = -(-needed // (len(found.places) if together else 1))
        return capped(needed, settings)

    def beyond(
        self,
        subject: Subject,
        watches: Sequence[TableWatch],
        question: Question,
        *,
        stopped: bool,
    ) -> list[Verdict]:
        """Different tokens of the run, draw by draw and together; and how many draws hit it."""
        found = self.found(subject.capabilities)
        mass = found.mass(subject.capabilities.convention)
        counts = [watch.counts[found.equal] for watch in watches]
        alone = [
            _distinct(found, seen, mass, question, 1, place, stopped=stopped)
            for seen, place in zip(counts, found.places, strict=True)
        ]
        whole = np.sum(counts, axis=0)
        return [
            *alone,
            _distinct(found, whole, mass, question, len(counts), None, stopped=stopped),
            _hits(int(whole.sum()), mass, question, len(counts), stopped=stopped),
        ]


def half(power: float) -> float:
    """The power of each of two things that must both happen."""
    return 1 - (1 - power) / 2


def trials_for(draws: int, mass: float, power: float) -> int:
    """Least trials that hit a set of this mass at least ``draws`` times with this probability."""
    low, high = draws, draws
    while _hits_at_least(draws, high, mass) < power:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        enough = _hits_at_least(draws, middle, mass) >= power
        low, high = (low, middle) if enough else (middle + 1, high)
    return low


def _hits_at_least(draws: int, trials: int, mass: float) -> float:
    return float(stats.binom.sf(draws - 1, trials, mass))


def token_at(outcomes: Outcomes, *, place: Place) -> IntArray:
    """[T] int64: the token that counts."""
    tokens: IntArray = outcomes.completed[place.request][:, place.position]
    return tokens


def _table(found: FineCase, place: Place, convention: str) -> Table:
    law = found.law(place, convention)
    return Table(
        name=f"request {place.request}: token {place.position}",
        family=Family.LAW,
        shape=law.shape,
        index=functools.partial(token_at, place=place),
        law=functools.partial(as_is, law),
        axes=(f"t{place.position}",),
        horizon=place.position + 1,
        request=place.request,
        position=place.position,
        branch=place.branch,
    )


def _distinct(
    found: FineCase,
    counts: IntArray,
    mass: float,
    question: Question,
    draws_a_trial: int,
    place: Place | None,
    *,
    stopped: bool,
) -> Verdict:
    """Whether the tokens of the run that were drawn are different enough."""
    settings, m = question.settings, found.equal.size
    seen, draws = int((counts > 0).sum()), int(counts.sum())
    result = evidence.distinct_test(seen, draws, m, alpha=settings.alpha, power=settings.power)

    def detectable(trials: int) -> float:
        # At so many trials a right sampler, and one with the coarse coin, hits the run this often.
        least = int(stats.binom.ppf(1 - half(settings.power), trials * draws_a_trial, mass))
        return evidence.distinct_detectable(least, m, settings.alpha, half(settings.power))

    tv = detectable(question.trials)
    where = "all draws" if place is None else f"request {place.request}"
    finest = found.bits_of(round((1 - tv) * m)) if tv < 1 else 0
    said = f"{draws} draws of {m} equally likely tokens showed {seen} different ones"
    verdict = _verdict(question, f"different tokens of {where}", result, stopped)
    failed = verdict.status is Status.FAIL
    return dataclasses.replace(
        verdict,
        tv_requested=detectable(question.planned),
        tv_detectable=tv,
        reason=_reason(result, said, f"a coin of {finest} bits", question, stopped),
        request=None if place is None else place.request,
        position=None if place is None else place.position,
        branch=place.branch if failed and place is not None else None,
    )


def _hits(
    hits: int, mass: float, question: Question, draws_a_trial: int, *, stopped: bool
) -> Verdict:
    """Whether the run is hit as often as it should be, over all draws together."""
    settings = question.settings

    def detectable(trials: int) -> float:
        return evidence.binomial_detectable(
            mass, trials * draws_a_trial, settings.alpha, settings.power
        )

    draws = question.trials * draws_a_trial
    result = evidence.binomial_test(hits, draws, mass, alpha=settings.alpha, power=settings.power)
    said = f"{draws} draws hit tokens of {mass:.3g} together {hits} times"
    caught = f"a deviation of {result.detectable_tv:.3g}"
    return dataclasses.replace(
        _verdict(question, "equally likely tokens of all draws", result, stopped),
        tv_requested=detectable(question.planned),
        reason=_reason(result, said, caught, question, stopped),
    )


def _verdict(question: Question, name: str, result: Evidence, stopped: bool) -> Verdict:
    """What the verdicts beyond the tables have in common."""
    reached = question.trials >= question.planned
    rejected = result.rejected and not stopped
    passed = reached and not stopped
    return Verdict(
        suite=question.suite,
        case=question.case,
        check=f"{Family.LAW}/{name}",
        family=Family.LAW,
        status=Status.FAIL if rejected else Status.PASS if passed else Status.INCONCLUSIVE,
        reason="",
        trials=question.trials,
        statistic=result.statistic,
        value=result.value,
        p_value=result.p_value,
        alpha=question.settings.alpha,
        power=question.settings.power,
        cells=result.cells,
        tv_detectable=result.detectable_tv,
        cause=CAUSE if rejected else None,
    )


def _reason(result: Evidence, said: str, caught: str, question: Question, stopped: bool) -> str:
    if stopped:
        return f"stopped after {question.trials} trials: another check of this case failed"
    if result.rejected:
        return f"{said}: p = {result.p_value:.2g}{LIKELY}{CAUSE}"
    if question.trials < question.planned:
        return f"{said}; {question.planned} trials were planned, {question.trials} were run"
    return f"{said}; {caught} would have been caught"
