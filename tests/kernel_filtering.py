"""What the tests of the filtered kernels share: batches with filters, and searches over layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from kernel_calls import agree
from kernel_setup import DEVICE

from specverify.contract import Batch, FinalCoin
from specverify.layouts import batches, batches_for, coins_for, describe
from specverify.sampling import CONVENTIONS, batch_probabilities

Setting = tuple[int, float, float]
"""Top-k, top-p and min-p of a request."""


def one_row_each(
    logits: torch.Tensor, wanted: Sequence[Setting], temperature: float = 1.0
) -> Batch:
    """Requests without drafts: row i of [B, V] logits under the i-th setting."""
    rows = logits.shape[0]
    k, p, m = (torch.tensor(column) for column in zip(*wanted, strict=True))
    return Batch(
        target_logits=logits, draft_token_ids=torch.zeros(0, dtype=torch.int64), draft_probs=None,
        cu_drafts=torch.zeros(rows + 1, dtype=torch.int64),
        temperature=torch.full((rows,), temperature), top_k=k, top_p=p, min_p=m,
        seeds=torch.arange(rows).view(torch.uint64), positions=torch.zeros(rows, dtype=torch.int64),
    ).to(DEVICE)  # fmt: skip


def in_turn(batch: Batch, wanted: Sequence[Setting]) -> Batch:
    """The batch with the settings in turn, one a request."""
    turn = [wanted[i % len(wanted)] for i in range(batch.num_requests)]
    k, p, m = (torch.tensor(column, device=DEVICE) for column in zip(*turn, strict=True))
    return batch.replace(top_k=k, top_p=p, min_p=m, check_values=False)


def filtered(batch: Batch, **options: Any) -> torch.Tensor:
    """``filter_logits`` of a batch."""
    from specverify.kernels import filter_logits

    return filter_logits(
        batch.target_logits, batch.cu_drafts, batch.temperature, batch.top_k, batch.top_p,
        batch.min_p, max_drafts=batch.max_drafts, **options,
    )  # fmt: skip


def deviation(batch: Batch, logits: torch.Tensor, convention: str = "reference") -> float:
    """Largest total variation of a random row between softmax(logits / T) and the filtered law."""
    temperature = batch.temperature[batch.row_request].double()
    law = torch.softmax(logits.double() / temperature.clamp(min=1e-30)[:, None], 1)
    right = batch_probabilities(batch, CONVENTIONS[convention])
    apart = (law - right).abs().sum(1) / 2
    return float(torch.where(temperature > 0, apart, 0.0).max())


def _searched(number: int, examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A property over ``examples`` fixed examples, the same in every run."""

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        chosen = settings(
            max_examples=examples, deadline=None, derandomize=False, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        return seed(number)(chosen(check))

    return decorate


def laws_over_layouts(number: int, examples: int, convention: str) -> None:
    """``filter_logits``; the filters keep clear of boundaries that fp32 could miss."""

    @_searched(number, examples)
    @given(batches(max_requests=3, max_drafts=2, filters="any"))
    def check(batch: Batch) -> None:
        batch = batch.to(DEVICE)
        out = filtered(batch, convention=convention)
        assert deviation(batch, out, convention) < 2e-6, describe(batch)

    check()


def tokens_over_layouts(sampler: Any, number: int, examples: int) -> None:
    """A sampler with filters and injected coins, extreme ones among them."""

    @_searched(number, examples)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        limits = {"max_requests": 2, "max_drafts": 2, "vocab": (2, 90), "filters": "any"}
        batch = data.draw(batches_for(sampler.capabilities, **limits))
        coins = data.draw(coins_for(batch, FinalCoin.INVERSE_CDF))
        batch = batch.replace(coins=coins).to(DEVICE)
        agree(batch, sampler(batch), sampler.capabilities.convention)

    check()
