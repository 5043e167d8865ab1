"""Chain verification in one launch; equals :class:`specverify.reference.ChainSampler`.

One program reads a few tiles of one target row and posts a pair for each (:mod:`._pairs`).  The
program of the row's last tiles awaits the pairs of the others, decides the row and, unless the
request is known to stop before it, draws the token that the request would emit if it stopped here.
Before it draws it posts whether it accepts (:mod:`._verdicts`), and afterwards it has the verdicts
on the rows before: the one that stops writes the output.  There are no counters, fences or atomics:
what takes time in a small batch is the chain of memory round trips, and these are the fewest.

With EARLY a program looks first whether an earlier row of its request is known to stop it, and then
reads nothing.  :mod:`.chain_rounds` is the form for the largest batches.

A program awaits programs with lower ids alone.  A GPU starts programs in the order of their ids
(work-efficient scans rely on that, too), so those run or have ended, and a launch needs no room for
all programs at a time.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
# ruff: noqa: ARG001, D417, SIM102
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._decide import (
    accept_coin,
    draw_last,
    final_coin,
    judge,
    q_of,
    rows_of,
    without_draft,
    write_tokens,
)
from specverify.kernels._draw import inverse_temperature
from specverify.kernels._pairs import await_pairs, post, post_nothing
from specverify.kernels._read import exact_pairs, load_group, load_head, read_share
from specverify.kernels._verdicts import all_passed, stopped, tag_of, verdict
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

ONE_HOT, PROBS, LOGITS = 0, 1, 2
"""Forms of q: none, probabilities, draft logits with the drafter's temperature."""


