"""Rules that are lossy by design: gated when they claim to be lossless, else reported."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from specverify.suites import all_suites

from specverify import evidence, laws
from specverify.cases import Case, RequestSpec, make_case
from specverify.checks.tables import Table, tables_of
from specverify.checks.verdict import Family
from specverify.contract import AcceptanceRule, Guarantee, capabilities_of
from specverify.mutants.lossy import (
    HONEST,
    WEIGHT,
    HonestLenience,
    HonestStaticEnsemble,
    Lenience,
    StaticEnsemble,
)
from specverify.reference import ChainSampler, reference
from specverify.subjects import Subject
from specverify.trials import run_trials

ALPHA = 1e-9
TRIALS = 40_000
"""Catch a TV of 0.03 between 4 cells with power 0.999 at alpha = 1e-9."""


def make() -> Case:
    return make_case("lossy/one", 4, (RequestSpec(drafts=1),), True)


def first_token(case: Case) -> Table:
    tables = tables_of(case, (Family.LAW,), capabilities_of(reference))
    return next(table for table in tables if table.name == "request 0: token 0")


def counts_of(sampler: ChainSampler, case: Case, table: Table) -> np.ndarray:
    subject = Subject.of(sampler, type(sampler).__name__)
    return run_trials(subject, case, [table], root_seed=5, trials=TRIALS)[table.name]


def ensemble_law(case: Case) -> np.ndarray:
    request = case.requests[0]
    p, q = request.target_tables("reference")[0][0], request.draft_tables()[0][0]
    return laws.static_ensemble_law(p, q, WEIGHT)


def test_the_trials_catch_what_they_must() -> None:
    assert evidence.trials_needed(4, 0.03, ALPHA, 0.999) <= TRIALS


@pytest.mark.parametrize("rule", HONEST, ids=lambda rule: rule.__name__)
def test_a_declared_lossy_rule_is_never_gated_as_lossless(rule: type[ChainSampler]) -> None:
    capabilities = capabilities_of(rule())
    assert capabilities.guarantee is not Guarantee.LOSSLESS
    assert capabilities.acceptance is AcceptanceRule.UNDECLARED
    asked = [one for suite in all_suites().values() for one in suite.experiments]
    statistical = [one for one in asked if one.plan(capabilities_of(reference)).tests]
    for experiment in statistical:
        plan = experiment.plan(capabilities)
        assert plan.unsupported is not None, experiment.case
        assert plan.tests == 0


def test_the_ensemble_follows_its_own_law_and_not_the_target() -> None:
    case = make()
    table = first_token(case)
    counts = counts_of(HonestStaticEnsemble(), case, table)
    own = ensemble_law(case)
    assert laws.total_variation(own, table.law()) > 0.03  # else nothing could tell them apart
    assert not evidence.cressie_read(counts, own, alpha=ALPHA).rejected
    assert evidence.cressie_read(counts, table.law(), alpha=ALPHA).rejected


def test_another_weight_is_not_its_law() -> None:
    case = make()
    table = first_token(case)
    counts = counts_of(HonestLenience(), case, table)
    assert evidence.cressie_read(counts, ensemble_law(case), alpha=ALPHA).rejected


@pytest.mark.parametrize("rule", [Lenience, StaticEnsemble], ids=lambda rule: rule.__name__)
def test_how_far_it_is_from_the_target_is_estimated(rule: type[ChainSampler]) -> None:
    """The certificate brackets the distance, which is what is reported of a lossy rule."""
    case = make()
    table = first_token(case)
    counts = counts_of(rule(), case, table)
    found = evidence.certificate(counts, table.law(), 0.999)
    assert 0.01 < found.tv_observed <= found.tv_upper
    if rule is StaticEnsemble:
        true = laws.total_variation(ensemble_law(case), table.law())
        assert abs(found.tv_observed - true) < 0.01
        assert true <= found.tv_upper


def test_honest_rules_differ_from_the_others_in_their_declaration_alone() -> None:
    for rule in HONEST:
        base = rule.__mro__[1]
        own = capabilities_of(rule())
        changed = {
            field.name
            for field in dataclasses.fields(own)
            if getattr(own, field.name) != getattr(capabilities_of(base()), field.name)
        }
        assert changed == {"guarantee", "acceptance"}
