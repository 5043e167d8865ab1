"""P-values under the null: tail counts, and the whole distribution function inside a band.

An exact or proved p-value is super-uniform, P(p <= a) <= a, and may be much smaller; only an excess
counts against it. A chi-square p-value claims to be uniform, and both sides count.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from calibration.rows import Floats, Row, Size, Task, at_least, at_most, band, cached, excess
from calibration.worlds import softmax, uniform, zipf
from specverify.evidence import (
    Evidence,
    binomial_test,
    cressie_read,
    independence,
    pearson,
    tv_test,
)
from specverify.evidence.accuracies import compare_paired
from specverify.evidence.barnard import p_value as barnard_p_value
from specverify.evidence.importance import exact_p_value
from specverify.evidence.mmd import mmd_test
from specverify.evidence.two_sample import two_sample_test

GROUP = "P-values under the null: counts at 0.1 / 0.01 / 0.001"
LEVELS = (0.1, 0.01, 1e-3)
ALPHA = 1e-6  # the p-values do not depend on it, except where the method does

PValues = Callable[[np.random.Generator, int], Floats]
"""Draws that many data sets under the null and answers their p-values."""


@dataclasses.dataclass(frozen=True)
class Null:
    """A statistic on a law where the null is true."""

    name: str
    setting: str
    p_values: PValues
    uniform: bool


def _goodness(test: Callable[..., Evidence], p: Floats, n: int) -> PValues:
    def p_values(rng: np.random.Generator, runs: int) -> Floats:
        tables = (rng.multinomial(n, p) for _ in range(runs))
        return np.array([test(table, p, alpha=ALPHA).p_value for table in tables])

    return p_values


def _binomial(rng: np.random.Generator, runs: int) -> Floats:
    def one(hits: int) -> float:
        return binomial_test(hits, 500, 0.3, alpha=ALPHA).p_value

    known = cached(one)
    return np.array([known(hits) for hits in rng.binomial(500, 0.3, runs)])


def _independence(rng: np.random.Generator, runs: int) -> Floats:
    rows, columns = zipf(6), softmax(8, spread=1.0)
    law = np.outer(rows, columns).reshape(-1)
    tables = (rng.multinomial(20_000, law).reshape(6, 8) for _ in range(runs))
    return np.array([independence(t, rows, columns, alpha=ALPHA).p_value for t in tables])


def _two_sample(p: Floats, n_a: int, n_b: int, alpha: float) -> PValues:
    def p_values(rng: np.random.Generator, runs: int) -> Floats:
        found = np.empty(runs)
        for run in range(runs):
            a, b = rng.multinomial(n_a, p), rng.multinomial(n_b, p)
            found[run] = two_sample_test(a, b, alpha=alpha, seed=int(rng.integers(2**31))).p_value
        return found

    return p_values


def _texts(rng: np.random.Generator, runs: int) -> Floats:
    def draw() -> npt.NDArray[np.int64]:
        texts = rng.choice(5, p=zipf(5), size=(16, 6))
        lengths = rng.integers(1, 7, size=(16, 1))
        return np.asarray(np.where(np.arange(6) < lengths, texts, -1), np.int64)

    seeds = rng.integers(2**31, size=runs)
    return np.array(
        [mmd_test(draw(), draw(), alpha=0.01, permutations=999, seed=int(s)).p_value for s in seeds]
    )


def _mcnemar(rng: np.random.Generator, runs: int) -> Floats:
    def one(only_a: int, only_b: int) -> float:
        return compare_paired(0, only_a, only_b, 60).p_value

    known = cached(one)
    tables = rng.multinomial(60, [0.12, 0.12, 0.76], size=runs)
    return np.array([known(int(a), int(b)) for a, b, _ in tables])


def _barnard(rng: np.random.Generator, runs: int) -> Floats:
    known = cached(barnard_p_value)
    pairs = np.stack([rng.binomial(40, 0.8, runs), rng.binomial(30, 0.8, runs)], axis=1)
    return np.array([known(int(x), 40, int(y), 30) for x, y in pairs])


def _enumerated(rng: np.random.Generator, runs: int) -> Floats:
    p = np.array([0.6, 0.3, 0.1])

    def one(*table: int) -> float:
        return exact_p_value(table, p).p_value

    known = cached(one)
    return np.array([known(*map(int, table)) for table in rng.multinomial(30, p, size=runs)])


def nulls() -> tuple[Null, ...]:
    """Every statistic that answers a p-value."""
    flat4, flat64, lm, ranks = uniform(4), uniform(64), softmax(1024), zipf(1000)
    return (
        Null("cressie_read", "uniform 4, n 400", _goodness(cressie_read, flat4, 400), True),
        Null("cressie_read", "uniform 64, n 5,000", _goodness(cressie_read, flat64, 5000), True),
        Null("cressie_read", "zipf 1,000, n 1e4", _goodness(cressie_read, ranks, 10**4), True),
        Null("cressie_read", "softmax 1,024, n 1e4", _goodness(cressie_read, lm, 10**4), True),
        Null("pearson", "uniform 64, n 5,000", _goodness(pearson, flat64, 5000), True),
        Null("pearson", "softmax 1,024, n 1e4", _goodness(pearson, lm, 10**4), True),
        Null("tv_test", "uniform 4, n 400", _goodness(tv_test, flat4, 400), False),
        Null("tv_test", "softmax 1,024, n 1e4", _goodness(tv_test, lm, 10**4), False),
        Null("binomial_test", "rate 0.3, n 500", _binomial, False),
        Null("independence", "zipf 6 x softmax 8, n 2e4", _independence, True),
        Null("two_sample_test, permutation", "zipf 6, n 400 + 300",
             _two_sample(zipf(6), 400, 300, 1e-3), False),
        Null("two_sample_test, chi-square", "zipf 64, n 5,000 + 8,000",
             _two_sample(zipf(64), 5000, 8000, ALPHA), True),
        Null("two_sample_test, two cells", "rate 0.2, n 200 + 300",
             _two_sample(np.array([0.2, 0.8]), 200, 300, ALPHA), False),
        Null("mmd_test", "16 + 16 ragged texts, 999 permutations", _texts, False),
        Null("McNemar (compare_paired)", "60 questions, discordance 0.24", _mcnemar, False),
        Null("Barnard (compare_unpaired)", "40 + 30 questions, rate 0.8", _barnard, False),
        Null("exact_p_value, enumeration", "(0.6, 0.3, 0.1), n 30", _enumerated, False),
    )  # fmt: skip


def judged(null: Null, p_values: Floats) -> Row:
    """Compare p-values with what they promise.

    Args:
        null: where they come from.
        p_values: [B].

    Returns:
        The row: tail counts within exact binomial bounds and distribution function within the band.
    """
    runs, width = p_values.size, band(p_values.size)
    hits = [int((p_values <= level).sum()) for level in LEVELS]
    high = [at_most(level, runs) for level in LEVELS]
    low = [at_least(level, runs) if null.uniform else 0 for level in LEVELS]
    above, below = excess(p_values)
    inside = all(a <= h <= b for a, h, b in zip(low, hits, high, strict=True))
    inside &= above <= width and (below <= width or not null.uniform)
    counts = (f"{a:,}..{b:,}" if a else f"<= {b:,}" for a, b in zip(low, high, strict=True))
    sides = "+-" if null.uniform else "+"
    return Row(
        group=GROUP,
        name=null.name,
        setting=null.setting,
        runs=runs,
        expected=f"{' / '.join(counts)}; ECDF {sides}{width:.3f}",
        observed=f"{' / '.join(f'{h:,}' for h in hits)}; +{above:.3f} -{below:.3f}",
        ok=inside,
    )


def measure(index: int, size: Size) -> list[Row]:
    """The row of one statistic."""
    null = nulls()[index]
    return [judged(null, null.p_values(size.rng("null", null.name, null.setting), size.runs))]


def tasks(size: Size) -> Sequence[Task]:
    """One for each statistic."""
    return [functools.partial(measure, i, size) for i in range(len(nulls()))]
