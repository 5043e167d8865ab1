"""Device functions for the last token of a filtered row: a draw from the tokens that are kept.

Where the list of the row holds them all, the draw is an inverse CDF over the list in the order of
ids, in float64, and nothing is read again.  Otherwise the row is read once more for the sums of
runs of 256 tokens, then the chosen run.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
# ruff: noqa: D417, SIM102, SIM108
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._draw import exponential, load_at, pick, pick_in_tile, places, row_tile
from specverify.kernels._parts import RUNS, SPLIT, keys_of


@triton.jit
def is_kept(x, ids, cut, last):
    """Whether the filters keep these tokens."""
    key = keys_of(x)
    return (key > cut) | ((key == cut) & (ids <= last))


@triton.jit
def q_entry(y, q_top, q_scale, q_inverse, Q: tl.constexpr):
    """Probability from an entry of q: the entry itself, or by the softmax of draft logits."""
    if Q == 1:
        return y
    return tl.exp2((y - q_top) * q_scale) * q_inverse


@triton.jit
def id_at(ids, weights, point, vocab):
    """The id at mass ``point`` in the order of ids; the list has any order, ids are unique.

    It is the largest id with no more than ``point`` below it, found digit by digit.
    """
    d = tl.arange(0, 16)
    low = tl.zeros([], dtype=tl.int32)
    for digit in range(0, 7):
        shift = 24 - 4 * digit
        if (vocab >> shift) > 0:
            trial = low + (d << shift)
            before = ids[:, None] < trial[None, :]
            below = tl.sum(tl.where(before, weights[:, None], 0.0), 0)
            low += tl.max(tl.where(below <= point, d, 0), 0) << shift
    # Where rounding puts the point at the total, the last id that has a weight.
    return tl.minimum(low, tl.max(tl.where(weights > 0, ids, 0), 0)).to(tl.int64)


@triton.jit
def draw_listed(
    q_row, q_stride_v, vocab, ids, e, kept, q_top, q_mass, q_scale, gone, residual, coin,
    Q: tl.constexpr,
):  # fmt: skip
    """A listed token of p without ``gone`` (-1: none), or of (p - q)+ if ``residual``.

    Where that leaves nothing, a token of p.
    """
    weights = tl.where(ids == gone, 0.0, e)
    if Q != 0:
        if residual > 0:
            y = tl.load(q_row + ids.to(tl.int64) * q_stride_v, mask=e > 0, other=0.0)
            if Q == 1:
                q = y.to(tl.float64)
            else:
                q = exponential(y, q_top, q_scale) / q_mass
            weights = tl.where(e > 0, tl.maximum(e / kept - q, 0.0), 0.0)
    weights = tl.where(tl.sum(weights, 0) > 0, weights, e)
    return id_at(ids, weights, coin * tl.sum(weights, 0), vocab)


@triton.jit
def kept_weights(
    x, y, ids, cut, last, row_top, scale, inverse, q_top, q_scale, q_inverse, gone, residual,
    Q: tl.constexpr,
):  # fmt: skip
    """fp32 weights of some tokens for the draw."""
    p = tl.where(is_kept(x, ids, cut, last), tl.exp2((x - row_top) * scale) * inverse, 0.0)
    p = tl.where(ids == gone, 0.0, p)
    if Q == 0:
        return p
    left = tl.maximum(p - q_entry(y, q_top, q_scale, q_inverse, Q), 0.0)
    return tl.where(residual > 0, left, p)


@triton.jit
def spare(max_ptr, sum_ptr, keys_ptr, part):
    """Where a number of a part goes: into what the row's first pass left, which nobody needs now.

    For every tile there are two fp32 numbers and four halves, so the four parts of a tile fit.
    """
    tile = part // SPLIT
    quarter = part % SPLIT
    halves = keys_ptr.to(tl.pointer_type(tl.float32), bitcast=True)
    own = tl.where(quarter == 0, max_ptr + tile, sum_ptr + tile)
    return tl.where(quarter < 2, own, halves + 2 * tile + quarter - 2)


@triton.jit
def leave_sums(
    row_ptr, stride_v, q_row, q_stride_v, vocab, tiles, cut, last, row_top, scale, inverse, q_top,
    q_scale, q_inverse, gone, residual, max_ptr, sum_ptr, keys_ptr,
    Q: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The weight of every run of TILE / SPLIT adjacent tokens, to ``spare``.

    Four tiles are read at a time, and a run lies within a warp: no warp waits for another.
    """
    PART: tl.constexpr = TILE // SPLIT
    absent: tl.constexpr = 0.0 if Q == 1 else float("-inf")
    i = tl.arange(0, RUNS * SPLIT)
    inside = i[:, None] * PART + tl.arange(0, PART)[None, :]
    for first in tl.range(0, tiles, RUNS, num_stages=3):
        start = (first + tiles * 0).to(tl.int64) * TILE
        here = inside < (vocab - start).to(tl.int32)
        x = load_at(row_ptr + start * stride_v, inside, stride_v, here, float("-inf"))
        y = x
        if Q != 0:
            wanted = tl.where(here, residual, 0) > 0
            y = load_at(q_row + start * q_stride_v, inside, q_stride_v, wanted, absent)
        w = kept_weights(
            x, y, start.to(tl.int32) + inside, cut, last, row_top, scale, inverse, q_top, q_scale,
            q_inverse, gone, residual, Q,
        )  # fmt: skip
        at = spare(max_ptr, sum_ptr, keys_ptr, first * SPLIT + i)
        tl.store(at, tl.sum(w, 1), mask=first * SPLIT + i < tiles * SPLIT)


