"""Acceptance: how often drafts pass, what is recovered, how long emissions are.

These are laws of the *coupling*: they hold for the acceptance rule that a sampler declares.  A
lossless method may break them lawfully; a sampler that loses q stays lossless, gets slower, and is
found here and nowhere else.
"""

from __future__ import annotations

import functools

import pytest
from specverify.suites.declare import COUPLING, Suite, case, r

from specverify.checks import relation_layouts, relations
from specverify.checks.experiment import Side
from specverify.checks.layout_experiment import LayoutExperiment
from specverify.checks.layout_properties import greedy_drafts_all_pass, greedy_layout
from specverify.checks.metamorphic import MetamorphicExperiment

_case = functools.partial(case, "acceptance", families=COUPLING)

SUITE = Suite(
    "acceptance",
    "accept, recover, length and bonus tables of the declared rule; acceptance = 1 - TV(p, q)",
    (
        LayoutExperiment(
            suite="acceptance",
            case="greedy-length",
            layouts=greedy_layout,
            holds=greedy_drafts_all_pass,
            needs=("greedy",),
            coupling=True,
        ),
        MetamorphicExperiment(
            suite="acceptance",
            case="scaled-draft-law",
            layouts=relation_layouts.dense_drafts,
            holds=relations.scaled_draft_law,
            needs=("dense",),
            coupling=True,
            copies=16,
        ),
        _case("dense-V4-K2", 4, r(drafts=2), r(drafts=1, temperature=0.75)),
        _case("dense-V8-K3", 8, r(drafts=3)),
        _case("dense-V16-K4", 16, r(drafts=4)),
        _case("dense-V6-K2-greedy-drafts", 6, r(drafts=2, drafting="greedy")),
        _case("dense-V6-ragged", 6, r(drafts=0), r(drafts=3), r(drafts=1, temperature=2.0)),
        _case("dense-V5-placeholder", 5, r(drafts=3, placeholders=frozenset({1}))),
        _case("dense-V7-filtered", 7, r(drafts=2, top_k=4), r(drafts=2, top_p=0.8)),
        _case("one-hot-V4-K2", 4, r(drafts=2), r(drafts=1, temperature=0.75), dense=False),
        _case("one-hot-V8-K3", 8, r(drafts=3), dense=False),
        _case("one-hot-V6-K2-greedy-drafts", 6, r(drafts=2, drafting="greedy"), dense=False),
    ),
    Side.COUPLING,
)


@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_acceptance(experiment, verify):  # type: ignore[no-untyped-def]
    """The coupling law of one case."""
    verify(experiment)
