"""Which cells of a table stand out: for people who read a failure, not for a verdict."""

from __future__ import annotations

from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from specverify.evidence import validate


def freeman_tukey(
    counts: npt.NDArray[np.int64], expected: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Signed deviations sqrt(N) + sqrt(N + 1) - sqrt(4 np + 1) (Freeman & Tukey 1950).

    About standard normal for rare and frequent cells alike, so that one draw in a cell of
    expectation 1e-6 does not outshine a large excess, as (N - np) / sqrt(np) would have it.

    Args:
        counts: [k] int64.
        expected: [k] float64.

    Returns:
        [k] float64.
    """
    return np.sqrt(counts) + np.sqrt(counts + 1) - np.sqrt(4 * expected + 1)


def worst_cells(
    counts: npt.ArrayLike, p: npt.ArrayLike, most: SupportsIndex = 5
) -> npt.NDArray[np.int64]:
    """Cells that deviate most from a law.

    Args:
        counts: [k] integers >= 0.
        p: [k] law.
        most: largest number of cells wanted.

    Returns:
        [<= most] int64 cell ids: excluded cells that were hit, by count, then the others by the
        size of their Freeman-Tukey deviation; ties by id.

    Raises:
        ValueError: naming the field that is wrong.
    """
    law = validate.law("p", p)
    table = validate.table("counts", counts, law.shape[0])
    limit = validate.whole("most", most, 1)
    size = np.abs(freeman_tukey(table, table.sum() * law))
    proof = (law == 0) & (table > 0)
    candidates = np.flatnonzero(proof | (law > 0))
    rank = np.lexsort((candidates, -size[candidates], ~proof[candidates]))
    return candidates[rank[:limit]].astype(np.int64)
