"""Evidence that may be looked at after every draw, and stopped whenever it suffices.

An e-process is a bet against the law at fair odds: its mean is 1 at every stopping time if the law
is true, so it exceeds 1/alpha at any time with probability at most alpha (Ville 1939; Ramdas,
Gruenwald, Vovk & Shafer 2023, Statist. Sci. 38:576). No cell is pooled for validity, no expected
count is too small, and no asymptotics enter.

Dirichlet bets. Betting on the smoothed frequency (N_i + c p_i) / (n + c) multiplies up to

    E_c = prod_i [Gamma(c p_i + N_i) / Gamma(c p_i) p_i^-N_i] * Gamma(c) / Gamma(c + n)

(Good 1967; Lindon & Malek 2022), in logarithms sum_i R(N_i, c p_i) - R(n, c) with
R(m, a) = sum_{j < m} ln(1 + j / a). Cells without draws contribute nothing. The concentration c
is the scale of the deviation that is bet on: chi-square divergence (k - 1) / (c + 1).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from specverify.evidence import validate
from specverify.evidence.pooling import Pooling, pool
from specverify.evidence.suspects import Suspect

COARSE = 4.0 ** np.arange(1, 8)
DEVIATIONS = (0.3, 0.1, 0.03, 0.01, 0.003)
"""Total variations that a concentration is made for, whatever the number of cells."""


def concentrations(cells: int) -> npt.NDArray[np.float64]:
    """The mixture over c, with equal weights.

    A few scales for large deviations, and for each of :data:`DEVIATIONS` the scale that bets on
    it: chi-square divergence (k - 1) / (c + 1) = 4 tv^2.  With 4^1 .. 4^16 for every k, tables of
    32,768 cells had one useful scale in five and alarmed 4 to 10 % later (docs/calibration.md).

    Args:
        cells: k, the cells of positive probability.
    """
    return np.concatenate([COARSE, max(cells - 1, 1) / (4 * np.square(DEVIATIONS))])


POOL_AT = (10**3, 10**4, 10**5, 10**6, 10**7)
"""Numbers of trials that the pooled bets are made for."""

_STIRLING_FROM = 10.0


def _stirling_rest(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Ln Gamma(x) - [(x - 1/2) ln x - x + ln(2 pi) / 2] for x >= 10, to 1e-12."""
    square = 1 / (x * x)
    return np.asarray((1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / x)


def rising(m: npt.ArrayLike, a: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """R(m, a) = sum_{j < m} ln(1 + j / a), without cancellation.

    From a = 10 on, Stirling's series in the form (a + m - 1/2) log1p(m / a) - m + rest: no term is
    larger than the result needs. Below, the difference of log-gammas is harmless, because the
    result itself is large.

    Args:
        m: numbers of draws, integers >= 0.
        a: > 0, broadcast against ``m``.

    Returns:
        float64, of the common shape.
    """
    draws, base = np.broadcast_arrays(np.asarray(m, np.float64), np.asarray(a, np.float64))
    result = np.empty(draws.shape)
    large = base >= _STIRLING_FROM
    x, y = base[large], draws[large]
    bulk = (x + y - 0.5) * np.log1p(y / x) - y
    result[large] = bulk + _stirling_rest(x + y) - _stirling_rest(x)
    x, y = base[~large], draws[~large]
    result[~large] = special.gammaln(x + y) - special.gammaln(x) - y * np.log(x)
    return result


def _log_mean(logs: npt.NDArray[np.float64]) -> float:
    return float(special.logsumexp(logs) - math.log(logs.shape[0]))


def _dirichlet(counts: npt.NDArray[np.int64], p: npt.NDArray[np.float64]) -> float:
    """Log e-value of the mixture of Dirichlet bets; every cell with draws has p > 0."""
    hit = np.flatnonzero(counts)
    scales = concentrations(int(np.count_nonzero(p)))
    base = np.outer(scales, p[hit])
    logs = rising(counts[hit], base).sum(axis=1) - rising(counts.sum(), scales)
    return _log_mean(logs)


def dirichlet_log_e(counts: npt.ArrayLike, p: npt.ArrayLike) -> float:
    """Log e-value of a table under the mixture of Dirichlet bets.

    Args:
        counts: [k] integers >= 0.
        p: [k] law.

    Returns:
        ln E in nats: 0 without draws, infinite after a draw that the law excludes. Arithmetic is
        done for the cells with draws only.

    Raises:
        ValueError: naming the field that is wrong.
    """
    law = validate.law("p", p)
    table = validate.table("counts", counts, law.shape[0])
    return math.inf if table[law == 0].any() else _dirichlet(table, law)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnytimeEvidence:
    """What an e-process says after some draws.

    Attributes:
        log_e: ln E of the composite bet now.
        log_e_max: the largest ln E at any look so far.
        alpha: false-alarm probability over all looks together.
        trials: n.
        log_full, log_pooled, log_directed: its parts; ``None`` for a bet that was not made.
        suspect: name of the suspect that earns most, ``None`` without suspects.
        zero_hits: draws in cells of probability 0.
    """

    log_e: float
    log_e_max: float
    alpha: float
    trials: int
    log_full: float
    log_pooled: float | None
    log_directed: float | None
    suspect: str | None
    zero_hits: int

    @property
    def p_value(self) -> float:
        """Anytime-valid p-value: 1 / (largest E so far), at most 1."""
        return math.exp(-max(0.0, self.log_e_max))

    @property
    def rejected(self) -> bool:
        """Whether E has reached 1 / alpha at some look; sampling may stop then."""
        return self.log_e_max >= -math.log(self.alpha)


class SequentialTest:
    """Composite e-process: the mean of a full, a pooled and a directed bet.

    The mean of e-processes is one, so the composite loses at most ln 3 against the best part. The
    pooled bet is the Dirichlet bet on tables that were merged for numbers of trials fixed
    beforehand; the directed bet is the mean likelihood ratio of the suspects.
    """

    def __init__(
        self,
        p: npt.ArrayLike,
        *,
        alpha: float,
        suspects: Sequence[Suspect] = (),
        pool_at: Sequence[int] = POOL_AT,
    ) -> None:
        """Fix law, bets and level before the first draw.

        Args:
            p: [k] law.
            alpha: false-alarm probability over all looks.
            suspects: bets of the directed part.
            pool_at: numbers of trials to pool for; equal poolings count once.

        Raises:
            ValueError: naming the field that is wrong.
        """
        self._p = validate.law("p", p)
        self._alpha = validate.inside("alpha", alpha)
        self._counts = np.zeros(self._p.shape[0], dtype=np.int64)
        self._poolings = self._distinct([pool(self._p, n) for n in pool_at])
        self._names = [suspect.name for suspect in suspects]
        self._log_ratios = [self._log_ratio(suspect) for suspect in suspects]
        self._log_e_max = 0.0

    def _distinct(self, poolings: list[Pooling]) -> list[Pooling]:
        """One pooling for each number of cells that is neither 1 nor the whole law."""
        whole = int(np.count_nonzero(self._p))
        return list({each.cells: each for each in poolings if 1 < each.cells < whole}.values())

    def _log_ratio(self, suspect: Suspect) -> npt.NDArray[np.float64]:
        law = validate.law(f"suspects[{suspect.name}]", suspect.law)
        if law.shape != self._p.shape:
            raise ValueError(
                f"suspects[{suspect.name}]: got {law.shape[0]} cells; expected {self._p.shape[0]}"
            )
        # a difference of logarithms: the quotient of a tiny probability could overflow
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(law) - np.log(self._p))

    def add(self, counts: npt.ArrayLike) -> AnytimeEvidence:
        """Add new draws and look.

        Args:
            counts: [k] integers >= 0, the draws since the last call.

        Returns:
            The evidence of all draws so far.

        Raises:
            ValueError: naming the field that is wrong.
        """
        self._counts = self._counts + validate.table("counts", counts, self._p.shape[0])
        zero_hits = int(self._counts[self._p == 0].sum())
        full = self._full(zero_hits)
        pooled, (directed, suspect) = self._pooled(zero_hits), self._directed(zero_hits)
        parts = [part for part in (full, pooled, directed) if part is not None]
        log_e = _log_mean(np.array(parts))
        self._log_e_max = max(self._log_e_max, log_e)
        return AnytimeEvidence(
            log_e=log_e,
            log_e_max=self._log_e_max,
            alpha=self._alpha,
            trials=int(self._counts.sum()),
            log_full=full,
            log_pooled=pooled,
            log_directed=directed,
            suspect=suspect,
            zero_hits=zero_hits,
        )

    def _full(self, zero_hits: int) -> float:
        return math.inf if zero_hits else _dirichlet(self._counts, self._p)

    def _pooled(self, zero_hits: int) -> float | None:
        if not self._poolings:
            return None
        if zero_hits:
            return math.inf
        tables = ((each.table(self._counts)[0], each.p) for each in self._poolings)
        return _log_mean(np.array([_dirichlet(table, law) for table, law in tables]))

    def _directed(self, zero_hits: int) -> tuple[float | None, str | None]:
        if not self._names:
            return None, None
        hit = np.flatnonzero(self._counts * (self._p > 0))
        logs = np.array([float(self._counts[hit] @ ratio[hit]) for ratio in self._log_ratios])
        best = self._names[int(np.argmax(logs))]
        return (math.inf if zero_hits else _log_mean(logs)), best
