"""What a check knew at each look: total variation and e-process against the trials so far.

A check that looked once, or was rejected at its first look, has no curve: its row says it all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from specverify.reports.axes import Axis, Tick
from specverify.reports.numbers import trials

from specverify.results import LookRecord, VerdictRecord

LEFT, RIGHT, TOP, BOTTOM = 52, 548, 12, 150
"""The frame of a drawing, which is 560 wide and 178 high."""

Point = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Line:
    """A horizontal line.

    Attributes:
        at: its height in the drawing.
        kind: its class in the style sheet, and its name in the caption.
        value: what it stands at.
    """

    at: int
    kind: str
    value: float


@dataclasses.dataclass(frozen=True)
class Plot:
    """One drawing against the trials.

    Attributes:
        x, y: ticks of the axes.
        points: of the curve, by trials.
        band: corners of the area between the curve and a bound above it; may be empty.
        lines: thresholds.
    """

    x: tuple[Tick, ...]
    y: tuple[Tick, ...]
    points: tuple[Point, ...]
    band: tuple[Point, ...]
    lines: tuple[Line, ...]


def tv_plot(verdict: VerdictRecord) -> Plot | None:
    """Observed total variation with its certificate band, and what was to be caught."""
    looks = [look for look in verdict.looks if look.tv_observed is not None]
    wanted = {"detectable": verdict.tv_detectable, "requested": verdict.tv_requested}
    limits = {name: value for name, value in wanted.items() if value}
    bounds = [look.tv_certified for look in looks if look.tv_certified]
    values = [look.tv_observed for look in looks if look.tv_observed]
    drawn = [*values, *bounds, *limits.values()]
    if len(looks) < 2 or not drawn:
        return None
    across = _trials(looks)
    # Certificates shrink like one over the root of n: decades show them, a linear scale the first.
    up = Axis(max(min(drawn), 1e-6) / 1.5, max(drawn) * 1.5, BOTTOM, TOP, log=True)
    points = tuple((across.at(k.trials), up.at(k.tv_observed or up.low)) for k in looks)
    upper = tuple((across.at(k.trials), up.at(k.tv_certified)) for k in looks if k.tv_certified)
    lines = tuple(Line(up.at(value), name, value) for name, value in limits.items())
    return Plot(
        across.ticks(trials), up.ticks(), points, upper + points[::-1] if upper else (), lines
    )


def e_plot(verdict: VerdictRecord) -> Plot | None:
    """The logarithm of the e-process against the value that rejects."""
    looks = [k for k in verdict.looks if k.log_e is not None and not math.isnan(k.log_e)]
    limit = rejects_at(verdict)
    if len(looks) < 2 or limit is None:
        return None
    across = _trials(looks)
    finite = [k.log_e for k in looks if k.log_e is not None and math.isfinite(k.log_e)]
    up = Axis(min([0.0, *finite]), 1.1 * max([1.2 * limit, *finite]), BOTTOM, TOP)
    points = tuple((across.at(k.trials), up.at(k.log_e or 0.0)) for k in looks)
    line = Line(up.at(limit), "alpha", limit)
    return Plot(across.ticks(trials), up.ticks(), points, (), (line,))


def rejects_at(verdict: VerdictRecord) -> float | None:
    """The logarithm of e that rejects: of the last look, or of the check's whole share of alpha."""
    told = [look.rejects_at for look in verdict.looks if look.rejects_at is not None]
    if told:
        return told[-1]
    return -math.log(verdict.alpha) if 0 < verdict.alpha < 1 else None


def path(points: Iterable[Point]) -> str:
    """Points as the attribute of an SVG polyline."""
    return " ".join(f"{x},{y}" for x, y in points)


def _trials(looks: Sequence[LookRecord]) -> Axis:
    first = float(max(1, looks[0].trials))
    return Axis(first, max(first + 1, looks[-1].trials), LEFT, RIGHT, log=True)
