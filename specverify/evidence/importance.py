"""Exact small p-values of any statistic on a small or pooled table.

Tiny tables are enumerated. Others are sampled where they are extreme: tables T from the mixture
over c of Dirichlet-multinomial(n, c p) are overdispersed, and weighting each by 1 / E(T), its
likelihood ratio back to multinomial(n, p) (E as in :mod:`specverify.evidence.eprocess`), makes

    mean of 1{stat(T) >= stat(observed)} / E(T)

an unbiased estimate of the p-value. The scales c lie around the one whose tables deviate as much as
the observed one does, X2 = (k - 1)(n + c) / (1 + c): the choice costs no validity, because what is
drawn afterwards is independent of the observed table. Where plain Monte Carlo stops at
1 / (draws + 1), this still has a standard error of some 5 to 15 % at 1e-9. Far beyond, below 1e-15,
the weights have heavy tails and the stated error is itself uncertain.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt
from scipy import special

from specverify.evidence import validate
from specverify.evidence.eprocess import rising

Tables = npt.NDArray[np.int64]
Statistic = Callable[[Tables, npt.NDArray[np.float64]], npt.NDArray[np.float64]]
"""Takes tables [B, k] and expected counts [k] > 0, returns values [B]; larger is more extreme."""

Extreme = Callable[[Tables], npt.NDArray[np.bool_]]

ENUMERATE = 200_000
"""Up to this many possible tables are all looked at."""

MAX_CELLS = 4096
_BLOCK_BYTES = 1 << 26
_TIE = (
    1e-10  # relative: the same value computed in another order still counts as at least as extreme
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactTail:
    """The null probability of a value at least as large as the observed one.

    Attributes:
        value: the observed statistic.
        p_value: exact, or an unbiased estimate.
        standard_error: of the estimate; 0 when exact.
        method: "enumeration", "importance sampling" or "excluded cell".
        tables: looked at.
    """

    value: float
    p_value: float
    standard_error: float
    method: str
    tables: int

    @property
    def p_upper(self) -> float:
        """The p-value plus three standard errors, at most 1: what a verdict should use."""
        return min(1.0, self.p_value + 3 * self.standard_error)


def cressie_read_values(
    tables: Tables, expected: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Cressie-Read statistics (l = 2/3) of many tables.

    Args:
        tables: [B, k] int64.
        expected: [k] float64 > 0.

    Returns:
        [B] float64.
    """
    terms = tables * (np.cbrt(tables / expected) ** 2 - 1)
    return np.asarray(1.8 * terms.sum(axis=1), np.float64)


def _compositions(n: int, cells: int) -> Tables:
    """All tables of n draws over ``cells`` cells, by stars and bars."""
    if cells == 1:
        return np.array([[n]])
    bars = itertools.combinations(range(n + cells - 1), cells - 1)
    flat = np.fromiter(itertools.chain.from_iterable(bars), np.int64)
    cuts = flat.reshape(-1, cells - 1)
    return np.diff(cuts, axis=1, prepend=-1, append=n + cells - 1) - 1


def _enumerated(n: int, p: npt.NDArray[np.float64], extreme: Extreme) -> tuple[float, int]:
    tables = _compositions(n, p.shape[0])
    tables_hit = tables[extreme(tables)]
    logs = special.gammaln(n + 1) - special.gammaln(tables_hit + 1).sum(axis=1)
    logs += tables_hit @ np.log(p)
    return min(1.0, math.fsum(np.exp(logs))), tables.shape[0]


def _scales(observed: npt.NDArray[np.int64], expected: npt.NDArray[np.float64]
            ) -> npt.NDArray[np.float64]:  # fmt: skip
    """Concentrations around the one that the observed table looks like, and a large one."""
    n, df = float(observed.sum()), expected.shape[0] - 1
    excess = float(np.sum((observed - expected) ** 2 / expected)) - df
    fitting = df * (n - 1) / excess - 1 if excess > 0 else math.inf
    middle = min(max(fitting, 0.25), 16 * n)
    return np.array([*(middle * 4.0 ** np.arange(-2, 3)), 64 * n])


