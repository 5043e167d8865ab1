"""Tail and support at scale: thousands of tokens of 1e-6 to 1e-9, and some of probability 0."""

from __future__ import annotations

import functools

import pytest
from specverify.suites.declare import Suite

from specverify.checks.tail import TailExperiment, make_tail_case


def _case(name: str, vocab: int, drafts: int, *, dense: bool = True) -> TailExperiment:
    make = functools.partial(make_tail_case, f"tail/{name}", vocab, drafts, dense)
    return TailExperiment(suite="tail", case=name, make=make)


SUITE = Suite(
    "tail",
    "heavy tails: the mass of tokens of 1e-6 to 1e-9, and nothing of probability 0 ever",
    (
        _case("dense-V4096", 4096, 1),
        _case("one-hot-V5003", 5003, 1, dense=False),
        _case("idle-V70003", 70003, 0),
    ),
)


@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_tail(experiment, verify):  # type: ignore[no-untyped-def]
    """The tail of one case."""
    verify(experiment)
