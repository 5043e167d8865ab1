"""Device functions that search a row for its cut (``_resolve`` says what that is), without a sort.

The first pass over a row left the largest key of every *part* (256 tokens, see :mod:`._parts`);
only parts that can hold a token in question are read again.  The tokens between two bounds go to a
short list, and if they do not fit, the bounds are drawn together by what was counted.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._bounds import (
    ALL,
    BEYOND,
    CAP,
    EQUAL,
    LISTED,
    ROUNDS,
    enough,
    value_in,
)
from specverify.kernels._draw import exponential, load_at
from specverify.kernels._parts import keys_of, tokens_of, value_of


@triton.jit
def listed_of(
    row_ptr, stride, vocab, hot_ptr, base, parts, least, beyond, PART: tl.constexpr,
    AT_ONCE: tl.constexpr, RUN: tl.constexpr,
):  # fmt: skip
    """Ids of the tokens of AT_ONCE listed parts, RUN a row; 1 for logits in [least, beyond)."""
    lane = tl.arange(0, AT_ONCE)
    live = base + lane < parts
    part = tl.load(hot_ptr + base + lane, mask=live, other=0, cache_modifier=".cg")
    ids = tokens_of(part.to(tl.int32) & 0xFFFF, 4 * PART)
    here = live[:, None] & (ids < vocab)
    x = load_at(row_ptr, ids, stride, here, float("-inf"))
    listed = ((x >= least) & (x < beyond)).to(tl.int32)
    rows: tl.constexpr = AT_ONCE * PART // RUN
    return tl.reshape(ids, [rows, RUN]), tl.reshape(listed, [rows, RUN])


@triton.jit
def starts_of(slots):
    """Where each slot [N, RUN] begins to write what it has counted, and how many there are in all.

    One scan over threads, which hold RUN adjacent slots each, then one within a thread.
    """
    each = tl.sum(slots, 1)
    upto = tl.cumsum(each, 0)
    return (upto - each)[:, None] + tl.cumsum(slots, 1) - slots, tl.max(upto, 0)


@triton.jit
def list_between(
    row_ptr, stride, vocab, part_keys, hot_ptr, list_ptr, low, high, PART: tl.constexpr,
    PARTS: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """How many tokens have keys in [low, high); their ids go to the list, if it holds them.

    The parts are read twice: first every place of a program counts its own tokens, and a scan of
    these counts tells each where in the list to write.  So nothing waits between two reads.
    ``hot_ptr`` may be the memory that ``part_keys`` was loaded from.
    """
    RUN: tl.constexpr = 8 if PART >= 128 else 4
    i = tl.arange(0, PARTS)
    hot = (part_keys >= (low >> 16).to(tl.int32)).to(tl.int32)
    parts = tl.sum(hot, 0)
    tl.debug_barrier()
    tl.store(hot_ptr + tl.cumsum(hot, 0) - 1, i.to(tl.int16), mask=hot > 0)
    tl.debug_barrier()
    least = value_of(low)
    beyond = tl.where(high == BEYOND, float("inf"), value_of(high))
    slots = tl.zeros([AT_ONCE * PART // RUN, RUN], dtype=tl.int32)
    for base in tl.range(0, parts, AT_ONCE, num_stages=2):
        _, listed = listed_of(
            row_ptr, stride, vocab, hot_ptr, base, parts, least, beyond, PART, AT_ONCE, RUN
        )
        slots += listed
    at, count = starts_of(slots)
    if count <= CAP:
        for base in tl.range(0, parts, AT_ONCE, num_stages=2):
            ids, listed = listed_of(
                row_ptr, stride, vocab, hot_ptr, base, parts, least, beyond, PART, AT_ONCE, RUN
            )
            tl.store(list_ptr + at, ids, mask=listed > 0)
            at += listed
    tl.debug_barrier()
    return count


@triton.jit
def count_from(row_ptr, stride, vocab, low, high, top, scale, BLOCK: tl.constexpr):
    """Count and mass of the tokens whose keys are at least ``low``, and at least ``high``.

    Also how many between them every place of a program has seen: [BLOCK].
    """
    least = value_of(low)
    beyond = tl.where(high == BEYOND, float("inf"), value_of(high))
    n_low = tl.zeros([BLOCK], dtype=tl.int32)
    n_high = n_low
    m_low = tl.zeros([BLOCK], dtype=tl.float32)
    m_high = m_low
    for start in tl.range(0, vocab, BLOCK, num_stages=3):
        ids = start + tl.arange(0, BLOCK)
        x = load_at(row_ptr, ids, stride, ids < vocab, float("-inf"))
        e = tl.exp2((x - top) * scale)
        n_low += (x >= least).to(tl.int32)
        n_high += (x >= beyond).to(tl.int32)
        m_low += tl.where(x >= least, e, 0.0)
        m_high += tl.where(x >= beyond, e, 0.0)
    slots = n_low - n_high
    m_low = tl.sum(m_low.to(tl.float64), 0)
    m_high = tl.sum(m_high.to(tl.float64), 0)
    return tl.sum(n_low, 0), m_low, tl.sum(n_high, 0), m_high, slots


@triton.jit
def list_counted(row_ptr, stride, vocab, slots, list_ptr, low, high, BLOCK: tl.constexpr):
    """List the tokens with keys in [low, high), of which ``count_from`` counted at most CAP."""
    RUN: tl.constexpr = 8
    least = value_of(low)
    beyond = tl.where(high == BEYOND, float("inf"), value_of(high))
    at, _ = starts_of(tl.reshape(slots, [BLOCK // RUN, RUN]))
    for start in tl.range(0, vocab, BLOCK, num_stages=3):
        ids = start + tl.arange(0, BLOCK)
        x = load_at(row_ptr, ids, stride, ids < vocab, float("-inf"))
        listed = tl.reshape(((x >= least) & (x < beyond)).to(tl.int32), [BLOCK // RUN, RUN])
        tl.store(list_ptr + at, tl.reshape(ids, [BLOCK // RUN, RUN]), mask=listed > 0)
        at += listed
    tl.debug_barrier()


@triton.jit
def next_bounds(lo, hi, n_lo, m_lo, n_hi, m_hi, k, goal, turn, UNIT: tl.constexpr):
    """Where to look between two bounds that are too far apart: about where a line would cross.

    Every other turn halves the distance, so that a line that misleads costs few passes.
    """
    span = (hi - lo).to(tl.float64)
    # Numbers of tokens grow about exponentially on the way down a tail.
    all_of, some_of = tl.maximum(n_lo, 1).to(tl.float32), tl.maximum(n_hi, 1).to(tl.float32)
    octaves = tl.maximum(tl.log2(all_of / some_of), 1e-6)
    by_count = (tl.log2(all_of / tl.minimum(k, n_lo).to(tl.float32)) / octaves).to(tl.float64)
    by_mass = (m_lo - goal) / tl.maximum(m_lo - m_hi, 1e-300)
    share = tl.minimum(tl.maximum(tl.maximum(by_count, by_mass), 0.0), 1.0)
    middle = lo + (share * span).to(tl.uint32)
    width = (hi - lo) // 32
    low = tl.where(middle - lo > width, (middle - width) // UNIT * UNIT, lo)
    high = tl.where(hi - middle > width + UNIT, (middle + width) // UNIT * UNIT + UNIT, hi)
    halfway = lo + (hi - lo) // (2 * UNIT) * UNIT
    halve = ((low == lo) & (high == hi)) | ((turn > 1) & (turn % 2 == 1))
    return tl.where(halve, halfway, low), tl.where(halve, hi, high)


@triton.jit
def load_list(row_ptr, stride, list_ptr, listed, top, scale):
    """Ids, keys and float64 exponentials of the listed tokens; beyond them -1, 0 and 0."""
    i = tl.arange(0, CAP)
    here = i < listed
    ids = tl.load(list_ptr + i, mask=here, other=-1, cache_modifier=".cg")
    x = load_at(row_ptr, tl.maximum(ids, 0), stride, here, float("-inf"))
    key = tl.where(here, keys_of(x), 0)
    return ids, key, tl.where(here, exponential(x, top, scale), 0.0)


@triton.jit
def search(
    row_ptr, stride, vocab, part_keys, hot_ptr, list_ptr, low, high, floor, sure, top, scale, k,
    goal, UNIT: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Keys lo < hi around the cut: from lo on there are enough tokens, from hi on there are not.

    ``low`` and ``high`` are where to look first; from ``sure`` on there are enough, unless it is
    ``floor``.  If ``high`` is BEYOND all tokens from ``low`` on are listed at once.

    Returns:
        lo; count and mass from lo on; the same from hi on; how it ended; ids, keys and exponentials
        of the list.  LISTED: the tokens between lo and hi are listed.  EQUAL: they all have one
        value.  ALL: even those from ``floor`` = lo on are too few, so that all of them stay.
    """
    lo = floor
    ceiling = ((keys_of(top) >> 16) + 1) << 16
    hi = ceiling
    ids = tl.zeros([CAP], dtype=tl.int32) - 1
    key = tl.zeros([CAP], dtype=tl.uint32)
    e = tl.zeros([CAP], dtype=tl.float64)
    n_lo = tl.zeros([], dtype=tl.int32) - 1
    n_hi = n_lo + 1
    m_lo = tl.zeros([], dtype=tl.float64)
    m_hi = m_lo
    listing = high == BEYOND
    state = tl.zeros([], dtype=tl.int32)
    turn = state
    while (state == 0) & (turn < ROUNDS):
        known = (n_lo >= 0) | (sure > floor)
        at_lo = low == tl.where(n_lo >= 0, lo, sure)
        if listing:
            n_a = list_between(
                row_ptr, stride, vocab, part_keys, hot_ptr, list_ptr, low, high, PART, PARTS,
                AT_ONCE,
            )  # fmt: skip
            ids, key, e = load_list(row_ptr, stride, list_ptr, n_a, top, scale)
            m_a = m_lo * 0.0
            right = (known & at_lo) | (low == floor)
            if not right:
                m_a = tl.sum(e, 0)
                right = enough(n_a, m_a, k, goal)
            state = tl.where((n_a <= CAP) & right, LISTED, 0)
            if state == LISTED:
                lo = low
                n_lo = n_hi + n_a
            else:
                # Too many for the list: count.  Too few: what was listed lies above the cut.
                few = n_a <= CAP
                n_hi = tl.where(few, n_a, n_hi)
                m_hi = tl.where(few, m_a, m_hi)
                hi = tl.where(few, low, ceiling)
                low = tl.where(few, sure, low)
                high = hi
        else:
            n_a, m_a, n_b, m_b, slots = count_from(
                row_ptr, stride, vocab, low, high, top, scale, 16 * PART
            )
            # A bound that has an answer keeps it, whatever an fp32 sum now says.
            from_a = enough(n_a, m_a, k, goal) | (known & at_lo)
            from_b = enough(n_b, m_b, k, goal) & (high < hi)
            short = (low == floor) & (~from_a)
            n_lo = tl.where(from_b, n_b, tl.where(from_a | short, n_a, n_lo))
            m_lo = tl.where(from_b, m_b, tl.where(from_a | short, m_a, m_lo))
            lo = tl.where(from_b, high, tl.where(from_a, low, lo))
            n_hi = tl.where(from_b, n_hi, tl.where(from_a, n_b, n_a))
            m_hi = tl.where(from_b, m_hi, tl.where(from_a, m_b, m_a))
            hi = tl.where(from_b, hi, tl.where(from_a, high, low))
            fits = n_lo - n_hi <= CAP
            state = tl.where((n_lo >= 0) & (~fits) & (hi - lo <= UNIT), EQUAL, 0)
            state = tl.where(short, ALL, state)
            if from_a & (~from_b) & fits:
                list_counted(row_ptr, stride, vocab, slots, list_ptr, low, high, 16 * PART)
                ids, key, e = load_list(row_ptr, stride, list_ptr, n_lo - n_hi, top, scale)
                state = state * 0 + LISTED
            near, far = next_bounds(lo, hi, n_lo, m_lo, n_hi, m_hi, k, goal, turn, UNIT)
            # A guess that was too high: look further down, and at the very end from ``sure`` on.
            reach = tl.minimum((high - low) * 4, low - sure)
            further = tl.where(turn < 4, low - reach, sure)
            low = tl.where(n_lo < 0, further, tl.where(fits, lo, near))
            high = tl.where((n_lo < 0) | fits, hi, far)
        listing = (n_lo >= 0) & (n_lo - n_hi <= CAP)
        turn += 1
    return lo, n_lo, m_lo, n_hi, m_hi, state, ids, key, e


