"""Comparing whole records, for the tests of specverify.evidence."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from scipy import optimize, stats


def same(found: Any, **expected: Any) -> None:
    """These are all the fields of a record, floats to nine digits, the rest exactly."""
    wanted = {
        name: pytest.approx(value, rel=1e-9) if type(value) is float else value
        for name, value in expected.items()
    }
    assert dataclasses.asdict(found) == wanted


def lambda_of(cells: int, alpha: float, power: float) -> float:
    """The noncentrality that a chi-square test rejects with this power."""
    critical = stats.chi2.isf(alpha, cells - 1)
    return float(
        optimize.brentq(
            lambda x: stats.ncx2.sf(critical, cells - 1, x) - power, 1e-6, 1e4, xtol=1e-11
        )
    )
