"""False alarms of the e-processes when somebody looks again and again and stops at the best look.

A stream that ever reaches 1 / alpha is an alarm. Under the null at most a share alpha of the
streams may do so, however often one looks (Ville 1939).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from calibration.coverage import LOOKS, looks
from calibration.rows import Floats, Row, Size, Task, counted
from calibration.worlds import softmax, uniform, zipf
from specverify.evidence import SequentialTest, leaks, temperatures, thin_tails
from specverify.evidence.two_sample_sequential import SequentialTwoSample

GROUP = "False alarms under optional stopping"
ALPHAS = (0.1, 0.01)


def _rows(name: str, setting: str, highest: list[float]) -> list[Row]:
    rows = []
    for alpha in ALPHAS:
        alarms = sum(value >= -math.log(alpha) for value in highest)
        where = f"{setting}, alpha {alpha:g}, {len(LOOKS)} looks to n {LOOKS[-1]:,}"
        rows.append(counted(GROUP, name, where, alarms, len(highest), alpha, what="alarms"))
    return rows


def composite(name: str, p: Floats, size: Size) -> list[Row]:
    """The composite of full, pooled and directed bets on streams from its own law."""
    rng = size.rng("composite", name)
    suspects = leaks(p, softmax(p.shape[0], 1), "leak") + temperatures(p) + thin_tails(p)
    highest = []
    for _ in range(size.costly_runs):
        test, found = SequentialTest(p, alpha=ALPHAS[0], suspects=suspects, pool_at=(1000,)), 0.0
        for new in looks(rng, p):
            found = test.add(new).log_e_max
        highest.append(found)
    return _rows("SequentialTest, composite", name, highest)


def two_samples(name: str, p: Floats, size: Size) -> list[Row]:
    """Two samplers of one law."""
    rng, highest = size.rng("two", name), []
    for _ in range(size.runs):
        test, found = SequentialTwoSample(p.shape[0], alpha=ALPHAS[0]), 0.0
        for a, b in zip(looks(rng, p), looks(rng, p), strict=True):
            found = test.add(a, b).log_e_max
        highest.append(found)
    return _rows("SequentialTwoSample", name, highest)


def tasks(size: Size) -> Sequence[Task]:
    """Flat and skewed laws, small and larger."""
    return [
        *(functools.partial(composite, name, p, size)
          for name, p in (("uniform 4", uniform(4)), ("softmax 256", softmax(256)))),
        *(functools.partial(two_samples, name, p, size)
          for name, p in (("uniform 4", uniform(4)), ("zipf 32", zipf(32)))),
    ]  # fmt: skip
