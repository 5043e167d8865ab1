"""Device functions for the token after a rejection: a draw from (p - q)+, or from p without x.

Source: Leviathan et al. 2023, Algorithm 1.  With a full row q and no injected coins the residual is
drawn by thinning draws of p, which reads two tiles a try instead of two rows; with injected coins,
and after TRIES tries, it is drawn by the inverse CDF of the residual itself.  Both are exact, and
whether the tries fail does not depend on what the inverse CDF then draws.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
# ruff: noqa: SIM108
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._draw import (
    load_at,
    pick,
    pick_in_tile,
    places,
    quick_exponential,
    retry_uniforms,
    row_tile,
    tile_exponentials,
)

TRIES = tl.constexpr(64)


@triton.jit
def p_minus_q(x, y, row_top, scale, inverse, q_top, q_scale, q_inverse, Q: tl.constexpr):
    """(p - q)+ in fp32; the difference of two close fp32 numbers is exact."""
    p = tl.exp2((x - row_top) * scale) * inverse
    q = y if Q == 1 else tl.exp2((y - q_top) * q_scale) * q_inverse
    return tl.maximum(p - q, 0.0)


@triton.jit
def draw_from_residual(
    row_ptr, stride_v, q_row, q_stride_v, vocab, tiles, row_top, mass, scale, q_top, q_mass,
    q_scale, coin, Q: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """A token of (p - q)+ by inverse CDF in token order, -1 where nothing is left of it.

    One program reads both rows; the tries before it make that rare.
    """
    GROUP: tl.constexpr = 4
    absent: tl.constexpr = 0.0 if Q == 1 else float("-inf")
    i = tl.arange(0, TILES)
    g = tl.arange(0, GROUP)
    inside = g[:, None] * TILE + tl.arange(0, TILE)[None, :]
    sums = tl.zeros([TILES], dtype=tl.float64)
    inverse, q_inverse = (1.0 / mass).to(tl.float32), (1.0 / q_mass).to(tl.float32)
    for first in tl.range(0, tiles, GROUP, num_stages=2):
        start = (first + tiles * 0).to(tl.int64) * TILE
        here = inside < (vocab - start).to(tl.int32)
        x = load_at(row_ptr + start * stride_v, inside, stride_v, here, float("-inf"))
        y = load_at(q_row + start * q_stride_v, inside, q_stride_v, here, absent)
        left = p_minus_q(x, y, row_top, scale, inverse, q_top, q_scale, q_inverse, Q)
        mine = i[None, :] == (first + g)[:, None]
        sums += tl.sum(tl.where(mine, tl.sum(left, 1)[:, None], 0.0), 0).to(tl.float64)
    total = tl.sum(sums, 0)
    chosen, before = pick(sums, coin * total, TILES)
    x = row_tile(row_ptr, stride_v, chosen, vocab, float("-inf"), TILE)
    y = row_tile(q_row, q_stride_v, chosen, vocab, absent, TILE)
    left = p_minus_q(x, y, row_top, scale, inverse, q_top, q_scale, q_inverse, Q)
    token = pick_in_tile(left, chosen, coin * total - before, TILE)
    return tl.where(total > 0, token, -1)


@triton.jit
def lane_of(upto, point, BLOCK: tl.constexpr):
    """[LANES] first index of [LANES or 1, BLOCK] cumulative weights that exceeds each point."""
    below = tl.sum((upto <= point[:, None]).to(tl.int32), 1)
    return tl.minimum(below, BLOCK - 1)


@triton.jit
def running_sums(x, BLOCK: tl.constexpr):
    """[LANES, BLOCK] cumulative sums along each lane.

    A scan over fewer columns than a program has threads for them does not compile everywhere
    (an assertion of Triton 3.6 fails for [8, 2] in one warp), and so few are summed at once.
    """
    if BLOCK > 8:
        return tl.cumsum(x, 1)
    i = tl.arange(0, BLOCK)
    upto = i[None, None, :] <= i[None, :, None]
    return tl.sum(tl.where(upto, x[:, None, :], 0.0), 2)


@triton.jit
def mass_before(upto, weights, index, BLOCK: tl.constexpr):
    """[LANES] cumulative weight before the chosen index of each lane."""
    mine = tl.arange(0, BLOCK)[None, :] == index[:, None]
    return tl.sum(tl.where(mine, upto - weights, 0.0), 1)


@triton.jit
def draw_lanes(
    row_ptr, stride_v, vocab, top, upto, weights, mass, inverse, row_top, scale, coins,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """[LANES] tokens of softmax(row), one a coin, and their float64 probabilities.

    A token of weight zero can come out where a coin meets a boundary to the last bit; the caller
    drops it, since it has p = 0.
    """
    INNER: tl.constexpr = 32 if TILE >= 64 else 16
    OUTER: tl.constexpr = TILE // INNER
    point = coins * mass
    tile = tl.minimum(lane_of(upto[None, :], point, TILES), (vocab - 1) // TILE).to(tl.int32)
    before = mass_before(upto[None, :], weights[None, :], tile, TILES)
    mine = tl.arange(0, TILES)[None, :] == tile[:, None]
    tops = tl.max(tl.where(mine, top[None, :], float("-inf")), 1)
    local = (point - before) * quick_exponential(row_top, tops, scale)
    start = tile.to(tl.int64) * TILE
    left = (vocab - start).to(tl.int32)
    inside = places(TILE)[None, :, :]
    base = row_ptr + start * stride_v
    mask = inside < left[:, None, None]
    x = load_at(base[:, None, None], inside, stride_v, mask, float("-inf"))
    sums = tl.sum(tile_exponentials(x, tops[:, None, None], scale), 2).to(tl.float64)
    outer_upto = running_sums(sums, OUTER)
    outer = lane_of(outer_upto, local, OUTER)
    local -= mass_before(outer_upto, sums, outer, OUTER)
    # Read again: they are in the cache nearby, and to keep them all would cost too many registers.
    near = (outer * INNER)[:, None] + tl.arange(0, INNER)[None, :]
    x = load_at(base[:, None], near, stride_v, near < left[:, None], float("-inf"))
    e = tile_exponentials(x, tops[:, None], scale).to(tl.float64)
    inner = lane_of(tl.cumsum(e, 1), local, INNER)
    e = tl.sum(tl.where(tl.arange(0, INNER)[None, :] == inner[:, None], e, 0.0), 1)
    unit = quick_exponential(tops, row_top, scale)
    return tl.minimum(start + outer * INNER + inner, vocab - 1), e * unit * inverse


@triton.jit
def draw_by_thinning(
    row_ptr, stride_v, q_row, q_stride_v, vocab, top, weights, row_top, mass, scale, q_top,
    q_mass, q_scale, seed, place, Q: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """A draw from (p - q)+: the first of TRIES draws of p that is kept, with (1 - q/p)+; or -1."""
    lanes = tl.arange(0, LANES)
    upto = tl.cumsum(weights, 0)
    token = tl.zeros([], dtype=tl.int64) - 1
    attempt = tl.zeros([], dtype=tl.int64) + 1
    inverse, q_inverse = 1.0 / mass, 1.0 / q_mass
    while (token < 0) & (attempt <= TRIES):
        coins, keep = retry_uniforms(seed, place, attempt + lanes)
        y, p = draw_lanes(
            row_ptr,
            stride_v,
            vocab,
            top,
            upto,
            weights,
            mass,
            inverse,
            row_top,
            scale,
            coins,
            TILE,
            TILES,
        )
        value = tl.load(q_row + y * q_stride_v)
        if Q == 1:
            q = value.to(tl.float64)
        else:
            q = quick_exponential(value, q_top, q_scale) * q_inverse
        first = tl.min(tl.where(keep * p < p - q, lanes, LANES), 0)
        token = tl.sum(tl.where(lanes == first, y + 1, 0), 0) - 1
        attempt += LANES
    return token


@triton.jit
def draw_dense(
    row_ptr, stride_v, q_row, q_stride_v, vocab, top, weights, row_top, mass, scale, q_top, q_mass,
    q_scale, seed, place, coin,
    Q: tl.constexpr, COINS: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """The recovered token with a full row q; -1 where p = q up to rounding.

    1 / (1 - accepted mass) draws are needed on average after a rejection, which has that
    probability, so over a run one draw a position is expected; TRIES bounds the worst case.
    """
    token = tl.zeros([], dtype=tl.int64) - 1
    if not COINS:
        token = draw_by_thinning(
            row_ptr, stride_v, q_row, q_stride_v, vocab, top, weights, row_top, mass, scale,
            q_top, q_mass, q_scale, seed, place, Q, LANES, TILE, TILES,
        )  # fmt: skip
    if token < 0:
        token = draw_from_residual(
            row_ptr, stride_v, q_row, q_stride_v, vocab, (vocab + TILE - 1) // TILE, row_top, mass,
            scale, q_top, q_mass, q_scale, coin, Q, TILE, TILES,
        )  # fmt: skip
    return token
