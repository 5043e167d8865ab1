"""Block verification on the GPU: the launches, and the sampler ``triton-block``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
import triton
from specverify.kernels._flag import any_filter
from specverify.kernels._launch import Proposal, filter_logits
from specverify.kernels.block import last_kernel, ratio_kernel, softmax_kernel, test_kernel
from specverify.kernels.chain import LOGITS
from specverify.kernels.sampler import TritonChain

from specverify.contract import AcceptanceRule, Topology

if TYPE_CHECKING:
    from collections.abc import Callable

    from specverify.contract import Batch

_TILE = 1024


def verify_block(
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
) -> tuple[torch.Tensor, torch.Tensor]:
    """Block-verify a packed ragged batch without filters; never synchronises.

    Args:
        target_logits: [R, V] float32 / bfloat16 / float16, any strides.
        draft_token_ids: [D] int64, -1 for a placeholder, which ends the block.
        cu_drafts: [B + 1] int64.
        temperature: [B] floating, 0 is greedy.
        seeds: [B] uint64 or int64 bits.
        positions: [B] int64.
        max_drafts: the largest draft count; larger than the truth is allowed.
        proposal: q in one of its three forms.
        coins: accept [D] and final [B], float64 in [0, 1); ``None`` draws from the seeds.

    Returns:
        token_ids [B, max_drafts + 1] int64 padded with -1, and num_emitted [B] int64.

    Source: Sun et al. 2024 (arXiv 2403.10444), Algorithm 2.
    """
    rows, vocab = target_logits.shape
    requests, width = temperature.shape[0], max_drafts + 1
    form, slots = proposal.form, draft_token_ids.shape[0]
    tile = max(2, min(_TILE, int(triton.next_power_of_2(vocab))))
    options = {"num_warps": 4 if tile == _TILE else 1}
    q = target_logits if proposal.rows is None else proposal.rows
    drafting = temperature if proposal.temperature is None else proposal.temperature
    reals = target_logits.new_empty(2 * rows + 3 * slots, dtype=torch.float64)
    tops, masses, ratios, q_tops, q_masses = reals.split([rows, rows, slots, slots, slots])
    bests = target_logits.new_empty(rows, dtype=torch.int64)
    lengths = target_logits.new_empty(requests, dtype=torch.int64)
    passes = target_logits.new_empty(slots, dtype=torch.int32)
    tokens = target_logits.new_empty((requests, width), dtype=torch.int64)
    emitted = target_logits.new_empty(requests, dtype=torch.int64)
    target = (target_logits, target_logits.stride(0), target_logits.stride(1))
    draft = (q, q.stride(0), q.stride(1))
    inputs = (*target, draft_token_ids, *draft, cu_drafts, temperature, drafting)
    numbers = (tops, masses, bests, q_tops, q_masses, ratios, lengths)
    bits = seeds.view(torch.int64)
    accept, final = coins or (positions, positions)
    softmax_kernel[(width * requests,)](
        *target, cu_drafts, temperature, tops, masses, bests, requests, vocab, DRAFTS=False,
        TILE=tile, **options,
    )  # fmt: skip
    if form == LOGITS and max_drafts:
        softmax_kernel[(max_drafts * requests,)](
            *draft, cu_drafts, drafting, q_tops, q_masses, bests, requests, vocab, DRAFTS=True,
            TILE=tile, **options,
        )  # fmt: skip
    ratio_kernel[(requests,)](*inputs, *numbers, Q=form, num_warps=1)
    if max_drafts:
        test_kernel[(max_drafts * requests,)](
            *inputs, bits, positions, accept, *numbers, passes, requests, vocab, Q=form,
            COINS=coins is not None, TILE=tile, **options,
        )  # fmt: skip
    last_kernel[(requests,)](
        *inputs, bits, positions, final, *numbers, passes, tokens, emitted, vocab, width, Q=form,
        COINS=coins is not None, TILE=tile,
        WIDTH=min(128, int(triton.next_power_of_2(width))), **options,
    )  # fmt: skip
    return tokens, emitted


class TritonBlock(TritonChain):
    """Block verification on the GPU, or on the CPU under ``TRITON_INTERPRET=1``."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = dataclasses.replace(
            self.capabilities,
            topology=Topology.BLOCK,
            acceptance=AcceptanceRule.UNDECLARED,
            arithmetic=(),
        )

    def _verifier(self, batch: Batch) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
        """``verify_block``, on a filtered copy of the logits where some request has a filter."""
        if not any_filter(batch):
            return verify_block

        def verify(
            logits: torch.Tensor, *fields: Any, **named: Any
        ) -> tuple[torch.Tensor, torch.Tensor]:
            small = (batch.cu_drafts, batch.temperature, batch.top_k, batch.top_p, batch.min_p)
            kept = filter_logits(
                logits, *(field.contiguous() for field in small), max_drafts=batch.max_drafts
            )
            return verify_block(kept, *fields, **named)

        return verify


triton_block = TritonBlock()
