"""Top-k, top-p and min-p, under both policies.

*Exclusion*: a request that asks for a filter gets no drafts and decodes plainly from the filtered
target.  *Filtering*: its drafts are verified against the filtered, renormalised target.  Both are
lossless for the filtered law (docs/filtering.md has the proof).
"""

from __future__ import annotations

import functools

import pytest
from specverify.suites.declare import Suite, case, r

_case = functools.partial(case, "exclusion")
_EXCLUDED = (
    r(drafts=2),
    r(drafts=0, top_k=3),
    r(drafts=1),
    r(drafts=0, top_p=0.8),
    r(drafts=0, top_k=4, top_p=0.9, temperature=0.75),
)

SUITE = Suite(
    "exclusion",
    "top-k / top-p / min-p: excluded requests without drafts, and filtered verification",
    (
        _case("excluded-dense-V7", 7, *_EXCLUDED),
        _case("excluded-one-hot-V7", 7, *_EXCLUDED, dense=False),
        _case("excluded-min-p-V7", 7, r(drafts=2), r(drafts=0, min_p=0.1)),
        _case("filtered-top-k-V7-K2", 7, r(drafts=2, top_k=3), r(drafts=2)),
        _case("filtered-top-p-V7-K2", 7, r(drafts=2, top_p=0.7), r(drafts=2, top_p=0.95)),
        _case("filtered-min-p-V7-K2", 7, r(drafts=2, min_p=0.15), r(drafts=2)),
        _case("filtered-all-V8-K3", 8, r(drafts=3, top_k=5, top_p=0.85, min_p=0.02)),
        _case("filtered-cold-V8-K2", 8, r(drafts=2, top_k=4, temperature=0.75)),
        _case(
            "filtered-one-hot-V7-K2", 7, r(drafts=2, top_k=3), r(drafts=1, top_p=0.8), dense=False
        ),
    ),
)


@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_exclusion(experiment, verify):  # type: ignore[no-untyped-def]
    """The filtered law of one case."""
    verify(experiment)
