"""Laws on which the truth is known, and the faults that samplers have."""

from __future__ import annotations

import numpy as np

from calibration.rows import Floats
from specverify.evidence import pool
from specverify.evidence.pooling import FLOOR
from specverify.evidence.power import noncentrality


def uniform(cells: int) -> Floats:
    """The flat law [cells]."""
    return np.full(cells, 1 / cells)


def zipf(cells: int) -> Floats:
    """Probability proportional to 1 / rank, [cells]."""
    weights = 1 / np.arange(1, cells + 1)
    return np.asarray(weights / weights.sum())


def softmax(cells: int, seed: int = 0, spread: float = 3.0) -> Floats:
    """Softmax of Gaussian logits, like a language model's: a few large cells and a long tail."""
    logits = spread * np.random.default_rng(seed).normal(size=cells)
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


LAWS = {"uniform": uniform, "zipf": zipf, "softmax": softmax}


def worst(p: Floats, tv: float) -> Floats:
    """The deviation that is hardest to see: |p' - p| proportional to p, alternating by size."""
    up = np.ones(p.shape[0], dtype=bool)
    up[np.argsort(p, kind="stable")[::2]] = False
    return np.asarray(p * (1 + np.where(up, tv / p[up].sum(), -tv / p[~up].sum())))


def leak(p: Floats, share: float) -> Floats:
    """The draft law, :func:`softmax` of seed 1, is emitted in a share of the trials."""
    return (1 - share) * p + share * softmax(p.shape[0], 1)


def temperature(p: Floats, factor: float) -> Floats:
    """The temperature is off by a factor."""
    weights = p ** (1 / factor)
    return np.asarray(weights / weights.sum())


def total_variation(p: Floats, q: Floats) -> float:
    """Half the sum of |p - q|."""
    return 0.5 * float(np.abs(p - q).sum())


def trials_for_fault(p: Floats, faulty: Floats, alpha: float, power: float) -> int:
    """Trials at which pooled Cressie-Read rejects this very fault with probability ``power``.

    The fixed test is told the fault, which no real plan is: noncentrality n sum (P' - P)^2 / P on
    the cells pooled for n, against what chi-square on as many cells needs.
    """

    def enough(n: int) -> bool:
        groups = pool(p, n, FLOOR)
        wrong = np.bincount(groups.index[groups.index >= 0], faulty[groups.index >= 0])
        found = n * float(((wrong - groups.p) ** 2 / groups.p).sum())
        return found >= noncentrality(groups.cells, alpha, power)

    low, high = 100, 200
    while not enough(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 200):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
