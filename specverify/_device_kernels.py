"""Triton kernels of the trial loop: draw drafts and fill a batch, read an emission back, count.

They do on a GPU what :mod:`specverify._blocks` does on the CPU, bit for bit: the same Philox
addresses (:class:`specverify.streams.Stream`), the same float64 cumulative sums, uploaded, and a
search that is nothing but comparisons.  One program takes BLOCK trials of one request.

A *plan* is an int64 matrix [7, positions] of one request: where the tables of each position start
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
def stream_bits(key, trial, number, position, purpose):
    """``Stream.bits64``: [BLOCK] uint64."""
    zero = trial ^ trial
    position = zero + position
    c0 = (trial & 0xFFFFFFFF).to(tl.uint32)
    c1 = (zero + number).to(tl.uint32)
    c2 = (position >> 1).to(tl.uint32)
    c3 = ((trial >> 32) | purpose).to(tl.uint32)
    w0, w1, w2, w3 = tl.philox(key, c0, c1, c2, c3)
    odd = (position & 1) == 1
    high, low = tl.where(odd, w2, w0), tl.where(odd, w3, w1)
    return (high.to(tl.uint64) << 32) | low.to(tl.uint64)


@triton.jit
def stream_uniform(key, trial, number, position, purpose):
    """``Stream.uniforms``: [BLOCK] float64 in [0, 1) on the grid of 2**-53."""
    bits = stream_bits(key, trial, number, position, purpose)
    return (bits >> 11).to(tl.int64).to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def draw_token(cdf, row, coin, here, vocab, LANES: tl.constexpr):
    """[BLOCK] int64: the number of entries of a cumulative row that do not exceed the coin."""
    lane = tl.arange(0, LANES)
    mask = here[:, None] & (lane < vocab)[None, :]
    upto = tl.load(cdf + (row * vocab)[:, None] + lane[None, :], mask=mask, other=float("inf"))
    return tl.sum((upto <= coin[:, None]).to(tl.int64), 1)


@triton.jit
def copy_row(source, row, out, place, here, vocab, LANES: tl.constexpr):
    """Rows ``row`` of one matrix of ``vocab`` columns become rows ``place`` of another."""
    lane = tl.arange(0, LANES)[None, :]
    mask = here[:, None] & (lane < vocab)
    values = tl.load(source + (row * vocab)[:, None] + lane, mask=mask)
    tl.store(out + (place * vocab)[:, None] + lane, values, mask=mask)


# What changes from block to block or from request to request compiles nothing anew.
@triton.jit(
    do_not_specialize=["key", "first_trial", "trials", "number", "row", "slot", "positions"]
)
def fill_kernel(
    plan, cdf, logits_table, probs_table, logits, probs, ids, seeds, key, first_trial, trials,
    number, row, slot, positions, rows, slots, requests, vocab,
    DENSE: tl.constexpr, MIXED: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Draw the drafts of one request in BLOCK trials and write its part of the batch.

    Args:
        plan: [7, positions] int64, see above; ``positions`` is one more than there are drafts.
        cdf: [N, V] float64, the drafter's cumulative rows.
        logits_table, probs_table: [N, V] rows of the whole case, as the sampler is to see them.
        logits: [T * rows, V] out; ``probs``: [T * slots, V] out if DENSE.
        ids: [T * slots] int64 out; ``seeds``: [T * requests] int64 out if MIXED.
        row, slot: where this request begins within one copy of the case.
    """
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = i < trials
    trial = i + first_trial
    prefix = tl.zeros([BLOCK], dtype=tl.int64)
    if MIXED:
        bits = stream_bits(key, trial, number, 0, SEED_WORD)
        tl.store(seeds + i * requests + number, bits.to(tl.int64, bitcast=True), mask=here)
    for j in range(0, positions):
        at = tl.load(plan + 2 * positions + j) + prefix * tl.load(plan + 3 * positions + j)
        copy_row(logits_table, at, logits, i * rows + row + j, here, vocab, LANES)
        if j < positions - 1:
            place = i * slots + slot + j
            if DENSE:
                at = tl.load(plan + 4 * positions + j) + prefix * tl.load(plan + 5 * positions + j)
                copy_row(probs_table, at, probs, place, here, vocab, LANES)
            coin = stream_uniform(key, trial, number, j, DRAFT_WORD)
            at = tl.load(plan + j) + prefix * tl.load(plan + positions + j)
            token = draw_token(cdf, at, coin, here, vocab, LANES)
            hole = tl.load(plan + 6 * positions + j)
            tl.store(ids + place, tl.where(hole == 1, -1, token), mask=here)
            prefix = prefix * vocab + token


