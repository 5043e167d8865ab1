"""The samplers ``triton`` and ``triton-vllm``: the chain kernels behind specverify's contract."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from specverify.kernels._flag import any_filter
from specverify.kernels._launch import Proposal, Workspace, verify_chain
from specverify.kernels._launch_filtered import (
    Filters,
    FilterWorkspace,
    sequential,
    verify_filtered,
)
from specverify.kernels._launch_small import SMALL_VOCAB, verify_small

from specverify.contract import Batch, Capabilities, Emission, FinalCoin
from specverify.conventions import REFERENCE, VLLM

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


def interpreted() -> bool:
    """Whether kernels run on the CPU, statement by statement."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def devices() -> tuple[str, ...]:
    """Where the kernels run."""
    return ("cpu", "cuda") if interpreted() else ("cuda",)


class TritonChain:
    """Chain verification on the GPU, or on the CPU under ``TRITON_INTERPRET=1``.

    Args:
        workspace: scratch kept between calls; ``None`` allocates for every call.
        small_vocab: largest vocabulary that goes to ``verify_small``; 0 for none.
        filter_workspace: the same as ``workspace`` for batches in which some request filters.
        convention: what top-k, top-p and min-p mean: ``"reference"`` or ``"vllm"``.

    Raises:
        ValueError: if no kernel knows the convention.
    """

    def __init__(
        self,
        workspace: Workspace | None = None,
        small_vocab: int = SMALL_VOCAB,
        filter_workspace: FilterWorkspace | None = None,
        convention: str = REFERENCE.name,
    ) -> None:
        sequential(convention)
        self.workspace, self.small_vocab = workspace, small_vocab
        self.filter_workspace = filter_workspace
        self.capabilities = Capabilities(
            placeholders=True,
            filtering=True,
            exclusion=True,
            convention=convention,
            per_request_seeds=True,
            final_coin=FinalCoin.INVERSE_CDF,
            devices=devices(),
            batched=not interpreted(),
        )

    def __call__(self, batch: Batch, /) -> Emission:
        """Verify a packed batch; the input is not changed.

        Raises:
            ValueError: if the coins are those of a race.
        """
        coins = batch.coins
        if coins is not None and coins.final is None:
            raise ValueError("coins.noise: got a race; expected coins.final (inverse CDF)")
        injected = None
        if coins is not None and coins.final is not None:
            injected = (coins.accept.contiguous(), coins.final.contiguous())
        # Rows may have any strides; the kernels read everything else as it lies in memory.
        tokens, emitted = self._verifier(batch)(
            batch.target_logits,
            batch.draft_token_ids.contiguous(),
            batch.cu_drafts.contiguous(),
            batch.temperature.contiguous(),
            batch.seeds.contiguous(),
            batch.positions.contiguous(),
            max_drafts=batch.max_drafts,
            proposal=Proposal(probs=batch.draft_probs),
            coins=injected,
        )
        return Emission(tokens, emitted)

    def _verifier(self, batch: Batch) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
        """The kernels for this batch.

        Asking whether a filter is on reads one flag back; an engine that knows its requests calls
        ``verify_chain`` or ``verify_filtered``, which never synchronise.
        """
        filtered = any_filter(batch)
        convention = self.capabilities.convention
        filters = Filters(
            batch.top_k.contiguous(), batch.top_p.contiguous(), batch.min_p.contiguous(), convention
        )
        if batch.vocab_size <= self.small_vocab:
            return functools.partial(verify_small, filters=filters if filtered else None)
        if not filtered:
            return functools.partial(verify_chain, workspace=self.workspace)
        return functools.partial(verify_filtered, filters=filters, workspace=self.filter_workspace)


triton_chain = TritonChain()
triton_vllm = TritonChain(convention=VLLM.name)
