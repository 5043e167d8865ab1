"""Every promised number of trials, simulated: ``pytest -m slow tests/test_sample_sizes.py``.

The same rows as in docs/calibration.md, with another seed; ``nox -s tests`` runs 60 of each.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from calibration import power, rows
from calibration.worlds import uniform

RUNS = 3_000
SIZE = rows.Size(
    runs=RUNS, power_runs=RUNS, tables=0, streams=0, cells=1_024, look_cells=1_024, seed=2
)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(power.tasks(SIZE))))
def test_the_promised_power_is_reached(number):
    found = power.tasks(SIZE)[number]()
    assert found
    for row in found:
        assert row.ok, f"{row.name}, {row.setting}: {row.observed}, {row.expected}"


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.8, 0.9])
def test_a_plan_with_fewer_trials_is_found_out(share, monkeypatch):
    """The rows can fail: nine tenths of the trials do not keep a promise of 0.999."""
    planned = power.trials_needed_for_law
    monkeypatch.setattr(
        power, "trials_needed_for_law", lambda *arguments: int(share * planned(*arguments))
    )
    (row,) = power.divergence("uniform 64", uniform(64), 0.03, SIZE)
    assert row.ok is False