# Counts that change from call to call must not compile a kernel of their own.
@triton.jit(do_not_specialize=["requests", "rows", "q_at", "tiles", "shares", "shares_1", "width"])
def chain_kernel(
    logits, drafts, q_ptr, cu_drafts, temperature, draft_temperature, seeds, positions,
    accept_coins, final_coins, pairs, verdicts, epochs, tokens, emitted,
    stride_r, stride_v, q_stride_r, q_stride_v, vocab, requests, rows, q_at, tiles, shares,
    shares_1, width,
    Q: tl.constexpr, COINS: tl.constexpr, UNIFORM: tl.constexpr, TILE: tl.constexpr,
    GROUP: tl.constexpr, STEPS: tl.constexpr, STEPS_1: tl.constexpr, STAGES: tl.constexpr,
    EARLY: tl.constexpr, LANES: tl.constexpr, TILES: tl.constexpr, WIDTH: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """One share of one row, STEPS groups of GROUP tiles; grid width * requests * shares.

    Args:
        logits: [R, V] target logits of any floating dtype, with strides.
        drafts: [D] int64, -1 is a placeholder.
        q_ptr: [D, V] draft probabilities (Q = 1) or draft logits (Q = 2).
        cu_drafts: [B + 1] int64; not read if UNIFORM, when all requests have width - 1 drafts.
        temperature: [B]; ``draft_temperature``: [B], read if Q = 2.
        seeds: [B] int64 holding uint64 bits; ``positions``: [B] int64.
        accept_coins, final_coins: [D], [B] float64, read if COINS.
        pairs: [R, tiles] int64, and [D, tiles] from ``q_at`` on if Q = 2; all zero at the start
            and at the end.
        verdicts, epochs: [R], [B] int64, zero when they are new.
        tokens: [B, width] int64 out; ``emitted``: [B] int64 out.
    """
    if OVERLAP:
        gdc_wait()
    if OVERLAP == 2:
        gdc_launch_dependents()
    q_pairs = pairs + q_at
    pid = tl.program_id(0).to(tl.int64)
    later = pid >= requests * shares
    pid -= tl.where(later, requests * shares, 0)
    shares = tl.where(later, shares_1, shares)
    size = GROUP * tl.where(later, STEPS_1, STEPS)
    share = (pid % shares).to(tl.int32)
    b = pid // shares % requests
    j = pid // shares // requests + later
    first, count = rows_of(cu_drafts, b, width, UNIFORM)
    if j <= count:
        row = first + b + j
        slot = first + j
        row_ptr = logits + row * stride_r
        q_row = q_ptr + slot * q_stride_r
        at = share * size
        end = tl.minimum(at + size, tiles)
        alive = j == j
        epoch = tl.load(epochs + b)
        tag = tag_of(epoch, b)
        if EARLY:
            if later:
                alive = not stopped(verdicts + first + b, tag, j, WIDTH)
        if STEPS == 1:
            x = load_group(row_ptr, stride_v, at, vocab, TILE, GROUP)
        else:
            head = load_head(row_ptr, stride_v, vocab, at, TILE)
        t = tl.load(temperature + b).to(tl.float64)
        is_draft = j < count
        draft = tl.load(drafts + slot, mask=is_draft, other=-1)
        seed = tl.load(seeds + b)
        place = tl.load(positions + b)
        decides = share == shares - 1
        greedy = t == 0
        scale = inverse_temperature(t)
        q_scale = scale
        dense = is_draft & (Q != 0)
        if Q == 2:
            tq = tl.load(draft_temperature + b).to(tl.float64)
            dense = is_draft & (tq != 0) & (not greedy)
            q_scale = inverse_temperature(tq)
        own = tl.full([], float("-inf"), tl.float32)
        q_own = own
        home_top = own
        home_mass = tl.full([], 0.0, tl.float64)
        if STEPS != 1:
            if alive:
                read_share(
                    row_ptr, stride_v, vocab, at, end, scale, greedy, head, pairs + row * tiles,
                    TILE, GROUP, max(STEPS, STEPS_1), STAGES,
                )  # fmt: skip
            else:
                post_nothing(pairs + row * tiles, at, end, 128)
        # On its way while the share is summed, or while the other shares are awaited.
        if decides & (draft >= 0) & alive:
            own = tl.load(row_ptr + draft * stride_v).to(tl.float32)
            if Q != 0:
                q_own = tl.load(q_row + draft * q_stride_v).to(tl.float32)
            if (not dense) & (not greedy):
                home_top, home_mass = without_draft(row_ptr, stride_v, vocab, draft, scale, TILE)
        if STEPS == 1:
            tops, totals = exact_pairs(x, scale, greedy)
            post(pairs + row * tiles, at + tl.arange(0, GROUP), end, tops, totals)
        if Q == 2:
            if dense & alive:
                q_head = load_head(q_row, q_stride_v, vocab, at, TILE)
                read_share(
                    q_row, q_stride_v, vocab, at, end, q_scale, False, q_head,
                    q_pairs + slot * tiles, TILE, GROUP, max(STEPS, STEPS_1), STAGES,
                )  # fmt: skip
            elif dense:
                post_nothing(q_pairs + slot * tiles, at, end, 128)
        if decides:
            column = tl.arange(0, WIDTH)
            kept = tl.load(drafts + first + column, mask=column < count, other=-1)
            coin = accept_coin(accept_coins, slot, is_draft, seed, place + j, COINS)
            last_coin = final_coin(final_coins, b, seed, place, COINS)
            needless = stopped(verdicts + first + b, tag, j, WIDTH)
            top, total = await_pairs(pairs, row, tiles, TILES)
            q, q_top, q_mass = q_of(q_own, q_pairs, slot, tiles, q_scale, dense, Q, TILES)
            passed = j == j
            token = tl.full([], 0, tl.int64)
            if alive:
                passed, token, weights, mass, row_top = judge(
                    row_ptr, stride_v, vocab, top, total, draft, own, q, coin, scale, greedy, TILE,
                    TILES,
                )  # fmt: skip
                if is_draft:
                    tl.store(verdicts + row, verdict(tag, passed))
                if (not passed) & (token < 0) & (not needless):
                    token = draw_last(
                        row_ptr, stride_v, q_row, q_stride_v, vocab, top, weights, mass, row_top,
                        draft, home_top, home_mass, dense, scale, q_top, q_mass, q_scale, seed,
                        place, last_coin, Q, COINS, LANES, TILE, TILES,
                    )  # fmt: skip
            elif is_draft:
                # Some row before it stops the request, so that nobody cares.
                tl.store(verdicts + row, verdict(tag, passed))
            before = all_passed(verdicts + first + b, tag, j, WIDTH)
            if before & (not passed):
                write_tokens(tokens, emitted, kept, b, j, token, width, WIDTH)
            if not is_draft:
                tl.store(epochs + b, epoch + 1)