@triton.jit
def draw_unlisted(
    row_ptr, stride_v, q_row, q_stride_v, vocab, tiles, cut, last, kept, row_top, scale, q_top,
    q_mass, q_scale, gone, residual, coin, max_ptr, sum_ptr, keys_ptr,
    Q: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """As ``draw_listed`` from the whole row; -1 where nothing is left.  One program reads it."""
    PART: tl.constexpr = TILE // SPLIT
    absent: tl.constexpr = 0.0 if Q == 1 else float("-inf")
    inverse, q_inverse = (1.0 / kept).to(tl.float32), (1.0 / q_mass).to(tl.float32)
    tl.debug_barrier()
    leave_sums(
        row_ptr, stride_v, q_row, q_stride_v, vocab, tiles, cut, last, row_top, scale, inverse,
        q_top, q_scale, q_inverse, gone, residual, max_ptr, sum_ptr, keys_ptr, Q, TILE,
    )  # fmt: skip
    tl.debug_barrier()
    i = tl.arange(0, TILES * SPLIT)
    at = spare(max_ptr, sum_ptr, keys_ptr, i)
    sums = tl.load(at, mask=i < tiles * SPLIT, other=0.0, cache_modifier=".cg").to(tl.float64)
    total = tl.sum(sums, 0)
    chosen, before = pick(sums, coin * total, TILES * SPLIT)
    x = row_tile(row_ptr, stride_v, chosen, vocab, float("-inf"), PART)
    y = x
    if Q != 0:
        # Without a residual there may be no row of q: a bonus row comes after the last draft.
        left = tl.where(residual > 0, vocab, 0)
        y = row_tile(q_row, q_stride_v, chosen, left, absent, PART)
    w = kept_weights(
        x, y, chosen * PART + places(PART), cut, last, row_top, scale, inverse, q_top,
        q_scale, q_inverse, gone, residual, Q,
    )  # fmt: skip
    token = pick_in_tile(w, chosen, coin * total - before, PART)
    return tl.where(total > 0, token, -1)


@triton.jit
def draw_kept(
    row_ptr, stride_v, q_row, q_stride_v, vocab, tiles, listed, ids, e, cut, last, kept, row_top,
    scale, q_top, q_mass, q_scale, gone, residual, coin, max_ptr, sum_ptr, keys_ptr,
    Q: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """The recovered or bonus token of a filtered row.

    Args:
        row_ptr, stride_v: the row; ``q_row``, ``q_stride_v``: the draft's row of q.
        listed, ids, e, cut, last, kept: from ``_resolve.resolve``.
        row_top, scale: largest logit, log2(e) / T.
        q_top, q_mass, q_scale: anchor, mass and scale of the draft logits, if Q = 2.
        gone: a token to leave out (a rejected one-hot draft), or -1.
        residual: 1 to draw from (p - q)+, else 0.
        coin: float64 in [0, 1).
        max_ptr, sum_ptr, keys_ptr: the row's scratch of the first pass; it is overwritten.
    """
    token = tl.zeros([], dtype=tl.int64) - 1
    if listed:
        token = draw_listed(
            q_row, q_stride_v, vocab, ids, e, kept, q_top, q_mass, q_scale, gone, residual, coin, Q
        )
    else:
        # A second turn, without anything taken away, where nothing is left.
        while (token < 0) & (gone > -3):
            token = draw_unlisted(
                row_ptr, stride_v, q_row, q_stride_v, vocab, tiles, cut, last, kept, row_top, scale,
                q_top, q_mass, q_scale, gone, residual, coin, max_ptr, sum_ptr, keys_ptr, Q, TILE,
                TILES,
            )  # fmt: skip
            gone = tl.where(gone >= -1, gone ^ gone, gone) - 2
            residual = residual * 0
    return token
