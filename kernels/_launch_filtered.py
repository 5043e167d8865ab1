"""Host side of the kernels that filter: plans the launch, owns the scratch, never synchronises."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
import triton
from specverify.kernels._bounds import CAP
from specverify.kernels._direct import overlaps
from specverify.kernels._parts import RUNS, SPLIT
from specverify.kernels.filtered import decide_kernel, read_kernel
from specverify.kernels.filters import apply_kernel, cut_kernel

from specverify.conventions import CONVENTIONS, REFERENCE, VLLM, Order

if TYPE_CHECKING:
    from specverify.kernels._launch import Proposal

NARROW_DRAFTS = 27
ROUNDS = (0, 1, 2, 4, 8, 16)
"""First positions of the rounds of a large batch."""

OFFERED = (REFERENCE.name, VLLM.name)
"""Conventions that the kernels know; both cut ties at either boundary, the lowest ids stay."""

_LOGITS = 2
_UNITS = {torch.bfloat16: 1 << 16, torch.float16: 1 << 13, torch.float32: 1}
_LISTED: int = CAP.value
_SPLIT: int = SPLIT.value
_RUNS: int = RUNS.value


@dataclasses.dataclass(frozen=True, eq=False)
class Filters:
    """The filters of the requests of a batch, and what they mean.

    Attributes:
        top_k: [B] int64; 0, and anything >= V, is off.
        top_p: [B] floating in (0, 1]; 1 is off.
        min_p: [B] floating in [0, 1]; 0 is off.
        convention: one of ``OFFERED``, names of ``specverify.sampling.CONVENTIONS``.

    Raises:
        ValueError: if no kernel knows the convention.
    """

    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    convention: str = REFERENCE.name

    def __post_init__(self) -> None:
        sequential(self.convention)


def sequential(convention: str) -> bool:
    """Whether top-p counts its mass on what top-k and min-p left.

    Raises:
        ValueError: if no kernel knows the convention.
    """
    if convention not in OFFERED:
        raise ValueError(f"convention: got {convention!r}; expected one of {list(OFFERED)}")
    return CONVENTIONS[convention].order is Order.TOP_K_FIRST


@dataclasses.dataclass(frozen=True)
class FilterPlan:
    """How a launch of the filtered kernel cuts the rows.

    Attributes:
        tile: tokens of a tile, a power of two; a program reads four at once.
        steps: how many times a program reads four tiles.
        stages: reads that are on their way at a time.
        num_warps: warps of the program that decides a row.
        rounds: take positions in rounds and pass over rows past a rejection, for large batches.
        at_once: parts that are searched at a time.
    """

    tile: int = 1024
    steps: int = 1
    stages: int = 1
    num_warps: int = 4
    rounds: bool = False
    at_once: int = 16

    @classmethod
    def of(cls, rows: int, vocab: int) -> FilterPlan:
        """Larger programs and several rounds as the batch grows."""
        tile = 64 if vocab <= 64 else 1024
        work = rows * triton.cdiv(vocab, tile)
        if work < 32_000:
            return cls(tile, num_warps=4 if vocab <= 4 * tile else 8, at_once=32)
        return cls(tile, 8, 3, rounds=True)


class FilterWorkspace:
    """Scratch of the filtered kernel, kept between calls.

    Calls that share a workspace must not run at the same time, so keep one for each stream or
    graph.

    Args:
        device: where the kernels run.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self._held: dict[str, torch.Tensor] = {}

    def get(self, name: str, size: int, dtype: torch.dtype) -> torch.Tensor:
        """[>= size] that hold anything; zeros when they are first made."""
        held = self._held.get(name)
        if held is None or held.numel() < size:
            held = self._held[name] = torch.zeros(size, dtype=dtype, device=self.device)
        return held

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return sum(held.nbytes for held in self._held.values())


@dataclasses.dataclass(frozen=True)
class _Scratch:
    """Tensors of one launch, in the order of the kernels' arguments."""

    tiles: tuple[torch.Tensor, ...]
    rows: tuple[torch.Tensor, ...]
    words: torch.Tensor


