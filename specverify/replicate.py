"""The same batch several times over in one call, with seeds of its own for every copy."""

from __future__ import annotations

import numpy as np
import torch

from specverify.contract import Batch
from specverify.streams import Purpose, Stream


def replicate(batch: Batch, copies: int, stream: Stream) -> Batch:
    """Stack ``copies`` of a batch, request after request, copy after copy.

    The first copy keeps its seeds; the others get fresh ones from ``stream``.  One copy is the
    batch itself, strides and all.

    Args:
        batch: without injected coins.
        copies: how many, at least 1.
        stream: where the seeds come from.

    Raises:
        ValueError: if the batch carries coins, or ``copies`` is below 1.
    """
    if copies < 1:
        raise ValueError(f"copies: got {copies}; expected at least 1")
    if copies == 1:
        return batch
    if batch.coins is not None:
        raise ValueError("coins: got injected coins; expected a batch that draws its own")
    shift = torch.arange(copies, device=batch.device)[:, None] * batch.num_drafts
    cumulative = (batch.cu_drafts[None, 1:] + shift).reshape(-1)
    probs = batch.draft_probs
    per_request = {
        name: getattr(batch, name).repeat(copies)
        for name in ("temperature", "top_k", "top_p", "min_p", "positions")
    }
    return Batch(
        target_logits=batch.target_logits.repeat(copies, 1),
        draft_token_ids=batch.draft_token_ids.repeat(copies),
        draft_probs=None if probs is None else probs.repeat(copies, 1),
        cu_drafts=torch.cat([batch.cu_drafts[:1], cumulative]),
        seeds=_seeds(batch, copies, stream),
        check_values=False,
        **per_request,
    )


def _seeds(batch: Batch, copies: int, stream: Stream) -> torch.Tensor:
    fresh = stream.bits64(
        np.arange(copies)[:, None], np.arange(batch.num_requests)[None], 0, Purpose.SEED
    )
    seeds = torch.from_numpy(fresh.reshape(-1)).to(batch.device)
    return torch.cat([batch.seeds, seeds[batch.num_requests :]])
