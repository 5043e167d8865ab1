"""Exact small p-values of any statistic on a small or pooled table.

Tiny tables are enumerated. Others are sampled where they are extreme, from a mixture of laws Q_j
with shares w_j, and each table T is weighted by its likelihood ratio back to multinomial(n, p):

    mean of 1{stat(T) >= stat(observed)} / sum_j w_j Q_j(T) / P(T)

is an unbiased estimate of the p-value, whatever was observed: what is drawn afterwards is
independent of it (importance sampling with the whole mixture in the denominator: Hesterberg 1995,
Technometrics 37:185; Veach & Guibas 1995). A table gets extreme in two ways, and each has its Q_j:

- *all cells deviate a little*: Dirichlet-multinomial(n, c p), with scales c around the one whose
  tables deviate as much as the observed one does, X2 = (k - 1)(n + c) / (1 + c). Its ratio is the
  e-value of :mod:`specverify.evidence.eprocess`;
- *a few cells deviate much*: multinomial with the probability of a group of cells moved to where it
  alone reaches the observed value, all others in proportion. Such laws are right for cells of few
  expected draws (Sadowsky & Bucklew 1990, IEEE Trans. Inf. Theory 36:579), where the Dirichlet
  mixture alone gave errors of 20 to 40 % at 1e-9. Their shares fall with the rate of that event.

The standard error can be believed while many tables share the estimate; ``ExactTail.effective``
counts them, and below :data:`RELIABLE` the upper bound is 1. docs/statistics.md has the measured
errors down to 1e-20.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt
from scipy import sparse, special

from specverify.evidence import validate
from specverify.evidence.eprocess import rising

Tables = npt.NDArray[np.int64]
Statistic = Callable[[Tables, npt.NDArray[np.float64]], npt.NDArray[np.float64]]
"""Takes tables [B, k] and expected counts [k] > 0, returns values [B]; larger is more extreme."""

Extreme = Callable[[Tables], npt.NDArray[np.bool_]]

ENUMERATE = 200_000
"""Up to this many possible tables are all looked at."""

MAX_CELLS = 4096

RELIABLE = 25.0
"""Effective number of tables from which on the standard error is believed."""

ALL_GROUPS = 8
"""Up to this many cells, every group of cells gets a law in which it alone deviates."""

MOVED_CELLS = 64
"""Of larger tables the rarest and the likeliest single cells get one, this many of each."""

_RARE = 1e-9  # a law with a smaller share than this is never drawn from
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
        effective: (sum of weights)^2 / sum of squared weights over the extreme tables (Kish 1965):
            how many equal ones would have the same error; infinite when exact, 0 when none of the
            sampled tables was extreme.
    """

    value: float
    p_value: float
    standard_error: float
    method: str
    tables: int
    effective: float = math.inf

    @property
    def reliable(self) -> bool:
        """Whether enough tables share the estimate for its standard error to be believed."""
        return self.effective >= RELIABLE

    @property
    def p_upper(self) -> float:
        """What a verdict should use: the p-value plus three standard errors, 1 if unreliable."""
        return min(1.0, self.p_value + 3 * self.standard_error) if self.reliable else 1.0


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
    # With few cells the deviations of one c vary much, with many hardly: then c has to fit.
    factor = 4.0 if df < 10 else 2.0 if df < 100 else 1.3
    return np.array([*(middle * factor ** np.arange(-2, 3)), 64 * n])


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
        yield tables, -_dirichlet_ratio(tables, n, base, scales)


