"""The same requests in other company: batches selected from, joined and changed.

Every function returns a batch with its own memory, in which each request keeps its rows, drafts,
settings, seed, position and coins.  What it emits must not change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from specverify.contract import Batch, Coins, Emission

_PER_REQUEST = ("temperature", "top_k", "top_p", "min_p", "positions")


def select(batch: Batch, requests: Sequence[int]) -> Batch:
    """Some requests of a batch, in this order, each as often as it is named.

    Args:
        batch: packed as in the contract.
        requests: indices into the batch.
    """
    home = batch.device
    chosen = torch.tensor(list(requests), dtype=torch.int64, device=home)
    counts = batch.draft_counts[chosen]
    rows = _spans(batch.first_row[chosen], counts + 1)
    slots = _spans(batch.cu_drafts[:-1][chosen], counts)
    coins = batch.coins
    return Batch(
        target_logits=batch.target_logits[rows],
        draft_token_ids=batch.draft_token_ids[slots],
        draft_probs=None if batch.draft_probs is None else batch.draft_probs[slots],
        cu_drafts=torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        seeds=_uint64(batch.seeds.view(torch.int64)[chosen]),
        coins=None if coins is None else _select_coins(coins, slots, chosen),
        check_values=False,
        **{name: getattr(batch, name)[chosen] for name in _PER_REQUEST},
    )


def join(first: Batch, second: Batch) -> Batch:
    """Two batches in one, one behind the other; their drafts and coins are of the same kind."""
    probs = None
    if first.draft_probs is not None and second.draft_probs is not None:
        probs = torch.cat([first.draft_probs, second.draft_probs.to(first.draft_probs.dtype)])
    coins = None
    if first.coins is not None and second.coins is not None:
        coins = _join_coins(first.coins, second.coins)
    return Batch(
        target_logits=torch.cat([first.target_logits, second.target_logits]),
        draft_token_ids=torch.cat([first.draft_token_ids, second.draft_token_ids]),
        draft_probs=probs,
        cu_drafts=torch.cat([first.cu_drafts, first.num_drafts + second.cu_drafts[1:]]),
        seeds=_uint64(torch.cat([first.seeds.view(torch.int64), second.seeds.view(torch.int64)])),
        coins=coins,
        check_values=False,
        **{
            name: torch.cat([getattr(first, name), getattr(second, name).to(getattr(first, name))])
            for name in _PER_REQUEST
        },
    )


def stranger(
    batch: Batch, *, drafts: int, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> Batch:
    """A batch of one request that fits beside a batch: same V, dtypes and kind of drafts.

    Args:
        batch: beside which it will stand; its coins decide which coins the request gets.
        drafts: k; drafts of token 0, q flat where the batch shows q.
        temperature: of the request.
        top_k: likewise.
        top_p: likewise.
    """
    vocab = batch.vocab_size
    ramp = (torch.arange(vocab) % 7 - 3).to(batch.target_logits.dtype)
    probs = batch.draft_probs
    return Batch(
        target_logits=ramp.repeat(drafts + 1, 1),
        draft_token_ids=torch.zeros(drafts, dtype=torch.int64),
        draft_probs=None if probs is None else torch.full((drafts, vocab), 1 / vocab).to(probs),
        cu_drafts=torch.tensor([0, drafts]),
        temperature=torch.tensor([temperature]),
        top_k=torch.tensor([top_k]),
        top_p=torch.tensor([top_p]),
        min_p=torch.zeros(1),
        seeds=torch.tensor([99], dtype=torch.uint64),
        positions=torch.tensor([7]),
        coins=_middle_coins(batch, drafts),
        check_values=False,
    )


def _middle_coins(batch: Batch, drafts: int) -> Coins | None:
    """Coins that decide nothing special, of the form that the batch carries."""
    if batch.coins is None:
        return None
    half = torch.full((drafts,), 0.5, dtype=torch.float64)
    if batch.coins.noise is not None:
        return Coins(accept=half, noise=torch.ones(1, batch.vocab_size, dtype=torch.float64))
    return Coins(accept=half, final=torch.full((1,), 0.5, dtype=torch.float64))


def pad_vocabulary(batch: Batch, columns: int) -> Batch:
    """The same batch with tokens behind the vocabulary that nobody can emit.

    Args:
        batch: any.
        columns: how many to add: logits -inf, q 0, noise 1.
    """
    coins = batch.coins
    if coins is not None and coins.noise is not None:
        coins = dataclasses.replace(coins, noise=_widen(coins.noise, columns, 1.0))
    return batch.replace(
        target_logits=_widen(batch.target_logits, columns, -torch.inf),
        draft_probs=None if batch.draft_probs is None else _widen(batch.draft_probs, columns, 0.0),
        coins=coins,
        check_values=False,
    )


def changed_requests(
    before: Emission, after: Emission, pairs: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The pairs (request before, request after) that did not emit the same.

    Args:
        before: structurally valid, as is ``after``.
        after: of a batch whose widest request may be another.
        pairs: which request of the one stands for which of the other.
    """
    width = max(before.token_ids.shape[1], after.token_ids.shape[1])
    old, new = (torch.tensor(side, dtype=torch.int64) for side in zip(*pairs, strict=True))
    one, two = _rows(before, old, width), _rows(after, new, width)
    differ = (one != two).any(dim=1).tolist()
    return [pair for pair, changed in zip(pairs, differ, strict=True) if changed]


def _rows(emission: Emission, requests: torch.Tensor, width: int) -> torch.Tensor:
    """[N, width + 1]: tokens padded to a width, and the count."""
    tokens, counts = emission.token_ids.cpu()[requests], emission.num_emitted.cpu()[requests]
    missing = width - tokens.shape[1]
    return torch.cat([torch.nn.functional.pad(tokens, (0, missing), value=-1), counts[:, None]], 1)


def _spans(starts: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Every index of the spans [start, start + count), one span behind the other."""
    total = int(counts.sum())
    before = counts.cumsum(0) - counts
    each = torch.repeat_interleave(starts - before, counts)
    return each + torch.arange(total, device=starts.device)


def _select_coins(coins: Coins, slots: torch.Tensor, requests: torch.Tensor) -> Coins:
    return Coins(
        accept=coins.accept[slots],
        final=None if coins.final is None else coins.final[requests],
        noise=None if coins.noise is None else coins.noise[requests],
    )


def _join_coins(first: Coins, second: Coins) -> Coins:
    def both(name: str) -> torch.Tensor | None:
        one, two = getattr(first, name), getattr(second, name)
        return None if one is None or two is None else torch.cat([one, two])

    return Coins(
        accept=torch.cat([first.accept, second.accept]), final=both("final"), noise=both("noise")
    )


def _widen(matrix: torch.Tensor, columns: int, value: float) -> torch.Tensor:
    return torch.nn.functional.pad(matrix, (0, columns), value=value)


def _uint64(bits: torch.Tensor) -> torch.Tensor:
    """Seeds are moved as int64 bits, because torch lacks most operations on uint64."""
    return bits.contiguous().view(torch.uint64)
