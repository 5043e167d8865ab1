"""Merging rare cells, so that the chi-square tail can be trusted.

The choice looks at the law and the number of trials, never at the counts: a pooling that follows
the counts has no null distribution anybody knows.
"""

from __future__ import annotations

import dataclasses
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from specverify.evidence import validate

FLOOR = 20.0
"""Expected count of every pooled cell. The textbook 5 is good to tails of 1e-3 only."""

_ROUNDING = 1e-6  # relative slack of the floor: n p = 20 must not fail for a rounded 19.9999999


@dataclasses.dataclass(frozen=True, eq=False)
class Pooling:
    """A partition of the cells of a law.

    Attributes:
        index: [k] int64, the pooled cell of each cell; -1 where the law is 0.
        p: [m] float64, law of the pooled cells, from the rarest group up.
    """

    index: npt.NDArray[np.int64]
    p: npt.NDArray[np.float64]

    @property
    def cells(self) -> int:
        """Number m of live cells."""
        return int(self.p.shape[0])

    @property
    def has_zeros(self) -> bool:
        """Whether the law excludes some cells."""
        return bool(np.any(self.index < 0))

    @property
    def merged_mass(self) -> float:
        """Probability of the live cells that hold more than one cell of the law.

        A shift between cells of one group is invisible to every test on the pooled table; what it
        can move is at most this.
        """
        sizes = np.bincount(self.index[self.index >= 0])
        return float(self.p[sizes > 1].sum())

    def table(self, counts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
        """Pool a table.

        Args:
            counts: [k] int64.

        Returns:
            [m] int64 pooled counts, and the number of draws in excluded cells.
        """
        live = self.index >= 0
        # float64 adds integers below 2**53 exactly
        pooled = np.bincount(self.index[live], weights=counts[live], minlength=self.cells)
        return pooled.astype(np.int64), int(counts[~live].sum())


def sorted_law(
    p: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The positive cells from the rarest up (ties by cell id) and their cumulative law.

    Args:
        p: [k] float64, a valid law.

    Returns:
        [s] int64 cell ids, and [s + 1] float64 cumulative probabilities with a leading zero.
    """
    order = np.argsort(p, kind="stable")
    order = order[np.count_nonzero(p == 0) :]
    return order, np.concatenate([[0.0], np.cumsum(p[order])])


def group_ends(
    cumulative: npt.NDArray[np.float64], n: int, floor: float = FLOOR
) -> npt.NDArray[np.int64]:
    """Cut the sorted cells into groups of expectation >= floor, from the rarest up.

    Each group takes cells until it reaches the floor; the last one, if it stays below, joins its
    neighbour. The number of groups is the largest that consecutive groups can have, hence never
    decreases with n. If a single group is left, it is cut in two as near to one half as possible:
    a table of two cells is tested exactly and needs no floor.

    Args:
        cumulative: [s + 1] float64 from :func:`sorted_law`.
        n: number of trials.
        floor: least expected count of a group.

    Returns:
        [m] int64, the (exclusive) end of each group; m >= 2 if s >= 2.
    """
    size = cumulative.shape[0] - 1
    share = floor * (1 - _ROUNDING) / max(n, 1)
    following = np.searchsorted(cumulative, cumulative + share, side="left")
    # From the first cell that reaches the floor by itself, every group is a single cell.
    first_single = int(np.argmax(np.append(np.diff(cumulative) >= share, True)))
    ends, at, chain = [], 0, following.tolist()
    while at < first_single and chain[at] <= size:
        at = chain[at]
        ends.append(at)
    ends.extend(range(max(at, first_single) + 1, size + 1))
    if ends:
        ends[-1] = size
    if len(ends) < 2:
        half = 1 + int(np.argmin(np.abs(cumulative[1:-1] - 0.5))) if size > 1 else size
        ends = sorted({half, size})
    return np.array(ends, dtype=np.int64)


def pool(p: npt.ArrayLike, n: SupportsIndex, floor: float = FLOOR) -> Pooling:
    """Pool the rare cells of a law until every cell expects ``floor`` draws out of n.

    Args:
        p: [k] law; cells of probability 0 stay out and are tested exactly.
        n: number of trials.
        floor: least expected count of a pooled cell.

    Returns:
        The partition. It has two live cells or more unless the law itself has one; with exactly
        two the floor may be missed, which is why such tables are tested by the binomial law.

    Raises:
        ValueError: naming the field that is wrong.
    """
    values = validate.law("p", p)
    trials = validate.whole("n", n)
    order, cumulative = sorted_law(values)
    ends = group_ends(cumulative, trials, validate.positive("floor", floor))
    index = np.full(values.shape[0], -1, dtype=np.int64)
    sizes = np.diff(ends, prepend=0)
    index[order] = np.repeat(np.arange(ends.shape[0]), sizes)
    mass = np.bincount(index[order], weights=values[order])
    return Pooling(index, mass / mass.sum())
