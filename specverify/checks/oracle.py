"""The reference that a subject is compared with: its own rule, its own filter convention."""

from __future__ import annotations

import torch

from specverify.contract import AcceptanceRule, Batch, Capabilities
from specverify.reference import ChainSampler, MatchSampler
from specverify.sampling import CONVENTIONS, batch_probabilities


class _Chain(ChainSampler):
    """The reference under another filter convention."""

    def __init__(self, convention: str) -> None:
        self._convention = CONVENTIONS[convention]

    def target(self, batch: Batch) -> torch.Tensor:
        return batch_probabilities(batch, self._convention)


class _Match(MatchSampler):
    """Accept-iff-equal under another filter convention."""

    def __init__(self, convention: str) -> None:
        self._convention = CONVENTIONS[convention]

    def target(self, batch: Batch) -> torch.Tensor:
        return batch_probabilities(batch, self._convention)


def reference_for(capabilities: Capabilities) -> ChainSampler:
    """The reference that follows the rule and the filter convention that a subject declares."""
    kind = _Match if capabilities.acceptance is AcceptanceRule.MATCH else _Chain
    return kind(capabilities.convention)
