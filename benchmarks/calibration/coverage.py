"""Coverage of every interval and bound: how often the truth lies outside.

A fixed interval is looked at once. A sequence is looked at along a whole stream, and one look that
excludes the truth counts as a miss: that is its promise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from calibration.rows import Floats, Row, Size, Task, cached, counted
from calibration.worlds import total_variation, uniform, zipf
from specverify.evidence import certificate, clopper_pearson
from specverify.evidence.accuracy_intervals import newcombe, tango
from specverify.evidence.confidence import CertificateSequence, mean_sequence, rate_sequence
from specverify.evidence.total_variation import expected_tv

GROUP = "Coverage: the truth outside the interval"
CONFIDENCE = 0.9
LOOKS = tuple(sorted({math.ceil(1.35**j) for j in range(27)}))  # 1 .. 2,444 draws

Cut = tuple[float, float]


def _outside(cut: Cut, truth: float) -> bool:
    return not cut[0] <= truth <= cut[1]


def looks(rng: np.random.Generator, p: Floats, at: Sequence[int] = LOOKS
          ) -> Iterator[npt.NDArray[np.int64]]:  # fmt: skip
    """The new draws at each look of one stream."""
    for before, after in zip((0, *at[:-1]), at, strict=True):
        yield rng.multinomial(after - before, p)


def rates(size: Size) -> list[Row]:
    """Clopper-Pearson at rates in the middle and at the edge."""
    rows = []
    for rate, n in ((0.5, 100), (0.03, 100), (0.999, 1000)):
        interval = cached(lambda x, n=n: clopper_pearson(x, n, CONFIDENCE))
        hits = size.rng("rates", rate).binomial(n, rate, size.runs)
        missed = sum(_outside(interval(int(x)), rate) for x in hits)
        rows.append(counted(GROUP, "clopper_pearson", f"rate {rate}, n {n}", missed,
                            size.runs, 1 - CONFIDENCE))  # fmt: skip
    return rows


def certificates(size: Size) -> list[Row]:
    """The certificate where it is sharp, where it is wide, and what it costs at 64 cells."""
    rows = []
    worlds: tuple[tuple[str, Floats, Floats, int], ...] = (
        ("p (0.95, 0.05), truth (0.5, 0.5), n 100", np.array([0.95, 0.05]), uniform(2), 100),
        ("p uniform 8, truth zipf 8, n 200", uniform(8), zipf(8), 200),
        ("p = truth, uniform 64, n 1,000", uniform(64), uniform(64), 1000),
    )
    for setting, p, truth, n in worlds:
        tables = size.rng("certificate", setting).multinomial(n, truth, size=size.runs)
        tv = total_variation(p, truth)
        missed = sum(certificate(table, p, CONFIDENCE).tv_upper < tv for table in tables)
        rows.append(counted(GROUP, "certificate", setting, missed, size.runs, 1 - CONFIDENCE))
    p, n = uniform(64), 360_000
    tables = size.rng("certificate 64").multinomial(n, p, size=size.runs)
    enough = sum(certificate(table, p, 0.999).tv_upper <= 0.01 for table in tables)
    rows.append(counted(GROUP, "certificate TV <= 0.01 at 0.999",
                        f"uniform 64, n {n:,}, mean of TVhat {expected_tv(p, n):.4f}", enough,
                        size.runs, 0.999, least=True, what="certified"))  # fmt: skip
    return rows


def differences(size: Size) -> list[Row]:
    """Newcombe and Tango: near the nominal miss rate of 0.05, judged at 0.06."""
    rows = []
    for a, b, n in ((0.79, 0.77, 200), (0.95, 0.9, 100)):
        unpaired = cached(lambda x, y, n=n: newcombe(x, n, y, n, 0.95))
        rng = size.rng("newcombe", a)
        draws = zip(rng.binomial(n, a, size.runs), rng.binomial(n, b, size.runs), strict=True)
        missed = sum(_outside(unpaired(int(x), int(y)), a - b) for x, y in draws)
        rows.append(counted(GROUP, "newcombe 0.95 (asymptotic)", f"{a} against {b}, n {n}",
                            missed, size.runs, 0.06))  # fmt: skip
    for only_a, only_b, n in ((0.12, 0.1, 200), (0.2, 0.02, 100)):
        paired = cached(lambda x, y, n=n: tango(x, y, n, 0.95))
        shares = [only_a, only_b, 1 - only_a - only_b]
        tables = size.rng("tango", only_a).multinomial(n, shares, size=size.runs)
        missed = sum(_outside(paired(int(x), int(y)), only_a - only_b) for x, y, _ in tables)
        rows.append(counted(GROUP, "tango 0.95 (asymptotic)",
                            f"only A {only_a}, only B {only_b}, n {n}",
                            missed, size.runs, 0.06))  # fmt: skip
    return rows


def _ever(
    rng: np.random.Generator,
    p: Floats,
    misses: Callable[[npt.NDArray[np.int64]], bool],
    at: Sequence[int] = LOOKS,
) -> bool:
    """Whether some look at a growing table of counts misses the truth."""
    counts = np.zeros(p.shape[0], dtype=np.int64)
    for new in looks(rng, p, at):
        counts = counts + new
        if misses(counts):
            return True
    return False


def anytime_rate(rate: float, size: Size) -> list[Row]:
    """The rate sequence, looked at along whole streams."""
    rng, p = size.rng("rate", rate), np.array([rate, 1 - rate])

    def interval(x: int, n: int) -> Cut:
        found = rate_sequence(x, n, CONFIDENCE)
        return found.low, found.high

    known = cached(interval)
    missed = sum(
        _ever(rng, p, lambda c: _outside(known(int(c[0]), int(c.sum())), rate))
        for _ in range(size.runs)
    )
    setting = f"rate {rate}, {len(LOOKS)} looks to n {LOOKS[-1]:,}"
    return [counted(GROUP, "rate_sequence", setting, missed, size.runs, 1 - CONFIDENCE)]


def anytime_mean(size: Size) -> list[Row]:
    """The mean sequence of acceptance lengths 0 .. 4, looked at along whole streams."""
    rng, p, values = size.rng("mean"), np.array([0.1, 0.1, 0.2, 0.2, 0.4]), np.arange(5)
    truth = float(p @ values)

    def misses(counts: npt.NDArray[np.int64]) -> bool:
        found = mean_sequence(counts, values, CONFIDENCE)
        return _outside((found.low, found.high), truth)

    few = LOOKS[3::3]  # each look bisects twice over all bets: a millisecond
    missed = sum(_ever(rng, p, misses, few) for _ in range(size.costly_runs))
    setting = f"lengths 0..4, mean {truth:g}, {len(few)} looks to n {few[-1]:,}"
    return [counted(GROUP, "mean_sequence", setting, missed, size.costly_runs, 1 - CONFIDENCE)]


def anytime_certificate(size: Size) -> list[Row]:
    """The certificate sequence: its running minimum must stay above the truth."""
    rows = []
    for setting, p, truth in (
        ("p (0.95, 0.05), truth (0.5, 0.5)", np.array([0.95, 0.05]), uniform(2)),
        ("p uniform 8, truth zipf 8", uniform(8), zipf(8)),
    ):
        rng, tv, missed = size.rng("sequence", setting), total_variation(p, truth), 0
        for _ in range(size.runs):
            sequence = CertificateSequence(p, planned=500, confidence=CONFIDENCE)
            upper = 1.0
            for new in looks(rng, truth):
                upper = sequence.add(new).tv_upper
            missed += upper < tv
        rows.append(counted(GROUP, "CertificateSequence", f"{setting}, {len(LOOKS)} looks",
                            missed, size.runs, 1 - CONFIDENCE))  # fmt: skip
    return rows


def tasks(size: Size) -> Sequence[Task]:
    """All intervals."""
    fixed: list[Task] = [functools.partial(f, size) for f in (rates, certificates, differences)]
    anytime = [functools.partial(anytime_rate, rate, size) for rate in (0.8, 0.03)]
    return [*fixed, *anytime, functools.partial(anytime_mean, size),
            functools.partial(anytime_certificate, size)]  # fmt: skip
