"""What programs of one launch tell each other: numbers that carry their own flag.

A word of 64 bits is written and read whole, so a word that is not zero is a message that has
arrived, and neither fences nor counters are needed to hand it over: a program stores its words and
goes on, and the one program that wants them looks until none is zero.  It then leaves zeros behind
for the next launch.  A look that races with a store is made by lanes that each own one word and
is followed by a reduction over the program, so that all threads of it see the same.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

LIMIT = tl.constexpr(1 << 20)
"""Looks (some 0.6 us each) after which a program gives up; never reached unless calls that share a
workspace run at the same time."""


@triton.jit
def pack(anchor, total):
    """An fp32 anchor and a sum >= 0 (or NaN) as one int64 that is not zero."""
    high = anchor.to(tl.int32, bitcast=True).to(tl.int64) << 32
    low = total.to(tl.int32, bitcast=True).to(tl.int64) & 0x7FFFFFFF
    return high | low | 0x80000000


@triton.jit
def unpack(word):
    """(anchor, sum) of ``pack``."""
    anchor = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    total = (word & 0x7FFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)
    return anchor, total


@triton.jit
def post(pairs, tile, last, anchor, total):
    """Store the pairs of some tiles, those before ``last``."""
    tl.store(pairs + tile, pack(anchor, total), mask=tile < last)


@triton.jit
def post_nothing(pairs, first, last, BLOCK: tl.constexpr):
    """Pairs without mass for the tiles of a share that need not be read."""
    for base in tl.range(first, last, BLOCK):
        tile = base + tl.arange(0, BLOCK)
        tl.store(pairs + tile, (tile * 0).to(tl.int64) + 0x80000000, mask=tile < last)


@triton.jit
def await_words(words, count, LANES: tl.constexpr):
    """[LANES] words once the first ``count`` have arrived, zeros left behind; -1 past the last.

    LANES is at least the threads of a program, so that every word is read by one thread alone.
    """
    i = tl.arange(0, LANES)
    here = i < count
    word = tl.load(words + i, mask=here, other=-1, volatile=True)
    looks = tl.min((word != 0).to(tl.int32), 0) * 0
    while (tl.min((word != 0).to(tl.int32), 0) == 0) & (looks < LIMIT):
        word = tl.load(words + i, mask=here, other=-1, volatile=True)
        looks += 1
    tl.store(words + i, tl.zeros([LANES], dtype=tl.int64), mask=here)
    return word


@triton.jit
def await_pairs(pairs, row, tiles, TILES: tl.constexpr):
    """[TILES] anchors and sums of a row; past its last tile (-inf, 0)."""
    word = await_words(pairs + row * tiles, tiles, TILES)
    top, total = unpack(word)
    here = tl.arange(0, TILES) < tiles
    return tl.where(here, top, float("-inf")), tl.where(here, total, 0.0)


@triton.jit
def load_pairs_of(pairs, row, tiles, TILES: tl.constexpr):
    """[TILES] anchors and sums of a row that is known to be complete."""
    i = tl.arange(0, TILES)
    here = i < tiles
    word = tl.load(pairs + row * tiles + i, mask=here, other=0, cache_modifier=".cg")
    top, total = unpack(word)
    return tl.where(here, top, float("-inf")), tl.where(here, total, 0.0)


@triton.jit
def look(word, LANES: tl.constexpr):
    """One word as it is now, read by one thread for all of the program."""
    lane = tl.arange(0, LANES)
    return tl.sum(tl.load(word + lane, mask=lane == 0, other=0, volatile=True), 0)
