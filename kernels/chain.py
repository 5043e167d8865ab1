"""Chain verification in one launch; equals :class:`specverify.reference.ChainSampler`.

One program reads a few tiles of one target row.  The last program of a row to finish decides that
row (accept or stop); the row whose decision settles its request draws the last token and writes
the output.  Rows are launched position by position, and a program whose request has already
stopped at an earlier position leaves without reading, so that rows past a rejection cost little.
Nothing ever waits for anything, so no assumption about scheduling is needed for correctness.

The word of a request (int64): bits 0..27 accepted positions, bits 28..55 positions at which it
stops (a rejection, a placeholder, the bonus row), bits 56.. rows that are done.  Requests with
more than 27 drafts use the wide form: outcomes in memory, the last row to finish draws.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
# ruff: noqa: D417, SIM102, SIM114
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._draw import (
    ACCEPT_WORD,
    BELOW_ONE,
    FINAL_WORD,
    draw_from_row,
    exponential,
    first_of,
    inverse_temperature,
    load_pairs,
    request_uniform,
    tile_weights,
)
from specverify.kernels._read import read_share
from specverify.kernels._recover import draw_dense, draw_without

ONE_HOT, PROBS, LOGITS = 0, 1, 2
"""Forms of q: none, probabilities, draft logits with the drafter's temperature."""

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
    row_ptr, stride_v, q_row, q_stride_v, q_max, q_sum, slot, draft, vocab, tiles, max_row,
    top, total, scale, greedy, q_scale, point_mass, seed, place, coin,
    Q: tl.constexpr, COINS: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """The recovered (``draft`` >= 0) or bonus token of a settled request."""
    row_top = tl.max(top, 0)
    if greedy:
        token = first_of(row_ptr, stride_v, vocab, top, row_top, TILE, TILES)
    else:
        weights = tile_weights(top, total, row_top, scale)
        mass = tl.sum(weights, 0)
        token = tl.zeros([], dtype=tl.int64) - 1
        valid = (mass > 0) & (mass < float("inf")) & (row_top < float("inf"))
        if not valid:
            token = first_of(row_ptr, stride_v, vocab, top, row_top, TILE, TILES)
        elif draft >= 0:
            if Q == 0:
                token = draw_without(
                    row_ptr, stride_v, vocab, top, weights, row_top, draft, coin, scale, TILE, TILES
                )
            elif point_mass:
                token = draw_without(
                    row_ptr, stride_v, vocab, top, weights, row_top, draft, coin, scale, TILE, TILES
                )
            else:
                token = draw_dense(
                    row_ptr, stride_v, q_row, q_stride_v, q_max, q_sum, slot, vocab, tiles,
                    max_row, weights, row_top, mass, scale, q_scale, seed, place, coin, Q, COINS,
                    LANES, TILE, TILES,
                )  # fmt: skip
        if token < 0:
            token = draw_from_row(
                row_ptr, stride_v, vocab, top, weights, row_top, -1, coin, scale, TILE, TILES
            )
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
def wait_for_round(word_ptr, word, j, WAIT: tl.constexpr):
    """A request's word once the positions of earlier rounds are decided, at most WAIT looks later.

    Rounds are {0}, {1}, {2, 3}, {4 .. 7}, ...  The wait only saves reading: a program that gives up
    reads a row that may prove unneeded, so nothing depends on the order of the programs.
    """
    before = tl.where(j >= 8, tl.where(j >= 16, 16, 8), tl.where(j >= 4, 4, tl.where(j >= 2, 2, 1)))
    before = tl.where(j == 0, 0, before)
    need = (tl.full([], 1, tl.int64) << before) - 1
    looks = j * 0
    while ((word & need) != need) & (((word >> STOP_SHIFT) & need) == 0) & (looks < WAIT):
        word = tl.load(word_ptr, volatile=True)
        looks += 1
    return word


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


