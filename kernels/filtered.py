"""Chain verification of filtered requests; equals :mod:`specverify.reference` on their target.

Two kernels in turn.  ``read_kernel`` reads rows, many programs a row, and leaves what
:mod:`._parts` says.  ``decide_kernel`` has one program a row: it finds where the filters cut it
(``_resolve.resolve``), accepts or stops, and draws the token that the row would emit last; the row
whose decision settles its request writes the output.  No row is rewritten: a token is kept if its
key lies above the cut.  Small batches take all positions in one round; large ones take position 0,
then 1, then 2 and 3, ..., and pass over the rows of requests that have stopped.

Requests without filters, and greedy ones, are verified here too.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
# ruff: noqa: D417, SIM102
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._bounds import CAP
from specverify.kernels._draw import (
    ACCEPT_WORD,
    BELOW_ONE,
    FINAL_WORD,
    exponential,
    filters_on,
    first_of,
    inverse_temperature,
    load_pairs,
    request_uniform,
    tile_weights,
)
from specverify.kernels._kept import draw_kept, is_kept
from specverify.kernels._parts import RUNS, SPLIT, parts_of, read_filtered, read_pairs
from specverify.kernels._resolve import resolve
from specverify.kernels._words import (
    FIELD,
    STOP_SHIFT,
    draft_mass,
    last_token,
    settle,
    settle_wide,
    write_out,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def usable(top, total, scale):
    """(largest logit, mass, whether they make a law) of a row's pairs."""
    row_top = tl.max(top, 0)
    mass = tl.sum(tile_weights(top, total, row_top, scale), 0)
    return row_top, mass, (mass > 0) & (mass < float("inf")) & (row_top < float("inf"))


