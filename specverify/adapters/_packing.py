"""From the packed layout of a batch to what samplers of other projects take, and back.

Adapters share three needs: log-probabilities of the processed target, rectangular blocks of rows
for groups of requests, and a seed that makes one call reproducible.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import TypeVar

import torch

from specverify.contract import PLACEHOLDER, Batch, Emission
from specverify.sampling import CONVENTIONS, batch_probabilities

MULTINOMIAL = ("float32-softmax", "uniform-24-bits", "race-24-bits")
"""The rounding of float32 probabilities, accept coins from torch.rand and torch.multinomial."""

_F = TypeVar("_F", bound=Callable[..., object])


def requires(package: str) -> Callable[[_F], _F]:
    """Name the package that an adapter drives, so that the registry can tell when it is absent."""

    def declare(function: _F) -> _F:
        function.requires = package  # type: ignore[attr-defined]
        return function

    return declare


def call_seed(batch: Batch, salt: str) -> int:
    """A seed for one call: a digest of the requests' seeds and positions, in batch order.

    The subject draws for the whole batch from one generator, so a row's tokens depend on its
    neighbours; what this buys is that the same batch gives the same emission.
    """
    digest = hashlib.blake2b(salt.encode(), digest_size=8)
    # numpy reads uint64 where torch lacks most operations on it.
    digest.update(batch.seeds.cpu().contiguous().numpy().tobytes())
    digest.update(batch.positions.cpu().contiguous().numpy().tobytes())
    return int.from_bytes(digest.digest(), "little") >> 1  # torch takes seeds below 2**63


def processed_log_probs(batch: Batch) -> torch.Tensor:
    """[R, V] float32: log-probabilities after temperature and filters, as an engine hands them on.

    Without filters this is the float32 log-softmax that engines compute; with filters the float64
    probabilities of the reference convention, rounded once. Rows of greedy requests hold some
    distribution and are not meant to be read.
    """
    hot = batch.temperature > 0
    if not _has_filters(batch):
        temperature = torch.where(hot, batch.temperature, 1).to(torch.float32)
        logits = batch.target_logits.to(torch.float32)
        if bool((temperature != 1).any()):
            # The largest first: fp32 logits over a tiny temperature lose their differences.
            logits = logits - logits.amax(dim=-1, keepdim=True)
            logits /= temperature[batch.row_request, None]
        return logits.log_softmax(dim=-1)
    return batch_probabilities(batch, CONVENTIONS["reference"]).log().to(torch.float32)


def _has_filters(batch: Batch) -> bool:
    return bool((batch.top_k > 0).any() | (batch.top_p < 1).any() | (batch.min_p > 0).any())


@dataclasses.dataclass(frozen=True, eq=False)
class Padded:
    """The drafts of a batch as a rectangle.

    Attributes:
        ids: [B, max k] int64, -1 after a request's last draft slot.
        usable: [B] int64, the drafts before the first placeholder: verification stops there.
    """

    ids: torch.Tensor
    usable: torch.Tensor

    @classmethod
    def of(cls, batch: Batch) -> Padded:
        """Unpack the drafts of a batch."""
        column = torch.arange(batch.max_drafts, device=batch.device)
        ids = torch.full(
            (batch.num_requests, batch.max_drafts), PLACEHOLDER, device=batch.device
        ).masked_scatter_(column < batch.draft_counts[:, None], batch.draft_token_ids)
        return cls(ids, (ids >= 0).long().cumprod(dim=1).sum(dim=1))

    def proposals(self, requests: torch.Tensor, width: int) -> torch.Tensor:
        """[b, width] int64: the drafts of some requests, 0 where there is none."""
        ids = self.ids[requests, :width]
        ids = torch.nn.functional.pad(ids, (0, width - ids.shape[1]), value=PLACEHOLDER)
        return ids.clamp_min(0)

    def emission(self, accepted: torch.Tensor, next_token: torch.Tensor) -> Emission:
        """The emission of accepted counts [B] and the token after them [B], both int64."""
        tokens = torch.nn.functional.pad(self.ids, (0, 1), value=PLACEHOLDER)
        column = torch.arange(tokens.shape[1], device=tokens.device)
        tokens = tokens.masked_fill(column >= accepted[:, None], PLACEHOLDER)
        return Emission(tokens.scatter_(1, accepted[:, None], next_token[:, None]), accepted + 1)


def target_rows(batch: Batch, requests: torch.Tensor, width: int) -> torch.Tensor:
    """[b, width] int64: the first target rows of some requests, padded with their last row."""
    step = torch.arange(width, device=batch.device)
    within = torch.minimum(step, batch.draft_counts[requests, None])
    return batch.first_row[requests, None] + within
