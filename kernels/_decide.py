"""Device functions that decide one row once its pairs are there, and draw its last token.

Source: Leviathan et al. 2023, Algorithm 1.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
# ruff: noqa: SIM102
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._draw import (
    ACCEPT_WORD,
    BELOW_ONE,
    FINAL_WORD,
    all_max,
    all_sum,
    draw_from_row,
    first_of,
    places,
    quick_exponential,
    quick_weights,
    request_uniform,
    row_tile,
    tile_exponentials,
)
from specverify.kernels._pairs import await_pairs
from specverify.kernels._recover import draw_dense


@triton.jit
def rows_of(cu_drafts, b, width, UNIFORM: tl.constexpr):
    """First draft of a request and how many it has; known without a look if all have the same."""
    if UNIFORM:
        return b * (width - 1), b * 0 + width - 1
    first = tl.load(cu_drafts + b)
    return first, tl.load(cu_drafts + b + 1) - first


@triton.jit
def without_draft(row_ptr, stride_v, vocab, draft, scale, TILE: tl.constexpr):
    """Largest logit and float64 sum relative to it of the draft's tile, the draft left out.

    The tile is summed anew: subtracting the draft from its sum would cancel.
    """
    home = tl.maximum(draft, 0) // TILE
    x = row_tile(row_ptr, stride_v, home, vocab, float("-inf"), TILE)
    x = tl.where(places(TILE) == draft - home * TILE, float("-inf"), x)
    top = all_max(x)
    return top, all_sum(tile_exponentials(x, top, scale))


@triton.jit
def accept_coin(accept_coins, slot, is_draft, seed, place, COINS: tl.constexpr):
    """The uniform of a draft: injected, or of the request's own stream."""
    if COINS:
        return tl.load(accept_coins + slot, mask=is_draft, other=0.0).to(tl.float64)
    return request_uniform(seed, place, ACCEPT_WORD)


@triton.jit
def final_coin(final_coins, b, seed, place, COINS: tl.constexpr):
    """The uniform of a request's last token."""
    if COINS:
        coin = tl.load(final_coins + b).to(tl.float64)
    else:
        coin = request_uniform(seed, place, FINAL_WORD)
    return tl.minimum(coin, BELOW_ONE)


@triton.jit
def q_of(q_own, q_pairs, slot, tiles, q_scale, dense, Q: tl.constexpr, TILES: tl.constexpr):
    """float64 q of the draft; (anchor, mass) of its row of draft logits."""
    q_top = tl.full([], 0.0, tl.float32)
    q_mass = tl.full([], 1.0, tl.float64)
    q = q_mass
    if Q == 1:
        q = q_own.to(tl.float64)
    if Q == 2:
        if dense:
            tops, totals = await_pairs(q_pairs, slot, tiles, TILES)
            q_top = tl.max(tops, 0)
            q_mass = tl.sum(quick_weights(tops, totals, q_top, q_scale), 0)
            q = quick_exponential(q_own, q_top, q_scale) / q_mass
    return q, q_top, q_mass


@triton.jit
def judge(
    row_ptr, stride_v, vocab, top, total, draft, own, q, coin, scale, greedy,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """(accepted, token or -1 if it must be drawn, weights of the tiles, their sum, their anchor).

    The token is known where it is the row's argmax: greedy rows, and rows that are no law.
    """
    row_top = tl.max(top, 0)
    weights = quick_weights(top, total, row_top, scale)
    mass = tl.sum(weights, 0)
    valid = (mass > 0) & (mass < float("inf")) & (row_top < float("inf"))
    proposed = draft >= 0
    passed = proposed & (coin * q * mass < quick_exponential(own, row_top, scale))
    token = tl.full([], -1, tl.int64)
    if greedy | (not valid):
        token = first_of(row_ptr, stride_v, vocab, top, row_top, TILE, TILES).to(tl.int64)
        best = proposed & (own.to(tl.float32) == row_top) & (token == draft)
        passed = greedy & best
    return passed, token, weights, mass, row_top


@triton.jit
def draw_last(
    row_ptr, stride_v, q_row, q_stride_v, vocab, top, weights, mass, row_top, draft, home_top,
    home_mass, dense, scale, q_top, q_mass, q_scale, seed, place, coin,
    Q: tl.constexpr, COINS: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """The recovered (``draft`` >= 0) or bonus token of a row."""
    token = tl.full([], -1, tl.int64)
    excluded = tl.full([], -1, tl.int64)
    if draft >= 0:
        if Q != 0:
            if dense:
                token = draw_dense(
                    row_ptr, stride_v, q_row, q_stride_v, vocab, top, weights, row_top, mass,
                    scale, q_top, q_mass, q_scale, seed, place, coin, Q, COINS, LANES, TILE, TILES,
                )  # fmt: skip
        if not dense:
            left = home_mass * quick_exponential(home_top, row_top, scale)
            others = tl.where(tl.arange(0, TILES) == draft // TILE, left, weights)
            rest = tl.sum(others, 0)
            excluded = tl.where(rest > 0, draft, -1)
            weights = tl.where(rest > 0, others, weights)
            mass = tl.where(rest > 0, rest, mass)
    if token < 0:
        token = draw_from_row(
            row_ptr, stride_v, vocab, top, weights, mass, row_top, excluded, coin, scale, TILE,
            TILES,
        )  # fmt: skip
    return token


@triton.jit
def write_tokens(tokens, emitted, kept, b, stop, token, width, WIDTH: tl.constexpr):
    """Accepted drafts, the last token, padding; and how many were emitted."""
    column = tl.arange(0, WIDTH)
    out = tl.where(column == stop, token, tl.where(column < stop, kept, -1))
    tl.store(tokens + b * width + column, out, mask=column < width)
    tl.store(emitted + b, stop + 1)
