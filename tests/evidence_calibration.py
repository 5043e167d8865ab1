"""Measures the calibration figures of docs/statistics.md: ``python tests/evidence_calibration.py``.

Not a test: minutes of work for numbers that people read. The tests assert the same, scaled down.
"""

from __future__ import annotations

import sys

import numpy as np
from evidence_cases import (
    draft_leak,
    mixture_tables,
    softmax_law,
    temperature,
    total_variation,
    uniform_law,
    worst_direction,
    zipf_law,
)
from scipy import special, stats

from specverify.evidence import cressie_read, pool, trials_needed, trials_needed_for_law
from specverify.evidence.eprocess import SequentialTest
from specverify.evidence.goodness_of_fit import power_divergence
from specverify.evidence.suspects import leaks, temperatures, thin_tails

LEVELS = (1e-3, 1e-6, 1e-9)
EXPONENTS = {"X2": 1.0, "G": 0.0, "CR": 2 / 3}


def say(*parts: object) -> None:
    sys.stdout.write(" ".join(str(part) for part in parts) + "\n")
    sys.stdout.flush()


def tails(name: str, law: np.ndarray, n: int, draws: int) -> None:
    p = pool(law, n).p
    values: dict[str, list[float]] = {key: [] for key in [*EXPONENTS, "used"]}
    weights = []
    for table, weight in mixture_tables(p, n, draws, seed=0):
        weights.append(weight)
        for key, exponent in EXPONENTS.items():
            statistic = power_divergence(table, n * p, exponent)
            values[key].append(special.chdtrc(len(p) - 1, statistic))
        values["used"].append(cressie_read(table, p, alpha=1e-9).p_value)
    say(name, "cells", len(p), "n", n)
    w = np.array(weights)
    for key, column in values.items():
        hits = [w * (np.array(column) <= level) for level in LEVELS]
        ratio = [h.mean() / level for h, level in zip(hits, LEVELS, strict=True)]
        error = [h.std() / np.sqrt(draws) / level for h, level in zip(hits, LEVELS, strict=True)]
        cells = (f"{r:.2f}+-{e:.2f}" for r, e in zip(ratio, error, strict=True))
        say("   ", key, *cells)


def null_values(name: str, p: np.ndarray, n: int, runs: int = 20_000) -> None:
    tables = np.random.default_rng(1).multinomial(n, p, size=runs)
    values = np.array([cressie_read(table, p, alpha=1e-6).p_value for table in tables])
    shares = [float(np.mean(values <= level)) for level in (0.1, 0.01, 1e-3)]
    say("null", name, *shares, "KS", stats.kstest(values, "uniform").pvalue)


def power(name: str, p: np.ndarray, tv: float, runs: int = 5000) -> None:
    n = trials_needed_for_law(p, tv, 1e-9, 0.999)
    pooled = pool(p, n).p
    # two cells have one direction; upwards for the rare one, since it may expect less than tv
    two = pooled + np.array([tv, -tv]) if len(pooled) == 2 else None
    faulty = worst_direction(pooled, tv) if two is None else two
    tables = np.random.default_rng(2).multinomial(n, faulty, size=runs)
    hits = sum(cressie_read(table, pooled, alpha=1e-9).rejected for table in tables)
    say("power", name, "tv", tv, "n", n, "cells", len(pooled), hits / runs)


def alarms(name: str, p: np.ndarray, faulty: np.ndarray, runs: int = 40) -> None:
    tv = total_variation(p, faulty)
    # the worst direction alternates cell by cell, which merged cells would hide
    flat = np.ptp(p) == 0
    fixed = (
        trials_needed(len(p), tv, 1e-9, 0.999)
        if flat
        else trials_needed_for_law(p, tv, 1e-9, 0.999)
    )
    draft = softmax_law(len(p), 1)
    suspects = leaks(p, draft, "leak") + temperatures(p) + thin_tails(p)
    rng = np.random.default_rng(3)
    for label, bets in (("without suspects", ()), ("with suspects", suspects)):
        times = []
        for _ in range(runs):
            test = SequentialTest(p, alpha=1e-9, suspects=bets)
            found = test.add(rng.multinomial(fixed // 50, faulty))
            while not found.rejected:
                found = test.add(rng.multinomial(fixed // 50, faulty))
            times.append(found.trials / fixed)
        say(
            "alarm",
            name,
            label,
            "fixed n",
            fixed,
            f"mean {np.mean(times):.2f} max {max(times):.2f}",
        )


def main() -> None:
    tails("uniform-16", uniform_law(16), 320, 16_000)
    tails("uniform-64", uniform_law(64), 1280, 12_000)
    tails("softmax-1024", softmax_law(1024), 10**4, 12_000)
    tails("softmax-1024", softmax_law(1024), 10**5, 8_000)
    tails("rare-4", np.array([20, 20, 20, 10**5 - 60]) / 10**5, 10**5, 40_000)
    null_values("softmax-1024", softmax_law(1024), 10**4)
    null_values("uniform-64", uniform_law(64), 5000)
    null_values("zipf-1000", zipf_law(1000), 10**4)
    for tv in (0.1, 0.03):
        for name, p in (
            ("uniform-4", uniform_law(4)),
            ("uniform-64", uniform_law(64)),
            ("softmax-256", softmax_law(256)),
            ("two-cells", np.array([0.93, 0.07])),
        ):
            power(name, p, tv)
    for cells in (4, 32, 1024):
        alarms(
            f"uniform-{cells} worst", uniform_law(cells), worst_direction(uniform_law(cells), 0.1)
        )
    p = softmax_law(1024)
    alarms("softmax-1024 temperature 1.05", p, temperature(p, 1.05))
    alarms("softmax-1024 draft leak 0.05", p, draft_leak(p, 0.05))


if __name__ == "__main__":
    main()
