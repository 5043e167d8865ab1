"""Mutants of the accept test: the wrong ratio, or the wrong coin."""

from __future__ import annotations

import torch

from specverify.contract import Batch, Coins
from specverify.mutants.mutant import mutant_of
from specverify.reference import ChainSampler, Step


class RatioInverted(ChainSampler):
    """Accepts with q/p."""

    def accepts(self, step: Step) -> torch.Tensor:
        p, q = self.target_at_drafts(step), self.draft_at_drafts(step)
        passed = self.accept_coins(step) * p < q
        return passed if step.proposed is None else passed & step.proposed


class AcceptAll(ChainSampler):
    """The accept coin is constant 0."""

    def accept_coins(self, step: Step) -> torch.Tensor:
        return torch.zeros_like(super().accept_coins(step))


class AcceptTwoPercent(ChainSampler):
    """Accepts with 1.02 p/q."""

    def accept_coins(self, step: Step) -> torch.Tensor:
        return super().accept_coins(step) / 1.02


class CoinReused(ChainSampler):
    """The accept coin of the rejected draft also draws the recovered token."""

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        assert step.coins.final is not None
        final = step.coins.final
        if step.batch.num_drafts:
            reused = step.coins.accept[step.draft_slot()]
            final = torch.where(step.rejected(), reused, final)
        step.coins = Coins(accept=step.coins.accept, final=final)
        return super().draw(step, weights)


class CoinSameAllPositions(ChainSampler):
    """One accept coin serves all positions of a request."""

    def accept_coins(self, step: Step) -> torch.Tensor:
        coins = super().accept_coins(step)
        if step.batch.num_drafts == 0:
            return coins
        first = step.batch.cu_drafts[:-1].clamp(max=step.batch.num_drafts - 1)
        return coins[first][step.batch.draft_request]


class CoinSameAllRows(ChainSampler):
    """One stream serves all requests of a batch."""

    def begin(self, batch: Batch) -> Step:
        return super().begin(batch.replace(seeds=batch.seeds[:1].repeat(batch.num_requests)))


class SeedIgnored(ChainSampler):
    """The request's seed does nothing: its stream is keyed by its place in the batch, modulo 64."""

    def begin(self, batch: Batch) -> Step:
        place = torch.arange(batch.num_requests, device=batch.device) % 64
        return super().begin(batch.replace(seeds=place.to(torch.uint64)))


class SeedPlusRow(ChainSampler):
    """The stream is keyed by seed + row, so that seeds which count down meet in one stream."""

    def begin(self, batch: Batch) -> Step:
        rows = torch.arange(batch.num_requests, device=batch.device)
        return super().begin(batch.replace(seeds=(batch.seeds.long() + rows).to(torch.uint64)))


MUTANTS = (
    mutant_of(RatioInverted, "ratio-inverted", "textbook", "D A", "accepted"),
    mutant_of(AcceptAll, "accept-all", "vllm-ascend #13730", "D A", "accepted"),
    mutant_of(
        AcceptTwoPercent, "accept-2-percent", "calibration mutant", "A D", "accepted", tv=0.005
    ),
    mutant_of(CoinReused, "coin-reused", "textbook", "D J", "recovered"),
    mutant_of(CoinSameAllPositions, "coin-same-all-positions", "textbook", "J A", "accepted"),
    mutant_of(CoinSameAllRows, "coin-same-all-rows", "textbook", "R", "request"),
    mutant_of(SeedIgnored, "seed-ignored", "vllm #6038", "R", "request"),
    mutant_of(SeedPlusRow, "seed-plus-row", "textbook", "R", "request"),
)
