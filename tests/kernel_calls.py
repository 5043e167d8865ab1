"""How the tests of the kernels draw a batch, launch a kernel on it and compare the tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from kernel_batches import random_batch
from kernel_budget import disagreements
from kernel_setup import DEVICE

from specverify.checks.oracle import reference_for
from specverify.contract import Batch, Capabilities, Emission
from specverify.layouts import describe
from specverify.sampling import CONVENTIONS


def agree(batch: Batch, ours: Emission, convention: str = "reference") -> None:
    """Fail with the layout and the distance from the threshold if a difference has no excuse."""
    theirs = reference_for(Capabilities(convention=convention))(batch)
    found = disagreements(batch, ours, theirs, CONVENTIONS[convention])
    beyond = [one for one in found if not one.lawful]
    assert not beyond, f"{beyond}\n{describe(batch)}\n{ours.token_ids}\n{theirs.token_ids}"


def launch_on(
    verify: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    batch: Batch,
    *more: Any,
    **options: Any,
) -> Emission:
    """A verifier on the fields of a batch."""
    from specverify.kernels import Proposal

    coins = batch.coins and (batch.coins.accept, batch.coins.final)
    fields = (
        batch.target_logits, batch.draft_token_ids, batch.cu_drafts, batch.temperature,
        batch.seeds, batch.positions,
    )  # fmt: skip
    chosen = {"proposal": Proposal(probs=batch.draft_probs), "coins": coins, **options}
    return Emission(*verify(*fields, *more, **{"max_drafts": batch.max_drafts, **chosen}))


def drawn(number: int, vocab: int, requests: int, most: int, **options: Any) -> Batch:
    """A random batch; dense, with coins and in fp32 unless told otherwise."""
    generator = torch.Generator(device=DEVICE).manual_seed(number)
    options = {"dense": True, "coins": True, "dtype": torch.float32, **options}
    return random_batch(generator, vocab, requests, most, **options)
