"""What is rare, large or at an end: tails, coarse coins, late ids, long proposals, wide filters.

Cases of few trials or with cells of their own, made for one kind of fault each.  They stand here so
that they do not blunt what the other suites say of their power.
"""

from __future__ import annotations

import functools

import pytest
from specverify.suites.declare import Suite

from specverify.checks.chosen import ChosenExperiment
from specverify.checks.coarse_coins import CoarseCoinExperiment
from specverify.checks.late_ids import late_ids
from specverify.checks.long_runs import long_runs
from specverify.checks.near_one import near_one
from specverify.checks.range_ends import range_ends
from specverify.checks.ranks import RankExperiment, make_rank_case
from specverify.checks.tail import TailExperiment, make_tail_case

_WIDE = ((3000, 1.0), (0, 0.99))
"""Top-k and top-p that keep thousands of tokens of 5,120."""


def _case(name: str, vocab: int, drafts: int, *, dense: bool = True) -> TailExperiment:
    make = functools.partial(make_tail_case, f"tail/{name}", vocab, drafts, dense)
    return TailExperiment(suite="tail", case=name, make=make)


SUITE = Suite(
    "tail",
    "rare tokens, coarse coins, late ids, long proposals, filters that cut nearly all or nothing",
    (
        _case("dense-V4096", 4096, 1),
        _case("one-hot-V5003", 5003, 1, dense=False),
        _case("idle-V70003", 70003, 0),
        CoarseCoinExperiment(suite="tail", case="coarse-coins", bits=16, bits_unbatched=9),
        CoarseCoinExperiment(
            suite="tail", case="flat-V8193", bits=12, bits_unbatched=11, flat=True
        ),
        ChosenExperiment(suite="tail", case="top-p-near-one", make=near_one),
        ChosenExperiment(suite="tail", case="range-ends", make=range_ends),
        ChosenExperiment(suite="tail", case="late-ids-V65543", make=late_ids),
        ChosenExperiment(suite="tail", case="long-V41-K20", make=long_runs),
        RankExperiment(
            suite="tail",
            case="kept-ranks-V5120",
            make=functools.partial(make_rank_case, "tail/kept-ranks-V5120", 5120, _WIDE),
        ),
    ),
)


@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_tail(experiment, verify):  # type: ignore[no-untyped-def]
    """The tail of one case."""
    verify(experiment)