@triton.jit
def cut_of_list(ids, key, e, lo, n_hi, m_hi, top, scale, k, goal, UNIT: tl.constexpr):
    """(cut, last kept id of the cut's value, kept mass) from the listed tokens and those above."""
    DIGITS: tl.constexpr = 8 if UNIT == 1 else (5 if UNIT == 8192 else 4)
    d = tl.arange(0, 16)
    cut = lo ^ lo
    best = keys_of(top)
    e32 = e.to(tl.float32)
    need = (goal - m_hi).to(tl.float32)
    for digit in range(0, DIGITS):
        shift = 28 - 4 * digit
        if (lo >> shift) == (best >> shift):
            cut = lo >> shift << shift
        else:
            trial = cut + (d.to(tl.uint32) << shift)
            from_here = key[:, None] >= tl.maximum(trial, 1)[None, :]
            # Together, so that warps wait for each other once; fp32 counts a list exactly.
            both = tl.join(from_here.to(tl.float32), tl.where(from_here, e32[:, None], 0.0))
            count, mass = tl.split(tl.sum(both, 0))
            reached = (n_hi + count.to(tl.int32) >= k) | (mass >= need)
            most = tl.max(tl.where(reached, d, 0), 0)
            cut = cut + (most.to(tl.uint32) << shift)
    value = value_in(tl.maximum(cut // UNIT * UNIT, lo), UNIT)
    cut = keys_of(value)
    above = key > cut
    equal = (key == cut).to(tl.int32)
    both = tl.sum(above.to(tl.int32) + (equal << 16), 0)
    m_above = m_hi + tl.sum(tl.where(above, e, 0.0), 0)
    unit = exponential(value, top, scale)
    equals = both >> 16
    ties = wanted_ties(n_hi + (both & 0xFFFF), m_above, unit, equals, k, goal)
    last = tl.max(tl.where(equal > 0, ids, -1), 0)
    if ties < equals:
        last = nth_id(ids, equal, ties)
    return cut, last, m_above + ties.to(tl.float64) * unit


@triton.jit
def nth_id(ids, equal, n):
    """The n-th smallest (from 1) of the ids that are marked."""
    low = n * 0
    for bit in range(0, 31):
        # The largest id with fewer than n marked ids below it.
        trial = low + (1073741824 >> bit)
        below = tl.sum(((equal > 0) & (ids < trial)).to(tl.int32), 0)
        low = tl.where(below < n, trial, low)
    return low


@triton.jit
def wanted_ties(n_above, m_above, unit, equal, k, goal):
    """How many tokens of the cut's value stay: until k are kept, or until the mass is reached."""
    left = tl.where(unit > 0, tl.ceil((goal - m_above) / tl.where(unit > 0, unit, 1.0)), 1.0)
    left = tl.minimum(tl.maximum(left, 1.0), 2.0**30).to(tl.int32)
    return tl.minimum(tl.minimum(left, k - n_above), equal)


@triton.jit
def nth_of_value(
    row_ptr, stride, vocab, value, n, counts_ptr, PART: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The id of the n-th token (from 1) of a value.

    A first pass leaves how many every run of PART adjacent tokens has, in ``counts_ptr`` [PARTS]
    int16; no warp waits for another before all are there.  Only the run of the n-th is read again.
    """
    ROWS: tl.constexpr = 16
    i = tl.arange(0, ROWS)
    inside = i[:, None] * PART + tl.arange(0, PART)[None, :]
    tl.debug_barrier()
    for first in tl.range(0, (vocab + (PART - 1)) // PART, ROWS, num_stages=3):
        ids = first * PART + inside
        x = load_at(row_ptr, ids, stride, ids < vocab, float("-inf"))
        equal = tl.sum(((x == value) & (ids < vocab)).to(tl.int32), 1)
        tl.store(counts_ptr + first + i, equal.to(tl.int16))
    tl.debug_barrier()
    run = tl.arange(0, PARTS)
    here = run * PART < vocab
    counts = tl.load(counts_ptr + run, mask=here, other=0, cache_modifier=".cg").to(tl.int32)
    upto = tl.cumsum(counts, 0)
    home = tl.min(tl.where(upto >= n, run, PARTS - 1), 0)
    before = tl.max(tl.where(run < home, upto, 0), 0)
    ids = home * PART + tl.arange(0, PART)
    x = load_at(row_ptr, ids, stride, ids < vocab, float("-inf"))
    equal = ((x == value) & (ids < vocab)).to(tl.int32)
    wanted = (equal == 1) & (before + tl.cumsum(equal, 0) == n)
    return tl.max(tl.where(wanted, ids, -1), 0)
