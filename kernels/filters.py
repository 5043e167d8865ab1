"""Top-k, top-p and min-p without a sort; keeps what :mod:`specverify.sampling` keeps (REFERENCE).

Every filter of the reference convention keeps a beginning of the tokens in descending order, ties
by ascending id: exactly k; the smallest set that reaches top_p of the whole law; everything within
min_p of the largest.  So a row is cut at one value, and among the tokens of that value after the
first few.  The value is found bit by bit on the logits' order-preserving 32-bit keys, a pass over
the row for each bit, top-k and top-p in the same passes; then one pass writes the row with -inf
where a token is dropped.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._draw import inverse_temperature


@triton.jit
def keys_of(x):
    """uint32 keys in the order of fp32 numbers; -0 and +0 have the same."""
    bits = (x + 0.0).to(tl.uint32, bitcast=True)
    return tl.where((bits >> 31) == 1, ~bits, bits | 0x80000000)


@triton.jit
def value_of(key):
    """The fp32 number of a key."""
    bits = tl.where((key >> 31) == 1, key & 0x7FFFFFFF, ~key)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def part_of_row(row_ptr, stride, start, vocab, BLOCK: tl.constexpr):
    """BLOCK logits as fp32, and which of them are in the row."""
    i = start + tl.arange(0, BLOCK)
    here = i < vocab
    x = tl.load(row_ptr + i.to(tl.int64) * stride, mask=here, other=float("-inf"))
    return x.to(tl.float32), here


@triton.jit
def count_and_mass(row_ptr, stride, vocab, top, scale, key_k, key_p, BLOCK: tl.constexpr):
    """How many tokens have at least ``key_k``; the mass of those with at least ``key_p``."""
    count = tl.zeros([], dtype=tl.int64)
    mass = tl.zeros([], dtype=tl.float64)
    for start in range(0, vocab, BLOCK):
        x, here = part_of_row(row_ptr, stride, start, vocab, BLOCK)
        key = keys_of(x)
        count += tl.sum((here & (key >= key_k)).to(tl.int32), 0)
        e = tl.where(key >= key_p, tl.exp2((x - top) * scale), 0.0)
        mass += tl.sum(e, 0).to(tl.float64)
    return count, mass


@triton.jit
def largest(row_ptr, stride, vocab, BLOCK: tl.constexpr):
    """The largest logit of a row."""
    top = tl.full([], float("-inf"), tl.float32)
    for start in range(0, vocab, BLOCK):
        x, _here = part_of_row(row_ptr, stride, start, vocab, BLOCK)
        top = tl.maximum(top, tl.max(x, 0))
    return top


@triton.jit
def min_p_key(row_ptr, stride, vocab, top, scale, min_p, BLOCK: tl.constexpr):
    """The smallest key whose probability is at least min_p times the largest."""
    lowest = tl.full([], 0x7FFFFFFFFFFFFFFF, tl.int64)
    for start in range(0, vocab, BLOCK):
        x, _here = part_of_row(row_ptr, stride, start, vocab, BLOCK)
        kept = tl.exp2((x - top) * scale).to(tl.float64) >= min_p
        key = tl.where(kept, keys_of(x).to(tl.int64), 0x7FFFFFFFFFFFFFFF)
        lowest = tl.minimum(lowest, tl.min(key, 0))
    return lowest.to(tl.uint32)


@triton.jit
def write_row(row_ptr, stride, out_ptr, out_stride, vocab, cut, ties, BLOCK: tl.constexpr):
    """The row with -inf below the cut, and in its place after the first ``ties``."""
    seen = tl.zeros([], dtype=tl.int64)
    for start in range(0, vocab, BLOCK):
        x, here = part_of_row(row_ptr, stride, start, vocab, BLOCK)
        key = keys_of(x)
        equal = (here & (key == cut)).to(tl.int64)
        rank = seen + tl.cumsum(equal, 0)
        dropped = (key < cut) | ((equal == 1) & (rank > ties))
        at = (start + tl.arange(0, BLOCK)).to(tl.int64) * out_stride
        x = tl.where(dropped, float("-inf"), x)
        tl.store(out_ptr + at, x.to(out_ptr.dtype.element_ty), mask=here)
        seen += tl.sum(equal, 0)


@triton.jit(do_not_specialize=["requests"])
def filter_kernel(
    logits, stride_r, stride_v, out, out_stride_r, out_stride_v, cu_drafts, temperature, top_ks,
    top_ps, min_ps, requests, vocab, IN_PLACE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Filter one row; grid [width * requests]. ``out`` has the dtype of the logits."""
    pid = tl.program_id(0).to(tl.int64)
    b = pid % requests
    j = pid // requests
    first = tl.load(cu_drafts + b)
    if j <= tl.load(cu_drafts + b + 1) - first:
        row_ptr = logits + (first + b + j) * stride_r
        out_ptr = out + (first + b + j) * out_stride_r
        t = tl.load(temperature + b).to(tl.float64)
        k = tl.load(top_ks + b)
        top_p = tl.load(top_ps + b).to(tl.float64)
        min_p = tl.load(min_ps + b).to(tl.float64)
        use_k = (k > 0) & (k < vocab)
        use_p = top_p < 1.0
        cut = tl.zeros([], dtype=tl.uint32)
        ties = tl.full([], 0x7FFFFFFFFFFFFFFF, tl.int64)
        on = (t > 0) & (use_k | use_p | (min_p > 0))
        if on:
            scale = inverse_temperature(t)
            top = largest(row_ptr, stride_v, vocab, BLOCK)
            key_k = cut
            key_p = cut
            bit = (cut + 1) << 31
            _all, total = count_and_mass(row_ptr, stride_v, vocab, top, scale, cut, cut, BLOCK)
            goal = total * top_p
            if use_k | use_p:
                for _turn in range(0, 32):
                    count, mass = count_and_mass(
                        row_ptr, stride_v, vocab, top, scale, key_k | bit, key_p | bit, BLOCK
                    )
                    key_k = tl.where(use_k & (count >= k), key_k | bit, key_k)
                    key_p = tl.where(use_p & (mass >= goal), key_p | bit, key_p)
                    bit = bit >> 1
            cut = tl.maximum(key_k, key_p)
            if min_p > 0:
                cut = tl.maximum(cut, min_p_key(row_ptr, stride_v, vocab, top, scale, min_p, BLOCK))
            above, mass = count_and_mass(
                row_ptr, stride_v, vocab, top, scale, cut + 1, cut + 1, BLOCK
            )
            if use_k & (key_k == cut):
                ties = tl.minimum(ties, k - above)
            if use_p & (key_p == cut):
                e = tl.exp2((value_of(cut) - top) * scale).to(tl.float64)
                wanted = tl.where(e > 0, tl.ceil((goal - mass) / tl.where(e > 0, e, 1.0)), 1.0)
                ties = tl.minimum(ties, tl.maximum(wanted, 1.0).to(tl.int64))
        if on | (not IN_PLACE):
            write_row(row_ptr, stride_v, out_ptr, out_stride_v, vocab, cut, ties, BLOCK)