# Counts that change from call to call must not compile a kernel of their own.
@triton.jit(do_not_specialize=["requests", "tiles", "shares", "shares_1", "shares_2", "width"])
def chain_kernel(
    logits, stride_r, stride_v, drafts, q_ptr, q_stride_r, q_stride_v, cu_drafts, temperature,
    draft_temperature, seeds, positions, accept_coins, final_coins, max_ptr, sum_ptr, q_max, q_sum,
    row_count, words, outcomes, tokens, emitted, requests, vocab, tiles, shares, shares_1,
    shares_2, width,
    Q: tl.constexpr, COINS: tl.constexpr, WIDE: tl.constexpr, CLEAN: tl.constexpr,
    TILE: tl.constexpr, GROUP: tl.constexpr, STEPS: tl.constexpr, STEPS_1: tl.constexpr,
    STEPS_2: tl.constexpr, STAGES: tl.constexpr, LANES: tl.constexpr, WAIT: tl.constexpr,
    TILES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One share of one row: STEPS groups of GROUP tiles, STEPS_1 at position 1, STEPS_2 from 2 on.

    The grid has requests * (shares + shares_1 + (width - 2) * shares_2) programs.

    Args:
        logits: [R, V] target logits of any floating dtype, with strides.
        drafts: [D] int64, -1 is a placeholder.
        q_ptr: [D, V] draft probabilities (Q = 1) or draft logits (Q = 2).
        cu_drafts: [B + 1] int64.
        temperature: [B]; ``draft_temperature``: [B], read if Q = 2.
        seeds: [B] int64 holding uint64 bits; ``positions``: [B] int64.
        accept_coins, final_coins: [D], [B] float64, read if COINS.
        max_ptr, sum_ptr: [R, tiles] fp32 scratch; ``q_max``, ``q_sum``: [D, tiles] if Q = 2.
        row_count: [R] int64, ``words``: [B] int64: zero at the start, and with CLEAN at the end.
        outcomes: [R] int64 scratch, used if WIDE.
        tokens: [B, width] int64 out; ``emitted``: [B] int64 out.
    """
    pid = tl.program_id(0).to(tl.int64)
    second, later = requests * shares, requests * (shares + shares_1)
    grown = tl.where(pid < second, 0, tl.where(pid < later, 1, 2))
    pid -= tl.where(grown == 0, 0, tl.where(grown == 1, second, later))
    shares = tl.where(grown == 0, shares, tl.where(grown == 1, shares_1, shares_2))
    steps = tl.where(grown == 0, STEPS, tl.where(grown == 1, STEPS_1, STEPS_2))
    share = (pid % shares).to(tl.int32)
    pair = pid // shares
    b = pair % requests
    j = pair // requests + grown
    word = tl.load(words + b, volatile=True)
    if WAIT > 0:
        word = wait_for_round(words + b, word, j, WAIT)
    first = tl.load(cu_drafts + b)
    end = tl.load(cu_drafts + b + 1)
    t = tl.load(temperature + b).to(tl.float64)
    count = end - first
    below = (tl.full([], 1, tl.int64) << tl.minimum(j, 27)) - 1
    alive = j == j if WIDE else ((word >> STOP_SHIFT) & FIELD & below) == 0
    if (j <= count) & (alive if not CLEAN else j == j):
        row = first + b + j
        slot = first + j
        is_draft = j < count
        draft = tl.load(drafts + slot, mask=is_draft, other=-1)
        seed = tl.load(seeds + b)
        place = tl.load(positions + b)
        row_ptr = logits + row * stride_r
        q_row = q_ptr + slot * q_stride_r
        greedy = t == 0
        scale = inverse_temperature(t)
        q_scale = scale
        point_mass = (t == t) if Q == 0 else (t != t)
        if Q == 2:
            tq = tl.load(draft_temperature + b).to(tl.float64)
            point_mass = tq == 0
            q_scale = inverse_temperature(tq)
        if alive:
            at = share * (GROUP * steps)
            read_share(
                row_ptr, stride_v, vocab, at, steps, tiles, scale, greedy, max_ptr + row * tiles,
                sum_ptr + row * tiles, TILE, GROUP, STAGES,
            )  # fmt: skip
            if Q == 2:
                if is_draft & (not greedy) & (not point_mass):
                    read_share(
                        q_row, q_stride_v, vocab, at, steps, tiles, q_scale, False,
                        q_max + slot * tiles, q_sum + slot * tiles, TILE, GROUP, STAGES,
                    )  # fmt: skip
        # On their way while the counter is asked.
        proposed = draft >= 0
        own = tl.load(row_ptr + draft * stride_v, mask=proposed, other=float("-inf"))
        q_own = t
        if Q != 0:
            q_own = tl.load(q_row + draft * q_stride_v, mask=proposed, other=0.0).to(tl.float64)
        if COINS:
            coin = tl.load(accept_coins + slot, mask=is_draft, other=0.0).to(tl.float64)
        else:
            coin = request_uniform(seed, place + j, ACCEPT_WORD)
        tl.debug_barrier()
        done = tl.atomic_add(row_count + row, 1, sem="acq_rel")
        if done == shares - 1:
            top, total = load_pairs(max_ptr, sum_ptr, row, tiles, TILES)
            void = j != j
            if not WIDE:
                now = tl.load(words + b, volatile=True)
                void = ((now >> STOP_SHIFT) & FIELD & below) != 0
            if CLEAN:
                tl.store(row_count + row, 0)
            passed = j != j
            if proposed & (not void):
                row_top = tl.max(top, 0)
                if greedy:
                    if own.to(tl.float32) == row_top:
                        best = first_of(row_ptr, stride_v, vocab, top, row_top, TILE, TILES)
                        passed = best == draft
                else:
                    mass = tl.sum(tile_weights(top, total, row_top, scale), 0)
                    e = exponential(own, row_top, scale)
                    q = draft_mass(q_own, q_max, q_sum, slot, tiles, q_scale, point_mass, Q, TILES)
                    passed = coin * q * mass < e
            if WIDE:
                stop = settle_wide(outcomes + first + b, words + b, j, count, passed, WIDTH)
            else:
                stop = settle(words + b, j, count, passed, void, CLEAN)
            if stop <= count:
                last = first + b + stop
                if stop != j:
                    top, total = load_pairs(max_ptr, sum_ptr, last, tiles, TILES)
                    draft = tl.load(drafts + first + stop, mask=stop < count, other=-1)
                if COINS:
                    coin = tl.load(final_coins + b).to(tl.float64)
                else:
                    coin = request_uniform(seed, place, FINAL_WORD)
                token = last_token(
                    logits + last * stride_r, stride_v, q_ptr + (first + stop) * q_stride_r,
                    q_stride_v, q_max, q_sum, first + stop, draft, vocab, tiles,
                    max_ptr + last * tiles, top, total, scale, greedy, q_scale, point_mass, seed,
                    place, tl.minimum(coin, BELOW_ONE), Q, COINS, LANES, TILE, TILES,
                )  # fmt: skip
                write_out(tokens, emitted, drafts, b, first, stop, token, width, WIDTH)