@triton.jit(do_not_specialize=["key", "first_trial", "trials", "number", "slot", "count", "limit"])
def read_kernel(
    plan, cdf, tokens, emitted, ids, columns, flag, key, first_trial, trials, number, slot, count,
    limit, slots, requests, width, vocab,
    BLOCK: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Check what one request emitted in BLOCK trials, and complete it by the target's own draws.

    Args:
        plan: [2, limit] int64, where the target's cumulative rows start, and whether they depend
            on the prefix.
        cdf: [N, V] float64, read if ``limit`` > 1.
        tokens: [T * requests, width] int64; ``emitted``: [T * requests]; ``ids``: [T * slots].
        columns: [limit + count + 2, T] int64 out: completed tokens, drafts, accepted, last.
        flag: int32, set to 1 where something is not as the contract says.
        slot, count: first draft slot of the request in one copy of the case, and its drafts.
        limit: tokens that are completed.
    """
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = i < trials
    trial = i + first_trial
    length = tl.load(emitted + i * requests + number, mask=here, other=1) - 1
    bad = (length < 0) | (length > count)
    prefix = tl.zeros([BLOCK], dtype=tl.int64)
    final = tl.zeros([BLOCK], dtype=tl.int64)
    for j in range(0, width):
        token = tl.load(tokens + (i * requests + number) * width + j, mask=here, other=-1)
        kept = here & (j < length)
        draft = tl.zeros([BLOCK], dtype=tl.int64) - 1
        if j < count:
            draft = tl.load(ids + i * slots + slot + j, mask=here, other=-1)
            tl.store(columns + (limit + j) * trials + i, draft, mask=here)
        bad |= kept & ((token != draft) | (draft < 0))
        bad |= here & (j <= length) & ((token < 0) | (token >= vocab))
        bad |= here & (j > length) & (token != -1)
        final = tl.where(j == length, token, final)
        if j < limit:
            token = tl.minimum(tl.maximum(token, 0), vocab - 1)
            if j > 0:
                rows = tl.load(plan + j) + prefix * tl.load(plan + limit + j)
                coin = stream_uniform(key, trial, number, j - 1, COMPLETION_WORD)
                open_ = here & (length < j)
                drawn = draw_token(cdf, rows, coin, open_, vocab, LANES)
                token = tl.where(open_, drawn, token)
            tl.store(columns + j * trials + i, token, mask=here)
            prefix = prefix * vocab + token
    tl.store(columns + (limit + count) * trials + i, length, mask=here)
    tl.store(columns + (limit + count + 1) * trials + i, final, mask=here)
    tl.store(flag + (i ^ i), 1, mask=bad & here)


@triton.jit
def add_to(counts, cell, cells, here, BINS: tl.constexpr):
    """Add one to ``counts`` [cells] for every entry of ``cell`` where ``here``.

    Small tables are counted in shared memory first.  What is out of range belongs to an emission
    that has been flagged, and is left out.
    """
    inside = here & (cell >= 0) & (cell < cells)
    if cells <= BINS:
        some = tl.histogram(tl.where(inside, cell, 0).to(tl.int32), BINS, mask=inside)
        bins = tl.arange(0, BINS)
        tl.atomic_add(counts + bins, some.to(tl.int64), mask=(bins < cells) & (some > 0))
    else:
        one = (cell ^ cell) + 1
        tl.atomic_add(counts + cell, one, mask=inside)


@triton.jit
def cell_of(columns, recipe, i, here, stride):
    """``Cells`` of the trials ``i``, without the pairing: [CHUNK] int64."""
    cell = i ^ i
    for term in range(0, tl.load(recipe)):
        entry = recipe + 8 + 3 * term
        weight, above = tl.load(entry), tl.load(entry + 2)
        seen = tl.load(columns + tl.load(entry + 1) * stride + i, mask=here, other=0)
        cell += weight * tl.where(above >= 0, (seen > above).to(tl.int64), seen)
    length = tl.load(columns + tl.load(recipe + 1) * stride + i, mask=here, other=0)
    belongs = (length >= tl.load(recipe + 2)) & (length <= tl.load(recipe + 3))
    return tl.where(belongs, cell, tl.load(recipe + 4))


@triton.jit(do_not_specialize=["trials", "stride", "length"])
def tables_kernel(
    columns, recipes, counts, trials, stride, length, CHUNK: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    """Count all tables of a case; grid [ceil(trials / CHUNK), tables].

    Args:
        columns: [C, stride] int64 of which the first ``trials`` entries count.
        recipes: [tables, length] int64: terms, the column of the accepted drafts, the least and
            the most of them that belong to the table, the cell of the rest, cells of one trial of
            a pair (0: no pairs), where the table begins in ``counts``, its cells; then three
            numbers a term: weight, column, and the number that it must exceed (-1: the column
            itself counts).
        counts: [all cells] int64, added to.
    """
    recipe = recipes + tl.program_id(1) * length
    pairs = tl.load(recipe + 5)
    i = tl.program_id(0).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    here = i < tl.where(pairs > 0, trials // 2, trials)
    cell = cell_of(columns, recipe, i * tl.where(pairs > 0, 2, 1), here, stride)
    if pairs > 0:
        cell = cell * pairs + cell_of(columns, recipe, 2 * i + 1, here, stride)
    add_to(counts + tl.load(recipe + 6), cell, tl.load(recipe + 7), here, BINS)


@triton.jit(do_not_specialize=["trials", "cells"])
def count_kernel(index, counts, trials, cells, CHUNK: tl.constexpr, BINS: tl.constexpr):
    """Add one to ``counts`` [cells] int64 for every entry of ``index`` [trials] int64."""
    i = tl.program_id(0).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    cell = tl.load(index + i, mask=i < trials, other=-1)
    add_to(counts, cell, cells, i < trials, BINS)
