"""Host side of the kernel for many requests of a small vocabulary; never synchronises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
from specverify.kernels._launch_filtered import Filters, sequential
from specverify.kernels.trials import small_kernel

if TYPE_CHECKING:
    from specverify.kernels._launch import Proposal

SMALL_VOCAB = 256
"""Largest vocabulary that a tile of whole rows takes."""

WARPS = 2
"""Warps of a program, unless a caller says otherwise."""

_TILE = 1024  # this and the warps: measured on an H200; see docs/kernels.md
_MOST_REQUESTS = 128
_INTERPRETED = (1 << 16, 1024)
"""Tile and requests there. In the interpreter a program costs the same however much it holds."""


def shape_of(vocab: int, *, tile: int = _TILE, most: int = _MOST_REQUESTS) -> tuple[int, int]:
    """Requests of a program, at most ``most``, and lanes of a row, ``tile`` logits in all."""
    lanes = max(2, int(triton.next_power_of_2(vocab)))
    return max(1, min(tile // lanes, most)), lanes


def verify_small(
    target_logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    cu_drafts: torch.Tensor,
    temperature: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    *,
    max_drafts: int,
    proposal: Proposal,
    coins: tuple[torch.Tensor, torch.Tensor] | None = None,
    filters: Filters | None = None,
    tile: int | None = None,
    num_warps: int = WARPS,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Verify a packed ragged batch of a small vocabulary; one launch, no scratch.

    Args:
        target_logits: [R, V] float32 / bfloat16 / float16, any strides; V <= ``SMALL_VOCAB``.
        draft_token_ids: [D] int64, -1 for a placeholder.
        cu_drafts: [B + 1] int64.
        temperature: [B] floating, 0 is greedy.
        seeds: [B] uint64 or int64 bits.
        positions: [B] int64.
        max_drafts: the largest draft count; larger than the truth is allowed.
        proposal: q in one of its three forms.
        coins: accept [D] and final [B], float64 in [0, 1); ``None`` draws from the seeds.
        filters: top-k, top-p and min-p of the requests; ``None`` if all are off.
        tile: logits that a program holds at a time, a power of two; ``None`` chooses.
        num_warps: warps of a program.

    Returns:
        token_ids [B, max_drafts + 1] int64 padded with -1, and num_emitted [B] int64.

    Raises:
        ValueError: if the vocabulary is too large.

    Source: Leviathan et al. 2023, Algorithm 1.
    """
    vocab, requests, width = target_logits.shape[1], temperature.shape[0], max_drafts + 1
    if vocab > SMALL_VOCAB:
        raise ValueError(f"target_logits: got {vocab} tokens; expected at most {SMALL_VOCAB}")
    size, most = (_TILE, _MOST_REQUESTS) if target_logits.is_cuda else _INTERPRETED
    block, lanes = shape_of(vocab, tile=tile or size, most=most)
    out = target_logits.new_empty((requests, width), dtype=torch.int64)
    emitted = target_logits.new_empty(requests, dtype=torch.int64)
    q = target_logits if proposal.rows is None else proposal.rows
    accept, final = coins or (positions, positions)
    settings = (positions, temperature, temperature)
    if filters is not None:
        settings = (filters.top_k, filters.top_p, filters.min_p)
    small_kernel[(triton.cdiv(requests, block),)](
        target_logits, target_logits.stride(0), target_logits.stride(1), draft_token_ids,
        q, q.stride(0), q.stride(1), cu_drafts, temperature,
        temperature if proposal.temperature is None else proposal.temperature,
        *settings, seeds.view(torch.int64), positions, accept, final, out, emitted, requests, vocab,
        width, Q=proposal.form, COINS=coins is not None, FILTERED=filters is not None,
        SEQUENTIAL=filters is not None and sequential(filters.convention), BLOCK=block, LANES=lanes,
        WIDTH=min(16, int(triton.next_power_of_2(width))), num_warps=num_warps,
    )  # fmt: skip
    return out, emitted
