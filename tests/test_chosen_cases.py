"""Cases made for one kind of fault each: their laws, their plans, the fault, and what is right."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from specverify.suites.test_tail import SUITE

from specverify.checks.chosen import ChosenExperiment
from specverify.checks.experiment import PROFILES, Settings
from specverify.checks.late_ids import IDS, VOCAB
from specverify.checks.long_runs import DRAFTS, GAPS, OPEN
from specverify.checks.near_one import CUT, GONE, LEVELS, LIKELY
from specverify.checks.tables import Table
from specverify.checks.verdict import Status
from specverify.contract import Batch, Capabilities, Coins, Guarantee
from specverify.reference import ChainSampler, Step
from specverify.reference.chain import CAPABILITIES
from specverify.registry import resolve
from specverify.sampling import batch_probabilities
from specverify.subjects import Subject

CHOSEN = [e for e in SUITE.experiments if isinstance(e, ChosenExperiment)]
NEAR, ENDS_CASE, LATE, LONG = CHOSEN
EACH = pytest.mark.parametrize("experiment", CHOSEN, ids=lambda e: str(e.case))


def tables(experiment: ChosenExperiment, **changes: object) -> list[Table]:
    return experiment.asked_of(dataclasses.replace(CAPABILITIES, **changes))[1]  # type: ignore[arg-type]


def failures(sampler: ChainSampler, experiment: ChosenExperiment) -> set[str]:
    settings = Settings(root_seed=3, alpha=1e-9)
    verdicts = experiment.run(Subject.of(sampler, "bad"), settings)
    return {verdict.check for verdict in verdicts if verdict.status is Status.FAIL}


@EACH
@pytest.mark.parametrize("dense", [True, False])
def test_every_table_is_a_law(experiment: ChosenExperiment, dense: bool) -> None:
    found = tables(experiment, dense=dense)
    assert experiment.plan(CAPABILITIES).tests == len(found)
    assert len({table.name for table in found}) == len(found)
    for table in found:
        assert table.law().shape == (table.cells,)
        assert table.law().sum() == pytest.approx(1)
        assert table.label(0).startswith("cell of t")


@EACH
def test_lossy_samplers_are_not_asked(experiment: ChosenExperiment) -> None:
    lossy = dataclasses.replace(CAPABILITIES, guarantee=Guarantee.LOSSY)
    assert experiment.plan(lossy).unsupported


@EACH
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_the_plan(experiment: ChosenExperiment, profile: str) -> None:
    planned, trials = experiment.budget_of(CAPABILITIES, Settings(profile=PROFILES[profile]))
    assert planned == trials
    assert planned % 2 == 0
    assert experiment.budget_of(CAPABILITIES, Settings(trials=10))[1] == 10


@EACH
@pytest.mark.parametrize(
    "name",
    [
        *("reference", "lawful:smaller-acceptance"),
        *[
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("reference-match", "lawful:float32", "flashspec", "transformers")
        ],
    ],
)
def test_what_is_right_passes(name: str, experiment: ChosenExperiment) -> None:
    verdicts = experiment.run(resolve(name), Settings(root_seed=1, alpha=1e-6))
    assert {verdict.status for verdict in verdicts} == {Status.PASS}


@pytest.mark.parametrize("convention", ["reference", "vllm", "flashinfer", "sglang"])
def test_top_p_cuts_nearly_all_that_it_may(convention: str) -> None:
    for table, level in zip(tables(NEAR, convention=convention), (*LEVELS, LEVELS[0]), strict=True):
        law = table.law()
        assert int((law == 0).sum()) == GONE
        assert law[law > 0].min() > 1e-3 * 1.9
        bare = CUT * (1 - level)
        assert 0 < bare < 1 - level
        assert law.size == LIKELY + 1 + GONE


@pytest.mark.parametrize(
    ("exclusion", "filtering", "tests"), [(True, True, 3), (True, False, 2), (False, True, 1)]
)
def test_filters_are_asked_where_they_are_declared(
    exclusion: bool, filtering: bool, tests: int
) -> None:
    able = dataclasses.replace(CAPABILITIES, exclusion=exclusion, filtering=filtering)
    assert NEAR.plan(able).tests == tests
    assert NEAR.plan(able).unsupported is None


def test_without_filters_and_with_one_request_a_call() -> None:
    assert NEAR.plan(Capabilities()).unsupported == "the sampler does not declare exclusion"
    slow = dataclasses.replace(CAPABILITIES, batched=False)
    assert NEAR.budget_of(slow, Settings())[0] < NEAR.budget_of(CAPABILITIES, Settings())[0] / 9


class Settled(ChainSampler):
    """Top-p is changed before it is used."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def target(self, batch: Batch) -> torch.Tensor:
        top_p = batch.top_p
        if self.kind == "off":
            top_p = torch.where(top_p > 0.9995, 1.0, top_p)
        elif self.kind == "lower":
            top_p = torch.where(top_p > 0.9995, 0.99, top_p)
        else:
            top_p = top_p.to(getattr(torch, self.kind)).float().clamp(max=1)
        return batch_probabilities(batch.replace(top_p=top_p, check_values=False))


@pytest.mark.parametrize("kind", ["off", "lower", "bfloat16", "float16"])
def test_another_top_p_near_one_is_rejected(kind: str) -> None:
    assert failures(Settled(kind), NEAR)


