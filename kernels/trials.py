"""Many requests of a small vocabulary; equals :class:`specverify.reference.ChainSampler`.

One program verifies BLOCK requests at a time, their rows side by side as [BLOCK, LANES] tiles with
the whole vocabulary in the lanes.  It walks over the positions until none of its requests is still
accepting, then reads the row at which each of them stopped once more and draws from it.  No
scratch, no atomics, and nothing depends on which requests share a program.

Accept coins and the final coin are those of the chain kernel; the last token is the inverse CDF of
its weights at the final coin in every case, so that own streams, too, give the reference's tokens.
With filters each token of a row is compared with all others, which for few tokens beats a search.
Exponentials are fp32; sums, the residual, its cumulative sum and comparisons are float64.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
# ruff: noqa: D417, SIM102
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._draw import (
    ACCEPT_WORD,
    BELOW_ONE,
    FINAL_WORD,
    LOG2E,
    exponential,
    filters_on,
    inverse_temperature,
    request_uniform,
)


@triton.jit
def rows_of(base, rows, stride_r, stride_v, here, vocab, other, LANES: tl.constexpr):
    """[BLOCK, LANES]: the rows ``rows`` (int64) of a matrix where ``here``, else ``other``."""
    lane = tl.arange(0, LANES)
    at = (rows * stride_r)[:, None] + lane.to(tl.int64) * stride_v
    return tl.load(base + at, mask=here[:, None] & (lane < vocab)[None, :], other=other)


@triton.jit
def softmax_parts(x, scale):
    """Largest logit [BLOCK], exp((x - largest) / T) in fp32, and their float64 sum [BLOCK]."""
    top = tl.max(tl.where(x == x, x, float("-inf")), 1)
    anchor = tl.where(top == float("-inf"), 0.0, top)
    e = tl.exp2((x - anchor[:, None]) * scale[:, None])
    return top, e, tl.sum(e.to(tl.float64), 1)


@triton.jit
def kept_tokens(
    rows, stride_v, x, top, here, vocab, t, top_k, top_p, min_p, SEQUENTIAL: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    """[BLOCK, LANES]: what the filters keep of the rows ``x`` at the pointers ``rows`` [BLOCK].

    A token stays if fewer than k tokens come before it, if what comes before it has less than
    top_p of the mass, and if it is within min_p of the largest.  A token comes before another if
    its logit is larger, or equal and its id lower.  Masses are float64.
    """
    lane = tl.arange(0, LANES)[None, :]
    scale = tl.where(t > 0, LOG2E / tl.maximum(t, 1e-37), 0.0)
    rank = tl.zeros_like(x).to(tl.int32)
    before = tl.zeros_like(x).to(tl.float64)
    mass = tl.zeros_like(t)
    own = before
    for j in range(0, vocab):
        at = rows + (j + vocab * 0).to(tl.int64) * stride_v
        y = tl.load(at, mask=here, other=float("-inf")).to(tl.float32)
        w = exponential(y, top, scale)
        first = (y[:, None] > x) | ((y[:, None] == x) & (j < lane))
        rank += first.to(tl.int32)
        before += tl.where(first, w[:, None], 0.0)
        mass += w
        if SEQUENTIAL:
            own = tl.where(j == lane, w[:, None], own)
    limit = tl.where((top_k > 0) & (top_k < vocab), top_k, vocab)
    low = top.to(tl.float64) + t * tl.log(tl.maximum(min_p, 1e-300))
    low = tl.where(min_p > 0, low, float("-inf"))
    kept = (rank < limit[:, None]) & (x.to(tl.float64) >= low[:, None])
    if SEQUENTIAL:
        # Not computed anew: of two such exponentials, Triton 3.6 moves a part of one to a place
        # where it is not defined, and refuses to compile (four lanes, two warps).
        mass = tl.sum(tl.where(kept, own, 0.0), 1)
    goal = tl.where(top_p < 1, mass * top_p, float("inf"))
    return kept & (before < goal[:, None])


@triton.jit
def kept_parts(
    rows, stride_v, x, here, vocab, t, scale, top_k, top_p, min_p, on, FILTERED: tl.constexpr,
    SEQUENTIAL: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """``softmax_parts`` of what is kept; a row that is no law keeps the mass that says so."""
    top, e, mass = softmax_parts(x, scale)
    if FILTERED:
        if tl.max((here & on).to(tl.int32), 0) > 0:
            kept = kept_tokens(
                rows, stride_v, x, top, here, vocab, t, top_k, top_p, min_p, SEQUENTIAL, LANES
            )
            e = tl.where(kept | (~on)[:, None], e, 0.0)
            left = tl.sum(e.to(tl.float64), 1)
            mass = tl.where((mass > 0) & (mass < float("inf")), left, mass)
    return top, e, mass


@triton.jit
def lowest_argmax(x, top, vocab, LANES: tl.constexpr):
    """[BLOCK] int64: the lowest id of the largest logit; 0 where nothing is finite."""
    lane = tl.arange(0, LANES)[None, :]
    best = tl.min(tl.where(x == top[:, None], lane, LANES), 1)
    return tl.where(best < vocab, best, 0).to(tl.int64)


@triton.jit
def own_entry(values, ids, LANES: tl.constexpr):
    """[BLOCK]: one entry of each row, 0 for the id -1."""
    mine = tl.arange(0, LANES)[None, :] == ids[:, None]
    return tl.sum(tl.where(mine, values, 0.0), 1)


@triton.jit
def pick_lane(weights, coin, LANES: tl.constexpr):
    """[BLOCK] int64: the first token whose cumulative weight exceeds ``coin`` times the total.

    Never a token of weight zero: where the point reaches the total it is the last with a weight.
    """
    lane = tl.arange(0, LANES)[None, :]
    upto = tl.cumsum(weights, 1)
    point = coin * tl.sum(weights, 1)
    heavy = weights > 0
    first = tl.min(tl.where((upto > point[:, None]) & heavy, lane, LANES), 1)
    last = tl.max(tl.where(heavy, lane, 0), 1)
    return tl.where(first == LANES, last, first).to(tl.int64)


@triton.jit
def draft_row(
    q_ptr, slot, q_stride_r, q_stride_v, here, vocab, q_scale, Q: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """[BLOCK, LANES] float64: q of a slot, from probabilities or from draft logits."""
    absent: tl.constexpr = 0.0 if Q == 1 else float("-inf")
    y = rows_of(q_ptr, slot, q_stride_r, q_stride_v, here, vocab, absent, LANES)
    if Q == 1:
        return y.to(tl.float64)
    _top, e, mass = softmax_parts(y.to(tl.float32), q_scale)
    return e.to(tl.float64) * (1.0 / mass)[:, None]


@triton.jit
def last_tokens(
    logits, row, stride_r, stride_v, q_ptr, slot, q_stride_r, q_stride_v, draft, here, vocab,
    random, t, scale, top_k, top_p, min_p, on, soft, q_scale, coin, Q: tl.constexpr,
    FILTERED: tl.constexpr, SEQUENTIAL: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """[BLOCK] int64: the recovered (``draft`` >= 0) or bonus tokens."""
    x = rows_of(logits, row, stride_r, stride_v, here, vocab, float("-inf"), LANES).to(tl.float32)
    top, e, mass = kept_parts(
        logits + row * stride_r, stride_v, x, here, vocab, t, scale, top_k, top_p, min_p, on,
        FILTERED, SEQUENTIAL, LANES,
    )  # fmt: skip
    weights = e.to(tl.float64)
    recovered = here & (draft >= 0)
    mine = tl.arange(0, LANES)[None, :] == draft[:, None]
    left = tl.where(mine, 0.0, weights)
    if Q != 0:
        soft = recovered & soft
        q = draft_row(q_ptr, slot, q_stride_r, q_stride_v, soft, vocab, q_scale, Q, LANES)
        residual = tl.maximum(weights * (1.0 / mass)[:, None] - q, 0.0)
        left = tl.where(soft[:, None], residual, left)
    # p = q: rejected by rounding alone, and the token comes from p.
    use = recovered & (tl.sum(left, 1) > 0)
    token = pick_lane(tl.where(use[:, None], left, weights), coin, LANES)
    drawable = (mass > 0) & (mass < float("inf")) & (top < float("inf")) & random
    return tl.where(drawable, token, lowest_argmax(x, top, vocab, LANES))


@triton.jit
def write_tokens(tokens, drafts, b, here, first, stop, token, width, WIDTH: tl.constexpr):
    """Accepted drafts, the last token, padding."""
    for start in range(0, width, WIDTH):
        column = (start + tl.arange(0, WIDTH))[None, :]
        kept = here[:, None] & (column < stop[:, None])
        out = tl.load(drafts + first[:, None] + column, mask=kept, other=-1)
        out = tl.where(column == stop[:, None], token[:, None], out)
        at = tokens + (b * width)[:, None] + column
        tl.store(at, out, mask=here[:, None] & (column < width))


# Counts that change from call to call must not compile a kernel of their own.
@triton.jit(do_not_specialize=["requests", "width"])
def small_kernel(
    logits, stride_r, stride_v, drafts, q_ptr, q_stride_r, q_stride_v, cu_drafts, temperature,
    draft_temperature, top_ks, top_ps, min_ps, seeds, positions, accept_coins, final_coins, tokens,
    emitted, requests, vocab, width,
    Q: tl.constexpr, COINS: tl.constexpr, FILTERED: tl.constexpr, SEQUENTIAL: tl.constexpr,
    BLOCK: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Verify BLOCK requests; the grid has ceil(requests / BLOCK) programs.

    Args:
        logits: [R, V] target logits of any floating dtype, with strides; V <= LANES.
        drafts: [D] int64, -1 is a placeholder.
        q_ptr: [D, V] draft probabilities (Q = 1) or draft logits (Q = 2).
        cu_drafts: [B + 1] int64.
        temperature: [B]; ``draft_temperature``: [B], read if Q = 2.
        top_ks: [B] int64, ``top_ps``, ``min_ps``: [B] floating; read if FILTERED.
        seeds: [B] int64 holding uint64 bits; ``positions``: [B] int64.
        accept_coins, final_coins: [D], [B] float64, read if COINS.
        SEQUENTIAL: whether top-p counts its mass on what top-k and min-p left.
        tokens: [B, width] int64 out; ``emitted``: [B] int64 out.
    """
    b = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = b < requests
    first = tl.load(cu_drafts + b, mask=here, other=0)
    count = tl.load(cu_drafts + b + 1, mask=here, other=0) - first
    t = tl.load(temperature + b, mask=here, other=0.0).to(tl.float64)
    seed = tl.load(seeds + b, mask=here, other=0)
    place = tl.load(positions + b, mask=here, other=0)
    random = t > 0
    on, top_k, top_p, min_p = here, b, t, t
    if FILTERED:
        top_k = tl.load(top_ks + b, mask=here, other=0)
        top_p = tl.load(top_ps + b, mask=here, other=1.0).to(tl.float64)
        min_p = tl.load(min_ps + b, mask=here, other=0.0).to(tl.float64)
        on = filters_on(t, top_k, top_p, min_p, vocab)
    scale = inverse_temperature(t)
    q_scale = scale
    soft = here
    if Q == 2:
        tq = tl.load(draft_temperature + b, mask=here, other=0.0).to(tl.float64)
        soft = tq > 0
        q_scale = inverse_temperature(tq)
    stop = tl.zeros([BLOCK], dtype=tl.int64)
    j = tl.zeros([], dtype=tl.int64)
    alive = here & (count > 0)
    while tl.max(alive.to(tl.int32), 0) > 0:
        slot = first + j
        draft = tl.load(drafts + slot, mask=alive, other=-1)
        alive = alive & (draft >= 0)
        row = slot + b
        x = rows_of(logits, row, stride_r, stride_v, alive, vocab, float("-inf"), LANES)
        x = x.to(tl.float32)
        top, e, mass = kept_parts(
            logits + row * stride_r, stride_v, x, alive, vocab, t, scale, top_k, top_p, min_p, on,
            FILTERED, SEQUENTIAL, LANES,
        )  # fmt: skip
        own = own_entry(e, draft, LANES).to(tl.float64)
        if COINS:
            coin = tl.load(accept_coins + slot, mask=alive, other=0.0).to(tl.float64)
        else:
            coin = request_uniform(seed, place + j, ACCEPT_WORD)
        goal = coin * mass
        if Q == 1:
            at = q_ptr + slot * q_stride_r + draft * q_stride_v
            goal = goal * tl.load(at, mask=alive, other=0.0).to(tl.float64)
        if Q == 2:
            q = draft_row(
                q_ptr, slot, q_stride_r, q_stride_v, alive & soft, vocab, q_scale, Q, LANES
            )
            goal = goal * tl.where(soft, own_entry(q, draft, LANES), 1.0)
        passed = tl.where(random, goal < own, lowest_argmax(x, top, vocab, LANES) == draft)
        j += 1
        alive = alive & passed
        stop = tl.where(alive, j, stop)
        alive = alive & (j < count)
    draft = tl.load(drafts + first + stop, mask=here & (stop < count), other=-1)
    if COINS:
        coin = tl.load(final_coins + b, mask=here, other=0.0).to(tl.float64)
    else:
        coin = request_uniform(seed, place, FINAL_WORD)
    token = last_tokens(
        logits, first + b + stop, stride_r, stride_v, q_ptr, first + stop, q_stride_r, q_stride_v,
        draft, here, vocab, random, t, scale, top_k, top_p, min_p, on, soft, q_scale,
        tl.minimum(coin, BELOW_ONE), Q, FILTERED, SEQUENTIAL, LANES,
    )  # fmt: skip
    write_tokens(tokens, drafts, b, here, first, stop, token, width, WIDTH)
    tl.store(emitted + b, stop + 1, mask=here)
