"""Triton kernels of the trial loop: draw drafts and fill a batch, read an emission back, count.

They do on a GPU what :mod:`specverify._blocks` does on the CPU, bit for bit: the same Philox
addresses (:class:`specverify.streams.Stream`), the same float64 cumulative sums, uploaded, and a
search that is nothing but comparisons.  One program takes BLOCK trials of one request, a thread
one trial; only the rows that are copied are tiles [BLOCK, STEP, LANES].  Offsets inside a program
are 32 bits wide and its first one 64: a block may be larger than 2**31 elements, a table may not.

The *prefix* of a position is the number whose digits to the base V are the drafts before it.  A
*plan* is an int32 matrix [8, positions] of one request: where the tables of each position start
and whether they depend on the prefix (drafter, then target logits, then shown q), whether the slot
is a placeholder, and what takes the last drafts off the prefix of the deepest position: bits to
shift by if V is a power of two, a divisor if not.
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
def cdf_entry(cdf, before, number, VOCAB: tl.constexpr, LANES: tl.constexpr):
    """[BLOCK] float64: entry ``number`` - 1 of each row, infinite behind its end."""
    if VOCAB == LANES:
        return tl.load(cdf + (before + number))
    return tl.load(cdf + (before + number), mask=number <= VOCAB, other=float("inf"))


@triton.jit
def draw_token(cdf, row, coin, VOCAB: tl.constexpr, LANES: tl.constexpr):
    """[BLOCK] int32: the number of entries of a cumulative row that do not exceed the coin.

    A binary search: entries never fall, and the last one is infinite.
    """
    found = row ^ row
    before = row * VOCAB - 1
    for level in tl.static_range(1, 9):
        if LANES >> level > 0:
            x = cdf_entry(cdf, before, found + (LANES >> level), VOCAB, LANES)
            found = tl.where(x <= coin, found + (LANES >> level), found)
    return found


@triton.jit
def rows_at(table, plan, prefix, j, known, positions, VOCAB: tl.constexpr, LANES: tl.constexpr):
    """[BLOCK, STEP, LANES]: the rows that positions ``j`` [1, STEP] have after these prefixes.

    Args:
        plan: where the tables of each position start, then whether they depend on the prefix.
        prefix: [BLOCK, STEP] int32, of position j.
        known: [1, STEP], which positions there are.
    """
    start = tl.load(plan + j, mask=known, other=0)
    at = start + prefix * tl.load(plan + positions + j, mask=known, other=0)
    lane = tl.arange(0, LANES)[None, None, :]
    here = known[:, :, None]
    if VOCAB != LANES:
        here = here & (lane < VOCAB)
    return tl.load(table + ((at * VOCAB)[:, :, None] + lane), mask=here)


@triton.jit
def put_rows(values, out, place, here, VOCAB: tl.constexpr, LANES: tl.constexpr):
    """[BLOCK, STEP, LANES] become the rows ``place`` [BLOCK, STEP] of a matrix, where ``here``.

    Streaming stores, so that the tables that are read stay in the cache.
    """
    lane = tl.arange(0, LANES)[None, None, :]
    here = here[:, :, None]
    if VOCAB != LANES:
        here = here & (lane < VOCAB)
    tl.store(out + ((place * VOCAB)[:, :, None] + lane), values, mask=here, cache_modifier=".cs")


# What changes from block to block or from request to request compiles nothing anew.
@triton.jit(
    do_not_specialize=[
        "key", "seed_base", "seed_step", "first_trial", "trials", "number", "row", "slot",
        "positions", "depth", "rows", "slots", "requests",
    ]
)  # fmt: skip
def fill_kernel(
    plan, cdf, logits_table, probs_table, logits, probs, ids, seeds, key, seed_base, seed_step,
    first_trial, trials, number, row, slot, positions, depth, rows, slots, requests,
    DENSE: tl.constexpr, MIXED: tl.constexpr, VOCAB: tl.constexpr, BLOCK: tl.constexpr,
    LANES: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Draw the drafts of one request and write its part of the batch.

    Of P programs, program p takes BLOCK trials at p * BLOCK, (p + P) * BLOCK and so on.  It draws
    all drafts first, of which a number, the prefix, is left; then it copies the rows of STEP
    positions at a time, all loads before the first store.

    Args:
        plan: [8, positions] int32, see above; ``positions`` is one more than there are drafts.
        cdf: [N, V] float64, the drafter's cumulative rows.
        logits_table, probs_table: [N, V] rows of the whole case, as the sampler is to see them.
        logits: [T * rows, V] out; ``probs``: [T * slots, V] out if DENSE.
        ids: [T * slots] int64 out; ``seeds``: [T * requests] int64 out.
        seed_base, seed_step: the seeds are ``base + step * row`` modulo 2**64 unless MIXED.
        row, slot: where this request begins within one copy of the case.
        depth: the last position whose tables depend on the prefix; drafts from there on are no
            part of it.
    """
    i = tl.arange(0, BLOCK)
    for part in range(tl.program_id(0), tl.cdiv(trials, BLOCK), tl.num_programs(0)):
        first = tl.zeros([], dtype=tl.int64) + part * BLOCK
        here = i < trials - first
        trial = first + first_trial + i
        if MIXED:
            w0, w1, w2, w3 = stream_words(key, trial, number, 0, SEED_WORD)
            seed = joined(w0, w1).to(tl.int64, bitcast=True)
        else:
            seed = (trial * requests + number) * seed_step + seed_base
        tl.store(seeds + first * requests + number + i * requests, seed, mask=here)
        own_ids = ids + first * slots + slot
        prefix = i ^ i
        w0 = prefix.to(tl.uint32)
        w1, w2, w3 = w0, w0, w0
        for j in range(0, positions - 1):
            if j % 2 == 0:
                w0, w1, w2, w3 = stream_words(key, trial, number, j // 2, DRAFT_WORD)
            else:
                w0, w1 = w2, w3
            at = tl.load(plan + j) + prefix * tl.load(plan + positions + j)
            token = draw_token(cdf, at, uniform(w0, w1), VOCAB, LANES)
            shown = tl.where(tl.load(plan + 6 * positions + j) == 1, -1, token)
            tl.store(own_ids + i * slots + j, shown.to(tl.int64), mask=here)
            prefix = tl.where(j < depth, prefix * VOCAB + token, prefix)
        own_logits = logits + (first * rows + row) * VOCAB
        own_probs = probs + (first * slots + slot) * VOCAB
        for begin in range(0, positions, STEP):
            these = begin + tl.arange(0, STEP)[None, :]
            known = these < positions
            cut = tl.load(plan + 7 * positions + these, mask=known, other=1)
            before = prefix[:, None] >> cut if VOCAB == LANES else prefix[:, None] // cut
            own = plan + 2 * positions
            x = rows_at(logits_table, own, before, these, known, positions, VOCAB, LANES)
            if DENSE:
                own = plan + 4 * positions
                fewer = these < positions - 1
                y = rows_at(probs_table, own, before, these, fewer, positions, VOCAB, LANES)
                place, kept = i[:, None] * slots + these, here[:, None] & fewer
                put_rows(y, own_probs, place, kept, VOCAB, LANES)
            place, kept = i[:, None] * rows + these, here[:, None] & known
            put_rows(x, own_logits, place, kept, VOCAB, LANES)


@triton.jit(
    do_not_specialize=[
        "key", "first_trial", "trials", "sixteens", "number", "slot", "count", "limit", "start",
        "ends", "slots", "requests", "width",
    ]
)  # fmt: skip
def read_kernel(
    plan, cdf, tokens, emitted, ids, columns, flag, key, first_trial, trials, sixteens, number,
    slot, count, limit, start, ends, slots, requests, width,
    VOCAB: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Check what one request emitted in BLOCK trials, and complete it by the target's own draws.

    Args:
        plan: [2, limit] int32, where the target's cumulative rows start, and whether they depend
            on the prefix.
        cdf: [N, V] float64, read if ``limit`` > 1.
        tokens: [T * requests, width] int64; ``emitted``: [T * requests]; ``ids``: [T * slots].
        columns: [C, 16 * sixteens] int16 out, written to their end, which is not before T.
        flag: int32, set to 1 where something is not as the contract says.
        slot, count: first draft slot of the request in one copy of the case, and its drafts.
        limit: tokens that are completed.
        start: the request's first column: completed tokens, then drafts.
        ends: its column of accepted drafts; that of the last token comes ``requests`` later.
    """
    first = tl.program_id(0).to(tl.int64) * BLOCK
    i = tl.arange(0, BLOCK)
    here = i < trials - first
    wide = (first * 0 + sixteens) * 16
    kept = i < wide - first
    trial = first + first_trial + i
    # Pointers that move: as an index of 64 bits j would double what is compared with it.
    own_tokens = tokens + (first * requests + number) * width + i * (requests * width)
    own_ids = ids + first * slots + slot + i * slots
    columns += first
    texts = columns + start * wide + i
    drafts = columns + (start + limit) * wide + i
    long = tl.load(emitted + first * requests + number + i * requests, mask=here, other=1) - 1
    bad = ((long < 0) | (long > count)).to(tl.int32)
    length = long.to(tl.int32)  # what 32 bits do not hold is bad
    prefix = i ^ i
    final = i ^ i
    w0 = prefix.to(tl.uint32)
    w1, w2, w3 = w0, w0, w0
    for j in range(0, width):
        long = tl.load(own_tokens, mask=here, other=-1)
        token = long.to(tl.int32)
        draft = (i ^ i) - 1
        if j < count:
            draft = tl.load(own_ids, mask=here, other=-1).to(tl.int32)
            tl.store(drafts, draft.to(tl.int16), mask=kept)
        final = tl.where(j == length, token, final)
        if j < limit:
            text = tl.minimum(tl.maximum(token, 0), VOCAB - 1)
            if j > 0:
                if j % 2 == 1:  # coin j - 1 completes position j
                    w0, w1, w2, w3 = stream_words(key, trial, number, j // 2, COMPLETION_WORD)
                else:
                    w0, w1 = w2, w3
                open_ = here & (length < j)
                at = tl.load(plan) + tl.where(open_, prefix, 0) * tl.load(plan + limit)
                drawn = draw_token(cdf, at, uniform(w0, w1), VOCAB, LANES)
                text = tl.where(open_, drawn, text)
            tl.store(texts, text.to(tl.int16), mask=kept)
            prefix = prefix * VOCAB + text
        bad |= (token != long).to(tl.int32)
        bad |= ((j < length) & ((token != draft) | (draft < 0))).to(tl.int32)
        bad |= ((j <= length) & ((token < 0) | (token >= VOCAB))).to(tl.int32)
        bad |= ((j > length) & (token != -1)).to(tl.int32)
        own_tokens += 1
        own_ids += 1
        plan += 1
        texts += wide
        drafts += wide
    tl.store(columns + ends * wide + i, length.to(tl.int16), mask=kept)
    tl.store(columns + (ends + requests) * wide + i, final.to(tl.int16), mask=kept)
    tl.store(flag + (i ^ i), 1, mask=(bad != 0) & here)


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


@triton.jit(do_not_specialize=["trials", "sixteens", "length"])
def tables_kernel(
    columns, recipes, counts, trials, sixteens, length, CHUNK: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    """Count tables of a case; grid [P, tables], chunks p, p + P and so on are program p's.

    Args:
        columns: [C, 16 * sixteens] int16 of which the first ``trials`` entries count; loads are
            wide.
        recipes: [tables, length] int64: terms, the column of the accepted drafts, the least and
            the most of them that belong to the table, whether these bounds hold, cells of one
            trial of a pair (0: no pairs), where the table begins in ``counts``, its cells; then
            three numbers a term: weight, column, and the number that it must exceed (-1: the
            column itself counts).
        counts: [all cells] int64, added to; trials that do not belong are not counted.
        BINS: a power of two that no table exceeds, counted on the chip; 0: in ``counts``.
    """
    stride = sixteens * 16
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
