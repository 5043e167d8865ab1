"""The experiments of the suites, asked on a small case."""

from __future__ import annotations

import dataclasses

from specverify.checks._rounds import RoundCase
from specverify.checks.experiment import Experiment
from specverify.checks.small_cases import SmallCase
from specverify.checks.verdict import Family

ROUNDS = 2
"""Rounds of draft, verify, advance."""


def round_case_of(small: SmallCase, rounds: int = ROUNDS) -> RoundCase:
    """The case for some rounds: the drafts of a request are those of one round."""
    drafts = tuple(request.drafts for request in small.requests)
    long = tuple(
        dataclasses.replace(request, drafts=rounds * (request.drafts + 1) - 1)
        for request in small.requests
    )
    case = dataclasses.replace(small, requests=long).case
    return RoundCase(case=case, drafts=drafts, rounds=rounds)


def small_experiment(small: SmallCase, what: str, families: tuple[Family, ...]) -> Experiment:
    """The experiment on a small case that holds the tables of some families.

    Args:
        small: the case.
        what: ``step`` (one verification), ``rounds`` (the text of two) or ``drafts`` (the draws of
            the sampler's own drafter).
        families: of the tables that are wanted.

    Raises:
        ValueError: if ``what`` is something else.
    """
    from specverify.checks.drafting import DraftLawExperiment, RoundsExperiment
    from specverify.checks.statistical import StatisticalExperiment

    name = small.literal
    if what == "step":
        tested = tuple(family for family in families if family is not Family.EXACT)
        return StatisticalExperiment(
            suite="small", case=name, make=lambda: small.case, families=tested or (Family.LAW,)
        )
    kinds = {"rounds": RoundsExperiment, "drafts": DraftLawExperiment}
    if what not in kinds:
        raise ValueError(f"what: got {what!r}; expected step, {' or '.join(kinds)}")
    return kinds[what](suite="small", case=name, make=lambda: round_case_of(small))
