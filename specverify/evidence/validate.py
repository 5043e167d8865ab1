"""The checks of everything that enters the room: errors that name the field.

Each message has the same form: the field, what it got, what was expected.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import numpy.typing as npt

MASS_TOLERANCE = 1e-6
"""Largest distance of the sum of a law from 1; within it the law is rescaled."""


def _fail(field: str, got: object, expected: str) -> NoReturn:
    raise ValueError(f"{field}: got {got}; expected {expected}")


def law(field: str, p: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """A probability vector, rescaled to sum to 1 exactly as far as float64 can.

    Args:
        field: name for the message.
        p: [k] numbers >= 0 that sum to 1 within ``MASS_TOLERANCE``.

    Returns:
        [k] float64, a copy.

    Raises:
        ValueError: if ``p`` is not such a vector.
    """
    values = np.asarray(p)
    if values.ndim != 1 or values.shape[0] == 0 or values.dtype.kind not in "fiu":
        _fail(field, f"{values.dtype}{list(values.shape)}", "a vector of k >= 1 probabilities")
    values = values.astype(np.float64)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        at = int(np.argmax(bad))
        _fail(f"{field}[{at}]", values[at], "a finite probability >= 0")
    mass = float(values.sum())
    if not abs(mass - 1) <= MASS_TOLERANCE:
        _fail(field, f"a sum of {mass:.9g}", f"a sum of 1 within {MASS_TOLERANCE:g}")
    return values / mass


def table(field: str, counts: npt.ArrayLike, cells: int) -> npt.NDArray[np.int64]:
    """A table of counts, one for each cell of a law.

    Args:
        field: name for the message.
        counts: [cells] integers >= 0.
        cells: number of cells of the law.

    Returns:
        [cells] int64.

    Raises:
        ValueError: if ``counts`` is not such a table.
    """
    values = np.asarray(counts)
    if values.shape != (cells,) or values.dtype.kind not in "iu":
        got = f"{values.dtype}{list(values.shape)}"
        _fail(field, got, f"integers [{cells}], one for each cell of the law")
    values = values.astype(np.int64)
    if (values < 0).any():
        at = int(np.argmax(values < 0))
        _fail(f"{field}[{at}]", values[at], "a count >= 0")
    return values


def inside(field: str, value: float) -> float:
    """A number strictly between 0 and 1 (alpha, power, confidence, total variation).

    Raises:
        ValueError: if it is not, NaN included.
    """
    if not 0 < value < 1:
        _fail(field, value, "a number strictly between 0 and 1")
    return float(value)


def probability(field: str, value: float) -> float:
    """A number from 0 to 1, both included.

    Raises:
        ValueError: if it is not, NaN included.
    """
    if not 0 <= value <= 1:
        _fail(field, value, "a probability from 0 to 1")
    return float(value)


def positive(field: str, value: float) -> float:
    """A finite number > 0.

    Raises:
        ValueError: if it is not, NaN included.
    """
    if not (math.isfinite(value) and value > 0):
        _fail(field, value, "a finite number > 0")
    return float(value)


def whole(field: str, value: SupportsIndex | Any, least: int = 0) -> int:
    """An integer not below ``least``.

    Raises:
        ValueError: if it is not an integer, or too small.
    """
    try:
        number = operator.index(value)
    except TypeError:
        _fail(field, repr(value), f"an integer >= {least}")
    if number < least:
        _fail(field, number, f"an integer >= {least}")
    return number