def _dirichlet_ratio(tables: Tables, n: int, base: npt.NDArray[np.float64],
                     scales: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:  # fmt: skip
    """[B] ln E(T) of the Dirichlet mixture."""
    logs = rising(tables[:, None, :], base).sum(axis=2) - rising(n, scales)
    return np.asarray(special.logsumexp(logs, axis=1) - math.log(scales.shape[0]), np.float64)


@dataclasses.dataclass(frozen=True)
class _Moved:
    """Multinomial laws in which a group of cells deviates and the rest keeps its proportions.

    Attributes:
        groups: [m, k] which cells, 0 or 1.
        before, after: [m] probability of the group in p and in the moved law, in (0, 1).
        laws: [m, k] the moved laws.
        share: [m] how often each is drawn from, adds up to 1.
    """

    groups: sparse.csr_array
    before: npt.NDArray[np.float64]
    after: npt.NDArray[np.float64]
    laws: npt.NDArray[np.float64]
    share: npt.NDArray[np.float64]

    def draw(self, n: int, size: int, rng: np.random.Generator) -> Tables:
        """[size, k] tables."""
        chosen = rng.choice(self.share.shape[0], p=self.share, size=size)
        return np.asarray(rng.multinomial(n, self.laws[chosen]), np.int64)

    def log_ratio(self, tables: Tables) -> npt.NDArray[np.float64]:
        """[B] logarithm of the mixture's likelihood over that of multinomial(n, p)."""
        hits, n = np.asarray(self.groups @ tables.T, np.float64), int(tables[0].sum())
        logs = hits * np.log(self.after / self.before)[:, None]
        logs += (n - hits) * np.log((1 - self.after) / (1 - self.before))[:, None]
        return np.asarray(special.logsumexp(logs, b=self.share[:, None], axis=0), np.float64)


def _groups(p: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """[m, k] groups that may deviate alone: all of a small table, single cells of a large one."""
    cells = p.shape[0]
    if cells <= ALL_GROUPS:
        bits = np.arange(1, 2 ** (cells - 1))[:, None] >> np.arange(cells)
        return (bits & 1).astype(np.bool_)  # one of each group and its complement
    order = np.argsort(p, kind="stable")
    single = np.unique(np.concatenate([order[:MOVED_CELLS], order[-MOVED_CELLS:]]))
    return np.asarray(single[:, None] == np.arange(cells))


def _as_expected(p: npt.NDArray[np.float64], hits: npt.NDArray[np.int64]) -> Tables:
    """[B, g] tables of ``hits`` draws in the proportions of p; the largest cell has the rest."""
    tables = np.floor(hits[:, None] * (p / p.sum())).astype(np.int64)
    tables[:, int(np.argmax(p))] += hits - tables.sum(axis=1)
    return np.asarray(tables, np.int64)


def _first_extreme(p: npt.NDArray[np.float64], n: int, group: npt.NDArray[np.bool_], end: int,
                   extreme: Extreme) -> int | None:  # fmt: skip
    """Draws in a group, between what is expected and ``end``, that make the table extreme."""

    def reached(hits: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        tables = np.empty((hits.shape[0], p.shape[0]), dtype=np.int64)
        tables[:, group] = _as_expected(p[group], hits)
        tables[:, ~group] = _as_expected(p[~group], n - hits)
        return extreme(tables)

    start = round(n * float(p[group].sum()))
    if not reached(np.array([end]))[0]:
        return None
    low, high, sign = 0, abs(end - start), 1 if end > start else -1
    while high > low:  # narrowed to a sixteenth with each call of the statistic
        steps = np.unique(np.linspace(low, high, 17).astype(np.int64))
        first = int(np.argmax(reached(start + sign * steps)))
        low, high = (int(steps[first - 1]) + 1 if first else low), int(steps[first])
    return start + sign * high


def _moved(p: npt.NDArray[np.float64], n: int, extreme: Extreme) -> _Moved | None:
    """The laws in which one group alone reaches the observed value; ``None`` if none can."""
    found = [
        (group, min(max(count, 0.25), n - 0.25) / n)
        for group in _groups(p)
        for end in (0, n)
        for count in [_first_extreme(p, n, group, end, extreme)]
        if count is not None
    ]
    if not found:
        return None
    groups = np.array([group for group, _ in found])
    before, after = groups @ p, np.array([rate for _, rate in found])
    cost = special.rel_entr(after, before) + special.rel_entr(1 - after, 1 - before)
    laws = p * np.where(groups, (after / before)[:, None], ((1 - after) / (1 - before))[:, None])
    share = special.softmax(-n * cost)
    used = share > _RARE
    share = np.asarray(share[used] / share[used].sum(), np.float64)
    members = sparse.csr_array(groups[used].astype(np.int64))
    return _Moved(members, before[used], after[used], laws[used], share)


def _sampled(n: int, p: npt.NDArray[np.float64],
             scales: npt.NDArray[np.float64], extreme: Extreme, draws: int, seed: int
             ) -> tuple[float, float, float]:  # fmt: skip
    """Estimate, standard error and effective number of tables.

    Half of the tables come from each kind of law. Both halves are drawn in fixed numbers, which
    only lowers the variance that the error states (Hesterberg 1995).
    """
    rng, moved = np.random.default_rng(seed), _moved(p, n, extreme)
    half = math.log(0.5) if moved else 0.0
    weights = []
    for tables, logs in mixture_tables(p, n, scales, draws // 2 if moved else draws, rng):
        blocks = [(tables, -logs)]
        if moved:
            more = moved.draw(n, tables.shape[0], rng)
            base = np.outer(scales, p)
            blocks.append((more, _dirichlet_ratio(more, n, base, scales)))
        for table, ratio in blocks:
            if moved:
                ratio = np.logaddexp(ratio, moved.log_ratio(table)) + half
            weights.append(np.exp(-ratio) * extreme(table))
    weight = np.concatenate(weights)
    total, square = float(weight.sum()), float(np.square(weight).sum())
    error = float(weight.std(ddof=1)) / math.sqrt(weight.shape[0])
    effective = total**2 / square if square else 0.0
    return min(1.0, total / weight.shape[0]), error, effective


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
        error, effective, method = 0.0, math.inf, "enumeration"
    else:
        scales, looked, method = _scales(observed, expected), size, "importance sampling"
        found, error, effective = _sampled(n, cells, scales, extreme, size, root)
    return ExactTail(
        value=value,
        p_value=found,
        standard_error=error,
        method=method,
        tables=looked,
        effective=effective,
    )
