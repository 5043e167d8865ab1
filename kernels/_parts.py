"""Device functions of the first pass over the rows of a launch that filters.

A row without filters leaves what the plain kernel leaves: the largest logit of every tile and the
sum of exponentials relative to it.  A row with filters leaves one such pair for every program that
reads it, and for every *part* of 256 tokens the 16 high bits of the key of its largest logit, from
which ``_resolve.resolve`` knows where to look.

Four tiles are read at a time as [4, 16, 64] tokens, and part i of them is [:, i, :].  A thread then
holds 32 tokens of a part in its registers, and a part is shared by eight threads: a maximum costs
three exchanges between threads, where 256 adjacent tokens would cost five for every eight tokens.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
# ruff: noqa: SIM108
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._draw import load_at, tile_exponentials

SPLIT = tl.constexpr(4)  # parts for every tile
RUNS = tl.constexpr(4)  # a part is as many runs of adjacent tokens, a tile apart


@triton.jit
def parts_of(tiles):
    """How many parts a row has; four tiles make sixteen."""
    return (tiles + (RUNS - 1)) // RUNS * (RUNS * SPLIT)


@triton.jit
def keys_of(x):
    """uint32 keys in the order of fp32 numbers; -0 and +0 have the same."""
    bits = (x + 0.0).to(tl.uint32, bitcast=True)
    return tl.where((bits >> 31) == 1, ~bits, bits | 0x80000000)


@triton.jit
def value_of(key):
    """The fp32 number of a key."""
    bits = tl.where((key >> 31) == 1, key & 0x7FFFFFFF, ~key)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def tokens_of(part, TILE: tl.constexpr):
    """[parts, TILE / 4] ids of the tokens of some parts."""
    PARTS: tl.constexpr = SPLIT * RUNS
    RUN: tl.constexpr = TILE // PARTS
    c = tl.arange(0, RUNS * RUN)
    inside = c // RUN * TILE + c % RUN
    first = part // PARTS * (RUNS * TILE) + part % PARTS * RUN
    return first[:, None] + inside[None, :]


@triton.jit
def load_four(row_ptr, stride, tile, vocab, FULL: tl.constexpr, TILE: tl.constexpr):
    """Four tiles as [4, 16, TILE / 16] fp32, -inf past the end of the row."""
    PARTS: tl.constexpr = SPLIT * RUNS
    RUN: tl.constexpr = TILE // PARTS
    run = tl.arange(0, RUNS)[:, None, None] * TILE
    part = tl.arange(0, PARTS)[None, :, None] * RUN
    inside = run + part + tl.arange(0, RUN)[None, None, :]
    start = tile.to(tl.int64) * TILE
    here = row_ptr + start * stride
    if FULL:
        if stride == 1:
            x = tl.load(here + inside)
        else:
            x = tl.load(here + inside.to(tl.int64) * stride)
        return x.to(tl.float32)
    return load_at(here, inside, stride, inside < (vocab - start).to(tl.int32), float("-inf"))


@triton.jit
def leave_keys(x, base, keys_ptr):
    """The largest of every part of four tiles; its key's high bits to ``keys_ptr``."""
    PARTS: tl.constexpr = SPLIT * RUNS
    part = tl.max(tl.max(x, 0), 1)
    part = tl.where(part == part, part, float("-inf"))
    i = base * SPLIT + tl.arange(0, PARTS)
    tl.store(keys_ptr + i, (keys_of(part) >> 16).to(tl.int16))
    return part


