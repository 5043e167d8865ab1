"""Top-k, top-p and min-p applied to the logits themselves, without a sort.

Keeps what :mod:`specverify.sampling` keeps under the same convention.  The rows are read as the
filtered verification reads them, one program a row finds where the filters cut it, and a last
launch writes the rows with -inf where a token is dropped.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._bounds import CAP
from specverify.kernels._draw import filters_on, inverse_temperature, load_at, load_pairs
from specverify.kernels._kept import is_kept
from specverify.kernels._parts import SPLIT, parts_of
from specverify.kernels._resolve import resolve
from specverify.kernels.filtered import usable


@triton.jit(do_not_specialize=["requests", "tiles", "shares"])
def cut_kernel(
    logits, stride_r, stride_v, cu_drafts, temperature, top_ks, top_ps, min_ps, max_ptr, sum_ptr,
    keys_ptr, list_ptr, marks, requests, vocab, tiles, shares,
    SEQUENTIAL: tl.constexpr, UNIT: tl.constexpr, TILE: tl.constexpr, AT_ONCE: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """Leave the cut of one row after ``read_kernel``; a row that is no law has it at 0."""
    PART: tl.constexpr = TILE // SPLIT
    vocab = tl.cast(vocab, tl.int32)
    pid = tl.program_id(0).to(tl.int64)
    b = pid % requests
    j = pid // requests
    first = tl.load(cu_drafts + b)
    t = tl.load(temperature + b).to(tl.float64)
    top_k = tl.load(top_ks + b)
    top_p = tl.load(top_ps + b).to(tl.float64)
    min_p = tl.load(min_ps + b).to(tl.float64)
    on = filters_on(t, top_k, top_p, min_p, vocab)
    if on & (j <= tl.load(cu_drafts + b + 1) - first):
        row = first + b + j
        scale = inverse_temperature(t)
        at = row * tiles
        top, total = load_pairs(max_ptr + at, sum_ptr + at, row * 0, shares, TILES)
        row_top, mass, valid = usable(top, total, scale)
        cut = tl.zeros([], dtype=tl.uint32)
        last = vocab
        if valid:
            cut, last, _kept, _listed, _ids, _e = resolve(
                logits + row * stride_r, stride_v, vocab, parts_of(tiles),
                keys_ptr + row * parts_of(tiles), list_ptr + row * CAP, row_top, mass, t, scale,
                top_k, top_p, min_p, SEQUENTIAL, UNIT, PART, TILES * SPLIT, AT_ONCE,
            )  # fmt: skip
        tl.store(marks + row * 2, cut.to(tl.int64))
        tl.store(marks + row * 2 + 1, last.to(tl.int64))


@triton.jit(do_not_specialize=["requests", "blocks"])
def apply_kernel(
    logits, stride_r, stride_v, out, out_stride_r, out_stride_v, cu_drafts, temperature, top_ks,
    top_ps, min_ps, marks, requests, vocab, blocks, IN_PLACE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write BLOCK tokens of one row.  ``out`` has the dtype of the logits."""
    pid = tl.program_id(0).to(tl.int64)
    block = pid % blocks
    pair = pid // blocks
    b = pair % requests
    j = pair // requests
    first = tl.load(cu_drafts + b)
    t = tl.load(temperature + b).to(tl.float64)
    top_p = tl.load(top_ps + b).to(tl.float64)
    min_p = tl.load(min_ps + b).to(tl.float64)
    on = filters_on(t, tl.load(top_ks + b), top_p, min_p, vocab)
    if (on | (not IN_PLACE)) & (j <= tl.load(cu_drafts + b + 1) - first):
        row = first + b + j
        start = block * BLOCK
        inside = tl.arange(0, BLOCK)
        here = inside < (vocab - start).to(tl.int32)
        source = logits + row * stride_r + start * stride_v
        x = load_at(source, inside, stride_v, here, float("-inf"))
        if on:
            cut = tl.load(marks + row * 2).to(tl.uint32)
            last = tl.load(marks + row * 2 + 1)
            x = tl.where(is_kept(x, start + inside, cut, last), x, float("-inf"))
        at = out + row * out_stride_r + (start + inside) * out_stride_v
        tl.store(at, x.to(out.dtype.element_ty), mask=here)
