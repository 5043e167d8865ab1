"""Block verification: decide on a whole block of drafts at once, in float64, on any device.

Sun et al. 2024 (arXiv 2403.10444), Algorithm 2.  With r_0 = 1 and r_i = min(r_{i-1} p_i / q_i, 1),
draft i of a block of n passes its own test with

    h_i = S_i / (S_i + 1 - r_i),  S_i = sum (r_i p_{i+1} - q_{i+1})+  for i < n,    h_n = r_n,

the last draft that passes ends the accepted part, whatever failed before it, and the next token
comes from (r p - q)+, or from p after the whole block.  Lossless, and no chain rule accepts more:
the expected accepted length is sum_i E[r_i].
"""

from __future__ import annotations

import dataclasses

import torch

from specverify.contract import AcceptanceRule, Batch, Emission, Topology
from specverify.reference.chain import CAPABILITIES, ChainSampler, Step

_BLOCK = dataclasses.replace(
    CAPABILITIES, topology=Topology.BLOCK, acceptance=AcceptanceRule.UNDECLARED
)


@dataclasses.dataclass(frozen=True, eq=False)
class BlockTests:
    """The tests of every block.

    Attributes:
        ratio: [B, max k + 1] float64, r_0 = 1, r_1, ..., the last one repeated past the block.
        passing: [B, max k] float64, h_1, h_2, ...; 0 past the block.
        length: [B] int64, drafts in the block: those before the first placeholder.
    """

    ratio: torch.Tensor
    passing: torch.Tensor
    length: torch.Tensor


class BlockSampler(ChainSampler):
    """Accept up to the last draft that passes, recover from (r p - q)+, bonus from p."""

    capabilities = _BLOCK

    def __call__(self, batch: Batch) -> Emission:
        """Verify a packed batch and emit; the input is not changed."""
        step = self.begin(batch)
        tests = self.tests(step)
        step.accepted = self.last_pass(step, tests)
        return self.emit(step, self.draw(step, self.block_weights(step, tests)))

    def tests(self, step: Step) -> BlockTests:
        """R and h of every draft."""
        batch, width = step.batch, step.batch.max_drafts
        length = self.block_lengths(step)
        ones = torch.ones(batch.num_requests, dtype=torch.float64, device=batch.device)
        ratios, passing = [ones], []
        for i in range(width):
            slot = (batch.cu_drafts[:-1] + i).clamp(max=batch.num_drafts - 1)
            inside = i < length
            fresh = (ratios[-1] * self.quotient(step, slot)).clamp(max=1.0)
            ratios.append(torch.where(inside, fresh, ratios[-1]))
            last = length.eq(i + 1)
            h = torch.where(last, fresh, self.inner_pass(step, ratios[-1], slot, i, length))
            passing.append(torch.where(inside, h, 0.0))
        empty = ones.new_zeros((batch.num_requests, 0))
        return BlockTests(
            torch.stack(ratios, 1), torch.stack(passing, 1) if width else empty, length
        )

    def block_lengths(self, step: Step) -> torch.Tensor:
        """[B] int64: drafts before the first placeholder."""
        proposed = step.batch.draft_token_ids >= 0
        return self.accepted_lengths(step, proposed)

    def quotient(self, step: Step, slot: torch.Tensor) -> torch.Tensor:
        """[B] float64: p / q at the draft of a slot; 0 where p is 0."""
        p = self.target_at_drafts(step)[slot]
        return torch.where(p > 0, p / self.draft_at_drafts(step)[slot], 0.0)

    def inner_pass(
        self, step: Step, ratio: torch.Tensor, slot: torch.Tensor, i: int, length: torch.Tensor
    ) -> torch.Tensor:
        """[B] float64: h of draft i (from 0) where another draft follows it; else anything."""
        following = (slot + 1).clamp(max=step.batch.num_drafts - 1)
        rows = (step.batch.first_row + i + 1).clamp(max=step.target.shape[0] - 1)
        rows = torch.where(i + 1 < length, rows, step.batch.first_row)
        mass = self.scaled_residual(step, ratio, step.target[rows], following).sum(1)
        # r = 1 and no mass: p = q follows, and a later draft of the block passes for certain.
        return torch.where(mass + 1 - ratio > 0, mass / (mass + 1 - ratio), 1.0)

    def scaled_residual(
        self, step: Step, ratio: torch.Tensor, target: torch.Tensor, slot: torch.Tensor
    ) -> torch.Tensor:
        """[B, V] float64: (r p - q)+ with the q of a slot."""
        scaled, probs = ratio[:, None] * target, step.batch.draft_probs
        if probs is not None:
            return (scaled - probs[slot]).clamp_(min=0)
        return scaled.scatter(1, step.drafts[slot][:, None], 0.0)  # r p <= 1 = q at the draft

    def last_pass(self, step: Step, tests: BlockTests) -> torch.Tensor:
        """[B] int64: the position of the last draft whose coin passes, 0 if none does."""
        batch, width = step.batch, step.batch.max_drafts
        if width == 0:
            return torch.zeros_like(tests.length)
        column = torch.arange(width, device=batch.device)
        slots = (batch.cu_drafts[:-1, None] + column).clamp(max=batch.num_drafts - 1)
        passed = self.accept_coins(step)[slots] < tests.passing
        return torch.where(passed, column + 1, 0).amax(dim=1)

    def block_weights(self, step: Step, tests: BlockTests) -> torch.Tensor:
        """[B, V] float64: what the last token is drawn from."""
        target = step.target[self.final_rows(step)]
        if step.batch.num_drafts == 0:
            return target
        ratio = tests.ratio.gather(1, step.accepted[:, None]).squeeze(1)
        left = self.scaled_residual(step, ratio, target, step.draft_slot())
        use = (step.accepted < tests.length) & (left.sum(dim=1) > 0)
        return torch.where(use[:, None], left, target)


reference_block = BlockSampler()
