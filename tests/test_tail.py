"""Tail and support at scale: planned to notice, exact in what never happens."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import torch
from scipy import stats
from specverify.suites.test_tail import SUITE

from specverify.checks.experiment import PROFILES, Settings
from specverify.checks.tail import (
    HEAD,
    LARGEST,
    NEVER,
    SMALLEST,
    TailExperiment,
    make_tail_case,
    tail_budget,
    tail_tables,
)
from specverify.checks.verdict import Status, Verdict
from specverify.contract import Batch, Capabilities, Emission, Guarantee
from specverify.evidence import binomial_test
from specverify.reference import ChainSampler, Step, reference
from specverify.registry import resolve
from specverify.subjects import Subject

CASES = DENSE, ONE_HOT, IDLE = SUITE.experiments[:3]


def run(subject: Subject, experiment: TailExperiment, settings: Settings) -> list[Verdict]:
    return experiment.run(subject, settings)


def test_the_laws() -> None:
    """Thousands of rare tokens make up a tail that can be counted; some have probability 0."""
    for experiment in CASES:
        found = experiment.make()
        for position, cells in enumerate(found.cells):
            row = found.case.requests[0].target_tables("reference")[position][0]
            tail = row[cells == HEAD]
            assert tail.size == found.case.vocab_size - HEAD - NEVER
            assert SMALLEST * 0.999 <= tail.min() < 2 * SMALLEST
            assert LARGEST * 0.9 < tail.max() <= LARGEST * 1.001
            assert np.all(row[cells == HEAD + 1] == 0)
            law = found.law(position, "reference")
            assert law.sum() == pytest.approx(1)
            assert law[HEAD] == pytest.approx(tail.sum())
            logits = found.case.requests[0].target[position][0]
            assert int(torch.isneginf(logits).sum()) == NEVER // 2


def test_the_drafter_proposes_what_never_comes_and_never_the_tail() -> None:
    found = DENSE.make()
    q, cells = found.case.requests[0].draft_tables()[0][0], found.cells[0]
    assert np.all(q[cells == HEAD] == 0)
    assert q[cells == HEAD + 1].sum() == pytest.approx(0.02)


@pytest.mark.parametrize("profile", sorted(PROFILES))
@pytest.mark.parametrize("experiment", CASES, ids=lambda e: str(e.case))
def test_the_planned_trials_notice_a_lost_tail(experiment: TailExperiment, profile: str) -> None:
    """No draw from the tail is rejected, whatever the share of alpha."""
    for alpha in (1e-6, 1e-9, 1e-12):
        settings = Settings(alpha=alpha, profile=PROFILES[profile])
        found = experiment.make()
        needed, trials = tail_budget(found, "reference", settings)
        assert trials == needed
        for position in range(len(found.cells)):
            tail = float(found.law(position, "reference")[HEAD])
            assert binomial_test(0, trials, tail, alpha=alpha / 2, power=0.999).rejected


def test_a_run_never_takes_more_trials_than_it_needs() -> None:
    found = IDLE.make()
    needed, _ = tail_budget(found, "reference", Settings())
    assert tail_budget(found, "reference", Settings(trials=100)) == (needed, 100)
    assert tail_budget(found, "reference", Settings(trials=10**9)) == (needed, needed)


@pytest.mark.parametrize("experiment", CASES, ids=lambda e: str(e.case))
def test_the_reference_passes(experiment: TailExperiment) -> None:
    verdicts = run(resolve("reference"), experiment, Settings(root_seed=1, alpha=1e-6))
    assert {v.status for v in verdicts} == {Status.PASS}, [v.reason for v in verdicts]
    assert len(verdicts) == experiment.plan(reference.capabilities).tests
    assert {v.position for v in verdicts} == set(range(len(experiment.make().cells)))


def test_a_lost_tail_fails_and_the_cause_is_named() -> None:
    verdicts = run(resolve("mutant:small-probabilities-cut"), IDLE, Settings(root_seed=1))
    (failed,) = [v for v in verdicts if v.status is Status.FAIL]
    assert failed.check == "law/tail of token 0"
    assert "likely cause: 99% of the tail is lost" in failed.reason


def test_one_impossible_token_fails() -> None:
    """Once in 500 trials is far too rare for a law; that it happens at all is a proof."""
    found = IDLE.make()
    never = int(np.flatnonzero(found.cells[0] == HEAD + 1)[0])

    def now_and_then(batch: Batch) -> Emission:
        emission = reference(batch)
        rare = batch.seeds.view(torch.int64) % 500 == 0
        return Emission(torch.where(rare[:, None], never, emission.token_ids), emission.num_emitted)

    subject = Subject("rare", now_and_then, reference.capabilities)
    verdicts = run(subject, IDLE, Settings(root_seed=1, trials=4000))
    failed = [v for v in verdicts if v.status is Status.FAIL]
    assert [v.check for v in failed] == ["law/likely and impossible values of token 0"]
    assert "probability 0" in failed[0].reason


def test_a_draft_that_never_comes_is_never_accepted() -> None:
    """The drafter proposes impossible tokens in 2 % of the steps."""

    class AcceptImpossible(ChainSampler):
        def accepts(self, step: Step) -> torch.Tensor:
            return super().accepts(step) | (self.target_at_drafts(step) == 0)

    subject = Subject.of(AcceptImpossible(), "impossible")
    verdicts = run(subject, DENSE, Settings(root_seed=1, trials=2000))
    assert any("probability 0" in v.reason for v in verdicts if v.status is Status.FAIL)


def test_tables_are_partitions() -> None:
    for table in tail_tables(DENSE.make(), "reference"):
        assert table.law().shape == (table.cells,)
        assert table.law().sum() == pytest.approx(1)


def test_not_supported() -> None:
    lossy = Capabilities(guarantee=Guarantee.LOSSY)
    assert DENSE.plan(lossy).tests == 0
    (verdict,) = run(Subject("lossy", reference, lossy), DENSE, Settings())
    assert verdict.status is Status.NOT_SUPPORTED
    sparse = dataclasses.replace(Capabilities(), dense=False)
    assert DENSE.plan(sparse).unsupported == "the sampler does not declare dense"
    assert ONE_HOT.plan(sparse).unsupported is None


def test_a_fault_is_one_failure() -> None:
    def broken(batch: Batch) -> Emission:
        raise ZeroDivisionError

    (verdict,) = run(Subject("broken", broken, reference.capabilities), IDLE, Settings())
    assert verdict.status is Status.FAIL
    assert verdict.check == "exact/contract"


def test_a_case_needs_room_for_a_tail() -> None:
    with pytest.raises(ValueError, match="vocab, drafts: got 64, 1; expected V >= 1024 and 0 or 1"):
        make_tail_case("small", 64, 1, True)


@pytest.mark.slow
def test_noise_with_a_floor_of_24_bits_loses_the_tail() -> None:
    """Counted, not injected: tokens below 2**-24 are drawn far too rarely.

    A token of probability p wins against noise floor f when the rest arrives after f / p, and then
    at rate p: (1 + f/p) exp(-f/p) of what it should.
    """
    make = functools.partial(make_tail_case, "floor", 4096, 0, True, 1.5e-8)
    found = make()
    row = found.case.requests[0].target_tables("reference")[0][0]
    tail = row[found.cells[0] == HEAD]
    ratio = 2.0**-24 / tail
    kept = float((tail * (1 + ratio) * np.exp(-ratio)).sum() / tail.sum())
    settings = Settings(root_seed=1, alpha=1e-6)
    needed, _ = tail_budget(found, "reference", settings)
    # The power that the test below relies on, for the true rate of the mutant.
    critical = max(
        x
        for x in range(40)
        if binomial_test(x, needed, float(tail.sum()), alpha=5e-7, power=0.999).rejected
    )
    assert stats.binom.cdf(critical, needed, kept * tail.sum()) > 0.95
    experiment = TailExperiment(suite="tail", case="floor", make=make)
    verdicts = run(resolve("mutant:noise-floor-24-bit"), experiment, settings)
    assert "law/tail of token 0" in {v.check for v in verdicts if v.status is Status.FAIL}
