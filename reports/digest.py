"""The few numbers that sum up a run, computed once for every kind of report."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable

from specverify.results import Outcome, RunResults, VerdictRecord

_LAWS = ("law", "coupling")


@dataclasses.dataclass(frozen=True)
class Digest:
    """A list of verdicts in numbers.

    Attributes:
        counts: checks by outcome.
        alpha_spent: sum of the shares that the tests spent.
        trials: trials of all cases; checks of one case share their trials, so each case counts
            with its largest number.
        worst: the check with the smallest p-value, ``None`` without a statistical test.
        detectable: smallest and largest detectable total variation.
        certified: smallest and largest certified bound on the total variation.
    """

    counts: dict[Outcome, int]
    alpha_spent: float
    trials: int
    worst: VerdictRecord | None
    detectable: tuple[float, float] | None
    certified: tuple[float, float] | None

    @property
    def checks(self) -> int:
        """Number of checks of any outcome."""
        return sum(self.counts.values())

    def count(self, outcome: Outcome) -> int:
        """Number of checks of one outcome."""
        return self.counts.get(outcome, 0)


@dataclasses.dataclass(frozen=True)
class Powered:
    """What the tables of counts were powered to catch.

    Attributes:
        tv: the requested total variation.
        cells: it is caught in every table of up to this many cells; 0 if in none.
        largest: cells of the largest table.
        beyond: largest detectable total variation in the tables that are larger than ``cells``,
            ``None`` if there are none.
        power: smallest probability with which these deviations are caught.
    """

    tv: float
    cells: int
    largest: int
    beyond: float | None
    power: float


def digest(verdicts: Iterable[VerdictRecord]) -> Digest:
    """Sum up a list of verdicts."""
    verdicts = list(verdicts)
    per_case: dict[tuple[str, str], int] = {}
    for verdict in verdicts:
        if verdict.alpha:
            key = (verdict.suite, verdict.case)
            per_case[key] = max(per_case.get(key, 0), verdict.trials)
    return Digest(
        counts=dict(collections.Counter(verdict.status for verdict in verdicts)),
        alpha_spent=sum(verdict.alpha for verdict in verdicts),
        trials=sum(per_case.values()),
        worst=min(
            (verdict for verdict in verdicts if verdict.p_value is not None),
            key=lambda verdict: verdict.p_value or 0.0,
            default=None,
        ),
        detectable=_range(verdict.tv_detectable for verdict in verdicts),
        certified=_range(verdict.tv_certified for verdict in verdicts),
    )


_FEW_TRIALS = "tail"
"""A suite of wide rows and few trials, which promises something else: it states it itself."""


def powered(results: RunResults) -> Powered | None:
    """What the passed tables of the laws would have caught; ``None`` if there are none.

    Tables of independence are left out: they have no law of their own, and fewer trials.
    """
    only_few = all(verdict.suite == _FEW_TRIALS for verdict in results.verdicts)
    tables = [
        (verdict.cells, verdict.tv_detectable, verdict.tv_requested, verdict.power)
        for verdict in results.verdicts
        if verdict.status is Outcome.PASS
        and verdict.family in _LAWS
        and (verdict.suite != _FEW_TRIALS or only_few)
    ]
    full = sorted((c, d, r, p) for c, d, r, p in tables if c and d and r and p)
    if not full:
        return None
    # The request of a table that is too large for the run's trials was raised to what they detect.
    requested = results.settings.tv or min(table[2] for table in full)
    short = [table for table in full if table[1] > requested * (1 + 1e-9)]
    limit = min((table[0] for table in short), default=full[-1][0] + 1)
    beyond = [table[1] for table in full if table[0] >= limit]
    return Powered(
        tv=requested,
        cells=max((table[0] for table in full if table[0] < limit), default=0),
        largest=full[-1][0],
        beyond=max(beyond, default=None),
        power=min(table[3] for table in full),
    )


def _range(values: Iterable[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None
