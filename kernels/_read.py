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
def read_exactly(
    row_ptr, stride, vocab, first, last, tiles, scale, greedy, max_ptr, sum_ptr,
    TILE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """(largest logit, sum of exponentials relative to it) of the tiles first .. last - 1."""
    for base in tl.range(first, last, GROUP):
        x = load_group(row_ptr, stride, base + tiles * 0, vocab, TILE, GROUP)
        tile = base + tl.arange(0, GROUP)
        top = tl.max(x, 1)
        top = tl.where(top == top, top, float("-inf"))
        tl.store(max_ptr + tile, top, mask=tile < tiles)
        if not greedy:
            total = tl.sum(tile_exponentials(x, top[:, None], scale), 1)
            tl.store(sum_ptr + tile, total, mask=tile < tiles)


@triton.jit
def read_anchored(
    row_ptr, stride, vocab, first, last, tiles, scale, max_ptr, sum_ptr,
    TILE: tl.constexpr, GROUP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """(anchor, sum of exponentials relative to it), the anchor one for all tiles.

    Any anchor will do as long as no exponential overflows, and the largest of the first few logits
    almost always does; this saves a maximum for every logit.  Returns the largest sum: infinite or
    NaN if the tiles must be read again with anchors of their own.
    """
    i = tl.arange(0, 512)
    start = first.to(tl.int64) * TILE
    head = load_at(row_ptr + start * stride, i, stride, i < vocab - start, float("-inf"))
    anchor = tl.max(head, 0)
    anchor = tl.where((anchor > float("-inf")) & (anchor < float("inf")), anchor, 0.0)
    worst = tl.zeros([GROUP], dtype=tl.float32)
    full = tl.minimum(last, first + (vocab // TILE - first) // GROUP * GROUP)
    for base in tl.range(first, full, GROUP, num_stages=STAGES):
        x = load_full_group(row_ptr, stride, base + tiles * 0, TILE, GROUP)
        total = tl.sum(tl.exp2((x - anchor) * scale), 1)
        worst = tl.where(total <= worst, worst, total)
        tile = base + tl.arange(0, GROUP)
        tl.store(max_ptr + tile, tl.zeros([GROUP], dtype=tl.float32) + anchor)
        tl.store(sum_ptr + tile, total)
    for base in tl.range(full, last, GROUP):
        x = load_group(row_ptr, stride, base + tiles * 0, vocab, TILE, GROUP)
        total = tl.sum(tl.exp2((x - anchor) * scale), 1)
        worst = tl.where(total <= worst, worst, total)
        tile = base + tl.arange(0, GROUP)
        tl.store(max_ptr + tile, tl.zeros([GROUP], dtype=tl.float32) + anchor, mask=tile < tiles)
        tl.store(sum_ptr + tile, total, mask=tile < tiles)
    return tl.sum(worst, 0)


@triton.jit
def read_maxima(
    row_ptr, stride, vocab, first, last, tiles, max_ptr,
    TILE: tl.constexpr, GROUP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The largest logit of every tile, for greedy requests."""
    full = tl.minimum(last, first + (vocab // TILE - first) // GROUP * GROUP)
    for base in tl.range(first, full, GROUP, num_stages=STAGES):
        x = load_full_group(row_ptr, stride, base + tiles * 0, TILE, GROUP)
        top = tl.max(x, 1)
        tl.store(max_ptr + base + tl.arange(0, GROUP), tl.where(top == top, top, float("-inf")))
    for base in tl.range(full, last, GROUP):
        x = load_group(row_ptr, stride, base + tiles * 0, vocab, TILE, GROUP)
        top = tl.max(x, 1)
        tile = base + tl.arange(0, GROUP)
        tl.store(max_ptr + tile, tl.where(top == top, top, float("-inf")), mask=tile < tiles)


@triton.jit
def read_share(
    row_ptr, stride, vocab, first, steps, tiles, scale, greedy, max_ptr, sum_ptr,
    TILE: tl.constexpr, GROUP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Leave a pair for every tile of a share: steps * GROUP tiles, fewer at the end of the row."""
    last = tl.minimum(first + steps * GROUP, tiles)
    if STAGES == 1:
        read_exactly(
            row_ptr, stride, vocab, first, last, tiles, scale, greedy, max_ptr, sum_ptr, TILE, GROUP
        )
    elif greedy:
        read_maxima(row_ptr, stride, vocab, first, last, tiles, max_ptr, TILE, GROUP, STAGES)
    else:
        worst = read_anchored(
            row_ptr, stride, vocab, first, last, tiles, scale, max_ptr, sum_ptr, TILE, GROUP, STAGES
        )
        if not (worst < 1e15):
            read_exactly(
                row_ptr, stride, vocab, first, last, tiles, scale, False, max_ptr, sum_ptr, TILE,
                GROUP,
            )  # fmt: skip
