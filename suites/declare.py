"""The words that suites are declared with."""

from __future__ import annotations

import functools

from specverify.cases import RequestSpec, Seeding, make_case
from specverify.checks.experiment import Suite
from specverify.checks.statistical import StatisticalExperiment
from specverify.checks.verdict import Family

LAW = (Family.INDEPENDENCE, Family.LAW)
PAIRS = (Family.INDEPENDENCE,)
COUPLING = (Family.COUPLING,)

r = RequestSpec
"""Short for a request: ``r(drafts=2, temperature=0.75)``."""


def case(
    suite: str,
    name: str,
    vocab: int,
    *specs: RequestSpec,
    dense: bool = True,
    dtype: str = "float32",
    spread: float = 1.2,
    seeding: Seeding = Seeding.MIXED,
    families: tuple[Family, ...] = LAW,
) -> StatisticalExperiment:
    """Declare one case of a suite; its numbers depend on ``suite`` and ``name`` alone."""
    return StatisticalExperiment(
        suite=suite,
        case=name,
        make=functools.partial(
            make_case,
            f"{suite}/{name}",
            vocab,
            specs,
            dense,
            dtype=dtype,
            spread=spread,
            seeding=seeding,
        ),
        families=families,
    )


__all__ = ["COUPLING", "LAW", "PAIRS", "Seeding", "Suite", "case", "r"]
