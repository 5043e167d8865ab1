"""Scales of the drawings: from values to places in an SVG, with round numbers for ticks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from specverify.reports.numbers import number


@dataclasses.dataclass(frozen=True)
class Tick:
    """A mark of an axis.

    Attributes:
        at: its place in the drawing.
        label: what is written beside it.
    """

    at: int
    label: str


@dataclasses.dataclass(frozen=True)
class Axis:
    """A scale from values to places.

    Attributes:
        low, high: the values at its ends, low < high; both positive if ``log``.
        start, end: their places in pixels; ``start`` may be larger, as on a vertical axis.
        log: whether equal steps are equal ratios.
    """

    low: float
    high: float
    start: int
    end: int
    log: bool = False

    def at(self, value: float) -> int:
        """Place of a value, a whole pixel; what lies beyond an end is drawn at it."""
        value = min(max(value, self.low), self.high)
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start))

    def ticks(self, label: Callable[[float], str] = number) -> tuple[Tick, ...]:
        """At most six marks at round values, with their labels."""
        values = _log_ticks(self.low, self.high) if self.log else _ticks(self.low, self.high)
        return tuple(Tick(self.at(value), label(value)) for value in values)


def _ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for mantissas in ((1, 2, 5), (1, 3), (1,)):
        values = [m * 10.0**e for e in range(first, last + 1) for m in mantissas]
        inside = [v for v in values if low * (1 - 1e-9) <= v <= high * (1 + 1e-9)]
        if len(inside) <= 6:
            return inside
    return inside[:: math.ceil(len(inside) / 6)]
