"""Coarse coins: planned for a number of bits, found at that number, and not seen in fine ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from specverify.suites.test_tail import SUITE

from specverify import evidence
from specverify.checks.coarse_coins import CoarseCoinExperiment, half, trials_for
from specverify.checks.experiment import PROFILES, Settings
from specverify.checks.resolution import RARE_DRAFT, RUN, make_fine_case
from specverify.checks.verdict import Status, Verdict
from specverify.contract import Capabilities, Coins, Guarantee
from specverify.reference import ChainSampler, Step
from specverify.reference.chain import CAPABILITIES
from specverify.registry import resolve
from specverify.subjects import Subject

FINE, FLAT = (e for e in SUITE.experiments if isinstance(e, CoarseCoinExperiment))
OWN = dataclasses.replace(CAPABILITIES, final_coin=None, per_request_seeds=False)
EACH = pytest.mark.parametrize("experiment", [FINE, FLAT], ids=["fine", "flat"])


def run(
    sampler: ChainSampler, experiment: CoarseCoinExperiment, **changes: object
) -> list[Verdict]:
    settings = Settings(root_seed=4, alpha=1e-9, **changes)  # type: ignore[arg-type]
    return experiment.run(Subject.of(sampler, "bad"), settings)


def failures(verdicts: list[Verdict]) -> set[str]:
    return {verdict.check for verdict in verdicts if verdict.status is Status.FAIL}


@EACH
@pytest.mark.parametrize("dense", [True, False])
def test_the_tokens_are_equally_likely_and_half_as_likely_as_a_step_of_the_coin(
    experiment: CoarseCoinExperiment, dense: bool
) -> None:
    capabilities = dataclasses.replace(CAPABILITIES, dense=dense)
    found = experiment.found(capabilities)
    assert len(found.places) == 3
    for place in found.places:
        law = found.law(place, "reference")
        assert law.sum() == pytest.approx(1)
        assert np.ptp(law[found.equal]) == 0
        assert law[found.equal[0]] == pytest.approx(2.0 ** -(found.bits + 1), rel=1e-5)
        assert np.all(np.diff(found.equal) == 1)
    assert found.law(found.places[0], "reference")[-1] == pytest.approx(RARE_DRAFT, rel=1e-5)
    assert found.case.dense is dense


def test_the_run_lies_where_halves_are_coarse() -> None:
    found = FINE.found(CAPABILITIES)
    for place in found.places:
        edges = found.law(place, "reference").cumsum()[found.equal]
        assert 0.5 < edges[0] < edges[-1] < 0.75


def test_what_is_asked_depends_on_what_a_sampler_can() -> None:
    plain = FINE.found(CAPABILITIES)
    assert plain.equal.size == RUN
    assert FINE.plan(CAPABILITIES).tests == 8
    without = dataclasses.replace(CAPABILITIES, zero_drafts=False, batched=False)
    assert FINE.plan(without).tests == 6
    assert FINE.found(without).bits == FINE.bits_unbatched
    lossy = dataclasses.replace(CAPABILITIES, guarantee=Guarantee.LOSSY)
    assert FINE.plan(lossy).tests == 0
    neither = Capabilities(dense=False, one_hot=False)
    assert FINE.plan(neither).unsupported


@EACH
@pytest.mark.parametrize("profile", sorted(PROFILES))
@pytest.mark.parametrize("alpha", [1e-6, 1.4e-9])
def test_the_planned_trials_find_a_coin_of_so_many_bits(
    experiment: CoarseCoinExperiment, profile: str, alpha: float
) -> None:
    """The exact power, over the number of draws that hit the run."""
    settings = Settings(alpha=alpha, profile=PROFILES[profile])
    found = experiment.found(CAPABILITIES)
    planned, trials = experiment.budget_of(CAPABILITIES, settings)
    assert planned == trials
    draws = trials * (3 if profile == "quick" else 1)
    mass = found.mass("reference")
    low, high = stats.binom.ppf([1e-6, 1 - 1e-6], draws, mass).astype(int)
    caught = sum(
        stats.binom.pmf(n, draws, mass) * rejects(int(n), found.equal.size, found.reached, alpha)
        for n in np.arange(low, high + 1)
    )
    assert caught >= settings.power
    assert experiment.budget_of(CAPABILITIES, Settings(trials=10))[1] == 10


def rejects(draws: int, values: int, reached: int, alpha: float) -> float:
    critical = int((evidence.distinct_law(draws, values).cumsum() <= alpha).sum())
    return float(evidence.distinct_law(draws, reached)[:critical].sum())


def test_trials_for_is_the_least_number() -> None:
    for draws, mass in ((1, 0.5), (91, 2.0**-11), (800, 1.0)):
        n = trials_for(draws, mass, half(0.999))
        assert stats.binom.sf(draws - 1, n, mass) >= half(0.999)
        assert n == draws or stats.binom.sf(draws - 1, n - 1, mass) < half(0.999)


def test_bits_and_tokens_reached() -> None:
    fine = FINE.found(CAPABILITIES)
    assert fine.reached == 33
    assert [fine.bits_of(n) for n in (33, 34, 32, 17, 9, 2)] == [16, 16, 15, 15, 14, 11]
    flat = FLAT.found(CAPABILITIES)
    assert [flat.bits_of(n) for n in (4097, 4096, 2049)] == [12, 11, 11]


def rounded(bits: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda coins: (coins * 2**bits).floor() / 2**bits


class RoundedFinalCoin(ChainSampler):
    """The last coin is a multiple of 2**-bits; if asked, after a rejection only."""

    def __init__(self, bits: int, *, recovered_only: bool = False) -> None:
        self.bits, self.recovered_only = bits, recovered_only

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        assert step.coins.final is not None
        coarse = rounded(self.bits)(step.coins.final)
        touched = step.rejected() if self.recovered_only else torch.ones_like(coarse).bool()
        final = torch.where(touched, coarse, step.coins.final)
        step.coins = Coins(accept=step.coins.accept, final=final)
        return super().draw(step, weights)


@pytest.mark.parametrize("bits", [8, 11, pytest.param(14, marks=pytest.mark.slow)])
def test_a_coin_of_few_bits_is_rejected(bits: int) -> None:
    assert failures(run(RoundedFinalCoin(bits), FINE))


def test_the_finest_is_told_by_all_draws_together_and_what_it_is_is_said() -> None:
    verdicts = run(RoundedFinalCoin(16), FINE)
    assert "law/different tokens of all draws" in failures(verdicts)
    (found,) = [v for v in verdicts if v.check == "law/different tokens of all draws"]
    assert "equally likely tokens showed" in found.reason
    assert found.cause is not None
    assert found.cause in found.reason


@pytest.mark.parametrize("bits", [17, pytest.param(24, marks=pytest.mark.slow)])
def test_a_coin_of_more_bits_passes(bits: int) -> None:
    assert not failures(run(RoundedFinalCoin(bits), FINE))


def test_one_branch_alone_is_enough() -> None:
    assert failures(run(RoundedFinalCoin(13, recovered_only=True), FINE))


@pytest.mark.slow
def test_in_other_profiles_one_branch_is_seen_as_finely_as_all() -> None:
    gate = run(RoundedFinalCoin(16, recovered_only=True), FINE, profile=PROFILES["gate"])
    assert "law/different tokens of request 0" in failures(gate)
    assert "law/different tokens of request 1" not in failures(gate)


class Race(ChainSampler):
    """A Gumbel-max of uniforms in half precision."""

    capabilities = OWN

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        coins = torch.rand(weights.shape, dtype=self.dtype).double()
        return (weights.log() - (-coins.log()).log()).argmax(dim=1)


class HalfSum(ChainSampler):
    """The running sum of a large vocabulary is kept in half precision."""

    capabilities = OWN

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        if weights.shape[1] < 2000:
            return super().draw(step, weights)
        law = weights / weights.sum(dim=1, keepdim=True)
        edges = law.cumsum(dim=1).to(self.dtype).double()
        point = torch.rand(weights.shape[0], 1, dtype=torch.float64)
        found = torch.searchsorted(edges, point, right=True).squeeze(1)
        return found.clamp(max=weights.shape[1] - 1)


class SumThatStandsStill(HalfSum):
    """Each addend is rounded away once the sum is large enough."""

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        if weights.shape[1] < 2000:
            return super().draw(step, weights)
        law = (weights / weights.sum(dim=1, keepdim=True)).half().numpy()
        edges = torch.from_numpy(np.add.accumulate(law, axis=1, dtype=np.float16)).double()
        point = torch.rand(weights.shape[0], 1, dtype=torch.float64)
        found = torch.searchsorted(edges, point, right=True).squeeze(1)
        return found.clamp(max=weights.shape[1] - 1)


@pytest.mark.parametrize("experiment", [pytest.param(FINE, marks=pytest.mark.slow), FLAT])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_noise_of_coarse_uniforms_is_rejected(
    experiment: CoarseCoinExperiment, dtype: torch.dtype
) -> None:
    assert failures(run(Race(dtype), experiment))


@pytest.mark.parametrize(
    "sampler",
    [HalfSum(torch.float16), HalfSum(torch.bfloat16), SumThatStandsStill(torch.float16)],
    ids=["float16", "bfloat16", "stands still"],
)
def test_a_running_sum_in_half_precision_is_rejected(sampler: ChainSampler) -> None:
    assert failures(run(sampler, FLAT))


@EACH
@pytest.mark.parametrize(
    "name",
    [
        *("reference", "lawful:gumbel-max"),
        *[
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("reference-match", "lawful:float32", "flashspec", "transformers")
        ],
    ],
)
def test_what_is_right_passes(name: str, experiment: CoarseCoinExperiment) -> None:
    verdicts = experiment.run(resolve(name), Settings(root_seed=1, alpha=1e-6))
    assert {verdict.status for verdict in verdicts} == {Status.PASS}
    assert len(verdicts) == experiment.plan(resolve(name).capabilities).tests
    assert len({verdict.check for verdict in verdicts}) == len(verdicts)


@EACH
def test_fewer_trials_than_planned_are_inconclusive(experiment: CoarseCoinExperiment) -> None:
    verdicts = experiment.run(resolve("reference"), Settings(trials=40))
    assert {verdict.status for verdict in verdicts} == {Status.INCONCLUSIVE}
    assert any("trials were planned, 40 were run" in verdict.reason for verdict in verdicts)


def test_a_table_that_fails_stops_the_others() -> None:
    verdicts = run(RoundedFinalCoin(8), FINE)
    assert any(v.reason.startswith("stopped after") for v in verdicts)


class RaceOf16Bits(ChainSampler):
    """A Gumbel-max of uniforms of 16 bits, whose noise ends before the rarest tokens can win."""

    capabilities = OWN

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        coins = rounded(16)(torch.rand(weights.shape, dtype=torch.float64))
        return (weights.log() - (-coins.log()).log()).argmax(dim=1)


def test_tokens_that_come_too_seldom_are_counted_together() -> None:
    found = failures(run(RaceOf16Bits(), FINE))
    assert found == {"law/equally likely tokens of all draws"}


def test_cases_are_made_once() -> None:
    one = make_fine_case("a", 8, flat=True, idle=False, dense=True)
    assert make_fine_case("a", 8, flat=True, idle=False, dense=True) is one
    assert len(one.places) == len(one.case.requests) == 2
    assert one.case.vocab_size == 513
