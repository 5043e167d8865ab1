"""Mutants of the recovered token: drawn from something other than the residual."""

from __future__ import annotations

import torch

from specverify.contract import Batch
from specverify.mutants.mutant import mutant_of
from specverify.reference import ChainSampler, Step
from specverify.sampling import batch_probabilities


def _draft_rows(step: Step) -> torch.Tensor:
    """[B, V] float64: the row of q at each request's stop; one-hot rows where q is not shown."""
    probs, slot = step.batch.draft_probs, step.draft_slot()
    if probs is not None:
        return probs[slot].double()
    return torch.nn.functional.one_hot(step.drafts[slot], step.batch.vocab_size).double()


class RecoverFromTarget(ChainSampler):
    """The recovered token is drawn from p, not from the residual."""

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        return target


class RecoverMinusDraft(ChainSampler):
    """Recovers from p without the draft token although q is dense."""

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        return target.scatter(1, step.drafts[step.draft_slot()][:, None], 0.0)


class RecoverFromDraft(ChainSampler):
    """The recovered token is drawn from q."""

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        return _draft_rows(step)


class RecoverArgmax(ChainSampler):
    """The recovered token is the argmax of the residual."""

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        best = super().residual(step, target).argmax(dim=1)
        return torch.nn.functional.one_hot(best, target.shape[1]).double()


class RecoverAbs(ChainSampler):
    """The residual is |p - q|."""

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        return (target - _draft_rows(step)).abs()


class RecoverReversed(ChainSampler):
    """The residual is (q - p)+."""

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        return (_draft_rows(step) - target).clamp(min=0)


class LeakFivePercent(ChainSampler):
    """5 % of the recovered tokens come from q."""

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        left = super().residual(step, target)
        left = left / left.sum(dim=1, keepdim=True).clamp(min=1e-300)
        return 0.95 * left + 0.05 * _draft_rows(step)


class SparseDraftLaw(ChainSampler):
    """q is known at the drafted token only; the residual subtracts it there and nowhere else."""

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        slot = step.draft_slot()
        known = self.draft_at_drafts(step)[slot]
        at = step.drafts[slot][:, None]
        left = (target.gather(1, at).squeeze(1) - known).clamp(min=0)
        return target.scatter(1, at, left[:, None])


class ResidualOfPositionZero(ChainSampler):
    """Every recovered token uses the residual of the request's first position."""

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        keep, step.accepted = step.accepted, torch.zeros_like(step.accepted)
        first = super().residual(step, step.target[self.final_rows(step)])
        step.accepted = keep
        return first


class ResidualAtPlaceholder(ChainSampler):
    """A slot that was never proposed is recovered from p without the token 0."""

    def final_weights(self, step: Step) -> torch.Tensor:
        weights = super().final_weights(step)
        if step.proposed is None:
            return weights
        missing = (step.accepted < step.batch.draft_counts) & ~step.proposed[step.draft_slot()]
        left = self.residual(step, step.target[self.final_rows(step)])
        return torch.where(missing[:, None] & (left.sum(1, keepdim=True) > 0), left, weights)


class LogitsAsProbabilities(ChainSampler):
    """Logits stand where probabilities are expected: p is their shifted, normalised value."""

    def target(self, batch: Batch) -> torch.Tensor:
        logits = batch.target_logits.double()
        finite = torch.where(logits.isfinite(), logits, logits.new_zeros(()))
        raised = torch.where(
            logits.isfinite(), finite - finite.amin(dim=1, keepdim=True), logits.new_zeros(())
        )
        total = raised.sum(dim=1, keepdim=True)
        return torch.where(total > 0, raised / total.clamp(min=1e-300), batch_probabilities(batch))


MUTANTS = (
    mutant_of(RecoverFromTarget, "recover-from-target", "textbook", "D", "recovered"),
    mutant_of(RecoverMinusDraft, "recover-minus-draft", "textbook", "D", "recovered"),
    mutant_of(RecoverFromDraft, "recover-from-draft", "textbook", "D", "recovered"),
    mutant_of(RecoverArgmax, "recover-argmax", "textbook", "D", "recovered"),
    mutant_of(RecoverAbs, "recover-abs", "textbook", "D", "recovered"),
    mutant_of(RecoverReversed, "recover-reversed", "textbook", "D", "recovered"),
    mutant_of(LeakFivePercent, "leak-5-percent", "calibration mutant", "D", "recovered"),
    mutant_of(SparseDraftLaw, "sparse-q", "xLLM #2175", "D", "recovered"),
    mutant_of(ResidualOfPositionZero, "residual-of-position-0", "textbook", "D J", "recovered"),
    mutant_of(ResidualAtPlaceholder, "residual-at-placeholder", "vllm #54137", "D", "bonus"),
    mutant_of(
        LogitsAsProbabilities,
        "logits-as-probs",
        "vllm-ascend #6685",
        "D",
        "accepted recovered bonus",
    ),
)
