"""The word of a request, in which the programs that decide its rows meet, and its last token.

The word (int64): bits 0..27 accepted positions, bits 28..55 positions at which the request stops (a
rejection, a placeholder, the bonus row), bits 56.. rows that are done.  In the wide form, for
requests with more than 27 drafts, outcomes are in memory and the last row to finish draws.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
# ruff: noqa: SIM102
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._decide import draw_last, without_draft
from specverify.kernels._draw import exponential, first_of, load_pairs, tile_weights

STOP_SHIFT = tl.constexpr(28)
COUNT_SHIFT = tl.constexpr(56)
FIELD = tl.constexpr((1 << 28) - 1)


@triton.jit
def draft_mass(
    q_logit, q_max, q_sum, slot, tiles, q_scale, point_mass, Q: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """float64 q of the draft token: 1 for one-hot drafts, else from its entry of q."""
    if Q == 0:
        return q_logit * 0.0 + 1.0
    if Q == 1:
        return q_logit
    top, total = load_pairs(q_max, q_sum, slot, tiles, TILES)
    row_top = tl.max(top, 0)
    mass = tl.sum(tile_weights(top, total, row_top, q_scale), 0)
    e = exponential(q_logit, row_top, q_scale)
    return tl.where(point_mass, 1.0, e / mass)


@triton.jit
def last_token(
    row_ptr, stride_v, q_row, q_stride_v, q_max, q_sum, slot, draft, vocab, tiles,
    top, total, scale, greedy, q_scale, point_mass, seed, place, coin,
    Q: tl.constexpr, COINS: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """The recovered (``draft`` >= 0) or bonus token of a settled request."""
    row_top = tl.max(top, 0)
    weights = tile_weights(top, total, row_top, scale)
    mass = tl.sum(weights, 0)
    valid = (mass > 0) & (mass < float("inf")) & (row_top < float("inf"))
    token = tl.full([], -1, tl.int64)
    if greedy | (not valid):
        token = first_of(row_ptr, stride_v, vocab, top, row_top, TILE, TILES).to(tl.int64)
    else:
        dense = (draft >= 0) & (Q != 0) & (not point_mass)
        home_top = row_top
        home_mass = mass * 0.0
        q_top = row_top
        q_mass = mass * 0.0 + 1.0
        if (draft >= 0) & (not dense):
            home_top, home_mass = without_draft(row_ptr, stride_v, vocab, draft, scale, TILE)
        if Q == 2:
            if dense:
                q_tops, q_totals = load_pairs(q_max, q_sum, slot, tiles, TILES)
                q_top = tl.max(q_tops, 0)
                q_mass = tl.sum(tile_weights(q_tops, q_totals, q_top, q_scale), 0)
        token = draw_last(
            row_ptr, stride_v, q_row, q_stride_v, vocab, top, weights, mass, row_top, draft,
            home_top, home_mass, dense, scale, q_top, q_mass, q_scale, seed, place, coin, Q, COINS,
            LANES, TILE, TILES,
        )  # fmt: skip
    return token


@triton.jit
def settled_at(word):
    """The position at which a request's word settles it, 64 while it is open."""
    i = tl.arange(0, 32)
    accepted = (word & FIELD).to(tl.int32)
    stops = ((word >> STOP_SHIFT) & FIELD).to(tl.int32)
    first = tl.min(tl.where(((accepted >> i) & 1) == 0, i, 32), 0)
    return tl.where(((stops >> first) & 1) == 1, first, 64)


@triton.jit
def settle(word_ptr, j, count, passed, void, CLEAN: tl.constexpr):
    """Enter a row into its request's word; the stop position if this row settled it, else 2**20."""
    one = tl.full([], 1, tl.int64)
    entry = tl.where(passed, one << j, one << (STOP_SHIFT + j))
    entry = tl.where(void, 0, entry) + (one << COUNT_SHIFT)
    old = tl.atomic_add(word_ptr, entry, sem="acq_rel")
    new = old + entry
    if CLEAN:
        if (new >> COUNT_SHIFT) == count + 1:
            tl.store(word_ptr, 0)
    stop = settled_at(new)
    return tl.where((settled_at(old) == 64) & (stop < 64), stop, 1 << 20).to(tl.int64)


@triton.jit
def settle_wide(outcome_ptr, word_ptr, j, count, passed, WIDTH: tl.constexpr):
    """As ``settle`` for any number of drafts: the last row to finish settles the request."""
    tl.store(outcome_ptr + j, tl.where(passed, 1, 0))
    tl.debug_barrier()
    old = tl.atomic_add(word_ptr, 1, sem="acq_rel")
    stop = tl.full([], 1 << 20, tl.int64)
    if old == count:
        tl.store(word_ptr, 0)
        i = tl.arange(0, WIDTH)
        passes = tl.load(outcome_ptr + i, mask=i <= count, other=0, cache_modifier=".cg")
        stop = tl.min(tl.where(passes == 1, WIDTH, i), 0).to(tl.int64)
    return stop


@triton.jit
def write_out(tokens, emitted, drafts, b, first, stop, token, width, WIDTH: tl.constexpr):
    """Accepted drafts, the last token, padding; and how many were emitted."""
    column = tl.arange(0, WIDTH)
    kept = tl.load(drafts + first + column, mask=column < stop, other=-1)
    out = tl.where(column == stop, token, kept)
    tl.store(tokens + b * width + column, out, mask=column < width)
    tl.store(emitted + b, stop + 1)
