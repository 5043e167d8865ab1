"""Mutants that keep the law but not the rule they declare: lossless, and slower than promised."""

from __future__ import annotations

import torch

from specverify.contract import Batch
from specverify.mutants.mutant import Kind, mutant_of
from specverify.reference import ChainSampler, MatchSampler, Step
from specverify.reference.chain import CAPABILITIES


class DraftLawDropped(ChainSampler):
    """q is lost and the one-hot rule used: acceptance falls from 1 - TV(p, q) to sum p q."""

    def begin(self, batch: Batch) -> Step:
        return super().begin(batch.replace(draft_probs=None))


class AcceptIffEqual(MatchSampler):
    """Draws from p and accepts if equal, though it declares the ratio rule."""

    capabilities = CAPABILITIES


class AlwaysRejectRecoverTarget(ChainSampler):
    """Never accepts, and draws every token from p."""

    def accepts(self, step: Step) -> torch.Tensor:
        return torch.zeros_like(step.drafts, dtype=torch.bool)

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        return target


class RejectSomeRecoverMatching(ChainSampler):
    """Accepts with 0.9 min(1, p/q) and recovers from the matching residual p - 0.9 min(p, q)."""

    def accepts(self, step: Step) -> torch.Tensor:
        p, q = self.target_at_drafts(step), self.draft_at_drafts(step)
        passed = self.accept_coins(step) * q < 0.9 * torch.minimum(p, q)
        return passed if step.proposed is None else passed & step.proposed

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        probs, slot = step.batch.draft_probs, step.draft_slot()
        if probs is not None:
            return target - 0.9 * torch.minimum(target, probs[slot].double())
        at = step.drafts[slot][:, None]
        return target.scatter(1, at, 0.1 * target.gather(1, at))


MUTANTS = (
    mutant_of(DraftLawDropped, "q-dropped", "vllm #40149", "A", "accepted recovered", Kind.SLOW),
    mutant_of(
        AcceptIffEqual,
        "accept-iff-equal",
        "llama.cpp, MLX-LM",
        "A",
        "accepted recovered",
        Kind.SLOW,
    ),
    mutant_of(
        AlwaysRejectRecoverTarget,
        "always-reject-recover-p",
        "textbook",
        "A",
        "accepted recovered",
        Kind.SLOW,
    ),
    mutant_of(
        RejectSomeRecoverMatching,
        "reject-some-recover-matching",
        "textbook",
        "A",
        "accepted recovered",
        Kind.SLOW,
    ),
)
