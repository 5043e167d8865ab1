"""How the kernels of the trial loop are cut: what ``benchmarks/tune_trials.py`` decides on an H200.

No count depends on any of these.
"""

from __future__ import annotations

FILL_LOGITS, FILL_WARPS = 2048, 4
"""Logits of one position that a program of ``fill_kernel`` holds at a time, and its warps."""
AHEAD_PROGRAMS = 264
"""Programs of ``fill_kernel`` that draw the next block while the sampler runs: two for each of 132
multiprocessors, so that most of each is left to the sampler.  0: nothing is drawn ahead."""
READ_BLOCK, READ_WARPS = 128, 4
"""Trials of a program of ``read_kernel``, and its warps."""
COUNT_CHUNK, COUNT_WARPS = 2048, 4
"""Trials that a program of ``tables_kernel`` counts at a time, and its warps."""
COUNT_PROGRAMS = 1056
"""Programs that count the tables of a launch together."""
BINS = (32, 256, 1024)
"""Tables of up to so many cells are counted on the chip, larger ones in memory."""


def fill_block(lanes: int) -> int:
    """Trials of a program of ``fill_kernel`` at a time, for rows of ``lanes`` logits."""
    return min(256, max(1, FILL_LOGITS // lanes))
