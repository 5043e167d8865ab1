"""Accepting early: when does E_c <= beta come before the fixed number of trials?

The rule bets on deviations of one size only, c = (k - 1) / (4 tv^2), and accepts the law once that
bet has lost all but beta (Wald 1945). It misses a share beta at most on average over the Dirichlet
law of those deviations, not in each direction; the worst direction is measured beside it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from calibration.rows import Floats, Row, Size, Task, at_most
from calibration.worlds import uniform, worst
from specverify.evidence import trials_needed
from specverify.evidence.eprocess import rising

GROUP = "Futility: accept once E at c = (k - 1) / (4 TV^2) is at most beta"
ALPHA, BETA, GROWTH = 1e-9, 1e-3, 1.3


def accepted_at(p: Floats, truth: Floats, n: int, scale: float, runs: int,
                rng: np.random.Generator) -> Floats:  # fmt: skip
    """Share of n after which the rule accepts, [runs]; 1 where it does not before n.

    Args:
        p: [k] law.
        truth: [k] law that is drawn from.
        n: fixed number of trials.
        scale: concentration c.
        runs: streams.
        rng: source of randomness.

    Returns:
        [runs] in (0, 1].
    """
    found, looks = np.ones(runs), [n]
    while looks[-1] > max(2, n // 100):
        looks.append(int(looks[-1] / GROWTH))
    ladder = sorted(set(looks))
    for run in range(runs):
        counts, before = np.zeros(p.shape[0], dtype=np.int64), 0
        for look in ladder[:-1]:
            counts, before = counts + rng.multinomial(look - before, truth), look
            log_e = float(rising(counts, scale * p).sum() - rising(look, scale))
            if log_e <= math.log(BETA):
                found[run] = look / n
                break
    return found


def measure(cells: int, tv: float, size: Size) -> list[Row]:
    """What the rule saves on a correct sampler, and what it misses in the worst direction."""
    p, n = uniform(cells), trials_needed(cells, tv, ALPHA, 1 - BETA)
    scale = (cells - 1) / (4 * tv**2)
    runs = max(1, size.power_runs // (1 if cells <= 256 else 10))
    right = accepted_at(p, p, n, scale, runs, size.rng("right", cells, tv))
    wrong = accepted_at(p, worst(p, tv), n, scale, runs, size.rng("wrong", cells, tv))
    missed, setting = int((wrong < 1).sum()), f"uniform {cells:,}, TV {tv}, n {n:,}"
    return [
        Row(
            group=GROUP,
            name="correct sampler",
            setting=setting,
            runs=runs,
            expected="pays if the mean is below 1",
            observed=f"mean {right.mean():.2f} of n; accepts before n in {(right < 1).mean():.3f}",
            ok=None,
        ),
        Row(
            group=GROUP,
            name="worst direction",
            setting=setting,
            runs=runs,
            expected=f"accepts <= {BETA:g}: <= {at_most(BETA, runs)} runs",
            observed=f"{missed}",
            ok=missed <= at_most(BETA, runs),
        ),
    ]


def tasks(size: Size) -> Sequence[Task]:
    """From the tables of the gate's cases to those of vocabularies."""
    cells = [v for v in (4, 8, 16, 32, 64, 256, 1024) if v <= size.cells]
    return [functools.partial(measure, v, 0.1, size) for v in cells]
