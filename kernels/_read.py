"""Device functions of the first pass: from the tiles of a row to their (anchor, sum) pairs.

At the full read bandwidth of an H200 the instructions of this pass alone fill two thirds of the
issue slots (289 a warp for 1,024 logits in bf16), so its main loop has no mask and no maximum.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._draw import load_at, tile_exponentials
from specverify.kernels._pairs import post


@triton.jit
def load_group(row_ptr, stride, tile, vocab, TILE: tl.constexpr, GROUP: tl.constexpr):
    """GROUP tiles of a row as fp32, -inf past its end."""
    start = tile.to(tl.int64) * TILE
    inside = tl.arange(0, GROUP)[:, None] * TILE + tl.arange(0, TILE)[None, :]
    left = (vocab - start).to(tl.int32)
    return load_at(row_ptr + start * stride, inside, stride, inside < left, float("-inf"))


@triton.jit
def load_full_group(row_ptr, stride, tile, TILE: tl.constexpr, GROUP: tl.constexpr):
    """As ``load_group`` for tiles that lie inside the row: no mask, no selects."""
    start = tile.to(tl.int64) * TILE
    inside = tl.arange(0, GROUP)[:, None] * TILE + tl.arange(0, TILE)[None, :]
    if stride == 1:
        x = tl.load(row_ptr + start + inside)
    else:
        x = tl.load(row_ptr + start * stride + inside.to(tl.int64) * stride)
    return x.to(tl.float32)


@triton.jit
def exact_pairs(x, scale, greedy):
    """(largest logit, sum of exponentials relative to it) of every tile of a group."""
    top = tl.max(x, 1)
    top = tl.where(top == top, top, float("-inf"))
    total = tl.zeros_like(top)
    if not greedy:
        total = tl.sum(tile_exponentials(x, top[:, None], scale), 1)
    return top, total


@triton.jit
def read_exactly(
    row_ptr, stride, vocab, first, last, scale, greedy, pairs,
    TILE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """The exact pairs of the tiles first .. last - 1."""
    for base in tl.range(first, last, GROUP):
        x = load_group(row_ptr, stride, base + first * 0, vocab, TILE, GROUP)
        top, total = exact_pairs(x, scale, greedy)
        post(pairs, base + tl.arange(0, GROUP), last, top, total)


@triton.jit
def load_head(row_ptr, stride, vocab, first, TILE: tl.constexpr):
    """The first 512 logits of a share."""
    i = tl.arange(0, 512)
    start = first.to(tl.int64) * TILE
    return load_at(row_ptr + start * stride, i, stride, i < vocab - start, float("-inf"))


@triton.jit
def read_anchored(
    row_ptr, stride, vocab, first, last, scale, head, pairs,
    TILE: tl.constexpr, GROUP: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """(anchor, sum of exponentials relative to it), the anchor one for all tiles.

    Any anchor will do as long as no exponential overflows, and the largest of the first few logits
    almost always does; this saves a maximum for every logit.  A pair that was stored may be used at
    once, so they are stored together at the end, or not at all: the result is then False, and the
    tiles must be read again with anchors of their own.
    """
    anchor = tl.max(head, 0)
    anchor = tl.where((anchor > float("-inf")) & (anchor < float("inf")), anchor, 0.0)
    step = tl.arange(0, STEPS)[None, :]
    sums = tl.zeros([GROUP, STEPS], dtype=tl.float32)
    full = tl.minimum(last, first + (vocab // TILE - first) // GROUP * GROUP)
    for base in tl.range(first, full, GROUP, num_stages=STAGES):
        x = load_full_group(row_ptr, stride, base + first * 0, TILE, GROUP)
        total = tl.sum(tl.exp2((x - anchor) * scale), 1)
        sums = tl.where(step == (base - first) // GROUP, total[:, None], sums)
    for base in tl.range(full, last, GROUP):
        x = load_group(row_ptr, stride, base + first * 0, vocab, TILE, GROUP)
        total = tl.sum(tl.exp2((x - anchor) * scale), 1)
        sums = tl.where(step == (base - first) // GROUP, total[:, None], sums)
    bad = tl.max(tl.max(tl.where(sums < 1e15, 0, 1), 1), 0)
    if bad == 0:
        tile = first + step * GROUP + tl.arange(0, GROUP)[:, None]
        post(pairs, tile, last, tl.zeros_like(sums) + anchor, sums)
    return bad == 0


@triton.jit
def read_maxima(
    row_ptr, stride, vocab, first, last, pairs,
    TILE: tl.constexpr, GROUP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The largest logit of every tile, for greedy requests."""
    full = tl.minimum(last, first + (vocab // TILE - first) // GROUP * GROUP)
    for base in tl.range(first, full, GROUP, num_stages=STAGES):
        top = tl.max(load_full_group(row_ptr, stride, base + first * 0, TILE, GROUP), 1)
        top = tl.where(top == top, top, float("-inf"))
        post(pairs, base + tl.arange(0, GROUP), last, top, tl.zeros_like(top))
    for base in tl.range(full, last, GROUP):
        top = tl.max(load_group(row_ptr, stride, base + first * 0, vocab, TILE, GROUP), 1)
        top = tl.where(top == top, top, float("-inf"))
        post(pairs, base + tl.arange(0, GROUP), last, top, tl.zeros_like(top))


@triton.jit
def read_share(
    row_ptr, stride, vocab, first, last, scale, greedy, head, pairs,
    TILE: tl.constexpr, GROUP: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Post a pair for every tile of a share, first .. last - 1, at most STEPS groups.

    ``head`` is what ``load_head`` gave; it is asked for early, since nothing can start before it.
    """
    if STAGES == 1:
        read_exactly(row_ptr, stride, vocab, first, last, scale, greedy, pairs, TILE, GROUP)
    elif greedy:
        read_maxima(row_ptr, stride, vocab, first, last, pairs, TILE, GROUP, STAGES)
    else:
        done = read_anchored(
            row_ptr, stride, vocab, first, last, scale, head, pairs, TILE, GROUP, STEPS, STAGES
        )
        if not done:
            read_exactly(row_ptr, stride, vocab, first, last, scale, False, pairs, TILE, GROUP)
