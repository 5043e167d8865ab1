"""Independence: rows of a batch, trials and neighbouring seeds must not know of each other.

Repeated randomness leaves every single law intact and makes every p-value invalid, so it has a
suite of its own.  Seeds that count up, count down or do not change at all catch samplers that mix
the row into the seed or forget the position (the diagonal of (s, r) and (s + 1, r - 1)).
"""

from __future__ import annotations

import functools

import pytest
from specverify.suites.declare import LAW, PAIRS, Seeding, Suite, case, r

_case = functools.partial(case, "independence", families=PAIRS)
_THREE = (r(drafts=2), r(drafts=1), r(drafts=0))

SUITE = Suite(
    "independence",
    "neighbouring requests, trials and seeds: s and s + 1, s and s - 1, one seed at many positions",
    (
        _case("V4-unrelated-seeds", 4, *_THREE),
        _case("V4-ascending-seeds", 4, *_THREE, seeding=Seeding.ASCENDING),
        _case("V4-descending-seeds", 4, *_THREE, seeding=Seeding.DESCENDING),
        # A sampler that forgets the position draws the same coins for ever: a wrong law.
        _case("V4-one-seed", 4, *_THREE, seeding=Seeding.SAME, families=LAW),
        _case("V4-one-hot-descending-seeds", 4, *_THREE, seeding=Seeding.DESCENDING, dense=False),
    ),
)


@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_independence(experiment, verify):  # type: ignore[no-untyped-def]
    """Pairs of one case."""
    verify(experiment)
