"""Differential: with the same injected coins, the same tokens as the reference.

A disagreement is lawful only where a coin lies within the float budget of its threshold
(``specverify.checks.float_budget``).  What fails here does not do what the declared rule does with
these coins; whether the text is wrong too, the laws say.
"""

from __future__ import annotations

import functools

import pytest
from specverify.suites.declare import Suite

from specverify.checks.differential import DifferentialExperiment
from specverify.checks.experiment import Side
from specverify.checks.layout_properties import any_layout, corner_layout, wide_layout
from specverify.checks.random_rows import huge_rows, long_proposals, random_rows

_case = functools.partial(DifferentialExperiment, suite="differential")

SUITE = Suite(
    "differential",
    "injected coins, extreme and at the thresholds: token for token as the reference",
    (
        _case(case="layouts", layouts=any_layout, share=1.5),
        _case(case="numbers", layouts=random_rows, share=2.0),
        _case(case="long", layouts=long_proposals, share=0.5),
        _case(case="wide", layouts=wide_layout, share=0.5, copies=3),
        _case(case="corners", layouts=corner_layout, copies=12),
        _case(case="huge", layouts=huge_rows, share=0.08, copies=1),
    ),
    Side.EITHER,
)


@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_differential(experiment, verify):  # type: ignore[no-untyped-def]
    """The emissions of generated layouts under injected coins."""
    verify(experiment)
