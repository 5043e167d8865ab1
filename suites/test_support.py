"""Support: nothing of probability zero is ever emitted, whatever the layout."""

from __future__ import annotations

import pytest
from specverify.suites.declare import Suite

from specverify.checks.layout_experiment import LayoutExperiment
from specverify.checks.layout_properties import (
    any_layout,
    excluded_layout,
    filtered_layout,
    inside_the_support,
    tied_layout,
)

SUITE = Suite(
    "support",
    "masked logits, top-k, top-p and min-p: no token outside the filter, ties included",
    (
        LayoutExperiment(
            suite="support",
            case="masked",
            layouts=any_layout,
            holds=inside_the_support,
            copies=64,
        ),
        LayoutExperiment(
            suite="support",
            case="excluded",
            layouts=excluded_layout,
            holds=inside_the_support,
            needs=("exclusion", "zero_drafts"),
            copies=64,
        ),
        LayoutExperiment(
            suite="support",
            case="filtered",
            layouts=filtered_layout,
            holds=inside_the_support,
            needs=("filtering",),
            copies=64,
        ),
        LayoutExperiment(
            suite="support",
            case="tied",
            layouts=tied_layout,
            holds=inside_the_support,
            needs=("filtering",),
            copies=64,
        ),
    ),
)


@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_support(experiment, verify):  # type: ignore[no-untyped-def]
    """The support of generated layouts."""
    verify(experiment)
