"""Mixed batches: speculating and idle, greedy and random requests, side by side in one call."""

from __future__ import annotations

import functools

import pytest
from specverify.suites.declare import Suite, case, r

from specverify.checks.layout_experiment import LayoutExperiment
from specverify.checks.layout_properties import any_layout, anything

_case = functools.partial(case, "mixed")
_FOUR = (r(drafts=2), r(drafts=0), r(drafts=1, temperature=0.75), r(drafts=3, temperature=2.0))
_GREEDY = (r(drafts=2), r(drafts=2, temperature=0.0), r(drafts=0, temperature=0.0), r(drafts=1))

SUITE = Suite(
    "mixed",
    "zero-draft, greedy, random and ragged requests in one batch",
    (
        LayoutExperiment(suite="mixed", case="layouts", layouts=any_layout, holds=anything),
        _case("dense-V5-ragged", 5, *_FOUR),
        _case("one-hot-V5-ragged", 5, *_FOUR, dense=False),
        _case("dense-V4-idle-first-and-last", 4, r(drafts=0), r(drafts=2), r(drafts=0)),
        _case("dense-V6-all-idle", 6, r(drafts=0), r(drafts=0, temperature=0.75)),
        _case("dense-V5-greedy-and-random", 5, *_GREEDY),
        _case("one-hot-V5-greedy-and-random", 5, *_GREEDY, dense=False),
        _case(
            "dense-V5-placeholder-in-one",
            5,
            r(drafts=2),
            r(drafts=3, placeholders=frozenset({0})),
            r(drafts=2, placeholders=frozenset({1})),
        ),
    ),
)


@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_mixed(experiment, verify):  # type: ignore[no-untyped-def]
    """One mixed batch."""
    verify(experiment)
