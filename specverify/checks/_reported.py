"""What a drafter reports: the rows of q seen for each prefix, and drafts that q excludes."""

from __future__ import annotations

import dataclasses

import numpy as np

from specverify.cases import FloatArray
from specverify.checks._rounds import Round, RoundCase, RoundOutcomes
from specverify.checks.tables import JOINT_CELLS, Table
from specverify.trials import IntArray

SAME = 1e-5
"""Rows of one prefix that differ by less are one row, reported with different rounding."""


class Reported:
    """Collects the rows of q that a drafter reports in the first round, by request and prefix.

    Args:
        plan: the case.
    """

    def __init__(self, plan: RoundCase) -> None:
        self.vocab = plan.case.vocab_size
        self._rows = {
            (number, j): np.full((self.vocab**j, self.vocab), np.nan)
            for number, drafts in enumerate(plan.drafts)
            for j in range(drafts)
            if self.vocab ** (j + 1) <= JOINT_CELLS
        }
        self.changing: set[tuple[int, int]] = set()
        self.excluded = 0
        self.drafts = 0

    def add(self, outcomes: RoundOutcomes) -> None:
        """Look at more trials."""
        for one in outcomes.rounds:
            self._support(one)
        first = outcomes.rounds[0]
        if first.q is None:
            return
        for (number, j), rows in self._rows.items():
            if j < first.drafts.shape[2]:
                self._compare(number, j, rows, first.drafts[:, number], first.q[:, number, j])

    def _support(self, one: Round) -> None:
        there = one.drafts >= 0
        self.drafts += int(there.sum())
        if one.q is not None:
            at = np.maximum(one.drafts, 0)[..., None]
            mass = np.take_along_axis(one.q, at, axis=3)[..., 0]
            self.excluded += int((there & (mass <= 0)).sum())

    def _compare(
        self, number: int, j: int, rows: FloatArray, drafts: IntArray, q: FloatArray
    ) -> None:
        there = drafts[:, j] >= 0
        prefix = np.zeros(int(there.sum()), dtype=np.int64)
        for column in drafts[there, :j].T:
            prefix = prefix * self.vocab + column
        shown = q[there] / q[there].sum(axis=1, keepdims=True)
        seen, first = np.unique(prefix, return_index=True)
        fresh = np.isnan(rows[seen, 0])
        rows[seen[fresh]] = shown[first[fresh]]
        if prefix.size and np.abs(shown - rows[prefix]).max() > SAME:
            self.changing.add((number, j))

    def settle(self, table: Table, counts: IntArray) -> Table | None:
        """The table with its law: the prefixes as often as they were seen, times the reported rows.

        Taking the margin from the data costs nothing but power: fewer degrees of freedom are left
        than the test assumes.

        Returns:
            ``None`` if the drafter reported different rows for one prefix, so that there is no law
            by prefix (the transformed tables do not need one).
        """
        assert table.request is not None
        assert table.position is not None
        place = table.request, table.position
        if place in self.changing:
            return None
        rows = np.nan_to_num(self._rows[place], nan=1 / self.vocab)
        seen = counts.reshape(rows.shape).sum(axis=1)
        law = ((seen / max(1, seen.sum()))[:, None] * rows).reshape(-1)
        return dataclasses.replace(table, law=lambda: law)
