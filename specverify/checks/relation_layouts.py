"""The layouts that relations are tried on."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from specverify.checks.random_rows import random_batch, random_rows
from specverify.contract import Batch, Capabilities

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_TEMPERATURES = (1.0, 0.0, 0.75, 0.3, 2.0)


def company(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Requests of every kind that the subject takes, and requests without special cases."""
    from specverify.layouts import batches_for

    varied = batches_for(capabilities, max_requests=6, max_drafts=3, vocab=(2, 40), views=False)
    return varied | random_rows(capabilities, vocab=(2, 40))


def plain_numbers(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Gaussian rows over a small vocabulary, where rounding moves hardly any decision."""
    return random_rows(capabilities, vocab=(2, 40))


def settings_and_numbers(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Gaussian rows, and rows with filters at temperatures where rounding moves little."""
    from specverify.layouts import batches_for

    temperatures = _TEMPERATURES if capabilities.greedy else _TEMPERATURES[2:]
    varied = batches_for(
        capabilities, max_requests=6, max_drafts=3, vocab=(2, 40), views=False,
        temperatures=temperatures,
    )  # fmt: skip
    return plain_numbers(capabilities) | varied


def filtered_company(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Requests with settings that move the law of most rows, as far as the subject takes them."""
    from specverify.layouts import batches_for

    return batches_for(
        capabilities, max_requests=6, max_drafts=2, vocab=(8, 40), views=False,
        temperatures=(1.0, 2.0, 0.75), targets=("random", "shifted"), top_ps=(0.5, 0.9, 1.0, 0.1),
    )  # fmt: skip


def exact_numbers(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Logits on a grid on which adding a constant is exact, in float32 where it is taken."""
    from specverify.layouts import batches_for

    dtypes = ("float32",) if "float32" in capabilities.dtypes else capabilities.dtypes
    temperatures = _TEMPERATURES if capabilities.greedy else _TEMPERATURES[2:]
    return batches_for(
        capabilities, max_requests=4, vocab=(2, 40), dtypes=dtypes, temperatures=temperatures,
        filters="off",
    )  # fmt: skip


def gapped(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Proposals of some length, every third slot of a batch never proposed."""
    from specverify.layouts import batches_for

    shown = dataclasses.replace(capabilities, one_hot=not capabilities.dense)
    any_, dense = (
        batches_for(
            able, max_requests=4, max_drafts=6, zero_drafts=False, vocab=(2, 40), views=False
        )
        for able in (capabilities, shown)
    )
    return (dense | any_).map(_with_gaps)


def dense_drafts(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Gaussian rows with q shown; half of the drafts come from a greedy drafter, q = 1."""
    shown = dataclasses.replace(capabilities, one_hot=False)
    return random_rows(shown, vocab=(2, 40)).map(_half_certain)


def flat_rows(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """32 requests that may emit any of 64 tokens and more: equal emissions are no accident."""
    from hypothesis import strategies as st

    return st.builds(_flat, st.just(capabilities), st.integers(64, 72), st.integers(0, 2**16))


def _with_gaps(batch: Batch) -> Batch:
    ids = batch.draft_token_ids
    missing = torch.arange(batch.num_drafts) % 3 == 1
    return batch.replace(draft_token_ids=torch.where(missing, -1, ids), check_values=False)


def _half_certain(batch: Batch) -> Batch:
    """Every second row of q all on its draft."""
    assert batch.draft_probs is not None
    certain = torch.nn.functional.one_hot(batch.draft_token_ids, batch.vocab_size)
    probs = batch.draft_probs.clone()
    probs[::2] = certain[::2].to(probs.dtype)
    return batch.replace(draft_probs=probs, check_values=False)


def _flat(capabilities: Capabilities, vocab: int, entropy: int) -> Batch:
    batch = random_batch(counts=[1] * 32, vocab=vocab, dense=capabilities.dense, entropy=entropy)
    dtype = next(n for n in ("float32", "bfloat16", "float16") if n in capabilities.dtypes)
    probs = None if batch.draft_probs is None else torch.full_like(batch.draft_probs, 1 / vocab)
    return batch.replace(
        target_logits=torch.zeros_like(batch.target_logits, dtype=getattr(torch, dtype)),
        draft_probs=probs,
        check_values=False,
    )
