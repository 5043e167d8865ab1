"""Device functions that find where the filters of one row cut it.

Every filter keeps a beginning of the tokens in descending order, ties by ascending id: exactly k,
the smallest set that reaches top_p of the mass, everything within min_p of the largest.  The mass
is that of the whole law (the convention ``reference``), or of what top-k and min-p left
(``vllm``).  A row is therefore cut at one value, and among the tokens of that value after some id.
Values are compared as 32-bit keys in the order of the logits.

``resolve`` looks for the cut among few tokens (:mod:`._cut`).  With top-k the k-th largest of the
parts' keys is a lower bound, with top-p the sum over the largest of each part gives one; otherwise
a sample of the row says where to look.  The result is exact whatever the guess.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
# ruff: noqa: D417
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._bounds import (
    BEYOND,
    CAP,
    EQUAL,
    FEW,
    LISTED,
    floor_of,
    guess,
    kth_of_parts,
    mass_of_parts,
    value_in,
)
from specverify.kernels._cut import cut_of_list, nth_of_value, search, wanted_ties
from specverify.kernels._draw import exponential
from specverify.kernels._parts import keys_of


@triton.jit
def where_to_look(
    row_ptr, stride, vocab, parts, part_keys, floor, least, top, scale, total, k, goal, by_mass,
    searched,
):  # fmt: skip
    """(low, high, sure) for ``search``.

    ``least`` is ``floor`` or a key from which on there are enough tokens; ``by_mass`` says whether
    ``goal`` is a mass, ``searched`` whether more than ``floor`` cuts the row.
    """
    sure = least
    high = floor * 0 + BEYOND
    if k <= parts:
        sure = tl.maximum(least, kth_of_parts(part_keys, k).to(tl.uint32) << 16)
    elif by_mass:
        bound = mass_of_parts(part_keys, top, scale, goal)
        sure = tl.maximum(least, bound.to(tl.uint32) << 16)
    low = sure
    hot = tl.sum((part_keys >= (sure >> 16).to(tl.int32)).to(tl.int32), 0)
    if searched & ((hot > FEW) | (sure == floor)):
        near, far, short = guess(row_ptr, stride, vocab, top, scale, total, k, goal)
        last_block = keys_of(top) >> 16 << 16
        low = tl.maximum(sure, tl.minimum(near, last_block))
        far = tl.minimum(tl.maximum(far, low + 65536), last_block + 65536)
        high = tl.where(short, high, far)
    return low, high, sure


@triton.jit
def cut_found(
    row_ptr, stride, vocab, lo, n_lo, m_lo, n_hi, m_hi, state, ids, key, e, top, scale, k, goal,
    keys_ptr, UNIT: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The cut, the last kept id of its value and the kept mass, from what ``search`` returned.

    And the exponentials of the list again, 0 for what is dropped.  ``keys_ptr`` is overwritten.
    """
    cut = lo
    last = vocab
    kept = m_lo
    if state == LISTED:
        cut, last, kept = cut_of_list(ids, key, e, lo, n_hi, m_hi, top, scale, k, goal, UNIT)
        e = tl.where((key > cut) | ((key == cut) & (ids <= last)), e, 0.0)
    elif state == EQUAL:
        value = value_in(lo, UNIT)
        unit = exponential(value, top, scale)
        ties = wanted_ties(n_hi, m_hi, unit, n_lo - n_hi, k, goal)
        cut = keys_of(value)
        kept = m_hi + ties.to(tl.float64) * unit
        if ties < n_lo - n_hi:
            last = nth_of_value(row_ptr, stride, vocab, value, ties, keys_ptr, PART, PARTS)
    return cut, last, kept, e


