"""Mutants that keep in half precision what the last draw needs: nothing else is wrong."""

from __future__ import annotations

import torch

from specverify.mutants.mutant import mutant_of
from specverify.reference import ChainSampler, Step


class RunningSumBFloat16(ChainSampler):
    """The running sum of the last draw is kept in bfloat16, where small addends are lost.

    Edges are rounded to 8 bits, so that of many rare tokens few can be reached, and the sum does
    not end at 1: a coin beyond its end finds the last token.
    """

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        if step.coins.final is None:
            return super().draw(step, weights)
        law = weights / weights.sum(dim=1, keepdim=True)
        edges = law.to(torch.bfloat16).cumsum(dim=1).double()
        point = step.coins.final[:, None].double()
        drawn = torch.searchsorted(edges, point, right=True).squeeze(1)
        return drawn.clamp(max=weights.shape[1] - 1)


MUTANTS = (
    mutant_of(
        RunningSumBFloat16, "running-sum-bfloat16", "lmdeploy #1239", "D X", "recovered bonus"
    ),
)