def mixture_tables(
    p: npt.NDArray[np.float64],
    n: int,
    scales: npt.NDArray[np.float64],
    draws: int,
    rng: np.random.Generator,
) -> Iterator[tuple[Tables, npt.NDArray[np.float64]]]:
    """Draw tables from the Dirichlet-multinomial mixture, in blocks, with log weights.

    Args:
        p: [k] float64 > 0.
        n: draws in a table.
        scales: [c] concentrations > 0, with equal weights.
        draws: number of tables.
        rng: source of randomness.

    Yields:
        [B, k] int64 tables and [B] float64 logarithms of their weights -ln E(T).
    """
    block = max(1, _BLOCK_BYTES // (8 * p.shape[0] * scales.shape[0]))
    base = np.outer(scales, p)
    for start in range(0, draws, block):
        size = min(block, draws - start)
        chosen = scales[rng.integers(scales.shape[0], size=size)]
        shares = rng.standard_gamma(chosen[:, None] * p)
        tables = rng.multinomial(n, shares / shares.sum(axis=1, keepdims=True))
        logs = rising(tables[:, None, :], base).sum(axis=2) - rising(n, scales)
        yield tables, math.log(scales.shape[0]) - special.logsumexp(logs, axis=1)


def _sampled(n: int, p: npt.NDArray[np.float64],
             scales: npt.NDArray[np.float64], extreme: Extreme, draws: int, seed: int
             ) -> tuple[float, float]:  # fmt: skip
    rng = np.random.default_rng(seed)
    weights = np.concatenate(
        [
            np.exp(logs) * extreme(tables)
            for tables, logs in mixture_tables(p, n, scales, draws, rng)
        ]
    )
    return min(1.0, float(weights.mean())), float(weights.std(ddof=1)) / math.sqrt(draws)


def exact_p_value(
    counts: npt.ArrayLike,
    p: npt.ArrayLike,
    statistic: Statistic = cressie_read_values,
    *,
    draws: SupportsIndex = 20_000,
    seed: SupportsIndex = 0,
) -> ExactTail:
    """Probability, under the law, of a statistic at least as large as the observed one.

    Args:
        counts: [k] integers >= 0.
        p: [k] law, k <= 4096: pool larger ones first. Cells of probability 0 are left out; a draw
            there is a proof, with p-value 0.
        statistic: of tables [B, k'] and expected counts [k'], k' the cells with p > 0.
        draws: tables to sample if there are too many to enumerate, at least 2.
        seed: of the sampling.

    Returns:
        The p-value with its standard error.

    Raises:
        ValueError: naming the field that is wrong.
    """
    law = validate.law("p", p)
    table = validate.table("counts", counts, law.shape[0])
    size, root = validate.whole("draws", draws, 2), validate.whole("seed", seed)
    live = law > 0
    observed, cells, n = table[live], law[live], int(table.sum())
    if cells.shape[0] > MAX_CELLS:
        raise ValueError(
            f"p: got {cells.shape[0]} live cells; expected at most {MAX_CELLS}, pooled"
        )
    if observed.sum() < n or n == 0:
        value, p_value = (math.inf, 0.0) if n else (0.0, 1.0)
        method = "excluded cell" if n else "enumeration"
        return ExactTail(value=value, p_value=p_value, standard_error=0.0, method=method, tables=1)
    expected = n * cells
    value = float(statistic(observed[None, :], expected)[0])

    def extreme(tables: Tables) -> npt.NDArray[np.bool_]:
        return np.asarray(statistic(tables, expected) >= value - _TIE * max(1.0, abs(value)))

    if math.comb(n + cells.shape[0] - 1, cells.shape[0] - 1) <= ENUMERATE:
        found, looked = _enumerated(n, cells, extreme)
        error, method = 0.0, "enumeration"
    else:
        scales, looked, method = _scales(observed, expected), size, "importance sampling"
        found, error = _sampled(n, cells, scales, extreme, size, root)
    return ExactTail(value=value, p_value=found, standard_error=error, method=method, tables=looked)
