"""Trials at alarm: the composite e-process beside the fixed test on the same streams.

The fixed test is given more than it would have: it is told the fault, and its n is that at which it
finds this very fault with the planned power (for the worst direction that is the plan itself, on
cells left apart: no floor, because the alternating deviation would vanish in merged cells).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from calibration.rows import Floats, Row, Size, Task
from calibration.worlds import leak as leaked
from calibration.worlds import (
    softmax,
    temperature,
    total_variation,
    trials_for_fault,
    uniform,
    worst,
)
from specverify.evidence import (
    SequentialTest,
    Suspect,
    cressie_read,
    leaks,
    temperatures,
    thin_tails,
    trials_needed,
)
from specverify.evidence.pooling import FLOOR

GROUP = "Trials at alarm: composite e-process over the fixed test"
ALPHA, POWER = 1e-9, 0.999
LOOKS = 50  # to the fixed test's n


def _stream(p: Floats, faulty: Floats, n: int, suspects: Sequence[Suspect], floor: float,
            rng: np.random.Generator) -> tuple[int, bool]:  # fmt: skip
    """Trials at the composite's alarm, and whether the fixed test rejects at its n."""
    test, total, batch = SequentialTest(p, alpha=ALPHA, suspects=suspects), 0, math.ceil(n / LOOKS)
    counts, stopped = np.zeros(p.shape[0], dtype=np.int64), 0
    at_plan = counts
    while not stopped:
        new = rng.multinomial(batch, faulty)
        total, counts = total + batch, counts + new
        if test.add(new).rejected:
            stopped = total
        if total == batch * LOOKS:
            at_plan = counts
    if stopped < batch * LOOKS:
        at_plan = counts + rng.multinomial(batch * LOOKS - stopped, faulty)
    return stopped, cressie_read(at_plan, p, alpha=ALPHA, floor=floor).rejected


def measure(name: str, p: Floats, faulty: Floats, n: int, most: float, size: Size,
            floor: float = FLOOR) -> list[Row]:  # fmt: skip
    """The row of one fault.

    Args:
        name: of law and fault.
        p: [k] law.
        faulty: [k] law that is drawn from.
        n: the fixed test's trials.
        most: share of n that the mean alarm may take.
        size: number of streams.
        floor: least expected count of a cell of the fixed test.

    Returns:
        One row.
    """
    draft = softmax(p.shape[0], 1)
    suspects = leaks(p, draft, "leak") + temperatures(p) + thin_tails(p)
    rng = size.rng("alarm", name)
    streams = size.streams if p.shape[0] <= 32_768 else max(5, size.streams // 5)
    found = [_stream(p, faulty, n, suspects, floor, rng) for _ in range(streams)]
    shares = np.array([stopped / n for stopped, _ in found])
    error = shares.std() / math.sqrt(streams)
    rejected = sum(fixed for _, fixed in found)
    return [
        Row(
            group=GROUP,
            name=name,
            setting=f"TV {total_variation(p, faulty):.3g}, fixed n {n:,}, alpha {ALPHA:g}",
            runs=streams,
            expected=f"mean <= {most:g} of the fixed n",
            observed=f"{shares.mean():.2f} +- {error:.2f} (max {shares.max():.2f}); "
            f"fixed test {rejected} of {streams}",
            ok=bool(shares.mean() <= most),
        )
    ]


def flat(cells: int, tv: float, size: Size) -> list[Row]:
    """Worst direction on a flat law; n is the plan."""
    p, n = uniform(cells), trials_needed(cells, tv, ALPHA, POWER)
    return measure(f"uniform {cells:,}, worst direction", p, worst(p, tv), n, 0.85, size, 1.0)


def directed(cells: int, most: float, size: Size) -> list[Row]:
    """Draft leaks and temperatures on a softmax law, also such as no suspect has exactly."""
    p, rows = softmax(cells), []
    for name, faulty in (
        ("draft leak 0.05", leaked(p, 0.05)),
        ("draft leak 0.02", leaked(p, 0.02)),
        ("temperature x 1.05", temperature(p, 1.05)),
        ("temperature x 0.97", temperature(p, 0.97)),
    ):
        n = trials_for_fault(p, faulty, ALPHA, POWER)
        rows += measure(f"softmax {cells:,}, {name}", p, faulty, n, most, size)
    return rows


def tasks(size: Size) -> Sequence[Task]:
    """The bar of 0.2 holds from 32,768 cells on; at 1,024 a directed bet has less to win."""
    cells = [v for v in (32, 1024, 32_768) if v <= size.cells]
    worst_cases = [(v, tv) for v in cells for tv in (0.1, 0.03, 0.01)]
    bars = [(v, most) for v, most in ((1024, 0.85), (32_768, 0.2)) if v <= size.cells]
    if size.cells >= 32_768:
        bars.append((size.look_cells, 0.2))
    return [
        *(functools.partial(flat, v, tv, size) for v, tv in worst_cases),
        *(functools.partial(directed, v, most, size) for v, most in bars),
    ]
