"""Mutants of the batch: what one request gets depends on who else is in the call, or was.

The emitted law stays right, or breaks for inputs that no trial contains, so these show only when
the same request is verified twice in different company.
"""

from __future__ import annotations

import itertools

import torch

from specverify.contract import Batch
from specverify.mutants.mutant import mutant_of
from specverify.reference import ChainSampler, Step
from specverify.sampling import batch_probabilities


class StrideIgnored(ChainSampler):
    """Logits are read as if [R, V] were contiguous, whatever their strides."""

    def target(self, batch: Batch) -> torch.Tensor:
        logits = batch.target_logits
        rows, vocab = logits.shape
        flat = logits.as_strided((rows, vocab), (vocab, 1), logits.storage_offset())
        return batch_probabilities(batch.replace(target_logits=flat, check_values=False))


class NanPoisonsBatch(ChainSampler):
    """One maximum serves the whole batch, and one NaN row makes it NaN for every request."""

    def target(self, batch: Batch) -> torch.Tensor:
        logits = batch.target_logits
        if not bool(logits.isnan().any()):
            return super().target(batch)
        return torch.full(logits.shape, torch.nan, dtype=torch.float64, device=logits.device)


class UninitialisedScratch(ChainSampler):
    """Scratch that nobody wrote is masked by a product with 0, and 0 times NaN is NaN.

    Memory that holds zeros or old numbers hides it, so what other suites see of it is luck.
    """

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        written = step.rejected()
        scratch = torch.empty_like(weights)
        scratch[written] = weights[written]
        mask = written[:, None].double()
        return super().draw(step, scratch * mask + weights * (1 - mask))


class GreedyBatchShiftsCoins(ChainSampler):
    """Greedy requests are sorted out first, and the others take the streams by their new place."""

    def begin(self, batch: Batch) -> Step:
        random = torch.nonzero(batch.temperature > 0).squeeze(1)
        bits = batch.seeds.view(torch.int64)  # torch cannot index uint64
        place = torch.arange(batch.num_requests, device=batch.device)
        place[random] = torch.arange(random.numel(), device=batch.device)
        seeds = bits[place].view(torch.uint64)
        return super().begin(batch.replace(seeds=seeds, check_values=False))


class StateLeaksBetweenCalls(ChainSampler):
    """The offset of the random stream is kept from call to call."""

    def __init__(self) -> None:
        self._calls = itertools.count()

    def begin(self, batch: Batch) -> Step:
        later = batch.positions + next(self._calls) % 4096
        return super().begin(batch.replace(positions=later, check_values=False))


class PositionIgnored(ChainSampler):
    """The stream of a request starts anew at every step: its position does nothing."""

    def begin(self, batch: Batch) -> Step:
        zero = torch.zeros_like(batch.positions)
        return super().begin(batch.replace(positions=zero, check_values=False))


MUTANTS = (
    mutant_of(
        StrideIgnored, "stride-ignored", "vllm #42684, #53017", "X", "accepted recovered bonus"
    ),
    mutant_of(
        NanPoisonsBatch, "nan-poisons-batch", "vllm #50183, flashinfer #2455", "L B", "request"
    ),
    mutant_of(
        UninitialisedScratch,
        "uninitialised-scratch",
        "sglang #12512, vllm #42638",
        "X",
        "recovered bonus",
    ),
    mutant_of(
        GreedyBatchShiftsCoins,
        "greedy-batch-shifts-coins",
        "the class of sglang #31214",
        "R B",
        "request",
    ),
    mutant_of(StateLeaksBetweenCalls, "state-leaks-between-calls", "textbook", "R", "request"),
    mutant_of(PositionIgnored, "position-ignored", "textbook", "R", "request"),
)
