"""Mutants that bring a drafter are caught, and only their drafts or their rounds give them away."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch

from specverify import evidence
from specverify.cases import RequestSpec
from specverify.checks._reported import Reported
from specverify.checks._rounds import RoundRunner, round_case
from specverify.checks.drafting import DraftLawExperiment, RoundsExperiment, run_rounds
from specverify.checks.experiment import Settings
from specverify.checks.round_tables import text_tables
from specverify.checks.verdict import Family, Status
from specverify.drafting import TableDrafter
from specverify.mutants.drafters import MUTANTS
from specverify.reference import reference
from specverify.subjects import Subject

ALPHA = 1e-9
TRIALS = 18_000
"""Reused draft noise moves a pair of tokens by TV 0.039 here, the least of the statistical mutants;
9 cells, alpha 1e-9 and power 0.999 need 17,549 trials."""
FIXED = Settings(root_seed=1, alpha=ALPHA, trials=TRIALS)
make = functools.partial(
    round_case,
    "drafting/rounds-dense-V3-K2",
    3,
    (RequestSpec(drafts=2), RequestSpec(drafts=2, temperature=0.75)),
    True,
)
CASES = (
    RoundsExperiment(suite="toy", case="rounds", make=make),
    DraftLawExperiment(suite="toy", case="drafts", make=make),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_caught(mutant) -> None:
    subject = Subject.of(mutant.build(), mutant.name)
    failed = [v for e in CASES for v in e.run(subject, FIXED) if v.status is Status.FAIL]
    assert failed
    assert "exact/contract" not in {verdict.check for verdict in failed}  # a crash is no detection
    if mutant.name == "bf16-draw":
        assert {verdict.check for verdict in failed} == {"exact/drafts by injected coins"}
    else:
        assert any(verdict.p_value is not None for verdict in failed)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_verifier_of_a_drafting_mutant_is_right(mutant) -> None:
    """To drafts of the harness and a single round, these mutants are correct samplers."""
    sampler = mutant.build()
    plain = Subject(mutant.name, sampler, reference.capabilities)
    single = dataclasses.replace(make(), rounds=1)
    runner = RoundRunner(plain, TableDrafter(), single, 1, "cpu")
    tables = [t for t in text_tables(single, "reference") if t.family is Family.LAW]
    counts = run_rounds(runner, tables, TRIALS, whole=False, reported=Reported(single))
    for table in tables:
        assert evidence.cressie_read(counts[table.name], table.law(), alpha=ALPHA).p_value > ALPHA


def test_the_trials_are_those_that_the_weakest_mutant_needs() -> None:
    assert evidence.trials_needed(9, 0.039, ALPHA, 0.999) <= TRIALS < 20_000


def test_bfloat16_needs_tens_of_millions_of_trials_or_coins() -> None:
    plan = make()
    worst = 0.0
    for request in plan.case.requests:
        q = torch.cat(list(request.draft)).double()
        drawn = q.bfloat16().double()
        drawn /= drawn.sum(dim=1, keepdim=True)
        worst = max(worst, float((drawn - q).abs().sum(dim=1).max()) / 2)
    assert 1e-4 < worst < 4e-3
    assert evidence.trials_needed(3, worst, ALPHA, 0.999) > 1_000_000
