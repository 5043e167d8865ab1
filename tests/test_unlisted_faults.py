"""Faults that the catalogue of mutants does not hold: the layers see kinds of faults, not a list.

Each is a few lines over the reference.  ``CAUGHT_BY`` says which case of a quick run catches it;
the cheapest are asked in an ordinary session, all of them in the slow one.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from specverify.suites import all_suites

from specverify import gate
from specverify.checks.experiment import PROFILES, Settings
from specverify.checks.verdict import Status, Verdict
from specverify.contract import Batch, Coins, Emission
from specverify.reference import ChainSampler, Step
from specverify.sampling import batch_probabilities
from specverify.subjects import Subject


class ResidualFloor(ChainSampler):
    """The residual has a floor, so that it can be divided by."""

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        return super().residual(step, target).clamp(min=1e-5)


class DraftFloor(ChainSampler):
    """The ratio is p / max(q, 1e-3)."""

    def draft_at_drafts(self, step: Step) -> torch.Tensor:
        return super().draft_at_drafts(step).clamp(min=1e-3)


class RatioInBfloat16(ChainSampler):
    """min(1, p / q) is rounded to bfloat16."""

    def accepts(self, step: Step) -> torch.Tensor:
        ratio = self.target_at_drafts(step) / self.draft_at_drafts(step)
        passed = self.accept_coins(step) < ratio.clamp(max=1).bfloat16().double()
        return passed if step.proposed is None else passed & step.proposed


class ResidualWithoutAllDrafts(ChainSampler):
    """The residual of one-hot drafts lacks all drafts of the request, not only the one."""

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        left = super().residual(step, target).clone()
        if step.batch.draft_probs is None:
            left[step.batch.draft_request, step.drafts] = 0.0
        return left


class EqualDraftsNoBonus(ChainSampler):
    """Where all drafts of a request are one token, its bonus is taken from the row before."""

    def final_rows(self, step: Step) -> torch.Tensor:
        rows, batch = super().final_rows(step), step.batch
        if batch.num_drafts == 0:
            return rows
        width = batch.max_drafts
        column = torch.arange(width, device=rows.device)
        slots = (batch.cu_drafts[:-1, None] + column).clamp(max=batch.num_drafts - 1)
        ids = batch.draft_token_ids[slots]
        same = ((ids == ids[:, :1]) | (column >= batch.draft_counts[:, None])).all(dim=1)
        bonus = (step.accepted == batch.draft_counts) & (batch.draft_counts > 1)
        return rows - (same & bonus).long()


class RatioOfPreviousPosition(ChainSampler):
    """A draft is accepted with p / q of the position before it."""

    def draft_at_drafts(self, step: Step) -> torch.Tensor:
        return super().draft_at_drafts(step).roll(1)

    def target_at_drafts(self, step: Step) -> torch.Tensor:
        return super().target_at_drafts(step).roll(1)


class LastRequestOffByOne(ChainSampler):
    """The ids of the last request's drafts are read one slot late for the accept test."""

    def begin(self, batch: Batch) -> Step:
        step = super().begin(batch)
        start = int(batch.cu_drafts[-2])
        if batch.num_drafts - start > 1:
            step.drafts = step.drafts.clone()
            step.drafts[start:-1] = step.drafts[start + 1 :].clone()
        return step


class TopPExclusive(ChainSampler):
    """Top-p leaves out the token that crosses the mark."""

    def target(self, batch: Batch) -> torch.Tensor:
        law = super().target(batch)
        least = torch.where(law > 0, law, torch.inf).amin(dim=1, keepdim=True)
        asked = (batch.top_p < 1)[batch.row_request, None] & (least < law.amax(dim=1, keepdim=True))
        law = torch.where(asked & (law == least), 0.0, law)
        return law / law.sum(dim=1, keepdim=True)


class NextTemperature(ChainSampler):
    """Every request has the temperature of the next one."""

    def target(self, batch: Batch) -> torch.Tensor:
        return batch_probabilities(batch.replace(temperature=batch.temperature.roll(-1)))


class LargestTopK(ChainSampler):
    """The largest top-k of the batch is used for all that have one."""

    def target(self, batch: Batch) -> torch.Tensor:
        wide = torch.where(batch.top_k > 0, batch.top_k.amax(), batch.top_k)
        return batch_probabilities(batch.replace(top_k=wide, check_values=False))


