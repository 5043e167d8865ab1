"""The sampler ``triton``: the chain kernel behind specverify's contract."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from specverify.kernels._launch import Proposal, Workspace, filter_logits, verify_chain

if TYPE_CHECKING:
    import torch

from specverify.contract import Batch, Capabilities, Emission, FinalCoin


def _devices() -> tuple[str, ...]:
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return ("cpu", "cuda") if interpreted else ("cuda",)


class TritonChain:
    """Chain verification on the GPU, or on the CPU under ``TRITON_INTERPRET=1``.

    Args:
        workspace: scratch kept between calls; ``None`` allocates for every call.
    """

    def __init__(self, workspace: Workspace | None = None) -> None:
        self.workspace = workspace
        self.capabilities = Capabilities(
            placeholders=True,
            filtering=True,
            exclusion=True,
            per_request_seeds=True,
            final_coin=FinalCoin.INVERSE_CDF,
            devices=_devices(),
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
            injected = (coins.accept, coins.final)
        tokens, emitted = verify_chain(
            self._target_logits(batch),
            batch.draft_token_ids,
            batch.cu_drafts,
            batch.temperature,
            batch.seeds,
            batch.positions,
            max_drafts=batch.max_drafts,
            proposal=Proposal(probs=batch.draft_probs),
            coins=injected,
            workspace=self.workspace,
        )
        return Emission(tokens, emitted)

    @staticmethod
    def _target_logits(batch: Batch) -> torch.Tensor:
        """The logits, or a filtered copy where some request has a filter that changes something.

        Asking reads one flag back; an engine that knows its requests calls ``filter_logits`` and
        ``verify_chain``, which never synchronise.
        """
        top_k = (batch.top_k > 0) & (batch.top_k < batch.vocab_size)
        on = (top_k | (batch.top_p < 1) | (batch.min_p > 0)) & (batch.temperature > 0)
        if not bool(on.any()):
            return batch.target_logits
        return filter_logits(
            batch.target_logits, batch.cu_drafts, batch.temperature, batch.top_k, batch.top_p,
            batch.min_p, max_drafts=batch.max_drafts,
        )  # fmt: skip


triton_chain = TritonChain()