@triton.jit
def last_kept(
    row_ptr, stride_v, q_row, q_stride_v, q_max, q_sum, slot, draft, vocab, tiles, listed, ids, e,
    cut, last, kept, row_top, scale, q_scale, point_mass, coin, max_ptr, sum_ptr, keys_ptr,
    Q: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """The recovered (``draft`` >= 0) or bonus token of a row with filters."""
    q_top = row_top
    q_mass = kept * 0.0 + 1.0
    residual = ((draft >= 0) & (point_mass == 0)).to(tl.int32)
    if Q == 2:
        if residual > 0:
            q_tops, q_totals = load_pairs(q_max, q_sum, slot, tiles, TILES)
            q_top = tl.max(q_tops, 0)
            q_mass = tl.sum(tile_weights(q_tops, q_totals, q_top, q_scale), 0)
    gone = tl.where(residual > 0, -1, tl.maximum(draft, -1))
    return draw_kept(
        row_ptr, stride_v, q_row, q_stride_v, vocab, tiles, listed, ids, e, cut, last, kept,
        row_top, scale, q_top, q_mass, q_scale, gone, residual, coin, max_ptr, sum_ptr, keys_ptr,
        Q, TILE, TILES,
    )  # fmt: skip


@triton.jit
def stopped(words, b, start, WIDE: tl.constexpr):
    """Whether a request has stopped in an earlier round; nobody writes those bits now."""
    word = tl.load(words + b)
    before = (tl.full([], 1, tl.int64) << tl.minimum(start, 27)) - 1
    if WIDE:
        return word != word
    return ((word >> STOP_SHIFT) & FIELD & before) != 0


# Counts that change from call to call must not compile a kernel of their own.
@triton.jit(do_not_specialize=["start", "requests", "tiles", "shares"])
def read_kernel(
    logits, stride_r, stride_v, q_ptr, q_stride_r, q_stride_v, cu_drafts, temperature,
    draft_temperature, top_ks, top_ps, min_ps, max_ptr, sum_ptr, q_max, q_sum, keys_ptr, words,
    start, requests, vocab, tiles, shares,
    Q: tl.constexpr, WIDE: tl.constexpr, TILE: tl.constexpr, STEPS: tl.constexpr,
    STAGES: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """One share of one row, STEPS times four tiles; grid [positions of the round * B * shares].

    Args:
        logits: [R, V] target logits of any floating dtype, with strides.
        q_ptr: [D, V] draft logits, read if Q = 2; with ``draft_temperature`` [B].
        cu_drafts: [B + 1] int64; ``temperature``: [B] floating.
        top_ks: [B] int64; ``top_ps``, ``min_ps``: [B] floating.
        max_ptr, sum_ptr: [R, tiles] fp32 scratch; ``q_max``, ``q_sum``: [D, tiles] if Q = 2.
        keys_ptr: [R, parts] int16 scratch.
        words: [B] int64, the words of the requests.
        start: the first position of the round.
        OVERLAP: start while the kernel before ends, and let the next one start early.
    """
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    vocab = tl.cast(vocab, tl.int32)
    pid = tl.program_id(0).to(tl.int64)
    share = (pid % shares).to(tl.int32)
    pair = pid // shares
    b = pair % requests
    j = pair // requests + start
    first = tl.load(cu_drafts + b)
    count = tl.load(cu_drafts + b + 1) - first
    t = tl.load(temperature + b).to(tl.float64)
    top_p = tl.load(top_ps + b).to(tl.float64)
    min_p = tl.load(min_ps + b).to(tl.float64)
    on = filters_on(t, tl.load(top_ks + b), top_p, min_p, vocab)
    if (j <= count) & (not stopped(words, b, start, WIDE)):
        row = first + b + j
        row_ptr = logits + row * stride_r
        scale = inverse_temperature(t)
        at = share * (RUNS * STEPS)
        end = tl.minimum(at + RUNS * STEPS, tiles)
        if on:
            read_filtered(
                row_ptr, stride_v, vocab, at, end, share, scale, max_ptr + row * tiles,
                sum_ptr + row * tiles, keys_ptr + row * parts_of(tiles), TILE, STEPS,
                STAGES,
            )  # fmt: skip
        else:
            read_pairs(
                row_ptr, stride_v, vocab, at, end, scale, t == 0, max_ptr + row * tiles,
                sum_ptr + row * tiles, TILE, RUNS, STAGES,
            )  # fmt: skip
        if Q == 2:
            tq = tl.load(draft_temperature + b).to(tl.float64)
            if (j < count) & (t > 0) & (tq > 0):
                slot = first + j
                read_pairs(
                    q_ptr + slot * q_stride_r, q_stride_v, vocab, at, end, inverse_temperature(tq),
                    False, q_max + slot * tiles, q_sum + slot * tiles, TILE, RUNS, STAGES,
                )  # fmt: skip


@triton.jit(do_not_specialize=["start", "requests", "tiles", "shares", "width"])
def decide_kernel(
    logits, stride_r, stride_v, drafts, q_ptr, q_stride_r, q_stride_v, cu_drafts, temperature,
    draft_temperature, top_ks, top_ps, min_ps, seeds, positions, accept_coins, final_coins, max_ptr,
    sum_ptr, q_max, q_sum, keys_ptr, list_ptr, words, drawn, outcomes, tokens, emitted,
    start, requests, vocab, tiles, shares, width,
    Q: tl.constexpr, COINS: tl.constexpr, WIDE: tl.constexpr, CLEAN: tl.constexpr,
    SEQUENTIAL: tl.constexpr, UNIT: tl.constexpr, TILE: tl.constexpr, LANES: tl.constexpr,
    AT_ONCE: tl.constexpr, TILES: tl.constexpr, WIDTH: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """One row; grid [positions of the round * B].

    Args:
        drafts: [D] int64, -1 is a placeholder.
        q_ptr: [D, V] draft probabilities (Q = 1) or draft logits (Q = 2).
        seeds: [B] int64 holding uint64 bits; ``positions``: [B] int64.
        accept_coins, final_coins: [D], [B] float64, read if COINS.
        list_ptr: [R, CAP] int32 scratch; ``drawn``: [R] int64 scratch, last tokens of the rows.
        words: [B] int64, zero before the first round, and with CLEAN after the last.
        outcomes: [R] int64 scratch, used if WIDE.
        tokens: [B, width] int64 out; ``emitted``: [B] int64 out.
        SEQUENTIAL: the convention of the filters, as in ``_resolve.resolve``.
        Everything else as in ``read_kernel``.
    """
    PART: tl.constexpr = TILE // SPLIT
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    vocab = tl.cast(vocab, tl.int32)
    pid = tl.program_id(0).to(tl.int64)
    b = pid % requests
    j = pid // requests + start
    first = tl.load(cu_drafts + b)
    count = tl.load(cu_drafts + b + 1) - first
    if (j <= count) & (not stopped(words, b, start, WIDE)):
        t = tl.load(temperature + b).to(tl.float64)
        top_k = tl.load(top_ks + b)
        top_p = tl.load(top_ps + b).to(tl.float64)
        min_p = tl.load(min_ps + b).to(tl.float64)
        on = filters_on(t, top_k, top_p, min_p, vocab)
        row = first + b + j
        slot = first + j
        draft = tl.load(drafts + slot, mask=j < count, other=-1)
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
        pairs = tl.where(on, shares, tiles).to(tl.int32)
        at = row * tiles
        top, total = load_pairs(max_ptr + at, sum_ptr + at, row * 0, pairs, TILES)
        row_top, mass, valid = usable(top, total, scale)
        passed = j != j
        proposed = draft >= 0
        own = tl.load(row_ptr + draft * stride_v, mask=proposed, other=float("-inf"))
        own = own.to(tl.float32)
        kept = mass
        taken = proposed
        listed = j != j
        cut = tl.zeros([], dtype=tl.uint32)
        last = vocab
        ids = tl.zeros([CAP], dtype=tl.int32) - 1
        some = tl.zeros([CAP], dtype=tl.float64)
        if on & valid:
            cut, last, kept, listed, ids, some = resolve(
                row_ptr, stride_v, vocab, parts_of(tiles), keys_ptr + row * parts_of(tiles),
                list_ptr + row * CAP, row_top, mass, t, scale, top_k, top_p, min_p, SEQUENTIAL,
                UNIT, PART, TILES * SPLIT, AT_ONCE,
            )  # fmt: skip
            taken = proposed & is_kept(own, draft, cut, last)
        if taken:
            if greedy:
                if own == row_top:
                    best = first_of(row_ptr, stride_v, vocab, top, row_top, TILE, TILES)
                    passed = best == draft
            else:
                q_own = t
                if Q != 0:
                    q_own = tl.load(q_row + draft * q_stride_v).to(tl.float64)
                if COINS:
                    coin = tl.load(accept_coins + slot).to(tl.float64)
                else:
                    coin = request_uniform(seed, place + j, ACCEPT_WORD)
                e = exponential(own, row_top, scale)
                q = draft_mass(q_own, q_max, q_sum, slot, tiles, q_scale, point_mass, Q, TILES)
                passed = coin * q * kept < e
        token = tl.full([], -1, tl.int64)
        if not passed:
            if COINS:
                coin = tl.load(final_coins + b).to(tl.float64)
            else:
                coin = request_uniform(seed, place, FINAL_WORD)
            coin = tl.minimum(coin, BELOW_ONE)
            if on & valid:
                token = last_kept(
                    row_ptr, stride_v, q_row, q_stride_v, q_max, q_sum, slot, draft, vocab,
                    tiles, listed, ids, some, cut, last, kept, row_top, scale, q_scale,
                    point_mass, coin, max_ptr + at, sum_ptr + at,
                    keys_ptr + row * parts_of(tiles), Q, TILE, TILES,
                )  # fmt: skip
            else:
                token = last_token(
                    row_ptr, stride_v, q_row, q_stride_v, q_max, q_sum, slot, draft, vocab,
                    tiles, top, total, scale, greedy, q_scale, point_mass, seed, place, coin,
                    Q, COINS, LANES, TILE, TILES,
                )  # fmt: skip
            tl.store(drawn + row, token)
        tl.debug_barrier()
        if WIDE:
            stop = settle_wide(outcomes + first + b, words + b, j, count, passed, WIDTH)
        else:
            stop = settle(words + b, j, count, passed, j != j, CLEAN)
        if stop <= count:
            if stop != j:
                token = tl.load(drawn + first + b + stop, cache_modifier=".cg")
            write_out(tokens, emitted, drafts, b, first, stop, token, width, WIDTH)
