"""Two strips for one check: its total variations on one scale, its p-value beside alpha."""

from __future__ import annotations

import dataclasses
import math

from specverify.reports.axes import Axis, Tick
from specverify.reports.numbers import decades

from specverify.results import VerdictRecord

START, END = 10, 550
"""Left and right end of a strip; the drawing is 560 wide."""


@dataclasses.dataclass(frozen=True)
class TvStrip:
    """Places of the total variations of a check; ``None`` where there is no such number.

    Attributes:
        ticks: of the axis.
        zero: place of TV 0.
        observed: plug-in TV between counts and law.
        certified: upper bound on the true TV; the band reaches from 0 to it.
        detectable: smallest TV that is caught with the promised power.
        requested: TV that was to be caught.
    """

    ticks: tuple[Tick, ...]
    zero: int
    observed: int | None
    certified: int | None
    detectable: int | None
    requested: int | None


@dataclasses.dataclass(frozen=True)
class PAxis:
    """An axis from p = 1 on the left to alpha squared on the right; alpha stands in its middle.

    Tests of a run share alpha equally, so that one drawing of it serves them all.

    Attributes:
        share: of alpha.
        ticks: of the axis.
        alpha: place of alpha; everything right of it is at most that likely.
        end: right end of the axis.
    """

    share: float
    ticks: tuple[Tick, ...]
    alpha: int
    end: int = END


@dataclasses.dataclass(frozen=True)
class PStrip:
    """The p-value of a check.

    Attributes:
        axis: on which it stands.
        p_value: its place.
        beyond: whether it lies past the right end.
    """

    axis: PAxis
    p_value: int
    beyond: bool


def tv_strip(verdict: VerdictRecord) -> TvStrip | None:
    """The total variations of a check, ``None`` if there is nothing to hold the observed against.

    A check that was stopped by another one has an observed value and a bound, which its row shows.
    """
    values = {
        name: _usable(getattr(verdict, f"tv_{name}"))
        for name in ("observed", "certified", "detectable", "requested")
    }
    if values["observed"] is None or (values["detectable"] or values["requested"]) is None:
        return None
    largest = max(value for value in values.values() if value is not None)
    axis = Axis(0.0, 1.08 * largest or 1.0, START, END)
    places = {name: None if value is None else axis.at(value) for name, value in values.items()}
    return TvStrip(ticks=axis.ticks(), zero=axis.at(0.0), **places)


def p_strip(verdict: VerdictRecord) -> PStrip | None:
    """The p-value of a check, ``None`` if it has none or spent no alpha."""
    p_value = _usable(verdict.p_value)
    if p_value is None or not 0 < verdict.alpha < 1:
        return None
    limit, found = decades(verdict.alpha), decades(p_value)
    axis = Axis(0.0, 2 * limit, START, END)
    step = max(1, math.ceil(limit / 2.5))
    places = range(0, math.floor(2 * limit) + 1, step)
    ticks = tuple(Tick(axis.at(place), f"1e-{place}" if place else "1") for place in places)
    shared = PAxis(verdict.alpha, ticks, axis.at(limit))
    return PStrip(shared, axis.at(found), beyond=found > 2 * limit)


def _usable(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