@triton.jit
def read_filtered(
    row_ptr, stride, vocab, first, last, share, scale, max_ptr, sum_ptr, keys_ptr,
    TILE: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Leave one pair for the tiles first .. last - 1 of a row, and the keys of their parts."""
    if STEPS == 1:
        x = load_four(row_ptr, stride, first, vocab, False, TILE)
        best = tl.max(leave_keys(x, first, keys_ptr), 0)
        safe = tl.where(best == float("-inf"), 0.0, best)
        total = tl.sum(tl.sum(tl.sum(tl.exp2((x - safe) * scale), 0), 1), 0)
        tl.store(max_ptr + share, best)
        tl.store(sum_ptr + share, total)
    else:
        read_anchored_parts(
            row_ptr, stride, vocab, first, last, share, scale, max_ptr, sum_ptr, keys_ptr, TILE,
            STAGES,
        )  # fmt: skip


@triton.jit
def read_anchored_parts(
    row_ptr, stride, vocab, first, last, share, scale, max_ptr, sum_ptr, keys_ptr,
    TILE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """As ``read_filtered``, for many tiles.

    The sum is kept relative to the largest of the first few logits; if that was too small and
    the sum overflows, the tiles are read again with the right one.
    """
    PARTS: tl.constexpr = SPLIT * RUNS
    RUN: tl.constexpr = TILE // PARTS
    i = tl.arange(0, TILE // 2)
    start = first.to(tl.int64) * TILE
    head = load_at(row_ptr + start * stride, i, stride, i < vocab - start, float("-inf"))
    anchor = tl.max(head, 0)
    anchor = tl.where((anchor > float("-inf")) & (anchor < float("inf")), anchor, 0.0)
    top = tl.full([PARTS], float("-inf"), tl.float32)
    sums = tl.zeros([PARTS, RUN], dtype=tl.float32)
    full = tl.maximum(first, tl.minimum(last, vocab // (RUNS * TILE) * RUNS))
    for base in tl.range(first, full, RUNS, num_stages=STAGES):
        x = load_four(row_ptr, stride, base + first * 0, vocab, True, TILE)
        top = tl.maximum(top, leave_keys(x, base, keys_ptr))
        sums += tl.sum(tl.exp2((x - anchor) * scale), 0)
    for base in tl.range(full, last, RUNS):
        x = load_four(row_ptr, stride, base + first * 0, vocab, False, TILE)
        top = tl.maximum(top, leave_keys(x, base, keys_ptr))
        sums += tl.sum(tl.exp2((x - anchor) * scale), 0)
    best = tl.max(top, 0)
    total = tl.sum(tl.sum(sums, 1), 0)
    safe = tl.where(best == float("-inf"), 0.0, best)
    factor = tl.where(best == float("-inf"), 0.0, tl.exp2((anchor - safe) * scale))
    if not (total < 1e30):
        total = tl.zeros([], dtype=tl.float32)
        factor = total + 1.0
        for base in tl.range(first, last, RUNS):
            x = load_four(row_ptr, stride, base + first * 0, vocab, False, TILE)
            total += tl.sum(tl.sum(tl.sum(tl.exp2((x - safe) * scale), 0), 1), 0)
    tl.store(max_ptr + share, best)
    tl.store(sum_ptr + share, total * factor)


@triton.jit
def read_pairs(
    row_ptr, stride, vocab, first, last, scale, greedy, max_ptr, sum_ptr,
    TILE: tl.constexpr, GROUP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Leave the pairs of the tiles first .. last - 1 of a row without filters."""
    inside = tl.arange(0, GROUP)[:, None] * TILE + tl.arange(0, TILE)[None, :]
    for base in tl.range(first, last, GROUP, num_stages=STAGES):
        start = (base + first * 0).to(tl.int64) * TILE
        mask = inside < (vocab - start).to(tl.int32)
        x = load_at(row_ptr + start * stride, inside, stride, mask, float("-inf"))
        tile = base + tl.arange(0, GROUP)
        top = tl.max(x, 1)
        top = tl.where(top == top, top, float("-inf"))
        tl.store(max_ptr + tile, top, mask=tile < last)
        if not greedy:
            total = tl.sum(tile_exponentials(x, top[:, None], scale), 1)
            tl.store(sum_ptr + tile, total, mask=tile < last)