@triton.jit
def cut_in_turn(
    row_ptr, stride, vocab, parts, part_keys, keys_ptr, list_ptr, floor, top, scale, total, k,
    top_p, first, UNIT: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):  # fmt: skip
    """As ``resolve``, but top-p counts on what top-k and min-p left.

    What they leave is a beginning of the row too, so a first turn finds its mass, and top-p of it
    is the goal of a second.  The second turn finds its cut in the list of the first, if it lies
    there: always where that list holds all that is left.

    Args:
        first: whether there is a first turn (top-k or min-p is on, and top-p).
        floor, k: as ``resolve`` has them; everything else as it gets them.
    """
    turn = tl.where(first, 0, 1)
    goal = tl.where((top_p < 1) & (turn > 0), total * top_p, float("inf"))
    least = floor
    looking = turn < 2
    lo = floor
    n_lo = tl.zeros([], dtype=tl.int32)
    n_hi = n_lo
    state = n_lo
    m_lo = tl.zeros([], dtype=tl.float64)
    m_hi = m_lo
    cut = floor
    last = vocab
    kept = m_lo
    ids = tl.zeros([CAP], dtype=tl.int32) - 1
    key = tl.zeros([CAP], dtype=tl.uint32)
    e = tl.zeros([CAP], dtype=tl.float64)
    while turn < 2:
        if looking:
            by_mass = goal < float("inf")
            low, high, sure = where_to_look(
                row_ptr, stride, vocab, parts, part_keys, floor, least, top, scale, total, k, goal,
                by_mass, by_mass | (k < (1 << 30)),
            )  # fmt: skip
            lo, n_lo, m_lo, n_hi, m_hi, state, ids, key, e = search(
                row_ptr, stride, vocab, part_keys, keys_ptr, list_ptr, low, high, floor, sure, top,
                scale, k, goal, UNIT, PART, PARTS, AT_ONCE,
            )  # fmt: skip
        cut, last, kept, e = cut_found(
            row_ptr, stride, vocab, lo, n_lo, m_lo, n_hi, m_hi, state, ids, key, e, top, scale, k,
            goal, keys_ptr, UNIT, PART, PARTS,
        )  # fmt: skip
        goal = tl.where(top_p < 1, kept * top_p, float("inf"))
        least = cut // UNIT * UNIT
        looking = ((state != LISTED) & (state != EQUAL)) | (goal <= m_hi)
        turn += 1
    return cut, last, kept, (state == LISTED) & (n_hi == 0), ids, e


@triton.jit
def resolve(
    row_ptr, stride, vocab, parts, keys_ptr, list_ptr, top, total, temperature, scale, top_k, top_p,
    min_p, SEQUENTIAL: tl.constexpr, UNIT: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Where the filters cut a row whose largest logit and mass are finite.

    Args:
        SEQUENTIAL: whether top-p counts its mass on what top-k and min-p left (the convention
            ``vllm``) instead of the whole law (``reference``).
        UNIT: distance of the keys of two adjacent numbers of the logits' dtype.
        Everything else as the kernels have it.

    Returns:
        The cut (a key), the last id that is kept of the tokens with that key, and the mass of all
        that is kept, relative to exp(top / T).  Whether all that is kept is listed, and then [CAP]
        ids in any order and their exponentials, 0 for what is dropped.
    """
    i = tl.arange(0, PARTS)
    part_keys = tl.load(keys_ptr + i, mask=i < parts, other=0, cache_modifier=".cg")
    part_keys = tl.where(i < parts, part_keys.to(tl.int32) & 0xFFFF, -1)
    use_k = (top_k > 0) & (top_k < vocab)
    searched = use_k | (top_p < 1)
    k = tl.where(use_k, top_k, 1 << 30).to(tl.int32)
    goal = tl.where(top_p < 1, total * top_p, float("inf"))
    floor = floor_of(top, temperature, min_p, UNIT)
    if SEQUENTIAL:
        cut, last, kept, whole, ids, e = cut_in_turn(
            row_ptr, stride, vocab, parts, part_keys, keys_ptr, list_ptr, floor, top, scale, total,
            k, top_p, (top_p < 1) & (use_k | (min_p > 0)), UNIT, PART, PARTS, AT_ONCE,
        )  # fmt: skip
    else:
        low, high, sure = where_to_look(
            row_ptr, stride, vocab, parts, part_keys, floor, floor, top, scale, total, k, goal,
            top_p < 1, searched,
        )  # fmt: skip
        lo, n_lo, m_lo, n_hi, m_hi, state, ids, key, e = search(
            row_ptr, stride, vocab, part_keys, keys_ptr, list_ptr, low, high, floor, sure, top,
            scale, k, goal, UNIT, PART, PARTS, AT_ONCE,
        )  # fmt: skip
        cut, last, kept, e = cut_found(
            row_ptr, stride, vocab, lo, n_lo, m_lo, n_hi, m_hi, state, ids, key, e, top, scale, k,
            goal, keys_ptr, UNIT, PART, PARTS,
        )  # fmt: skip
        whole = (state == LISTED) & (n_hi == 0)
    return cut, last, kept, whole, ids, e
