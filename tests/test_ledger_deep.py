"""Runs of the costly suites that share a ledger: rare tokens, drafts, several rounds."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from ledger_runs import accounts

from specverify.cases import RequestSpec
from specverify.checks._rounds import round_case
from specverify.checks.drafting import DraftLawExperiment, RoundsExperiment
from specverify.checks.experiment import Settings
from specverify.checks.tail import TailExperiment, make_tail_case
from specverify.checks.verdict import Family, Status
from specverify.drafting import DraftingSampler, TableDrafter
from specverify.ledger import SeedRange
from specverify.reference import reference
from specverify.subjects import Subject

ALPHA, TRIALS = 1e-7, 1_000
SPECS = (RequestSpec(drafts=1), RequestSpec(drafts=1, temperature=0.75))
TAIL = TailExperiment(
    suite="tail",
    case="small",
    make=functools.partial(make_tail_case, "tail/small", 1024, 1, True),
)
MAKE = functools.partial(round_case, "drafting/small", 3, SPECS, True)
ROUNDS = RoundsExperiment(suite="drafting", case="small", make=MAKE)
DRAFTS = DraftLawExperiment(suite="drafting", case="small", make=MAKE)
PLAIN = Subject.of(reference, "plain")
OWN = Subject.of(DraftingSampler(reference, TableDrafter()), "own")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "nights.ledger")


def run(experiment, subject, ledger=None, **changes):
    settings = Settings(**({"alpha": ALPHA, "trials": TRIALS, "ledger": ledger} | changes))
    return {v.check: v for v in experiment.run(subject, settings)}


@pytest.mark.parametrize(
    ("experiment", "subject"),
    [(TAIL, PLAIN), (ROUNDS, PLAIN), (DRAFTS, OWN)],
    ids=["tail", "rounds", "drafts"],
)
def test_a_second_run_goes_on_and_everything_adds_up(experiment, subject, path):
    first, second = run(experiment, subject, path), run(experiment, subject, path)
    begun = {v.first_trial for v in second.values()}
    assert {v.first_trial for v in first.values()} == {0}
    assert begun == {MAKE().block if experiment is DRAFTS else TRIALS}
    kept = {name: v for name, v in second.items() if v.account_trials is not None}
    for name, verdict in kept.items():
        assert verdict.account_trials == 2 * TRIALS
        assert verdict.account_certified <= first[name].account_certified
        assert (verdict.account_log_e is None) == (verdict.family is Family.INDEPENDENCE)
    assert {table.table for table, _ in accounts(path)} == {
        verdict.check.partition("/")[2] for verdict in kept.values()
    }
    (start,) = begun
    apart = (SeedRange(0, 0, TRIALS), SeedRange(0, start, start + TRIALS))
    wanted = (SeedRange(0, 0, 2 * TRIALS),) if start == TRIALS else apart
    assert {totals.ranges for _, totals in accounts(path)} == {wanted}


def test_only_tables_whose_law_is_fixed_keep_an_account(path):
    found = run(DRAFTS, OWN, path)
    without = {name for name, v in found.items() if v.account_trials is None and v.alpha > 0}
    assert without == {"law/request 0: draft 0", "law/request 1: draft 0"}


def test_a_ledger_changes_no_verdict_and_replays_run_the_same_trials(path):
    for experiment, subject in ((TAIL, PLAIN), (ROUNDS, PLAIN), (DRAFTS, OWN)):
        run(experiment, subject, path)
        second = run(experiment, subject, path)
        (first,) = {v.first_trial for v in second.values()}
        again = run(experiment, subject, first_trial=first)
        for name, verdict in second.items():
            assert again[name].status is verdict.status
            assert (again[name].p_value, again[name].value) == (verdict.p_value, verdict.value)


def test_a_faulty_drafter_fails_by_all_nights_together(path, monkeypatch):
    """A text that is off by too little for one night: the evidence of all nights rejects."""
    case = MAKE()
    wrong = RoundsExperiment(suite="drafting", case="small", make=lambda: case)
    tables = wrong.tables(PLAIN.capabilities)
    bent = next(table for table in tables if table.name == "request 0: token 0")
    law = bent.law()
    shifted = law + 0.05 * np.where(np.arange(law.size) == 0, 1, -1 / (law.size - 1))
    monkeypatch.setattr(
        RoundsExperiment,
        "tables",
        lambda self, capabilities: [_judged_by(table, bent.name, shifted) for table in tables],
    )
    for _night in range(12):
        found = run(wrong, PLAIN, path)["law/request 0: token 0"]
        if found.status is Status.FAIL:
            break
    assert found.status is Status.FAIL
    assert found.account_trials > TRIALS
    assert "the evidence of all" in found.reason


def _judged_by(table, name, law):
    return dataclasses.replace(table, law=lambda: law) if table.name == name else table
