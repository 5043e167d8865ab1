"""A batch as one expression of Python, and back: for lines that a person pastes.

Small batches are written out, number by number; larger ones are packed into one word.
"""

from __future__ import annotations

import base64
import itertools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from specverify._layout_plan import VIEWS, as_view
from specverify.contract import Batch, Coins

MOST_NUMBERS = 96
"""Logits and probabilities that are written out."""
MOST_LETTERS = 3_000
"""Letters of a whole batch; beyond them, a replay token is the better way."""

Rows = Sequence[Sequence[float]] | str
"""Rows of numbers, or all of them packed into one word."""

_USUAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seeds": 0, "positions": 0}
_KINDS = {
    "temperature": torch.float32,
    "top_k": torch.int64,
    "top_p": torch.float32,
    "min_p": torch.float32,
    "seeds": torch.uint64,
    "positions": torch.int64,
}


def literal(layout: Batch) -> str | None:
    """The call of :func:`batch` that makes a layout; ``None`` if it is too large."""
    layout = layout.to("cpu")
    numbers = layout.target_logits.numel()
    numbers += 0 if layout.draft_probs is None else layout.draft_probs.numel()
    numbers += _noise_numbers(layout)
    fields = _fields(layout, packed=numbers > MOST_NUMBERS)
    text = f"batch({', '.join(f'{name}={value!r}' for name, value in fields.items())})"
    return None if len(text) > MOST_LETTERS else text


def batch(
    *,
    logits: Rows,
    drafts: Sequence[Sequence[int]],
    q: Rows | None = None,
    temperature: Sequence[float] = (),
    top_k: Sequence[int] = (),
    top_p: Sequence[float] = (),
    min_p: Sequence[float] = (),
    seeds: Sequence[int] = (),
    positions: Sequence[int] = (),
    accept: Sequence[float] | None = None,
    final: Sequence[float] | None = None,
    noise: Rows | None = None,
    vocab: int | None = None,
    dtype: str = "float32",
    memory: Sequence[str] = ("contiguous", "contiguous"),
) -> Batch:
    """A batch from plain numbers.

    Args:
        logits: the R target rows.
        drafts: the draft tokens of each request.
        q: the D draft rows; one-hot drafts if ``None``.
        temperature: of each request; as usual (1, no filter, 0) where these are left out.
        top_k: likewise.
        top_p: likewise.
        min_p: likewise.
        seeds: likewise.
        positions: likewise.
        accept: the D accept coins, with injected coins.
        final: the B coins of the last draw.
        noise: instead, the B rows of exponentials.
        vocab: V, where rows are packed.
        dtype: of the logits.
        memory: how logits and q lie in memory.

    Raises:
        ValueError: as :class:`~specverify.contract.Batch`.
    """
    counts = torch.tensor([0, *map(len, drafts)])
    columns = vocab or len(logits[0])
    rows = _matrix(logits, columns).to(getattr(torch, dtype))
    given = {
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
        "seeds": seeds, "positions": positions,
    }  # fmt: skip
    per_request: dict[str, Any] = {
        name: torch.tensor(list(values) or [_USUAL[name]] * len(drafts), dtype=_KINDS[name])
        for name, values in given.items()
    }
    probs = None if q is None else _matrix(q, columns).float()
    return Batch(
        target_logits=as_view(rows, memory[0]),
        draft_token_ids=torch.tensor([t for one in drafts for t in one], dtype=torch.int64),
        draft_probs=None if probs is None else as_view(probs, memory[1]),
        cu_drafts=counts.cumsum(0),
        coins=None if accept is None else _coins(accept, final, noise, columns),
        **per_request,
    )


def _matrix(rows: Rows, columns: int) -> torch.Tensor:
    """[rows, columns] float64."""
    if isinstance(rows, str):
        return _unpack(rows, columns)
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, columns)


def _coins(
    accept: Sequence[float], final: Sequence[float] | None, noise: Rows | None, columns: int
) -> Coins:
    return Coins(
        accept=torch.tensor(accept, dtype=torch.float64),
        final=None if final is None else torch.tensor(final, dtype=torch.float64),
        noise=None if noise is None else _matrix(noise, columns),
    )


def _fields(layout: Batch, *, packed: bool) -> dict[str, object]:
    rows: Callable[[torch.Tensor], object] = _pack if packed else _written
    ends = layout.cu_drafts.tolist()
    tokens = layout.draft_token_ids.tolist()
    fields: dict[str, object] = {
        "logits": rows(layout.target_logits),
        "drafts": [tokens[a:b] for a, b in itertools.pairwise(ends)],
    }
    if layout.draft_probs is not None:
        fields["q"] = rows(layout.draft_probs)
    for name, usual in _USUAL.items():
        values = getattr(layout, name).tolist()
        if any(value != usual for value in values):
            fields[name] = values
    if layout.coins is not None:
        fields |= _coin_fields(layout.coins, rows)
    if packed:
        fields["vocab"] = layout.vocab_size
    dtype = str(layout.target_logits.dtype).removeprefix("torch.")
    if dtype != "float32":
        fields["dtype"] = dtype
    memory = [_view(layout.target_logits)]
    memory.append("contiguous" if layout.draft_probs is None else _view(layout.draft_probs))
    if memory != ["contiguous"] * 2:
        fields["memory"] = memory
    return fields


def _coin_fields(coins: Coins, rows: Callable[[torch.Tensor], object]) -> dict[str, object]:
    fields: dict[str, object] = {"accept": coins.accept.double().tolist()}
    if coins.final is not None:
        fields["final"] = coins.final.double().tolist()
    if coins.noise is not None:
        fields["noise"] = rows(coins.noise)
    return fields


def _written(matrix: torch.Tensor) -> list[list[float]]:
    rows: list[list[float]] = matrix.double().tolist()
    return rows


def _view(matrix: torch.Tensor) -> str:
    """The way of :data:`~specverify.layouts.VIEWS` in which a matrix lies in memory."""
    for view in VIEWS:
        other = as_view(torch.zeros(matrix.shape, dtype=matrix.dtype), view)
        same = other.stride() == matrix.stride()
        if same and other.storage_offset() == matrix.storage_offset():
            return view
    return "contiguous"


def _noise_numbers(layout: Batch) -> int:
    if layout.coins is None or layout.coins.noise is None:
        return 0
    return layout.coins.noise.numel()


def _pack(matrix: torch.Tensor) -> str:
    """The values of a matrix in one word: float64 or exact in it."""
    raw = matrix.double().contiguous().numpy().tobytes()
    return base64.b85encode(zlib.compress(raw, 9)).decode()


def _unpack(word: str, vocab: int) -> torch.Tensor:
    raw = zlib.decompress(base64.b85decode(word))
    return torch.from_numpy(np.frombuffer(raw, dtype=np.float64).copy()).reshape(-1, vocab)
