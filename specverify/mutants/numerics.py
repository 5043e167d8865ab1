"""Mutants of number formats and of the ends of the interval: right formulas, wrong arithmetic.

What they get wrong has a probability of 2**-24 or less, or hides in ties, so trials hardly ever
meet it; coins at the thresholds do.
"""

from __future__ import annotations

import dataclasses

import torch

from specverify.contract import Batch, FinalCoin
from specverify.mutants.mutant import Kind, mutant_of
from specverify.reference import ChainSampler, Step
from specverify.reference.chain import CAPABILITIES
from specverify.sampling import REFERENCE, Order, Ties, batch_probabilities


class ZeroCoinAccepts(ChainSampler):
    """A coin of 0 accepts a token of probability 0: the comparison is p >= u q."""

    def accepts(self, step: Step) -> torch.Tensor:
        coins, p, q = (
            self.accept_coins(step),
            self.target_at_drafts(step),
            self.draft_at_drafts(step),
        )
        passed = coins * q <= p
        return passed if step.proposed is None else passed & step.proposed


class CoinReachesOne(ChainSampler):
    """The final coin is rounded to fp32, where it can be 1, and the draw walks off the CDF."""

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        assert step.coins.final is not None
        cdf = weights.cumsum(dim=1)
        point = step.coins.final.float().double()[:, None] * cdf[:, -1:]
        return torch.searchsorted(cdf, point, right=True).squeeze(1)


class NoiseFloor24Bit(ChainSampler):
    """The noise of the race has a floor of 2**-24, so tokens rarer than that are never drawn."""

    capabilities = dataclasses.replace(
        CAPABILITIES, per_request_seeds=False, final_coin=FinalCoin.RACE
    )

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        noise = step.coins.noise
        if noise is None:
            noise = torch.empty(weights.shape, device=weights.device).exponential_()
        return (noise.clamp(min=2.0**-24) / weights).argmin(dim=1)


class SmallProbabilitiesCut(ChainSampler):
    """Probabilities below 1e-5 are cut, as if they were rounding."""

    def target(self, batch: Batch) -> torch.Tensor:
        law = super().target(batch)
        law = torch.where(law < 1e-5, 0.0, law)
        return law / law.sum(dim=1, keepdim=True)


class Log1pMissing(ChainSampler):
    """The residual is p exp(log(1 - q/p)), with 1 - q/p rounded before the logarithm.

    In fp32 that is within what any fp32 sampler may do; here it is rounded to half precision, as
    where probabilities are held in it.
    """

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        probs, slot = step.batch.draft_probs, step.draft_slot()
        if probs is None:
            return super().residual(step, target)
        ratio = (probs[slot].double() / target.clamp(min=1e-300)).clamp(max=1.0)
        kept = (1.0 - ratio).to(torch.bfloat16)
        return target * kept.double().log().exp()


class TopKKeepsTies(ChainSampler):
    """Every token that ties with the k-th survives top-k, though exactly k are declared."""

    convention = dataclasses.replace(REFERENCE, name="ties", top_k_ties=Ties.KEEP_ALL)

    def target(self, batch: Batch) -> torch.Tensor:
        return batch_probabilities(batch, self.convention)


class SequentialFilter(ChainSampler):
    """Top-p counts its mass on what top-k left, though the joint order is declared."""

    convention = dataclasses.replace(REFERENCE, name="sequential", order=Order.TOP_K_FIRST)

    def target(self, batch: Batch) -> torch.Tensor:
        return batch_probabilities(batch, self.convention)


class RejectQAboveOne(ChainSampler):
    """A draft whose q is rounded to 1 + 1e-6 is taken for invalid and rejected; p is drawn from."""

    def accepts(self, step: Step) -> torch.Tensor:
        return super().accepts(step) & (self.draft_at_drafts(step) <= 1)

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        kept = super().residual(step, target)
        if step.batch.draft_probs is None:
            return kept
        invalid = self.draft_at_drafts(step)[step.draft_slot()] > 1
        return torch.where(invalid[:, None], target, kept)


MUTANTS = (
    mutant_of(
        ZeroCoinAccepts, "zero-coin-accepts", "vllm #23803, sglang #35771", "C S", "accepted"
    ),
    mutant_of(CoinReachesOne, "coin-reaches-one", "sglang #30822", "C L", "recovered bonus"),
    mutant_of(
        NoiseFloor24Bit,
        "noise-floor-24-bit",
        "vllm #43150, #45996, #51367",
        "D C",
        "recovered bonus",
    ),
    mutant_of(
        SmallProbabilitiesCut,
        "small-probabilities-cut",
        "textbook",
        "X",
        "accepted recovered bonus",
    ),
    mutant_of(Log1pMissing, "log1p-missing", "vllm #46665", "X", "recovered"),
    mutant_of(
        TopKKeepsTies, "top-k-keeps-ties", "flashinfer #3774", "S", "accepted recovered bonus"
    ),
    mutant_of(
        SequentialFilter, "sequential-filter", "sglang #36173", "S D", "accepted recovered bonus"
    ),
    mutant_of(RejectQAboveOne, "reject-q-above-one", "sglang #42568", "A", "accepted", Kind.SLOW),
)
