"""What a look of the composite costs, in processor time: other work on the machine does not count.

A clock promises nothing: the rows are shown, not judged.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Sequence

from calibration.rows import Row, Size, Task
from calibration.worlds import softmax
from specverify.evidence import SequentialTest, leaks, temperatures, thin_tails

GROUP = "Processor seconds of one look of the composite, all suspects, one core"
REPEATS = 7


def measure(cells: int, draws: int, most: float, size: Size) -> list[Row]:
    """The median of a few looks at a table."""
    p = softmax(cells)
    suspects = leaks(p, softmax(cells, 1), "leak") + temperatures(p) + thin_tails(p)
    test = SequentialTest(p, alpha=1e-9, suspects=suspects)
    table, seconds = size.rng("look", cells).multinomial(draws, p), []
    empty = 0 * table
    test.add(table)
    for _ in range(REPEATS):
        started = time.process_time()
        test.add(empty)
        seconds.append(time.process_time() - started)
    found = statistics.median(seconds)
    return [
        Row(
            group=GROUP,
            name=f"softmax {cells:,}",
            setting=f"{draws:,} draws, {int((table > 0).sum()):,} cells seen, "
            f"{len(suspects)} suspects",
            runs=REPEATS,
            expected=f"about {most:g} s at most",
            observed=f"{found:.4f} s: {found / most:.2f} of it",
            ok=None,
        )
    ]


def tasks(size: Size) -> Sequence[Task]:
    """A small and a large vocabulary."""
    return [
        functools.partial(measure, min(1024, size.look_cells), 10**6, 0.005, size),
        functools.partial(measure, size.look_cells, 10**6, 0.3, size),
    ]
