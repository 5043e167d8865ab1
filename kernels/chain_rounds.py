"""Chain verification of the largest batches in one launch: whoever finds a row complete decides it.

One program reads a few tiles of one target row.  The last program of a row to finish decides that
row (accept or stop); the row whose decision settles its request draws the last token and writes
the output.  Rows are launched position by position, and a program whose request has already
stopped at an earlier position leaves without reading, so that rows past a rejection cost little.
No program depends on another's progress: the wait for earlier positions is bounded and only saves
reading.  In contrast to :mod:`.chain` nobody holds a place while he waits for the rest of a row,
at the price of a counter with fences.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
# ruff: noqa: D417, SIM102
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._decide import (
    accept_coin,
    draw_last,
    final_coin,
    judge,
    rows_of,
    without_draft,
    write_tokens,
)
from specverify.kernels._draw import inverse_temperature, quick_exponential, quick_weights
from specverify.kernels._pairs import load_pairs_of, look
from specverify.kernels._read import load_head, read_share
from specverify.kernels._words import FIELD, STOP_SHIFT, settle
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def wait_for_rounds(word_ptr, word, j, WAIT: tl.constexpr, LANES: tl.constexpr):
    """A request's word once the positions of earlier rounds are decided, at most WAIT looks later.

    Rounds are {0}, {1}, {2, 3}, {4 .. 7}, ...  A program that gives up reads a row that may prove
    unneeded, so nothing depends on the order of the programs.
    """
    before = tl.where(j >= 8, tl.where(j >= 16, 16, 8), tl.where(j >= 4, 4, tl.where(j >= 2, 2, 1)))
    before = tl.where(j == 0, 0, before)
    need = (tl.full([], 1, tl.int64) << before) - 1
    looks = (j * 0).to(tl.int32)
    while ((word & need) != need) & (((word >> STOP_SHIFT) & need) == 0) & (looks < WAIT):
        word = look(word_ptr, LANES)
        looks += 1
    return word


@triton.jit
def q_of_row(q_own, q_pairs, slot, tiles, q_scale, dense, Q: tl.constexpr, TILES: tl.constexpr):
    """float64 q of the draft; (anchor, mass) of its row of draft logits, which is complete."""
    q_top = tl.full([], 0.0, tl.float32)
    q_mass = tl.full([], 1.0, tl.float64)
    q = q_mass
    if Q == 1:
        q = q_own.to(tl.float64)
    if Q == 2:
        if dense:
            tops, totals = load_pairs_of(q_pairs, slot, tiles, TILES)
            q_top = tl.max(tops, 0)
            q_mass = tl.sum(quick_weights(tops, totals, q_top, q_scale), 0)
            q = quick_exponential(q_own, q_top, q_scale) / q_mass
    return q, q_top, q_mass


# Counts that change from call to call must not compile a kernel of their own.
@triton.jit(
    do_not_specialize=["requests", "rows", "q_at", "tiles", "shares", "shares_1", "width"]
)  # fmt: skip
def rounds_kernel(
    logits, drafts, q_ptr, cu_drafts, temperature, draft_temperature, seeds, positions,
    accept_coins, final_coins, pairs, counters, tokens, emitted,
    stride_r, stride_v, q_stride_r, q_stride_v, vocab, requests, rows, q_at, tiles, shares,
    shares_1, width,
    Q: tl.constexpr, COINS: tl.constexpr, UNIFORM: tl.constexpr, TILE: tl.constexpr,
    GROUP: tl.constexpr, STEPS: tl.constexpr, STEPS_1: tl.constexpr, STAGES: tl.constexpr,
    EARLY: tl.constexpr, LANES: tl.constexpr, TILES: tl.constexpr, WIDTH: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """One share of one row; grid requests * (shares + (width - 1) * shares_1).

    Args:
        logits, drafts, q_ptr, cu_drafts, temperature, draft_temperature, seeds, positions,
            accept_coins, final_coins, tokens, emitted: as in ``chain_kernel``.
        pairs: [R, tiles] int64 that hold anything, and [D, tiles] from ``q_at`` on if Q = 2.
        counters: [R + B] int64, zero at the start: programs that are done with a row, and words.
        EARLY: how often a program looks whether earlier positions are decided before it reads.
    """
    if OVERLAP:
        gdc_wait()
    if OVERLAP == 2:
        gdc_launch_dependents()
    q_pairs = pairs + q_at
    words = counters + rows
    pid = tl.program_id(0).to(tl.int64)
    later = pid >= requests * shares
    pid -= tl.where(later, requests * shares, 0)
    parts = tl.where(later, shares_1, shares)
    size = GROUP * tl.where(later, STEPS_1, STEPS)
    share = (pid % parts).to(tl.int32)
    b = pid // parts % requests
    j = pid // parts // requests + later
    first, count = rows_of(cu_drafts, b, width, UNIFORM)
    word = tl.full([], 0, tl.int64)
    if j > 0:
        word = look(words + b, WIDTH)
        word = wait_for_rounds(words + b, word, j, EARLY, WIDTH)
    below = (tl.full([], 1, tl.int64) << tl.minimum(j, 27)) - 1
    if (j <= count) & (((word >> STOP_SHIFT) & FIELD & below) == 0):
        row = first + b + j
        slot = first + j
        row_ptr = logits + row * stride_r
        q_row = q_ptr + slot * q_stride_r
        at = share * size
        end = tl.minimum(at + size, tiles)
        head = load_head(row_ptr, stride_v, vocab, at, TILE)
        t = tl.load(temperature + b).to(tl.float64)
        is_draft = j < count
        draft = tl.load(drafts + slot, mask=is_draft, other=-1)
        seed = tl.load(seeds + b)
        place = tl.load(positions + b)
        greedy = t == 0
        scale = inverse_temperature(t)
        q_scale = scale
        dense = is_draft & (Q != 0)
        if Q == 2:
            tq = tl.load(draft_temperature + b).to(tl.float64)
            dense = is_draft & (tq != 0) & (not greedy)
            q_scale = inverse_temperature(tq)
        read_share(
            row_ptr, stride_v, vocab, at, end, scale, greedy, head, pairs + row * tiles, TILE,
            GROUP, max(STEPS, STEPS_1), STAGES,
        )  # fmt: skip
        if Q == 2:
            if dense:
                q_head = load_head(q_row, q_stride_v, vocab, at, TILE)
                read_share(
                    q_row, q_stride_v, vocab, at, end, q_scale, False, q_head,
                    q_pairs + slot * tiles, TILE, GROUP, max(STEPS, STEPS_1), STAGES,
                )  # fmt: skip
        # On its way while the counter is asked.
        own = tl.load(row_ptr + draft * stride_v, mask=draft >= 0, other=float("-inf"))
        own = own.to(tl.float32)
        q_own = own
        if Q != 0:
            q_own = tl.load(q_row + draft * q_stride_v, mask=draft >= 0, other=0.0).to(tl.float32)
        coin = accept_coin(accept_coins, slot, is_draft, seed, place + j, COINS)
        tl.debug_barrier()
        done = tl.atomic_add(counters + row, 1, sem="acq_rel")
        if done == parts - 1:
            top, total = load_pairs_of(pairs, row, tiles, TILES)
            q, q_top, q_mass = q_of_row(q_own, q_pairs, slot, tiles, q_scale, dense, Q, TILES)
            passed, token, weights, mass, row_top = judge(
                row_ptr, stride_v, vocab, top, total, draft, own, q, coin, scale, greedy, TILE,
                TILES,
            )  # fmt: skip
            stop = settle(words + b, j, count, passed, j != j, False)
            if stop <= count:
                if stop != j:
                    row = first + b + stop
                    slot = first + stop
                    row_ptr = logits + row * stride_r
                    q_row = q_ptr + slot * q_stride_r
                    draft = tl.load(drafts + slot, mask=stop < count, other=-1)
                    dense = (Q != 0) & (stop < count)
                    if Q == 2:
                        dense = dense & (tq != 0) & (not greedy)
                    q, q_top, q_mass = q_of_row(
                        q_own, q_pairs, slot, tiles, q_scale, dense, Q, TILES
                    )
                    top, total = load_pairs_of(pairs, row, tiles, TILES)
                    # -1 as the draft: what matters is the argmax of a row that is no law.
                    _passed, token, weights, mass, row_top = judge(
                        row_ptr, stride_v, vocab, top, total, draft * 0 - 1, own, q, coin, scale,
                        greedy, TILE, TILES,
                    )  # fmt: skip
                column = tl.arange(0, WIDTH)
                kept = tl.load(drafts + first + column, mask=column < stop, other=-1)
                if token < 0:
                    home_top = row_top
                    home_mass = tl.full([], 0.0, tl.float64)
                    if (draft >= 0) & (not dense):
                        home_top, home_mass = without_draft(
                            row_ptr, stride_v, vocab, draft, scale, TILE
                        )
                    last_coin = final_coin(final_coins, b, seed, place, COINS)
                    token = draw_last(
                        row_ptr, stride_v, q_row, q_stride_v, vocab, top, weights, mass, row_top,
                        draft, home_top, home_mass, dense, scale, q_top, q_mass, q_scale, seed,
                        place, last_coin, Q, COINS, LANES, TILE, TILES,
                    )  # fmt: skip
                write_tokens(tokens, emitted, kept, b, stop, token, width, WIDTH)
