"""Mutants of the layout: too many tokens, too few, or tokens that are none."""

from __future__ import annotations

import torch

from specverify.contract import PLACEHOLDER, Emission
from specverify.mutants.mutant import Kind, mutant_of
from specverify.reference import ChainSampler, Step


class ContinueAfterRejection(ChainSampler):
    """Goes on accepting drafts after a rejection, with the recovered token in between."""

    def emit(self, step: Step, last: torch.Tensor) -> Emission:
        right = super().emit(step, last)
        width = step.batch.max_drafts
        if width == 0:
            return right
        passed = self.passed_grid(step, self.accepts(step))
        column = torch.arange(width, device=last.device)
        slots = (step.batch.cu_drafts[:-1, None] + column).clamp_(max=step.batch.num_drafts - 1)
        later = (column > step.accepted[:, None]) & (passed > 0)
        tokens = right.token_ids.clone()
        tokens[:, :width] = torch.where(later, step.batch.draft_token_ids[slots], tokens[:, :width])
        # Emission ends at the first slot that was neither accepted nor recovered.
        emitted = (tokens != PLACEHOLDER).long().cumprod(dim=1).sum(dim=1)
        ends = torch.arange(width + 1, device=last.device) < emitted[:, None]
        return Emission(torch.where(ends, tokens, PLACEHOLDER), emitted)


class BonusAfterRejection(ChainSampler):
    """A bonus token is emitted although a draft was rejected."""

    def emit(self, step: Step, last: torch.Tensor) -> Emission:
        right = super().emit(step, last)
        extra = step.rejected() & (right.num_emitted <= step.batch.draft_counts)
        bonus_row = step.batch.first_row + step.batch.draft_counts
        bonus = self.draw(step, step.target[bonus_row])
        tokens = right.token_ids.clone()
        rows = torch.nonzero(extra).squeeze(1)
        tokens[rows, right.num_emitted[rows]] = bonus[rows]
        return Emission(tokens, right.num_emitted + extra.long())


class BonusMissing(ChainSampler):
    """No bonus token when all drafts pass.

    What is emitted is right, only a token short, so no law of the text can see it.
    """

    def emit(self, step: Step, last: torch.Tensor) -> Emission:
        right = super().emit(step, last)
        counts = step.batch.draft_counts
        missing = (step.accepted == counts) & (counts > 0)
        tokens = right.token_ids.clone()
        rows = torch.nonzero(missing).squeeze(1)
        tokens[rows, step.accepted[rows]] = PLACEHOLDER
        return Emission(tokens, right.num_emitted - missing.long())


class PlaceholderAccepted(ChainSampler):
    """A -1 draft is accepted."""

    def accepts(self, step: Step) -> torch.Tensor:
        passed = super().accepts(step)
        return passed if step.proposed is None else passed | ~step.proposed


class CountsPadding(ChainSampler):
    """The emitted count includes padding on ragged rows."""

    def emit(self, step: Step, last: torch.Tensor) -> Emission:
        right = super().emit(step, last)
        everything = step.accepted == step.batch.draft_counts
        width = right.token_ids.shape[1]
        return Emission(
            right.token_ids,
            torch.where(everything, torch.full_like(right.num_emitted, width), right.num_emitted),
        )


class PaddingToken(ChainSampler):
    """A recovered id can fall into the padding of the vocabulary to a multiple of 16."""

    def emit(self, step: Step, last: torch.Tensor) -> Emission:
        vocab = step.batch.vocab_size
        assert step.coins.final is not None
        unlucky = step.rejected() & (step.coins.final > 0.999) & (vocab % 16 != 0)
        return super().emit(step, torch.where(unlucky, torch.full_like(last, vocab), last))


MUTANTS = (
    mutant_of(ContinueAfterRejection, "continue-after-rejection", "textbook", "L J", "accepted"),
    mutant_of(BonusAfterRejection, "bonus-after-rejection", "textbook", "L D", "bonus"),
    mutant_of(BonusMissing, "bonus-missing", "vllm #14519", "L", "bonus", Kind.SLOW),
    mutant_of(PlaceholderAccepted, "placeholder-accepted", "vllm #46533", "L", "accepted"),
    mutant_of(CountsPadding, "counts-padding", "flashinfer #879", "L", "layout"),
    mutant_of(PaddingToken, "padding-token", "vllm #44744", "L", "recovered"),
)
