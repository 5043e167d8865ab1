"""Recorded rows: the suite of a file named by ``--cases`` (docs/real-rows.md).

Without a file there is nothing to verify, and the suite is empty.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from specverify.suites.declare import Suite

from specverify._options import CASES_VARIABLE
from specverify.checks.recorded import SUITE as NAME
from specverify.checks.recorded import RecordedExperiment, recorded_experiments
from specverify.recorded import load


def _experiments() -> tuple[RecordedExperiment, ...]:
    path = os.environ.get(CASES_VARIABLE)
    return recorded_experiments(load(Path(path))) if path else ()


SUITE = Suite(NAME, "recorded rows of a real model, from the file named by --cases", _experiments())


@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_recorded(experiment, verify):  # type: ignore[no-untyped-def]
    """One question about one recorded step."""
    verify(experiment)
