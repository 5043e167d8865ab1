"""The cell of a trial as data: a weighted sum of what was seen, so that a device can count it.

Every table of one verification step sorts trials by a few numbers (drafts, how many of them were
accepted, the last token, the completed text).  Written down as a sum of columns, the same index
works on numpy arrays, on tensors, and in a kernel that counts all tables of a case in one launch.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import numpy as np
import torch


class Seen(enum.IntEnum):
    """What a column holds.

    TEXT: the completed token at a position.  DRAFT: the draft in a slot.  ACCEPTED: how many drafts
    were accepted.  PASSED: whether more than a number of them were.  LAST: the recovered or bonus
    token.
    """

    TEXT = 0
    DRAFT = 1
    ACCEPTED = 2
    PASSED = 3
    LAST = 4


@dataclasses.dataclass(frozen=True)
class Term:
    """One addend: ``weight`` times what was seen of a request (at a position or slot)."""

    weight: int
    seen: Seen
    request: int
    at: int = 0

    def values(self, outcomes: Any) -> Any:
        """[T] integers, as the outcomes have them: arrays or tensors."""
        if self.seen is Seen.TEXT:
            column = outcomes.completed[self.request][:, self.at]
        elif self.seen is Seen.DRAFT:
            column = outcomes.drafts[self.request][:, self.at]
        elif self.seen is Seen.LAST:
            column = outcomes.last[:, self.request]
        else:
            column = outcomes.accepted[:, self.request]
        if self.seen is Seen.PASSED:
            return (column > self.at) * self.weight
        return column if self.weight == 1 else column * self.weight


@dataclasses.dataclass(frozen=True)
class Cells:
    """The index of a table: the cell of every trial.

    Attributes:
        terms: what is added up, at least one.
        rest: the cell of a trial that does not belong, if ``stopped`` or ``reached`` is given.
        stopped: (request, j): only trials in which exactly j of its drafts were accepted.
        reached: (request, j): only trials in which at least j of its drafts were accepted.
        pairs: 0, or the number of cells of one trial: cells of pairs of trials t, t + 1, t even.
    """

    terms: tuple[Term, ...]
    rest: int = 0
    stopped: tuple[int, int] | None = None
    reached: tuple[int, int] | None = None
    pairs: int = 0

    def __call__(self, outcomes: Any) -> Any:
        """[T] (pairs: [T // 2]) int64, an array or a tensor as the outcomes hold."""
        cell = self.terms[0].values(outcomes)
        for term in self.terms[1:]:
            cell = cell + term.values(outcomes)
        condition = self._condition(outcomes)
        if condition is not None:
            choose: Any = torch.where if isinstance(cell, torch.Tensor) else np.where
            cell = choose(condition, cell, self.rest)
        if self.pairs:
            cell = cell[: cell.shape[0] // 2 * 2]
            return cell[::2] * self.pairs + cell[1::2]
        return cell

    def _condition(self, outcomes: Any) -> Any:
        if self.stopped is not None:
            request, j = self.stopped
            return outcomes.accepted[:, request] == j
        if self.reached is not None:
            request, j = self.reached
            return outcomes.accepted[:, request] >= j
        return None


def to_host(values: Any) -> Any:
    """A numpy array of an array or a tensor."""
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else values
