"""Triton kernels of the trial loop: draw drafts and fill a batch, read an emission back, count.

They do on a GPU what :mod:`specverify._blocks` does on the CPU, bit for bit: the same Philox
addresses (:class:`specverify.streams.Stream`), the same float64 cumulative sums, uploaded, and a
search that is nothing but comparisons.  One program takes BLOCK trials of one request, a thread
one trial; only the rows that are copied are tiles [BLOCK, LANES].  Offsets inside a program are
32 bits wide and its first one 64: a block may be larger than 2**31 elements, a table may not.

A *plan* is an int32 matrix [7, positions] of one request: where the tables of each position start
and whether they depend on the prefix (drafter, then target logits, then shown q), and whether the
slot is a placeholder.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
# ruff: noqa: D417
from __future__ import annotations

import triton
import triton.language as tl

DRAFT_WORD = tl.constexpr(1 << 24)  # streams.Purpose.DRAFT
COMPLETION_WORD = tl.constexpr(4 << 24)  # streams.Purpose.COMPLETION
SEED_WORD = tl.constexpr(5 << 24)  # streams.Purpose.SEED


@triton.jit
def stream_words(key, trial, number, pair, purpose):
    """The Philox block of ``Stream.bits64`` for positions 2 * pair and 2 * pair + 1: 4 x [BLOCK].

    Words 0 and 1 are the high and low half for the even position, words 2 and 3 for the odd one.
    """
    zero = (trial ^ trial).to(tl.uint32)
    c0 = (trial & 0xFFFFFFFF).to(tl.uint32)
    c3 = ((trial >> 32) | purpose).to(tl.uint32)
    c1, c2 = (zero + number).to(tl.uint32), (zero + pair).to(tl.uint32)
    return tl.philox(key, c0, c1, c2, c3)


@triton.jit
def joined(high, low):
    """[BLOCK] uint64."""
    return (high.to(tl.uint64) << 32) | low.to(tl.uint64)


@triton.jit
def uniform(high, low):
    """``Stream.uniforms``: [BLOCK] float64 in [0, 1) on the grid of 2**-53."""
    return (joined(high, low) >> 11).to(tl.int64).to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def draw_token(cdf, row, coin, wanted, VOCAB: tl.constexpr, LANES: tl.constexpr):
    """[BLOCK] int32: the number of entries of a cumulative row that do not exceed the coin.

    A binary search: entries never fall, and the last one is infinite.  0 where not ``wanted``.
    """
    found = row ^ row
    before = row * VOCAB - 1
    for halving in tl.static_range(1, 9):
        if LANES >> halving > 0:
            further = found + (LANES >> halving)
            known = wanted
            if VOCAB != LANES:
                known = wanted & (further <= VOCAB)
            upto = tl.load(cdf + (before + further), mask=known, other=float("inf"))
            found = tl.where(upto <= coin, further, found)
    return found


@triton.jit
def copy_row(source, row, out, place, here, VOCAB: tl.constexpr, LANES: tl.constexpr):
    """Rows ``row`` of one matrix of VOCAB columns become rows ``place`` of another."""
    lane = tl.arange(0, LANES)[None, :]
    taken = (row * VOCAB)[:, None] + lane
    put = (place * VOCAB)[:, None] + lane
    if VOCAB == LANES:
        tl.store(out + put, tl.load(source + taken), mask=here[:, None])
    else:
        values = tl.load(source + taken, mask=lane < VOCAB)
        tl.store(out + put, values, mask=here[:, None] & (lane < VOCAB))


# What changes from block to block or from request to request compiles nothing anew.
@triton.jit(
    do_not_specialize=[
        "key", "seed_base", "seed_step", "first_trial", "trials", "number", "row", "slot",
        "positions", "rows", "slots", "requests",
    ]
)  # fmt: skip
def fill_kernel(
    plan, cdf, logits_table, probs_table, logits, probs, ids, seeds, key, seed_base, seed_step,
    first_trial, trials, number, row, slot, positions, rows, slots, requests,
    DENSE: tl.constexpr, MIXED: tl.constexpr, VOCAB: tl.constexpr, BLOCK: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    """Draw the drafts of one request and write its part of the batch.

    Of P programs, program p takes BLOCK trials at p * BLOCK, (p + P) * BLOCK and so on.

    Args:
        plan: [7, positions] int32, see above; ``positions`` is one more than there are drafts.
        cdf: [N, V] float64, the drafter's cumulative rows.
        logits_table, probs_table: [N, V] rows of the whole case, as the sampler is to see them.
        logits: [T * rows, V] out; ``probs``: [T * slots, V] out if DENSE.
        ids: [T * slots] int64 out; ``seeds``: [T * requests] int64 out.
        seed_base, seed_step: the seeds are ``base + step * row`` modulo 2**64 unless MIXED.
        row, slot: where this request begins within one copy of the case.
    """
    i = tl.arange(0, BLOCK)
    for part in range(tl.program_id(0), tl.cdiv(trials, BLOCK), tl.num_programs(0)):
        first = tl.zeros([], dtype=tl.int64) + part * BLOCK
        here = i < trials - first
        trial = first + first_trial + i
        own_logits = logits + (first * rows + row) * VOCAB
        own_probs = probs + (first * slots + slot) * VOCAB
        own_ids = ids + first * slots + slot
        if MIXED:
            w0, w1, w2, w3 = stream_words(key, trial, number, 0, SEED_WORD)
            seed = joined(w0, w1).to(tl.int64, bitcast=True)
        else:
            seed = (trial * requests + number) * seed_step + seed_base
        tl.store(seeds + first * requests + number + i * requests, seed, mask=here)
        prefix = i ^ i
        w0 = prefix.to(tl.uint32)
        w1, w2, w3 = w0, w0, w0
        for j in range(0, positions):
            at = tl.load(plan + 2 * positions + j) + prefix * tl.load(plan + 3 * positions + j)
            copy_row(logits_table, at, own_logits, i * rows + j, here, VOCAB, LANES)
            if j < positions - 1:
                if DENSE:
                    at = tl.load(plan + 4 * positions + j)
                    at += prefix * tl.load(plan + 5 * positions + j)
                    copy_row(probs_table, at, own_probs, i * slots + j, here, VOCAB, LANES)
                if j % 2 == 0:
                    w0, w1, w2, w3 = stream_words(key, trial, number, j // 2, DRAFT_WORD)
                else:
                    w0, w1 = w2, w3
                at = tl.load(plan + j) + prefix * tl.load(plan + positions + j)
                token = draw_token(cdf, at, uniform(w0, w1), i >= 0, VOCAB, LANES)
                shown = tl.where(tl.load(plan + 6 * positions + j) == 1, -1, token)
                tl.store(own_ids + i * slots + j, shown.to(tl.int64), mask=here)
                prefix = prefix * VOCAB + token


@triton.jit(
    do_not_specialize=[
        "key", "first_trial", "trials", "number", "slot", "count", "limit", "start", "ends",
        "slots", "requests", "width",
    ]
)  # fmt: skip
def read_kernel(
    plan, cdf, tokens, emitted, ids, columns, flag, key, first_trial, trials, stride, number, slot,
    count, limit, start, ends, slots, requests, width,
    VOCAB: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Check what one request emitted in BLOCK trials, and complete it by the target's own draws.

    Args:
        plan: [2, limit] int32, where the target's cumulative rows start, and whether they depend
            on the prefix.
        cdf: [N, V] float64, read if ``limit`` > 1.
        tokens: [T * requests, width] int64; ``emitted``: [T * requests]; ``ids``: [T * slots].
        columns: [C, stride] int16 out, written up to ``stride`` >= T.
        flag: int32, set to 1 where something is not as the contract says.
        slot, count: first draft slot of the request in one copy of the case, and its drafts.
        limit: tokens that are completed.
        start: the request's first column: completed tokens, then drafts.
        ends: its column of accepted drafts; that of the last token comes ``requests`` later.
    """
    first = tl.program_id(0).to(tl.int64) * BLOCK
    i = tl.arange(0, BLOCK)
    here = i < trials - first
    kept = i < stride - first
    trial = first + first_trial + i
    wide = first * 0 + stride
    tokens += (first * requests + number) * width
    ids += first * slots + slot
    columns += first
    length = tl.load(emitted + first * requests + number + i * requests, mask=here, other=1) - 1
    bad = (length < 0) | (length > count)
    prefix = i ^ i
    final = length ^ length
    w0 = prefix.to(tl.uint32)
    w1, w2, w3 = w0, w0, w0
    for j in range(0, width):
        token = tl.load(tokens + i * (requests * width) + j, mask=here, other=-1)
        draft = (length ^ length) - 1
        if j < count:
            draft = tl.load(ids + i * slots + j, mask=here, other=-1)
            tl.store(columns + (start + limit + j) * wide + i, draft.to(tl.int16), mask=kept)
        bad |= (j < length) & ((token != draft) | (draft < 0))
        bad |= (j <= length) & ((token < 0) | (token >= VOCAB))
        bad |= (j > length) & (token != -1)
        final = tl.where(j == length, token, final)
        if j < limit:
            text = tl.minimum(tl.maximum(token, 0), VOCAB - 1).to(tl.int32)
            if j > 0:
                if j % 2 == 1:  # coin j - 1 completes position j
                    w0, w1, w2, w3 = stream_words(key, trial, number, j // 2, COMPLETION_WORD)
                else:
                    w0, w1 = w2, w3
                at = tl.load(plan + j) + prefix * tl.load(plan + limit + j)
                open_ = here & (length < j)
                drawn = draw_token(cdf, at, uniform(w0, w1), open_, VOCAB, LANES)
                text = tl.where(open_, drawn, text)
            tl.store(columns + (start + j) * wide + i, text.to(tl.int16), mask=kept)
            prefix = prefix * VOCAB + text
    tl.store(columns + ends * wide + i, length.to(tl.int16), mask=kept)
    tl.store(columns + (ends + requests) * wide + i, final.to(tl.int16), mask=kept)
    tl.store(flag + (i ^ i), 1, mask=bad & here)


@triton.jit
def cells_of(columns, recipe, i, loaded, stride, CHUNK: tl.constexpr):
    """``Cells`` of the trials ``i``, -1 for a trial that does not belong: [CHUNK] int32."""
    cell = i ^ i
    for term in range(0, tl.load(recipe)):
        entry = recipe + 8 + 3 * term
        weight, above = tl.load(entry).to(tl.int32), tl.load(entry + 2).to(tl.int32)
        seen = tl.load(columns + tl.load(entry + 1) * stride + i, mask=loaded, other=0)
        seen = seen.to(tl.int32)
        cell += weight * tl.where(above >= 0, (seen > above).to(tl.int32), seen)
    if tl.load(recipe + 4) > 0:
        length = tl.load(columns + tl.load(recipe + 1) * stride + i, mask=loaded, other=0)
        belongs = (length >= tl.load(recipe + 2)) & (length <= tl.load(recipe + 3))
        cell = tl.where(belongs, cell, -1)
    pairs = tl.load(recipe + 5).to(tl.int32)
    if pairs > 0:
        even, odd = tl.split(tl.reshape(cell, [CHUNK // 2, 2]))
        both = even * pairs + odd
        cell = tl.where(i % 2 == 0, tl.reshape(tl.join(both, both), [CHUNK]), -1)
    return cell


@triton.jit(do_not_specialize=["trials", "length"])
def tables_kernel(
    columns, recipes, counts, trials, stride, length, CHUNK: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    """Count tables of a case; grid [P, tables], chunks p, p + P and so on are program p's.

    Args:
        columns: [C, stride] int16 of which the first ``trials`` entries count; ``stride`` is a
            multiple of 16, so that loads are wide.
        recipes: [tables, length] int64: terms, the column of the accepted drafts, the least and
            the most of them that belong to the table, whether these bounds hold, cells of one
            trial of a pair (0: no pairs), where the table begins in ``counts``, its cells; then
            three numbers a term: weight, column, and the number that it must exceed (-1: the
            column itself counts).
        counts: [all cells] int64, added to; trials that do not belong are not counted.
        BINS: a power of two that no table exceeds, counted on the chip; 0: in ``counts``.
    """
    recipe = recipes + tl.program_id(1) * length
    pairs = tl.load(recipe + 5)
    counts += tl.load(recipe + 6)
    cells = tl.load(recipe + 7).to(tl.int32)
    used = tl.where(pairs > 0, trials - trials % 2, trials)
    lane = tl.arange(0, CHUNK)
    if BINS > 0:
        bins = tl.arange(0, BINS)
        total = bins ^ bins
    for begin in range(tl.program_id(0) * CHUNK, trials, tl.num_programs(0) * CHUNK):
        i = begin + lane
        cell = cells_of(columns, recipe, i, i < stride, stride, CHUNK)
        # What is out of range belongs to an emission that has been flagged.
        inside = (i < used) & (cell >= 0) & (cell < cells)
        if BINS > 0:
            total += tl.histogram(tl.where(inside, cell, 0), BINS, mask=inside)
        else:
            tl.atomic_add(counts + cell, (cell ^ cell).to(tl.int64) + 1, mask=inside, sem="relaxed")
    if BINS > 0:
        some = (bins < cells) & (total > 0)
        tl.atomic_add(counts + bins, total.to(tl.int64), mask=some, sem="relaxed")


@triton.jit(do_not_specialize=["trials", "cells"])
def count_kernel(index, counts, trials, cells, CHUNK: tl.constexpr):
    """Add one to ``counts`` [cells] int64 for every entry of ``index`` [trials] int64."""
    i = tl.program_id(0).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    cell = tl.load(index + i, mask=i < trials, other=-1)
    inside = (cell >= 0) & (cell < cells)
    tl.atomic_add(counts + cell, (cell ^ cell) + 1, mask=inside, sem="relaxed")
