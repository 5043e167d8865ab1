"""How the kernels of the trial loop are cut: what ``benchmarks/tune_trials.py`` decides on an H200.

No count depends on any of these.
"""

from __future__ import annotations

FILL_STEP, FILL_WARPS = 2, 4
"""Positions that a program of ``fill_kernel`` copies at a time, and its warps."""
AHEAD_PROGRAMS = 264
"""Programs of ``fill_kernel`` that draw the next block while the sampler runs: two for each of 132
multiprocessors, so that most of each is left to the sampler.  0: nothing is drawn ahead."""
READ_BLOCK, READ_WARPS = 128, 4
"""Trials of a program of ``read_kernel``, and its warps."""
COUNT_CHUNK, COUNT_WARPS = 4096, 4
"""Trials that a program of ``tables_kernel`` counts at a time, and its warps."""
COUNT_PROGRAMS = 2112
"""Programs that count the tables of a launch together."""
BINS = (32, 256, 1024)
"""Tables of up to so many cells are counted on the chip, larger ones in memory."""

_HELD = 32  # logits that a thread holds, and as many of q


def fill_block(lanes: int) -> int:
    """Trials of a program of ``fill_kernel`` at a time, for rows of ``lanes`` logits.

    One for each thread, unless their rows are too many to be held.
    """
    threads = 32 * FILL_WARPS
    return max(1, min(threads, threads * _HELD // (FILL_STEP * lanes)))


def parts(whole: int, size: int) -> int:
    """Parts of at most ``size`` (``triton.cdiv`` takes several microseconds on the host)."""
    return -(-whole // size)