def _scratch(
    space: FilterWorkspace, rows: int, q_rows: int, tiles: int, requests: int, *, clean: bool
) -> _Scratch:
    size, q_size = -(-rows * tiles // 4) * 4, -(-q_rows * tiles // 4) * 4
    pairs = space.get("pairs", 2 * (size + q_size), torch.float32)
    sums, q_max = pairs[size:], pairs[2 * size :]
    keys = space.get("keys", rows * triton.cdiv(tiles, _RUNS) * _RUNS * _SPLIT, torch.int16)
    found = space.get("found", rows * _LISTED, torch.int32)
    marks = space.get("marks", 2 * _even(rows), torch.int64)
    # Words that a launch leaves at zero are never mixed with those that it does not.
    words = space.get("words" if clean else "dirty", requests, torch.int64)
    if not clean:
        words[:requests].zero_()
    return _Scratch((pairs, sums, q_max, q_max[q_size:]), (keys, found, marks), words)


def _even(count: int) -> int:
    """A start at a multiple of 16 bytes: else another kernel is compiled for some batch sizes."""
    return count + count % 2


def lanes_of(tiles: int) -> int:
    """Lanes for the tiles of a row: few sizes, so that few kernels are compiled."""
    return max(128 if tiles > 8 else 8, int(triton.next_power_of_2(tiles)))


def verify_filtered(
    target_logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    cu_drafts: torch.Tensor,
    temperature: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    filters: Filters,
    *,
    max_drafts: int,
    proposal: Proposal,
    coins: tuple[torch.Tensor, torch.Tensor] | None = None,
    workspace: FilterWorkspace | None = None,
    plan: FilterPlan | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Verify a packed ragged batch in which some requests filter; no sort, no copy.

    Args:
        target_logits: [R, V] float32 / bfloat16 / float16, any strides; they are not changed.
        draft_token_ids: [D] int64, -1 for a placeholder.
        cu_drafts: [B + 1] int64.
        temperature: [B] floating, 0 is greedy: such a request ignores its filters.
        seeds: [B] uint64 or int64 bits.
        positions: [B] int64.
        filters: top-k, top-p and min-p of the requests, of which any may be off, and their
            convention.
        max_drafts: the largest draft count; larger than the truth is allowed.
        proposal: q in one of its three forms.
        coins: accept [D] and final [B], float64 in [0, 1); ``None`` draws from the seeds.
        workspace: scratch kept by the caller; ``None`` allocates for this call.
        plan: how to cut the rows; ``None`` chooses.

    Returns:
        token_ids [B, max_drafts + 1] int64 padded with -1, and num_emitted [B] int64.

    Source: Leviathan et al. 2023, Algorithm 1, on the target of ``filters.convention``.
    """
    (rows, vocab), device = target_logits.shape, target_logits.device
    requests, width = temperature.shape[0], max_drafts + 1
    plan = plan or FilterPlan.of(rows, vocab)
    tiles, wide = triton.cdiv(vocab, plan.tile), max_drafts > NARROW_DRAFTS
    shares = triton.cdiv(tiles, _RUNS * plan.steps)
    rounds = ROUNDS if plan.rounds and not wide else (0,)
    starts = [start for start in rounds if start < width]
    q_rows = draft_token_ids.shape[0] if proposal.form == _LOGITS else 0
    scratch = _scratch(
        workspace or FilterWorkspace(device), rows, q_rows, tiles, requests, clean=len(starts) == 1
    )
    keys, found, marks = scratch.rows
    out = torch.empty((requests, width), dtype=torch.int64, device=device)
    emitted = torch.empty(requests, dtype=torch.int64, device=device)
    q = target_logits if proposal.rows is None else proposal.rows
    q_temperature = temperature if proposal.temperature is None else proposal.temperature
    fields = (temperature, q_temperature, filters.top_k, filters.top_p, filters.min_p)
    q_fields = (q, *q.stride(), cu_drafts, *fields)
    overlap = {"launch_pdl": True} if overlaps(device) else {}
    for start, end in zip(starts, [*starts[1:], width], strict=True):
        read_kernel[((end - start) * requests * shares,)](
            target_logits, *target_logits.stride(), *q_fields, *scratch.tiles, keys, scratch.words,
            start, requests, vocab, tiles, shares, Q=proposal.form, WIDE=wide, TILE=plan.tile,
            STEPS=plan.steps, STAGES=plan.stages, OVERLAP=bool(overlap), num_warps=4, **overlap,
        )  # fmt: skip
        decide_kernel[((end - start) * requests,)](
            target_logits, *target_logits.stride(), draft_token_ids, *q_fields,
            seeds.view(torch.int64), positions, *(coins or (positions, positions)), *scratch.tiles,
            keys, found, scratch.words, marks, marks[_even(rows) :], out, emitted, start, requests,
            vocab, tiles, shares, width, Q=proposal.form, COINS=coins is not None, WIDE=wide,
            CLEAN=len(starts) == 1, SEQUENTIAL=sequential(filters.convention),
            UNIT=_UNITS[target_logits.dtype], TILE=plan.tile, LANES=8, AT_ONCE=plan.at_once,
            TILES=lanes_of(tiles), WIDTH=max(32, triton.next_power_of_2(width)),
            OVERLAP=bool(overlap), num_warps=plan.num_warps, **overlap,
        )  # fmt: skip
    return out, emitted


def filter_logits(
    target_logits: torch.Tensor,
    cu_drafts: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    *,
    max_drafts: int,
    convention: str = REFERENCE.name,
    in_place: bool = False,
    workspace: FilterWorkspace | None = None,
    plan: FilterPlan | None = None,
) -> torch.Tensor:
    """Logits with -inf where the filters of a row's request drop a token; no sort.

    ``verify_filtered`` needs none of this: it reads rows once and writes none.

    Args:
        target_logits: [R, V] float32 / bfloat16 / float16, any strides.
        cu_drafts: [B + 1] int64.
        temperature: [B] floating, 0 is greedy: such a row is left as it is.
        top_k: [B] int64, 0 is off.
        top_p: [B] floating, 1 is off.
        min_p: [B] floating, 0 is off.
        max_drafts: the largest draft count; larger than the truth is allowed.
        convention: what the filters mean, one of ``OFFERED``.
        in_place: write into ``target_logits`` (rows without filters are not touched) instead of
            into a new tensor of the same size.
        workspace: scratch kept by the caller; ``None`` allocates for this call.
        plan: how to cut the rows; ``None`` chooses.

    Returns:
        [R, V] of the dtype of the logits.

    Raises:
        ValueError: if no kernel knows the convention.

    Source: ``specverify.conventions``.
    """
    rows, vocab = target_logits.shape
    in_turn = sequential(convention)
    requests, width = temperature.shape[0], max_drafts + 1
    plan = plan or FilterPlan.of(rows, vocab)
    tiles, stride = triton.cdiv(vocab, plan.tile), target_logits.stride()
    shares = triton.cdiv(tiles, _RUNS * plan.steps)
    out = target_logits if in_place else torch.empty_like(target_logits)
    space = workspace or FilterWorkspace(target_logits.device)
    scratch = _scratch(space, rows, 0, tiles, requests, clean=True)
    fields = (temperature, top_k, top_p, min_p)
    pairs, sums, q_max, q_sum = scratch.tiles
    keys, found, marks = scratch.rows
    read_kernel[(width * requests * shares,)](
        target_logits, *stride, target_logits, *stride, cu_drafts, temperature, *fields, pairs,
        sums, q_max, q_sum, keys, scratch.words, 0, requests, vocab, tiles, shares, Q=0, WIDE=True,
        TILE=plan.tile, STEPS=plan.steps, STAGES=plan.stages, OVERLAP=False, num_warps=4,
    )  # fmt: skip
    cut_kernel[(width * requests,)](
        target_logits, *stride, cu_drafts, *fields, pairs, sums, keys, found, marks, requests,
        vocab, tiles, shares, SEQUENTIAL=in_turn, UNIT=_UNITS[target_logits.dtype],
        TILE=plan.tile, AT_ONCE=plan.at_once, TILES=lanes_of(tiles),
        num_warps=plan.num_warps,
    )  # fmt: skip
    block = min(8192, max(16, int(triton.next_power_of_2(vocab))))
    apply_kernel[(width * requests * triton.cdiv(vocab, block),)](
        target_logits, *stride, out, *out.stride(), cu_drafts, *fields, marks, requests, vocab,
        triton.cdiv(vocab, block), IN_PLACE=in_place, BLOCK=block, num_warps=4,
    )  # fmt: skip
    return out
