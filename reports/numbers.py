"""How numbers and places are written in the HTML report."""

from __future__ import annotations

import math
import re

NONE = "\N{EN DASH}"
"""What stands where there is no number."""

_EXPONENT = re.compile(r"e([+-])0*(\d+)")


def number(value: float | None) -> str:
    """Three significant digits: ``0.0123``, ``1.5e-9``."""
    if value is None:
        return NONE
    return _EXPONENT.sub(_short, f"{value:.3g}")


def count(value: int | None) -> str:
    """Thousands apart; nothing for zero, which is a check that counts no trials."""
    return f"{value:,}" if value else NONE


def trials(value: float) -> str:
    """A round number of trials, for an axis: ``500``, ``20k``, ``1M``."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def p_value(value: float | None) -> str:
    """A p-value; one that is too small for a float is bounded, not called zero."""
    return "< 1e-300" if value is not None and value < 1e-300 else number(value)


def percent(value: float) -> str:
    """A change in percent with its sign."""
    return f"{value:+.0%}".replace("-", "\N{MINUS SIGN}")


def decades(value: float) -> float:
    """Minus the decimal logarithm of a p-value, at most 300."""
    return min(300.0, -math.log10(max(value, 1e-300)))


def _short(found: re.Match[str]) -> str:
    return f"e{found[1].removeprefix('+')}{found[2]}"
