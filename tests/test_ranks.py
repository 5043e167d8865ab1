"""Ranks: cells of about the same mass, and a sampler that looks at the best tokens only."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from specverify.suites.test_tail import SUITE

from specverify.checks.experiment import PROFILES, Settings
from specverify.checks.ranks import BUCKETS, NOTICED, RankExperiment
from specverify.checks.verdict import Status
from specverify.contract import Batch, Capabilities, Guarantee
from specverify.reference import ChainSampler
from specverify.registry import resolve
from specverify.subjects import Subject

WIDE = next(one for one in SUITE.experiments if isinstance(one, RankExperiment))


def test_the_stretches_share_the_mass() -> None:
    found = WIDE.make()
    for request in range(len(found.cells)):
        for convention in ("reference", "vllm", "flashinfer"):
            law = found.law(request, convention)
            assert law.sum() == pytest.approx(1)
            assert np.all(np.abs(law - 1 / BUCKETS) < 0.01)


def test_thousands_of_tokens_are_kept() -> None:
    for request in WIDE.make().case.requests:
        kept = int((request.target_tables("reference")[0] > 0).sum())
        assert 2500 < kept < 5120


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_the_plan_follows_the_profile(profile: str) -> None:
    settings = Settings(profile=PROFILES[profile])
    needed, trials = WIDE.budget("reference", settings)
    assert needed == trials
    assert trials * NOTICED[profile] ** 2 > 20
    assert WIDE.budget("reference", Settings(trials=10))[1] == 10


def test_two_tests_are_planned_and_lossy_samplers_are_not_asked() -> None:
    assert WIDE.plan(Capabilities(exclusion=True)).tests == 2
    lossy = Capabilities(exclusion=True, guarantee=Guarantee.LOSSY)
    assert WIDE.plan(lossy).unsupported
    assert WIDE.plan(Capabilities()).unsupported


class BestTokensOnly(ChainSampler):
    """Filters are applied to the best 1,024 tokens (4,096 here lose a sixth of the other row)."""

    def __init__(self, most: int) -> None:
        self.most = most

    def target(self, batch: Batch) -> torch.Tensor:
        law = super().target(batch)
        if law.shape[1] > self.most:
            least = law.topk(self.most, dim=1).values[:, -1:]
            law = torch.where(law < least, 0.0, law)
        return law / law.sum(dim=1, keepdim=True)


@pytest.mark.parametrize("most", [1024, 4096])
def test_a_cut_among_the_best_tokens_is_rejected(most: int) -> None:
    verdicts = WIDE.run(Subject.of(BestTokensOnly(most)), Settings(alpha=1e-9))
    assert Status.FAIL in {verdict.status for verdict in verdicts}


@pytest.mark.parametrize("name", ["reference", "lawful:float32", "lawful:other-convention"])
def test_what_is_right_passes(name: str) -> None:
    verdicts = WIDE.run(resolve(name), Settings(alpha=1e-9))
    assert {verdict.status for verdict in verdicts} == {Status.PASS}


def test_few_trials_do_not_stand_for_the_power_of_a_run() -> None:
    """What a passed run says it would have caught leaves out the suite of few trials."""
    assert WIDE.suite == "tail"
