"""Drafts and rounds: what is drafted follows the reported q, and rounds do not share randomness.

A subject with a drafter of its own is verified on that drafter's drafts; for the others the
reference table drafter draws, and there is no draft law to check.
"""

from __future__ import annotations

import functools

import pytest
from specverify.suites.declare import Suite, r

from specverify.cases import RequestSpec
from specverify.checks._rounds import round_case
from specverify.checks.drafting import DraftLawExperiment, RoundsExperiment


def _rounds(name: str, vocab: int, *specs: RequestSpec, dense: bool = True) -> RoundsExperiment:
    make = functools.partial(round_case, f"drafting/{name}", vocab, specs, dense)
    return RoundsExperiment(suite="drafting", case=name, make=make)


def _draft_law(name: str, vocab: int, *specs: RequestSpec) -> DraftLawExperiment:
    make = functools.partial(round_case, f"drafting/{name}", vocab, specs, True)
    return DraftLawExperiment(suite="drafting", case=name, make=make)


SUITE = Suite(
    "drafting",
    "two rounds of draft, verify, advance; and the subject's own drafts against the q it reports",
    (
        _rounds("rounds-dense-V3-K2", 3, r(drafts=2), r(drafts=2, temperature=0.75)),
        _rounds("rounds-dense-V4-ragged", 4, r(drafts=1), r(drafts=0), r(drafts=1)),
        _rounds("rounds-dense-V2-K3", 2, r(drafts=3, temperature=2.0)),
        _rounds("rounds-one-hot-V3-K2", 3, r(drafts=2), r(drafts=1), dense=False),
        _draft_law("drafts-V3-K2", 3, r(drafts=2), r(drafts=2, temperature=0.75)),
        _draft_law("drafts-V8-ragged", 8, r(drafts=1, temperature=2.0), r(drafts=0), r(drafts=1)),
    ),
)


@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_drafting(experiment, verify):  # type: ignore[no-untyped-def]
    """The text or the drafts of one case."""
    verify(experiment)
