"""Greedy decoding: at temperature 0 the emission is a function of its input, and exact."""

from __future__ import annotations

import pytest
from specverify.suites.declare import Suite

from specverify.checks.layout_experiment import LayoutExperiment
from specverify.checks.layout_properties import any_layout, greedy_layout, greedy_text_is_exact

SUITE = Suite(
    "greedy",
    "temperature 0: equal to the reference, ties included, alone and beside random requests",
    (
        LayoutExperiment(
            suite="greedy",
            case="all-greedy",
            layouts=greedy_layout,
            holds=greedy_text_is_exact,
            needs=("greedy",),
        ),
        LayoutExperiment(
            suite="greedy",
            case="beside-random",
            layouts=any_layout,
            holds=greedy_text_is_exact,
            needs=("greedy",),
        ),
    ),
)


@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_greedy(experiment, verify):  # type: ignore[no-untyped-def]
    """Greedy requests of generated layouts."""
    verify(experiment)
