"""Device functions that bound where the filters cut a row, before any token is looked up.

All bounds are keys: uint32 in the order of the logits (``_parts.keys_of``).
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._draw import load_at
from specverify.kernels._parts import keys_of, value_of

BEYOND = tl.constexpr(0xFFFF0000)  # above the key of +inf, a multiple of every unit
FINITE = tl.constexpr(0x00800000)  # the key of the smallest finite number; -inf has no mass
CAP = tl.constexpr(256)  # places in the list of a row
CHUNKS = tl.constexpr(256)  # of the sample, CHUNK adjacent tokens each: a sector of bf16
CHUNK = tl.constexpr(16)
FEW = tl.constexpr(192)  # parts that are read without asking a sample
LISTED, EQUAL, ALL = tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)  # ends of ``search``
ROUNDS = tl.constexpr(96)  # more than any row takes; a bound for the loop


@triton.jit
def value_in(low, UNIT: tl.constexpr):
    """The number whose key lies in [low, low + UNIT): of bf16 (fp16) there is exactly one."""
    return value_of(tl.where((low >> 31) == 1, low, low + (UNIT - 1)))


@triton.jit
def enough(count, mass, k, goal):
    """Whether the tokens from some key on already hold all that top-k or top-p keeps."""
    return (count >= k) | (mass >= goal)


@triton.jit
def floor_of(top, temperature, min_p, UNIT: tl.constexpr):
    """The smallest key that min-p keeps, as a multiple of UNIT; FINITE without min-p."""
    low = top.to(tl.float64) + temperature * tl.log(tl.maximum(min_p, 1e-300))
    x = low.to(tl.float32)
    key = keys_of(x)
    key = tl.where(x.to(tl.float64) < low, key + 1, key)
    up = (key + (UNIT - 1)) // UNIT * UNIT
    key = tl.where((key >> 31) == 1, up, key // UNIT * UNIT)
    return tl.where(min_p > 0, tl.maximum(key, FINITE), FINITE)


@triton.jit
def kth_of_parts(part_keys, k):
    """The 16 high bits of the k-th largest key of a part: from there on there are k tokens."""
    bound = tl.zeros([], dtype=tl.int32)
    for digit in range(0, 4):
        trial = bound + tl.arange(0, 16) * (1 << (12 - 4 * digit))
        many = tl.sum((part_keys[:, None] >= trial[None, :]).to(tl.int32), 0)
        bound = tl.max(tl.where(many >= k, trial, bound), 0)
    return bound


@triton.jit
def mass_of_parts(part_keys, top, scale, goal):
    """As ``kth_of_parts``, for a mass: the sum over the largest of each part alone reaches it."""
    high = tl.maximum(part_keys, 0).to(tl.uint32) << 16
    e = tl.where(part_keys > 0, tl.exp2((value_of(high) - top) * scale), 0.0)
    least = goal.to(tl.float32) * (1.0 + 2.0**-16)
    bound = tl.zeros([], dtype=tl.int32)
    for digit in range(0, 4):
        trial = bound + tl.arange(0, 16) * (1 << (12 - 4 * digit))
        from_here = part_keys[:, None] >= trial[None, :]
        mass = tl.sum(tl.where(from_here, e[:, None], 0.0), 0)
        bound = tl.max(tl.where(mass >= least, trial, bound), 0)
    return bound


@triton.jit
def sides(key, e, one, other):
    """How many keys are at least ``one``, and the mass of those below; the same for ``other``.

    Side by side in one reduction: a program's warps wait for each other once and not four times.
    """
    at_one = tl.join((key >= one).to(tl.float32), tl.where(key < one, e, 0.0))
    at_other = tl.join((key >= other).to(tl.float32), tl.where(key < other, e, 0.0))
    both = tl.sum(tl.join(at_one, at_other), 0)
    from_one, from_other = tl.split(both)
    count, below = tl.split(from_one)
    many, beneath = tl.split(from_other)
    return count, below, many, beneath


@triton.jit
def guess(row_ptr, stride, vocab, top, scale, total, k, goal):
    """Two keys between which the cut probably lies, from a sample of 4,096 tokens.

    What top-p drops is estimated, not what it keeps: a sample may miss the few tokens with most of
    the mass, but the tail is made of many.  Also whether all tokens above the first key probably
    fit into the list.
    """
    i = tl.arange(0, CHUNKS * CHUNK)
    chunk = i // CHUNK
    start = (chunk.to(tl.int64) * vocab // CHUNKS // CHUNK * CHUNK).to(tl.int32)
    end = ((chunk + 1).to(tl.int64) * vocab // CHUNKS // CHUNK * CHUNK).to(tl.int32)
    end = tl.where(chunk == CHUNKS - 1, (vocab + chunk * 0).to(tl.int32), end)
    ids = start + i % CHUNK
    here = ids < end
    x = load_at(row_ptr, ids, stride, here, float("-inf"))
    key = (keys_of(x) >> 16).to(tl.int32)
    key = tl.where(here & (key >= (FINITE >> 16)), key, -1)
    e = tl.where(here, tl.exp2((x - top) * scale), 0.0)
    each = vocab.to(tl.float32) / tl.sum(here.to(tl.int32), 0).to(tl.float32)
    most = k.to(tl.float32) / each
    # Three standard deviations of a count and a tenth; a tail has many tokens, so a tenth is more.
    at_least = 1.1 * most + 3.0 * tl.sqrt(most) + 1.0
    at_most = tl.maximum(0.9 * most - 3.0 * tl.sqrt(most), 0.0)
    tail = ((total - goal) / each.to(tl.float64)).to(tl.float32)
    first = tl.zeros([], dtype=tl.int32)
    second = tl.zeros([], dtype=tl.int32)
    for bit in range(0, 16):
        step = 32768 >> bit
        count, below, many, beneath = sides(key, e, first | step, second | step)
        first = tl.where((count >= at_least) | (below <= 0.9 * tail), first | step, first)
        near = (many >= at_most) | (beneath <= 1.1 * tail)
        second = tl.where(near, second | step, second)
    inside = tl.sum((key >= first).to(tl.int32), 0).to(tl.float32) * each
    short = inside <= CAP // 2
    return first.to(tl.uint32) << 16, (second + 1).to(tl.uint32) << 16, short