class OutputReused(ChainSampler):
    """What is returned lies in a buffer that the next call of that shape writes over."""

    def __init__(self) -> None:
        self._buffers: dict[torch.Size, Emission] = {}

    def __call__(self, batch: Batch) -> Emission:
        new = super().__call__(batch)
        kept = self._buffers.setdefault(new.token_ids.shape, new)
        kept.token_ids.copy_(new.token_ids)
        kept.num_emitted.copy_(new.num_emitted)
        return kept


class HalfPrecisionLogits(ChainSampler):
    """Logits are cast to float16, in which large ones are infinite."""

    def target(self, batch: Batch) -> torch.Tensor:
        half = batch.target_logits.half().to(batch.target_logits.dtype)
        half = torch.where(batch.target_logits.isneginf(), -torch.inf, half.clamp(-6e4, 6e4))
        return batch_probabilities(batch.replace(target_logits=half, check_values=False))


class VocabularyTileDropped(ChainSampler):
    """Tokens behind the last whole tile of 1,024 are never looked at."""

    def target(self, batch: Batch) -> torch.Tensor:
        law = super().target(batch)
        whole = law.shape[1] // 1024 * 1024
        if 0 < whole < law.shape[1]:
            law[:, whole:] = 0.0
            law /= law.sum(dim=1, keepdim=True).clamp(min=1e-300)
        return law


class ManyRequests(ChainSampler):
    """Requests behind the 32nd use the coins of the first 32."""

    def begin(self, batch: Batch) -> Step:
        place = torch.arange(batch.num_requests) % 32
        bits = batch.seeds.view(torch.int64)[place]
        return super().begin(batch.replace(seeds=bits.view(torch.uint64), check_values=False))


class LongProposalCut(ChainSampler):
    """Drafts behind the eighth are never accepted."""

    def accepts(self, step: Step) -> torch.Tensor:
        start = step.batch.cu_drafts[:-1][step.batch.draft_request]
        place = torch.arange(step.batch.num_drafts, device=start.device) - start
        return super().accepts(step) & (place < 8)


class SeedIn32Bits(ChainSampler):
    """Only the low half of a seed is used."""

    def begin(self, batch: Batch) -> Step:
        bits = batch.seeds.view(torch.int64) & 0xFFFF_FFFF
        return super().begin(batch.replace(seeds=bits.view(torch.uint64), check_values=False))


class SharedMaximum(ChainSampler):
    """One maximum, of the whole batch, is subtracted before float32's exponential."""

    def target(self, batch: Batch) -> torch.Tensor:
        right = super().target(batch)
        plain = bool((batch.temperature > 0).all())
        if not plain or not bool(batch.target_logits.isfinite().any()):
            return right
        scaled = batch.target_logits.float() / batch.temperature[batch.row_request, None]
        weights = torch.where(right > 0, (scaled - scaled.amax()).exp().double(), 0.0)
        total = weights.sum(dim=1, keepdim=True)
        return torch.where(total > 0, weights / total, 1.0 / right.shape[1])


class FinalCoinOfPair(ChainSampler):
    """Two neighbours share the coin of their last token."""

    def begin(self, batch: Batch) -> Step:
        step = super().begin(batch)
        if batch.coins is None and step.coins.final is not None:
            place = torch.arange(batch.num_requests) // 2 * 2
            step.coins = Coins(accept=step.coins.accept, final=step.coins.final[place])
        return step


class TinyTemperatureGreedy(ChainSampler):
    """Temperatures below 0.5 are taken for greedy."""

    def target(self, batch: Batch) -> torch.Tensor:
        cold = torch.where(batch.temperature < 0.5, 0.0, batch.temperature)
        return batch_probabilities(batch.replace(temperature=cold, check_values=False))


class TopKOfWholeVocabulary(ChainSampler):
    """A top-k of V or more drops the last token."""

    def target(self, batch: Batch) -> torch.Tensor:
        law = super().target(batch)
        all_ = (batch.top_k >= batch.vocab_size)[batch.row_request]
        law[all_, -1] = 0.0
        return law / law.sum(dim=1, keepdim=True).clamp(min=1e-300)


