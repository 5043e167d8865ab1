"""Power at the promised number of trials: the deviation that was planned for must be found."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from calibration.rows import Floats, Row, Size, Task, cached, counted
from calibration.worlds import softmax, temperature, uniform, worst, zipf
from specverify.evidence import (
    Evidence,
    binomial_test,
    binomial_trials_needed,
    cressie_read,
    independence,
    independence_detectable,
    pearson,
    pool,
    trials_needed,
    trials_needed_for_law,
    tv_test,
    tv_trials_needed,
)
from specverify.evidence.accuracies import compare_paired
from specverify.evidence.accuracy_power import paired_questions_needed, unpaired_questions_needed
from specverify.evidence.barnard import p_value as barnard_p_value
from specverify.evidence.mmd import mmd_spectrum, mmd_test, mmd_texts_needed
from specverify.evidence.two_sample import two_sample_test, two_sample_trials_needed

GROUP = "Power at the promised number of trials"
ALPHA, POWER = 1e-9, 0.999


def _row(name: str, setting: str, hits: int, runs: int, power: float = POWER) -> Row:
    return counted(GROUP, name, setting, hits, runs, power, least=True, what="rejects")


def _rejected(test: Callable[..., Evidence], rng: np.random.Generator, n: int, truth: Floats,
              p: Floats, runs: int) -> int:  # fmt: skip
    tables = (rng.multinomial(n, truth) for _ in range(runs))
    return sum(test(table, p, alpha=ALPHA).rejected for table in tables)


def divergence(name: str, p: Floats, tv: float, size: Size) -> list[Row]:
    """Cressie-Read at ``trials_needed_for_law``, worst direction on the pooled cells."""
    n = trials_needed_for_law(p, tv, ALPHA, POWER)
    pooled = pool(p, n).p
    rng = size.rng("divergence", name, tv)
    hits = _rejected(cressie_read, rng, n, worst(pooled, tv), pooled, size.power_runs)
    setting = f"{name}, TV {tv}, n {n:,}, alpha {ALPHA:g}"
    return [_row("cressie_read", setting, hits, size.power_runs)]


def chi_square(size: Size) -> list[Row]:
    """Pearson at ``trials_needed``."""
    p, tv = uniform(32), 0.05
    n = trials_needed(32, tv, ALPHA, POWER)
    hits = _rejected(pearson, size.rng("pearson"), n, worst(p, tv), p, size.power_runs)
    setting = f"uniform 32, TV {tv}, n {n:,}, alpha {ALPHA:g}"
    return [_row("pearson", setting, hits, size.power_runs)]


def variation(size: Size) -> list[Row]:
    """Total variation at ``tv_trials_needed``."""
    p, tv = softmax(64), 0.05
    n = tv_trials_needed(p, tv, ALPHA, POWER)
    hits = _rejected(tv_test, size.rng("tv"), n, worst(p, tv), p, size.power_runs)
    setting = f"softmax 64, TV {tv}, n {n:,}, alpha {ALPHA:g}"
    return [_row("tv_test", setting, hits, size.power_runs)]


def rate(size: Size) -> list[Row]:
    """The binomial test at ``binomial_trials_needed``, both directions."""
    rows = []
    for expected, deviation in ((0.3, 0.05), (0.3, -0.05), (0.01, 0.01)):
        n = binomial_trials_needed(expected, abs(deviation), ALPHA, POWER)
        known = cached(
            lambda x, n=n, p=expected: binomial_test(x, n, p, alpha=ALPHA, power=POWER).rejected
        )
        rng = size.rng("binomial", expected, deviation)
        draws = rng.binomial(n, expected + deviation, size.power_runs)
        setting = f"rate {expected} {deviation:+}, n {n:,}, alpha {ALPHA:g}"
        rows.append(_row("binomial_test", setting, sum(known(int(x)) for x in draws),
                         size.power_runs))  # fmt: skip
    return rows


def pairs(size: Size) -> list[Row]:
    """Independence at ``independence_detectable``: the product law moved in its worst direction."""
    rows, columns, n, alpha = uniform(4), uniform(6), 20_000, 1e-6
    tv = independence_detectable(rows, columns, n, alpha=alpha, power=POWER)
    # Signs that add up to nothing in each row and column leave both margins as they are.
    sign = np.outer([1, -1, 1, -1], [1, -1, 1, -1, 1, -1])
    law = np.outer(rows, columns) * (1 + 2 * tv * sign)
    rng = size.rng("pairs")
    tables = (rng.multinomial(n, law.reshape(-1)).reshape(4, 6) for _ in range(size.power_runs))
    hits = sum(independence(table, rows, columns, alpha=alpha).rejected for table in tables)
    setting = f"uniform 4 x 6, TV {tv:.4f}, n {n:,}, alpha {alpha:g}"
    return [_row("independence", setting, hits, size.power_runs)]


def two_samples(alpha: float, runs: int, size: Size) -> list[Row]:
    """The two-sample test at ``two_sample_trials_needed``, by chi-square or by permutation."""
    cells, tv = 8, 0.1
    n = two_sample_trials_needed(cells, tv, alpha, POWER)
    a, b = worst(uniform(cells), tv / 2), 2 * uniform(cells) - worst(uniform(cells), tv / 2)
    rng, hits, method = size.rng("two", alpha), 0, ""
    for seed in range(runs):
        found = two_sample_test(
            rng.multinomial(n, a), rng.multinomial(n, b), alpha=alpha, seed=seed
        )
        hits, method = hits + found.rejected, found.method
    setting = f"uniform 8, TV {tv}, n {n:,} each, alpha {alpha:g}"
    return [_row(f"two_sample_test, {method}", setting, hits, runs)]


def texts(name: str, p: Floats, q: Floats, size: Size) -> list[Row]:
    """The MMD test at ``mmd_texts_needed``, its spectrum from texts of both engines."""
    length, power, alpha, runs = 8, 0.9, 0.02, max(1, size.power_runs // 5)
    rng, hits = size.rng("texts", name), 0
    distance = float(((p - q) ** 2).sum())
    pilot = [rng.choice(p.shape[0], p=law, size=(300, length)) for law in (p, q)]
    n = mmd_texts_needed(mmd_spectrum(np.concatenate(pilot)), distance, alpha, power)
    for seed in range(runs):
        a, b = (rng.choice(p.shape[0], p=law, size=(n, length)) for law in (p, q))
        hits += mmd_test(a, b, alpha=alpha, permutations=499, seed=seed).rejected
    setting = f"{name}, MMD^2 {distance:.3g}, {n} + {n} texts of {length} tokens, alpha {alpha:g}"
    return [_row("mmd_test", setting, hits, runs, power)]


def accuracies(size: Size) -> list[Row]:
    """McNemar and Barnard at the numbers of questions that their planners ask for."""
    alpha, power = 0.05, 0.9
    n = paired_questions_needed(0.1, 0.25, alpha, power)
    paired = cached(lambda a, b: compare_paired(0, a, b, n, alpha=alpha).rejected)
    tables = size.rng("paired").multinomial(n, [0.175, 0.075, 0.75], size=size.power_runs)
    found = sum(paired(int(a), int(b)) for a, b, _ in tables)
    setting = f"difference 0.1, discordance 0.25, n {n:,}, alpha {alpha:g}"
    rows = [_row("McNemar (compare_paired)", setting, found, size.power_runs, power)]
    n = unpaired_questions_needed(0.85, 0.6, alpha, power)
    unpaired = cached(lambda x, y: barnard_p_value(x, n, y, n) <= alpha)
    rng = size.rng("unpaired")
    first = rng.binomial(n, 0.85, size.power_runs)
    second = rng.binomial(n, 0.6, size.power_runs)
    found = sum(unpaired(int(x), int(y)) for x, y in zip(first, second, strict=True))
    setting = f"0.85 against 0.6, n {n:,} each, alpha {alpha:g}"
    return [*rows, _row("Barnard (compare_unpaired)", setting, found, size.power_runs, power)]


def tasks(size: Size) -> Sequence[Task]:
    """Every test that promises a power."""
    laws = (("uniform 4", uniform(4), 0.1), ("uniform 64", uniform(64), 0.03),
            ("zipf 32", zipf(32), 0.03), ("softmax 256", softmax(256), 0.1))  # fmt: skip
    singles = (chi_square, variation, rate, pairs, accuracies)
    # A permutation p-value of a rejected table needs all permutations, 100 times the chi-square.
    samples = ((1e-9, size.power_runs), (0.01, max(1, size.power_runs // 5)))
    flat, ranks, lm = uniform(4), zipf(20), softmax(20, spread=1.0)
    moved = 0.75 * ranks + 0.25 * np.roll(ranks, 1)
    engines = (("uniform 4, one token up", flat, flat + np.array([0.12, -0.04, -0.04, -0.04])),
               ("zipf 20, a quarter moved on", ranks, moved),
               ("softmax 20, temperature x 1.5", lm, temperature(lm, 1.5)),
               ("(0.9, 0.05, 0.05), one token up", np.array([0.9, 0.05, 0.05]),
                np.array([0.8, 0.15, 0.05])))  # fmt: skip
    return [
        *(functools.partial(divergence, name, p, tv, size) for name, p, tv in laws),
        *(functools.partial(single, size) for single in singles),
        *(functools.partial(texts, name, a, b, size) for name, a, b in engines),
        *(functools.partial(two_samples, alpha, runs, size) for alpha, runs in samples),
    ]
