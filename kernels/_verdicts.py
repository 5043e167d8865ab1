"""What the programs that decide the rows of a request tell each other: who accepted its draft.

A verdict is a word that carries the number of its launch and its request, so nobody has to clear
it: what another launch or another request left there is no verdict.  The number (``epoch``) is the
request's own and is raised by the program of its last row, once it has the verdicts of all rows
before; whoever gave one had read the number, so nobody reads it after it was raised.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._pairs import LIMIT


@triton.jit
def tag_of(epoch, b):
    """The upper 62 bits of this launch's verdicts on request ``b`` < 2**30."""
    return ((epoch << 30) | b) << 2


@triton.jit
def verdict(tag, passed):
    """The word of a row; never zero, which is what a new workspace holds."""
    return tag | tl.where(passed, 3, 2).to(tl.int64)


@triton.jit
def stopped(verdicts, tag, j, LANES: tl.constexpr):
    """Whether a row before row ``j`` is known to stop the request."""
    i = tl.arange(0, LANES)
    word = tl.load(verdicts + i, mask=i < j, other=0, volatile=True)
    return tl.max((word == (tag | 2)).to(tl.int32), 0) > 0


@triton.jit
def all_passed(verdicts, tag, j, LANES: tl.constexpr):
    """Whether every row before row ``j`` was accepted; waits for their verdicts.

    LANES is at least the threads of a program, so that every word is read by one thread alone.
    """
    i = tl.arange(0, LANES)
    here = i < j
    word = tl.load(verdicts + i, mask=here, other=0, volatile=True)
    missing = tl.max((here & ((word | 1) != (tag | 3))).to(tl.int32), 0)
    looks = missing * 0
    while (missing > 0) & (looks < LIMIT):
        word = tl.load(verdicts + i, mask=here, other=0, volatile=True)
        missing = tl.max((here & ((word | 1) != (tag | 3))).to(tl.int32), 0)
        looks += 1
    return tl.max((here & (word != (tag | 3))).to(tl.int32), 0) == 0