class PlaceholderSkipped(ChainSampler):
    """Verification goes on behind a placeholder at the end of a proposal's first half."""

    def accepted_lengths(self, step: Step, passed: torch.Tensor) -> torch.Tensor:
        lengths = super().accepted_lengths(step, passed)
        if step.proposed is None:
            return lengths
        counts = step.batch.draft_counts
        slot = (step.batch.cu_drafts[:-1] + lengths).clamp(max=step.batch.num_drafts - 1)
        hole = ~step.proposed[slot] & (lengths + 1 < counts) & (lengths > 0)
        return lengths + hole.long()


class MovedStreams(ChainSampler):
    """The streams are keyed and counted by something else than the seed and the position."""

    def moved(self, bits: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """[B] int64 each: what is used instead."""
        raise NotImplementedError

    def begin(self, batch: Batch) -> Step:
        bits, positions = self.moved(batch.seeds.view(torch.int64), batch.positions)
        seeds = bits.contiguous().view(torch.uint64)
        return super().begin(batch.replace(seeds=seeds, positions=positions, check_values=False))


class SeedAsFloat64(MovedStreams):
    """A seed goes through a float64, as JSON numbers do, and loses its low bits."""

    def moved(self, bits: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return bits.double().clamp(-9.2e18, 9.2e18).long(), positions


class SeedPlusPosition(MovedStreams):
    """The key of a step is seed + position."""

    def moved(self, bits: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return bits + positions, torch.zeros_like(positions)


class PositionIn16Bits(MovedStreams):
    """The stream begins anew after 65,536 tokens."""

    def moved(self, bits: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return bits, positions & 0xFFFF


class PositionInPairs(MovedStreams):
    """The lowest bit of a position is lost."""

    def moved(self, bits: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return bits, positions & ~1


class PositionAsFloat32(MovedStreams):
    """Positions beyond 2**24 are rounded."""

    def moved(self, bits: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return bits, positions.float().long()


class ThousandRequests(MovedStreams):
    """Requests behind the 1,024th use the coins of the first."""

    def moved(self, bits: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return bits[torch.arange(bits.numel()) % 1024], positions


class OtherSettings(ChainSampler):
    """The sampling parameters are not those that were asked for."""

    def settings(self, batch: Batch) -> dict[str, torch.Tensor]:
        """The fields that are changed."""
        raise NotImplementedError

    def target(self, batch: Batch) -> torch.Tensor:
        return batch_probabilities(batch.replace(**self.settings(batch), check_values=False))


class MinPOfOneIsOff(OtherSettings):
    """A min-p of 1 is taken for off."""

    def settings(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {"min_p": torch.where(batch.min_p >= 1, 0.0, batch.min_p)}


class TinyTopPIsOff(OtherSettings):
    """A top-p below 0.01 is taken for off."""

    def settings(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {"top_p": torch.where(batch.top_p < 0.01, 1.0, batch.top_p)}


class TemperatureAtMostTwo(OtherSettings):
    """Temperatures are capped at 2."""

    def settings(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {"temperature": batch.temperature.clamp(max=2)}


class TemperatureInFloat16(OtherSettings):
    """Temperatures are stored in float16."""

    def settings(self, batch: Batch) -> dict[str, torch.Tensor]:
        half = batch.temperature.half().float()
        return {"temperature": torch.where(batch.temperature > 0.01, half, batch.temperature)}


class TopKAtMost1024(OtherSettings):
    """Top-k is capped at 1,024."""

    def settings(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {"top_k": batch.top_k.clamp(max=1024)}


class MinPForgottenWithoutDrafts(OtherSettings):
    """Where nobody has drafts, min-p is skipped."""

    def settings(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {"min_p": batch.min_p * (batch.num_drafts > 0)}


class WholeTilesForgetFilters(OtherSettings):
    """The path for V that 128 divides knows top-k alone."""

    def settings(self, batch: Batch) -> dict[str, torch.Tensor]:
        if batch.vocab_size % 128:
            return {}
        return {"top_p": torch.ones_like(batch.top_p), "min_p": torch.zeros_like(batch.min_p)}


class IdsIn15Bits(ChainSampler):
    """Tokens beyond 32,767 are never looked at."""

    def target(self, batch: Batch) -> torch.Tensor:
        law = super().target(batch)
        if law.shape[1] > 32768:
            law[:, 32768:] = 0.0
            law /= law.sum(dim=1, keepdim=True).clamp(min=1e-300)
        return law


class GreedyBonusOfLongProposal(ChainSampler):
    """A greedy request with more than four drafts takes its bonus from the row before."""

    def final_rows(self, step: Step) -> torch.Tensor:
        counts = step.batch.draft_counts
        long = (step.batch.temperature == 0) & (counts > 4) & (step.accepted == counts)
        return super().final_rows(step) - long.long()


class DraftRowsInFloat32Alone(ChainSampler):
    """Rows of q in any other format are read as garbage."""

    def begin(self, batch: Batch) -> Step:
        probs = batch.draft_probs
        if probs is not None and probs.dtype is not torch.float32:
            flat = torch.full(probs.shape, 1 / batch.vocab_size)
            batch = batch.replace(draft_probs=flat, check_values=False)
        return super().begin(batch)


class PlaceholderRowRead(ChainSampler):
    """The rows of q are added up, those of placeholders with weight 0: a NaN there spreads."""

    def begin(self, batch: Batch) -> Step:
        probs = batch.draft_probs
        if probs is not None and batch.num_drafts:
            used = (batch.draft_token_ids >= 0)[:, None].to(probs.dtype)
            batch = batch.replace(draft_probs=probs + 0 * (probs * used).sum(), check_values=False)
        return super().begin(batch)


class SlicedParameters(ChainSampler):
    """Parameters are read from the start of their buffer, wherever they lie in it."""

    def target(self, batch: Batch) -> torch.Tensor:
        shifted = batch.top_p.storage_offset() > 0
        top_p = torch.ones_like(batch.top_p) if shifted else batch.top_p
        return batch_probabilities(batch.replace(top_p=top_p, check_values=False))


class CoinsClampedInPlace(ChainSampler):
    """Injected coins are clamped where they lie."""

    def begin(self, batch: Batch) -> Step:
        if batch.coins is not None and batch.coins.final is not None:
            batch.coins.final.clamp_(max=1 - 1e-12)
        return super().begin(batch)


class AcceptCoinInFloat16(ChainSampler):
    """Accept coins are multiples of 2**-11, so one in 2,048 accepts whatever is possible."""

    def accept_coins(self, step: Step) -> torch.Tensor:
        return (super().accept_coins(step) * 2048).floor() / 2048


class FiltersKeptByShape(ChainSampler):
    """What is made of min-p is kept for later calls of the same shape."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, ...], torch.Tensor] = {}

    def target(self, batch: Batch) -> torch.Tensor:
        min_p = self.kept.setdefault((*batch.target_logits.shape, batch.num_requests), batch.min_p)
        return batch_probabilities(batch.replace(min_p=min_p, check_values=False))


class TemperatureKeptByShape(ChainSampler):
    """Temperatures are kept for later calls of the same shape."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, ...], torch.Tensor] = {}

    def target(self, batch: Batch) -> torch.Tensor:
        key = (*batch.target_logits.shape, batch.num_requests)
        temperature = self.kept.setdefault(key, batch.temperature)
        return batch_probabilities(batch.replace(temperature=temperature, check_values=False))


class AloneWithoutTopP(OtherSettings):
    """A call of one request forgets top-p."""

    def settings(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {"top_p": torch.ones_like(batch.top_p) if batch.num_requests == 1 else batch.top_p}


class TemperatureInFloat32Alone(OtherSettings):
    """Temperatures in any other format are taken for 1."""

    def settings(self, batch: Batch) -> dict[str, torch.Tensor]:
        plain = batch.temperature.dtype is torch.float32
        return {"temperature": batch.temperature if plain else torch.ones_like(batch.temperature)}


class TopPNearOneIsOff(OtherSettings):
    """A top-p above 0.995 is taken for off."""

    def settings(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {"top_p": torch.where(batch.top_p > 0.995, 1.0, batch.top_p)}


class LateIdsRejected(ChainSampler):
    """Drafts whose id does not fit into 15 bits are rejected."""

    def accepts(self, step: Step) -> torch.Tensor:
        return super().accepts(step) & (step.drafts < 32768)


class LatePlaceholderRead(ChainSampler):
    """A placeholder behind the fourth slot is verified like a draft."""

    def begin(self, batch: Batch) -> Step:
        step = super().begin(batch)
        if step.proposed is not None:
            slot = torch.arange(batch.num_drafts) - batch.cu_drafts[:-1][batch.draft_request]
            step.proposed = step.proposed | (slot >= 4)
        return step


class AcceptCoinsOfEight(ChainSampler):
    """A buffer holds eight accept coins, and begins anew."""

    def accept_coins(self, step: Step) -> torch.Tensor:
        coins = super().accept_coins(step)
        if step.batch.coins is not None:
            return coins
        start = step.batch.cu_drafts[:-1][step.batch.draft_request]
        return coins[start + (torch.arange(step.batch.num_drafts) - start) % 8]


class FinalCoinInFloat16(ChainSampler):
    """The last coin is a multiple of 2**-11."""

    def begin(self, batch: Batch) -> Step:
        step = super().begin(batch)
        if batch.coins is None and step.coins.final is not None:
            final = (step.coins.final * 2048).floor() / 2048
            step.coins = Coins(accept=step.coins.accept, final=final)
        return step


CAUGHT_BY: dict[type[ChainSampler], tuple[str, str]] = {
    ResidualFloor: ("support", "masked"),
    DraftFloor: ("differential", "corners"),
    RatioInBfloat16: ("differential", "layouts"),
    ResidualWithoutAllDrafts: ("differential", "layouts"),
    EqualDraftsNoBonus: ("differential", "layouts"),
    RatioOfPreviousPosition: ("greedy", "all-greedy"),
    LastRequestOffByOne: ("differential", "layouts"),
    TopPExclusive: ("differential", "layouts"),
    NextTemperature: ("greedy", "beside-random"),
    LargestTopK: ("differential", "layouts"),
    OutputReused: ("metamorphic", "permuted"),
    HalfPrecisionLogits: ("support", "filtered"),
    VocabularyTileDropped: ("differential", "wide"),
    ManyRequests: ("independence", "V4-unrelated-seeds"),
    LongProposalCut: ("differential", "long"),
    SeedIn32Bits: ("metamorphic", "seed-matters"),
    SharedMaximum: ("support", "masked"),
    FinalCoinOfPair: ("metamorphic", "permuted"),
    TinyTemperatureGreedy: ("differential", "layouts"),
    TopKOfWholeVocabulary: ("differential", "corners"),
    PlaceholderSkipped: ("differential", "layouts"),
    SeedAsFloat64: ("metamorphic", "streams-apart"),
    SeedPlusPosition: ("metamorphic", "streams-apart"),
    PositionIn16Bits: ("metamorphic", "streams-apart"),
    PositionInPairs: ("metamorphic", "streams-apart"),
    PositionAsFloat32: ("metamorphic", "streams-apart"),
    ThousandRequests: ("metamorphic", "streams-apart"),
    MinPOfOneIsOff: ("differential", "corners"),
    TinyTopPIsOff: ("differential", "corners"),
    TemperatureAtMostTwo: ("differential", "corners"),
    TemperatureInFloat16: ("differential", "corners"),
    TopKAtMost1024: ("tail", "kept-ranks-V5120"),
    MinPForgottenWithoutDrafts: ("support", "excluded"),
    WholeTilesForgetFilters: ("differential", "corners"),
    IdsIn15Bits: ("differential", "huge"),
    GreedyBonusOfLongProposal: ("differential", "corners"),
    DraftRowsInFloat32Alone: ("metamorphic", "number-formats"),
    PlaceholderRowRead: ("metamorphic", "unread-rows"),
    SlicedParameters: ("metamorphic", "memory-layout"),
    CoinsClampedInPlace: ("differential", "corners"),
    AcceptCoinInFloat16: ("random", "dense-V6-K2-peaked"),
    FiltersKeptByShape: ("metamorphic", "settings-moved"),
    TemperatureKeptByShape: ("metamorphic", "settings-moved"),
    AloneWithoutTopP: ("metamorphic", "alone"),
    TemperatureInFloat32Alone: ("metamorphic", "number-formats"),
    TopPNearOneIsOff: ("tail", "top-p-near-one"),
    LateIdsRejected: ("tail", "late-ids-V65543"),
    LatePlaceholderRead: ("differential", "long"),
    AcceptCoinsOfEight: ("tail", "long-V41-K20"),
    FinalCoinInFloat16: ("tail", "flat-V8193"),
}
"""Suite and case of a quick run."""

WITHOUT_COINS: dict[type[ChainSampler], tuple[str, str]] = {
    ResidualWithoutAllDrafts: ("mixed", "one-hot-V5-ragged"),
    EqualDraftsNoBonus: ("mixed", "dense-V5-ragged"),
    TopPExclusive: ("exclusion", "excluded-dense-V7"),
    LargestTopK: ("support", "excluded"),
    LongProposalCut: ("tail", "long-V41-K20"),
    TopKOfWholeVocabulary: ("mixed", "layouts"),
    PlaceholderSkipped: ("support", "tied"),
    MinPOfOneIsOff: ("tail", "range-ends"),
    TinyTopPIsOff: ("support", "filtered"),
    TemperatureAtMostTwo: ("tail", "range-ends"),
    WholeTilesForgetFilters: ("support", "filtered"),
}
"""Where those that injected coins show are seen in a sampler that takes none."""

CHEAP = (
    LongProposalCut,
    SeedIn32Bits,
    OutputReused,
    RatioInBfloat16,
    NextTemperature,
    FinalCoinOfPair,
    SeedPlusPosition,
    PositionInPairs,
    MinPOfOneIsOff,
    DraftRowsInFloat32Alone,
    PlaceholderRowRead,
    SlicedParameters,
    AloneWithoutTopP,
    LatePlaceholderRead,
)
"""One of each kind: lengths, seeds, memory, precision, neighbours, randomness."""


def quick() -> Settings:
    """As `specverify run` shares its alpha out, near enough for any sampler."""
    return Settings(
        root_seed=3, alpha=gate.split(1e-6, 700), profile=PROFILES["quick"], shrink=False
    )


def failures(sampler: ChainSampler, suite: str, case: str, *, coins: bool = True) -> list[Verdict]:
    """The failures of a case, in a sampler that takes injected coins or takes none."""
    subject = Subject.of(sampler, type(sampler).__name__)
    if not coins:
        without = dataclasses.replace(subject.capabilities, final_coin=None)
        subject = dataclasses.replace(subject, capabilities=without)
    experiment = next(one for one in all_suites()[suite].experiments if one.case == case)
    return [v for v in experiment.run(subject, quick()) if v.status is Status.FAIL]


@pytest.mark.parametrize("fault", CHEAP, ids=lambda fault: fault.__name__)
def test_a_fault_that_nobody_listed_is_caught(fault: type[ChainSampler]) -> None:
    assert failures(fault(), *CAUGHT_BY[fault])


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [one for one in CAUGHT_BY if one not in CHEAP], ids=lambda fault: fault.__name__
)
def test_other_faults_that_nobody_listed_are_caught(fault: type[ChainSampler]) -> None:
    assert failures(fault(), *CAUGHT_BY[fault])


@pytest.mark.parametrize("fault", WITHOUT_COINS, ids=lambda fault: fault.__name__)
def test_a_fault_that_coins_show_is_caught_without_them(fault: type[ChainSampler]) -> None:
    assert failures(fault(), *WITHOUT_COINS[fault], coins=False)


@pytest.mark.parametrize("place", sorted(set(WITHOUT_COINS.values())))
def test_the_reference_passes_there_without_coins(place: tuple[str, str]) -> None:
    assert not failures(ChainSampler(), *place, coins=False)


@pytest.mark.parametrize("place", sorted({CAUGHT_BY[fault] for fault in CHEAP}))
def test_the_reference_passes_where_they_are_caught(place: tuple[str, str]) -> None:
    assert not failures(ChainSampler(), *place)


@pytest.mark.slow
@pytest.mark.parametrize("place", sorted(set(CAUGHT_BY.values())))
def test_the_reference_passes_wherever_any_is_caught(place: tuple[str, str]) -> None:
    assert not failures(ChainSampler(), *place)
