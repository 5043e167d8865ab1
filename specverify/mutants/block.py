"""Mutants of block verification: a clause of the token rule where the block has its own."""

from __future__ import annotations

import torch

from specverify.mutants.mutant import mutant_of
from specverify.reference import Step
from specverify.reference.block import BlockSampler, BlockTests


class BlockRuleTokenResidual(BlockSampler):
    """Block verification that recovers from the token residual (p - q)+, not from (r p - q)+."""

    def block_weights(self, step: Step, tests: BlockTests) -> torch.Tensor:
        bare = BlockTests(torch.ones_like(tests.ratio), tests.passing, tests.length)
        return super().block_weights(step, bare)


class BlockThresholdPaddedRow(BlockSampler):
    """Blocks are padded to the longest, so the last draft of a short one is tested as an inner one.

    Its threshold is then taken from the rows behind the block, which belong to its neighbour.
    """

    def tests(self, step: Step) -> BlockTests:
        right = super().tests(step)
        batch, width = step.batch, step.batch.max_drafts
        passing = right.passing.clone()
        for i in range(width):
            slot = (batch.cu_drafts[:-1] + i).clamp(max=batch.num_drafts - 1)
            padded = torch.full_like(right.length, width)
            inner = self.inner_pass(step, right.ratio[:, i + 1], slot, i, padded)
            short = (right.length == i + 1) & (i + 1 < width)
            passing[:, i] = torch.where(short, inner, passing[:, i])
        return BlockTests(right.ratio, passing, right.length)


MUTANTS = (
    mutant_of(
        BlockRuleTokenResidual,
        "block-rule-token-residual",
        "vllm-ascend #7807",
        "D",
        "recovered",
    ),
    mutant_of(
        BlockThresholdPaddedRow,
        "block-threshold-padded-row",
        "vllm #50939",
        "D J",
        "accepted",
    ),
)
