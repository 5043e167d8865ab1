"""Mutants of indexing: the right formula on the wrong row."""

from __future__ import annotations

import torch

from specverify.contract import Batch
from specverify.mutants.mutant import mutant_of
from specverify.reference import ChainSampler, Step


class RowPlusOne(ChainSampler):
    """Drafts are verified against the target row of the next position."""

    def begin(self, batch: Batch) -> Step:
        step = super().begin(batch)
        step.draft_rows = step.draft_rows + 1  # the bonus row ends each request: stays inside
        return step


class DraftRowOfNeighbour(ChainSampler):
    """q rows are those of the neighbouring request (the packed buffer is read one slot off)."""

    def begin(self, batch: Batch) -> Step:
        if batch.draft_probs is not None and batch.num_drafts:
            batch = batch.replace(draft_probs=batch.draft_probs.roll(1, dims=0))
        return super().begin(batch)


class ZeroDraftShift(ChainSampler):
    """Requests without drafts are forgotten when rows are counted, so later rows are shifted."""

    def final_rows(self, step: Step) -> torch.Tensor:
        idle = step.batch.draft_counts == 0
        return super().final_rows(step) - (idle.long().cumsum(0) - idle.long())


class BonusFromLastRow(ChainSampler):
    """The bonus is drawn from the row of the last draft."""

    def final_rows(self, step: Step) -> torch.Tensor:
        counts = step.batch.draft_counts
        bonus = (step.accepted == counts) & (counts > 0)
        return super().final_rows(step) - bonus.long()


class BonusFromFirstRequest(ChainSampler):
    """Every bonus is drawn from the bonus row of the first request of the batch."""

    def final_rows(self, step: Step) -> torch.Tensor:
        rows = super().final_rows(step)
        bonus = step.accepted == step.batch.draft_counts
        return torch.where(bonus, step.batch.draft_counts[0], rows)


MUTANTS = (
    mutant_of(RowPlusOne, "row-plus-one", "the class of vllm #53017", "J", "accepted"),
    mutant_of(
        DraftRowOfNeighbour,
        "draft-row-of-neighbour",
        "the class of vllm #53017",
        "J",
        "accepted recovered",
    ),
    mutant_of(ZeroDraftShift, "zero-draft-shift", "textbook", "J L", "recovered bonus"),
    mutant_of(BonusFromLastRow, "bonus-from-last-row", "textbook", "J", "bonus"),
    mutant_of(BonusFromFirstRequest, "bonus-from-first-request", "textbook", "J", "bonus"),
)
