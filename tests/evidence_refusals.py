"""Values just outside what the statistics take, each with its refusal, word for word."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from specverify import evidence

NAN = float("nan")
P = [0.5, 0.3, 0.2]
COUNTS = [50, 30, 20]
ALLOWED = evidence.Allowance(absolute=1e-6)
OVER = "expected at most"

Bad = list[tuple[Any, str]]
Calls = list[tuple[Callable[..., object], dict[str, Any], dict[str, Bad]]]


def level(field: str) -> Bad:
    text = f"{field}: got {{}}; expected a number strictly between 0 and 1"
    return [(value, text.format(value)) for value in (0.0, 1.0, -0.5, NAN)]


def share(field: str) -> Bad:
    text = f"{field}: got {{}}; expected a probability from 0 to 1"
    return [(value, text.format(value)) for value in (-0.001, 1.001, NAN)]


def size(field: str, least: int = 0) -> Bad:
    text = f"{field}: got {{}}; expected an integer >= {least}"
    return [(value, text.format(repr(value))) for value in (least - 1, 2.5, "3")]


def above_zero(field: str) -> Bad:
    text = f"{field}: got {{}}; expected a finite number > 0"
    return [(value, text.format(value)) for value in (0.0, -1.0, math.inf, NAN)]


def law(field: str, cells: int = 3) -> Bad:
    most = [1 / cells] * (cells - 1)
    wanted = f"{field}: got {{}}; expected a vector of k >= 1 probabilities"
    return [
        ([], wanted.format("float64[0]")),
        ([[1.0]], wanted.format("float64[1, 1]")),
        ([True], wanted.format("bool[1]")),
        ([*most, NAN], f"{field}[{cells - 1}]: got nan; expected a finite probability >= 0"),
        ([-0.5, 1.5], f"{field}[0]: got -0.5; expected a finite probability >= 0"),
        ([0.5, 0.25], f"{field}: got a sum of 0.75; expected a sum of 1 within 1e-06"),
    ]


def table(field: str, cells: int = 3) -> Bad:
    wanted = f"{field}: got {{}}; expected integers [{cells}], one for each cell of the law"
    return [
        ([1] * (cells + 1), wanted.format(f"int64[{cells + 1}]")),
        ([1.0] * cells, wanted.format(f"float64[{cells}]")),
        ([*[1] * (cells - 1), -2], f"{field}[{cells - 1}]: got -2; expected a count >= 0"),
    ]


GOODNESS = {"counts": table("counts"), "p": law("p"), "alpha": level("alpha")}


def refusals(calls: Calls) -> list[Any]:
    """Parameters of a test: a call, its arguments with one just outside, and the refusal."""
    return [
        pytest.param(call, {**given, field: value}, message, id=f"{call.__name__}-{field}-{number}")
        for call, given, wrong in calls
        for field, cases in wrong.items()
        for number, (value, message) in enumerate(cases)
    ]


def lawful(calls: Calls) -> list[Any]:
    """The same calls with nothing outside."""
    return [pytest.param(call, given, id=call.__name__) for call, given, _ in calls]


def refused(call: Callable[..., object], given: dict[str, Any], message: str) -> None:
    """Nothing but this text is said, and nothing computed."""
    with pytest.raises(ValueError, match=r"got ") as caught:
        call(**given)
    assert str(caught.value) == message
