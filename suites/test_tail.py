"""Tail and support at scale: tokens of 1e-6 to 1e-9, or of 0, and filters that keep thousands."""

from __future__ import annotations

import functools

import pytest
from specverify.suites.declare import Suite

from specverify.checks.ranks import RankExperiment, make_rank_case
from specverify.checks.tail import TailExperiment, make_tail_case

_WIDE = ((3000, 1.0), (0, 0.99))
"""Top-k and top-p that keep thousands of tokens of 5,120."""


def _case(name: str, vocab: int, drafts: int, *, dense: bool = True) -> TailExperiment:
    make = functools.partial(make_tail_case, f"tail/{name}", vocab, drafts, dense)
    return TailExperiment(suite="tail", case=name, make=make)


SUITE = Suite(
    "tail",
    "the mass of tokens of 1e-6 to 1e-9, nothing of probability 0, thousands kept by a filter",
    (
        _case("dense-V4096", 4096, 1),
        _case("one-hot-V5003", 5003, 1, dense=False),
        _case("idle-V70003", 70003, 0),
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
