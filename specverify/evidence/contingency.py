"""Are two columns of a table independent? The margins are taken from the data, not from a law.

A wrong marginal law is the business of other tests; here only what the two columns know of each
other counts.  Cressie-Read (l = 2/3) on the expected counts of the observed margins, chi-square
with (a - 1)(b - 1) degrees of freedom under independence (Read & Cressie 1988, section 3.4), with
the far tail guarded as in :mod:`specverify.evidence.goodness_of_fit`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from specverify.evidence import validate
from specverify.evidence.binomial import zero_hit_tv
from specverify.evidence.goodness_of_fit import FAR_TAIL, power_divergence
from specverify.evidence.pooling import FLOOR, pool
from specverify.evidence.power import detectable_tv
from specverify.evidence.records import Evidence

_Table = npt.NDArray[np.int64]


def independence(
    counts: npt.ArrayLike,
    row_law: npt.ArrayLike,
    column_law: npt.ArrayLike,
    *,
    alpha: float,
    power: float = 0.999,
    floor: float = FLOOR,
) -> Evidence:
    """Test that the rows and columns of a table of pairs are independent.

    Rows and columns are pooled by their laws and n alone, never by the counts, so that under both
    laws every expectation is at least ``floor``.  Pairs with a token that its law excludes are left
    out: they are a fault of the margin.

    Args:
        counts: [a, b] integers >= 0, pairs seen.
        row_law: [a] law of the first member of a pair.
        column_law: [b] law of the second.
        alpha: false-alarm probability.
        power: of the promise in ``detectable_tv``.
        floor: least expected count of a cell.

    Returns:
        Evidence on ``cells`` = (rows - 1)(columns - 1) + 1; with a single row or column there is
        nothing to depend on, and the p-value is 1.

    Raises:
        ValueError: naming the field that is wrong.
    """
    rows, columns = validate.law("row_law", row_law), validate.law("column_law", column_law)
    table = validate.table("counts", np.asarray(counts).reshape(-1), rows.size * columns.size)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    floor, n = validate.positive("floor", floor), int(table.sum())
    pooled = _pooled(table.reshape(rows.size, columns.size), rows, columns, n, floor)
    freedom = (pooled.shape[0] - 1) * (pooled.shape[1] - 1)
    value, p_value = _statistic(pooled, freedom)
    return Evidence(
        statistic="cressie-read independence",
        value=value,
        p_value=p_value,
        alpha=alpha,
        trials=n,
        cells=freedom + 1,
        detectable_tv=_detectable(freedom, n, alpha, power),
        power=power,
        zero_hits=0,
    )


def independence_detectable(
    row_law: npt.ArrayLike,
    column_law: npt.ArrayLike,
    n: int,
    *,
    alpha: float,
    power: float,
    floor: float = FLOOR,
) -> float:
    """The smallest total variation from the product of the margins that is caught at n pairs.

    Raises:
        ValueError: naming the field that is wrong.
    """
    rows, columns = validate.law("row_law", row_law), validate.law("column_law", column_law)
    margin_floor = _margin_floor(n, validate.positive("floor", floor))
    cells = [pool(law, n, margin_floor).cells - 1 for law in (rows, columns)]
    return _detectable(cells[0] * cells[1], n, alpha, power)


def _margin_floor(n: int, floor: float) -> float:
    # Both members of a pair at least this often, n p >= sqrt(floor n), make n p q >= floor.
    return math.sqrt(floor * max(n, 1))


def _pooled(
    table: _Table,
    rows: npt.NDArray[np.float64],
    columns: npt.NDArray[np.float64],
    n: int,
    floor: float,
) -> _Table:
    """The pooled table, without rows and columns that nobody fell into."""
    margin_floor = _margin_floor(n, floor)
    by_row, by_column = pool(rows, n, margin_floor), pool(columns, n, margin_floor)
    out = np.zeros((by_row.cells, by_column.cells), dtype=np.int64)
    kept = (by_row.index[:, None] >= 0) & (by_column.index[None] >= 0)
    place = np.broadcast_arrays(by_row.index[:, None], by_column.index[None])
    np.add.at(out, (place[0][kept], place[1][kept]), table[kept])
    return np.asarray(out[out.sum(axis=1) > 0][:, out.sum(axis=0) > 0])


def _statistic(pooled: _Table, freedom: int) -> tuple[float, float]:
    if freedom <= 0:
        return 0.0, 1.0
    expected = np.outer(pooled.sum(axis=1), pooled.sum(axis=0)) / pooled.sum()
    flat = pooled.reshape(-1), expected.reshape(-1)
    value = power_divergence(*flat, 2 / 3)
    tail = float(special.chdtrc(freedom, value))
    if tail < FAR_TAIL:
        ratio = float(special.chdtrc(freedom, power_divergence(*flat, 0.0)))
        tail = max(tail, min(FAR_TAIL, ratio))
    return value, tail


def _detectable(freedom: int, n: int, alpha: float, power: float) -> float:
    if freedom <= 0:
        return zero_hit_tv(n, power) if n else 1.0
    return detectable_tv(freedom + 1, n, alpha, power)