class MovedEnds(ChainSampler):
    """One setting is read wrongly near an end of its range."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def target(self, batch: Batch) -> torch.Tensor:
        changed = {
            "min-p 1 is off": {"min_p": torch.where(batch.min_p >= 1, 0.0, batch.min_p)},
            "small min-p is off": {"min_p": torch.where(batch.min_p < 5e-3, 0.0, batch.min_p)},
            "small top-p is off": {"top_p": torch.where(batch.top_p < 1e-2, 1.0, batch.top_p)},
            "temperature at most 2": {"temperature": batch.temperature.clamp(max=2)},
            "top-k below V": {"top_k": batch.top_k.clamp(max=batch.vocab_size - 1)},
        }[self.kind]
        return batch_probabilities(batch.replace(**changed, check_values=False))


@pytest.mark.parametrize(
    "kind",
    [
        *("min-p 1 is off", "small min-p is off", "small top-p is off"),
        *("temperature at most 2", "top-k below V"),
    ],
)
def test_an_end_that_is_moved_is_rejected(kind: str) -> None:
    assert failures(MovedEnds(kind), ENDS_CASE)


class LateDraftsRejected(ChainSampler):
    """A draft whose id does not fit is rejected."""

    def __init__(self, end: int) -> None:
        self.end = end

    def accepts(self, step: Step) -> torch.Tensor:
        return super().accepts(step) & (step.drafts < self.end)


class LateTokensLost(LateDraftsRejected):
    """A token whose id does not fit has no probability."""

    def accepts(self, step: Step) -> torch.Tensor:
        return ChainSampler.accepts(self, step)

    def target(self, batch: Batch) -> torch.Tensor:
        law = super().target(batch).clone()
        law[:, self.end :] = 0
        return law / law.sum(dim=1, keepdim=True)


@pytest.mark.parametrize("end", [2**15, 2**16])
@pytest.mark.parametrize("fault", [LateDraftsRejected, LateTokensLost])
def test_ids_that_do_not_fit_are_rejected(fault: type[LateDraftsRejected], end: int) -> None:
    assert failures(fault(end), LATE)


def test_the_ids_lie_on_both_sides() -> None:
    assert VOCAB > 2**16 > IDS[2] >= 2**15 > IDS[1]
    assert [int((table.law() > 0).sum()) for table in tables(LATE)] == [4, 4]


class CoinOfAnEarlierSlot(ChainSampler):
    """From the eighth slot on, coins are used again."""

    def __init__(self, back: int) -> None:
        self.back = back

    def accept_coins(self, step: Step) -> torch.Tensor:
        coins, batch = super().accept_coins(step), step.batch
        index = torch.arange(batch.num_drafts)
        slot = index - batch.cu_drafts[:-1][batch.draft_request]
        return coins[torch.where(slot >= self.back, index - self.back, index)]


@pytest.mark.parametrize("back", [4, 8, 12, 16])
def test_a_coin_of_an_earlier_slot_is_rejected(back: int) -> None:
    found = failures(CoinOfAnEarlierSlot(back), LONG)
    assert any(f"tokens {first}, {first + back}" in check for first in OPEN for check in found)


class LongProposalsForgetQ(ChainSampler):
    """Where V is no toy, drafts behind the fourth slot are taken for certain."""

    def draft_at_drafts(self, step: Step) -> torch.Tensor:
        found, batch = super().draft_at_drafts(step), step.batch
        slot = torch.arange(batch.num_drafts) - batch.cu_drafts[:-1][batch.draft_request]
        return torch.where(slot > 4, 1.0, found) if batch.vocab_size > 16 else found


def test_late_slots_of_a_larger_vocabulary() -> None:
    assert failures(LongProposalsForgetQ(), LONG)


class LastCoinIsTheFirst(ChainSampler):
    """The bonus is drawn with the coin of the first draft."""

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        batch = step.batch
        first = step.coins.accept[batch.cu_drafts[:-1].clamp(max=max(batch.num_drafts - 1, 0))]
        final = torch.where(step.rejected(), step.coins.final, first)
        step.coins = Coins(accept=step.coins.accept, final=final)
        return super().draw(step, weights)


def test_the_bonus_of_a_long_proposal_has_a_coin_of_its_own() -> None:
    assert f"law/request 0: tokens 0, {DRAFTS}" in failures(LastCoinIsTheFirst(), LONG)


class LatePlaceholderPassed(ChainSampler):
    """Verification goes on behind a placeholder at the fifth slot or later."""

    def accepted_lengths(self, step: Step, passed: torch.Tensor) -> torch.Tensor:
        if step.proposed is None:
            return super().accepted_lengths(step, passed)
        batch = step.batch
        slot = torch.arange(batch.num_drafts) - batch.cu_drafts[:-1][batch.draft_request]
        late = ~step.proposed & (slot >= 4)
        step.drafts = torch.where(late, 0, step.drafts)
        return super().accepted_lengths(step, passed | late)


def test_a_late_placeholder_ends_verification() -> None:
    assert failures(LatePlaceholderPassed(), LONG)
    assert [table.name for table in tables(LONG)][-2:] == [
        f"request {i + 1}: token {gap}" for i, gap in enumerate(GAPS)
    ]
    assert len(tables(LONG, placeholders=False)) == len(tables(LONG)) - len(GAPS)


def test_cells_of_several_tokens_are_numbered_in_order() -> None:
    table = tables(LONG)[0]
    assert table.shape == (3, 3)
    assert np.allclose(table.law().reshape(3, 3).sum(axis=1), [0.3, 0.7, 0])
