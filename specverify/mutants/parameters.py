"""Mutants of the sampling parameters: temperature and filters lost on some rows."""

from __future__ import annotations

import torch

from specverify.contract import Batch
from specverify.mutants.mutant import mutant_of
from specverify.reference import ChainSampler, Step
from specverify.sampling import batch_probabilities


def _unfiltered(batch: Batch) -> Batch:
    return batch.replace(
        top_k=torch.zeros_like(batch.top_k),
        top_p=torch.ones_like(batch.top_p),
        min_p=torch.zeros_like(batch.min_p),
        check_values=False,
    )


def _bonus_rows(batch: Batch) -> torch.Tensor:
    """[R, 1] bool: the last row of each request."""
    rows = torch.zeros(batch.target_logits.shape[0], 1, dtype=torch.bool, device=batch.device)
    rows[batch.first_row + batch.draft_counts] = True
    return rows


class TargetIgnoresTemperature(ChainSampler):
    """p is taken at temperature 1 while q has the request's temperature."""

    def target(self, batch: Batch) -> torch.Tensor:
        warm = torch.where(batch.temperature > 0, torch.ones_like(batch.temperature), 0.0)
        return batch_probabilities(batch.replace(temperature=warm, check_values=False))


class TemperatureFivePercent(ChainSampler):
    """The temperature is 5 % too high."""

    def target(self, batch: Batch) -> torch.Tensor:
        return batch_probabilities(
            batch.replace(temperature=batch.temperature * 1.05, check_values=False)
        )


class DraftTemperatureTwice(ChainSampler):
    """The request's temperature is applied to q a second time."""

    def begin(self, batch: Batch) -> Step:
        if batch.draft_probs is not None and batch.num_drafts:
            each = batch.temperature[batch.draft_request][:, None].double()
            sharp = batch.draft_probs.double() ** (1.0 / each.clamp(min=1e-2))
            sharp = sharp / sharp.sum(dim=1, keepdim=True)
            probs = torch.where(each > 0, sharp, batch.draft_probs.double())
            batch = batch.replace(draft_probs=probs, check_values=False)
        return super().begin(batch)


class MaskMissingOnVerified(ChainSampler):
    """Top-k, top-p and min-p are applied to the bonus row only."""

    def target(self, batch: Batch) -> torch.Tensor:
        bare = batch_probabilities(_unfiltered(batch))
        return torch.where(_bonus_rows(batch), super().target(batch), bare)


class MaskMissingOnBonus(ChainSampler):
    """Top-k, top-p and min-p are applied to the verified rows only."""

    def target(self, batch: Batch) -> torch.Tensor:
        bare = batch_probabilities(_unfiltered(batch))
        return torch.where(_bonus_rows(batch), bare, super().target(batch))


class MinPIgnored(ChainSampler):
    """min-p is skipped while verifying."""

    def target(self, batch: Batch) -> torch.Tensor:
        off = torch.zeros_like(batch.min_p)
        return batch_probabilities(batch.replace(min_p=off, check_values=False))


class MaskNotRenormalised(ChainSampler):
    """Masked tokens lose their mass in the draw, but the accept test uses the unfiltered p."""

    def target_at_drafts(self, step: Step) -> torch.Tensor:
        bare = batch_probabilities(_unfiltered(step.batch))[step.draft_rows, step.drafts]
        return torch.where(super().target_at_drafts(step) > 0, bare, 0.0)


class GreedyFlagInverted(ChainSampler):
    """In a mixed batch the first greedy request is sampled at temperature 1."""

    def target(self, batch: Batch) -> torch.Tensor:
        greedy = torch.nonzero(batch.temperature == 0).squeeze(1)
        mixed = 0 < greedy.numel() < batch.num_requests
        temperature = batch.temperature.clone()
        if mixed:
            temperature[greedy[:1]] = 1.0
        return batch_probabilities(batch.replace(temperature=temperature, check_values=False))


class GreedyBatchLeak(ChainSampler):
    """A batch with any greedy request decodes all of its requests greedily."""

    def target(self, batch: Batch) -> torch.Tensor:
        if bool((batch.temperature == 0).any()):
            batch = batch.replace(temperature=torch.zeros_like(batch.temperature),
                                  check_values=False)  # fmt: skip
        return batch_probabilities(batch)


class SharedParameters(ChainSampler):
    """The sampling parameters of the first request are used for the whole batch."""

    def target(self, batch: Batch) -> torch.Tensor:
        first = {name: getattr(batch, name)[:1].repeat(batch.num_requests)
                 for name in ("temperature", "top_k", "top_p", "min_p")}  # fmt: skip
        return batch_probabilities(batch.replace(**first, check_values=False))


MUTANTS = (
    mutant_of(
        TargetIgnoresTemperature,
        "target-ignores-temperature",
        "vllm #9834",
        "D",
        "accepted recovered bonus",
    ),
    mutant_of(
        TemperatureFivePercent,
        "temperature-5-percent",
        "calibration mutant",
        "D",
        "accepted recovered bonus",
    ),
    mutant_of(
        DraftTemperatureTwice,
        "draft-temperature-twice",
        "the layout of vLLM's V2 sampler",
        "D Q",
        "accepted recovered",
    ),
    mutant_of(
        MaskMissingOnVerified, "mask-missing-on-verified", "vllm #42744", "S", "accepted recovered"
    ),
    mutant_of(MaskMissingOnBonus, "mask-missing-on-bonus", "textbook", "S", "bonus"),
    mutant_of(MinPIgnored, "min-p-ignored", "sglang #10617", "S", "accepted recovered bonus"),
    mutant_of(MaskNotRenormalised, "mask-not-renormalised", "textbook", "S D", "accepted"),
    mutant_of(
        GreedyFlagInverted, "greedy-flag-inverted", "vllm #27077", "G D", "accepted recovered bonus"
    ),
    mutant_of(
        GreedyBatchLeak, "greedy-batch-leak", "sglang #31214", "D", "accepted recovered bonus"
    ),
    mutant_of(SharedParameters, "shared-parameters", "textbook", "D S", "accepted recovered bonus"),
)
