"""Accept iff equal: draw from the target at every position, go on while the draft agrees.

Lossless for any draft that does not see the coins, and needs no q: llama.cpp and MLX-LM verify
this way.  Its acceptance rate is sum p q, below the ratio rule's 1 - TV(p, q).
"""

from __future__ import annotations

import dataclasses

import torch

from specverify.contract import AcceptanceRule
from specverify.reference.chain import CAPABILITIES, ChainSampler, Step
from specverify.reference.draw import by_inverse_cdf


class MatchSampler(ChainSampler):
    """Emit the target's own draws y_1, y_2, ...; y_{j+1} is drawn only if y_j equals the draft."""

    capabilities = dataclasses.replace(CAPABILITIES, acceptance=AcceptanceRule.MATCH)

    def own_draws(self, step: Step) -> torch.Tensor:
        """[D] int64: the target's own draw beside each draft, by its accept coin."""
        return by_inverse_cdf(step.target[step.draft_rows], self.accept_coins(step))

    def accepts(self, step: Step) -> torch.Tensor:
        """[D] bool: the target's own draw is the draft."""
        passed = self.own_draws(step) == step.drafts
        return passed if step.proposed is None else passed & step.proposed

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """[B] int64: the own draw that disagreed, or the bonus."""
        fresh = super().draw(step, step.target[self.final_rows(step)])
        if step.batch.num_drafts == 0:
            return fresh
        stopped = step.accepted < step.batch.draft_counts
        return torch.where(stopped, self.own_draws(step)[step.draft_slot()], fresh)
