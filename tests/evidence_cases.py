"""Laws, faults and an independent tail calculator for the tests of specverify.evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy import special, stats

Law = np.ndarray


def softmax_law(cells: int, seed: int = 0, spread: float = 3.0) -> Law:
    """Softmax of Gaussian logits: a few large cells and a long tail, like a language model's."""
    logits = spread * np.random.default_rng(seed).normal(size=cells)
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def zipf_law(cells: int) -> Law:
    weights = 1 / np.arange(1, cells + 1)
    return weights / weights.sum()


def uniform_law(cells: int) -> Law:
    return np.full(cells, 1 / cells)


LAWS: dict[str, Law] = {
    "uniform-4": uniform_law(4),
    "uniform-64": uniform_law(64),
    "zipf-100": zipf_law(100),
    "softmax-256": softmax_law(256),
    "two-cells": np.array([0.93, 0.07]),
}


def temperature(p: Law, factor: float) -> Law:
    weights = np.where(p > 0, p, 1) ** (1 / factor) * (p > 0)
    return weights / weights.sum()


def draft_leak(p: Law, share: float, seed: int = 1) -> Law:
    draft = softmax_law(len(p), seed)
    return (1 - share) * p + share * draft


def lost_tail(p: Law, mass: float) -> Law:
    """The rarest cells with this much mass together are never emitted."""
    order = np.argsort(p, kind="stable")
    lost = order[np.cumsum(p[order]) <= mass]
    kept = p.copy()
    kept[lost] = 0
    return kept / kept.sum()


def worst_direction(p: Law, tv: float) -> Law:
    """|p' - p| proportional to p, alternating from the rarest cell up."""
    sign = np.ones(len(p))
    sign[np.argsort(p, kind="stable")[::2]] = -1
    up, down = p[sign > 0].sum(), p[sign < 0].sum()
    return p * (1 + np.where(sign > 0, tv / up, -tv / down))


def total_variation(p: Law, q: Law) -> float:
    return 0.5 * float(np.abs(p - q).sum())


def at_most(level: float, runs: int) -> int:
    """Number of hits that Bin(runs, level) exceeds with probability 1e-6."""
    return int(stats.binom.isf(1e-6, runs, level))


def at_least(level: float, runs: int) -> int:
    return int(stats.binom.ppf(1e-6, runs, level))


def mixture_tables(p: Law, n: int, draws: int, seed: int) -> Iterator[tuple[np.ndarray, float]]:
    """Tables from a mixture over c = 4^1 .. 4^12 of Dirichlet-multinomial(n, c p), with weights.

    They are overdispersed where p is not, so extreme tables are common; the weight of a table is
    its likelihood ratio back to multinomial(n, p).
    """
    rng = np.random.default_rng(seed)
    scales = 4.0 ** np.arange(1, 13)
    for _ in range(draws):
        weights = rng.gamma(rng.choice(scales) * p)
        table = rng.multinomial(n, weights / weights.sum())
        hit = table > 0
        a, m = np.outer(scales, p[hit]), table[hit]
        logs = (special.gammaln(a + m) - special.gammaln(a) - m * np.log(p[hit])).sum(axis=1)
        logs += special.gammaln(scales) - special.gammaln(scales + n)
        yield table, float(np.exp(np.log(len(scales)) - special.logsumexp(logs)))


def mixture_tail(
    p: Law, n: int, rejects: Callable[[np.ndarray], bool], draws: int, seed: int
) -> float:
    """P(a table of n draws from p is rejected), by importance sampling, however small."""
    tables = mixture_tables(p, n, draws, seed)
    return sum(weight for table, weight in tables if rejects(table)) / draws
