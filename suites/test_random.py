"""Random sampling: the emission, completed by the target, follows the target's own law.

Every request, position and prefix has its own p and its own q.  Nothing is assumed of the rule, so
any lossless method must pass: chain, block, tree, yours.
"""

from __future__ import annotations

import functools

import pytest
from specverify.suites.declare import Suite, case, r

_case = functools.partial(case, "random")

SUITE = Suite(
    "random",
    "random sampling, dense q and one-hot drafts, 1 to 9 drafts, V from 2 to 16",
    (
        _case("dense-V4-K2", 4, r(drafts=2), r(drafts=2)),
        _case("dense-V8-K3", 8, r(drafts=3)),
        _case("dense-V16-K4", 16, r(drafts=4)),
        _case("dense-V2-K4", 2, r(drafts=4), r(drafts=3)),
        _case("dense-V2-K9", 2, r(drafts=9)),
        _case("dense-V5-K1-cold", 5, r(drafts=1, temperature=0.3), r(drafts=1, temperature=0.75)),
        _case("dense-V5-K2-hot", 5, r(drafts=2, temperature=4.0)),
        _case("dense-V6-K2-peaked", 6, r(drafts=2), r(drafts=2, drafting="improbable"), spread=3.0),
        _case("dense-V7-K2-greedy-drafts", 7, r(drafts=2, drafting="greedy")),
        _case("dense-V8-K2-bfloat16", 8, r(drafts=2), dtype="bfloat16"),
        _case("dense-V8-K2-float16", 8, r(drafts=2, temperature=0.75), dtype="float16"),
        _case("dense-V5-K3-placeholder", 5, r(drafts=3, placeholders=frozenset({1}))),
        _case("one-hot-V4-K2", 4, r(drafts=2), r(drafts=2), dense=False),
        _case("one-hot-V8-K3", 8, r(drafts=3), dense=False),
        _case("one-hot-V16-K4", 16, r(drafts=4), dense=False),
        _case("one-hot-V5-K2-cold", 5, r(drafts=2, temperature=0.3), dense=False),
        _case("one-hot-V7-K2-greedy-drafts", 7, r(drafts=2, drafting="greedy"), dense=False),
        _case(
            "one-hot-V5-K3-placeholder", 5, r(drafts=3, placeholders=frozenset({1})), dense=False
        ),
    ),
)


@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_random(experiment, verify):  # type: ignore[no-untyped-def]
    """The completed law of one case."""
    verify(experiment)
