"""The directed bets: each is the law of the bug that it names, and the winner names its branch."""

from __future__ import annotations

import numpy as np
import pytest

from specverify.cases import Case, RequestSpec, TableRequest, make_case
from specverify.checks import suspicion
from specverify.checks.diagnosis import Branch
from specverify.checks.tables import Table, tables_of
from specverify.checks.verdict import Family
from specverify.checks.watch import likely_cause
from specverify.contract import capabilities_of
from specverify.evidence import Suspect
from specverify.reference import reference
from specverify.registry import resolve
from specverify.trials import run_trials

TRIALS = 20_000
CONVENTION = "reference"


def make(dense: bool = True) -> Case:
    return make_case("suspicion/bets", 8, (RequestSpec(drafts=2), RequestSpec(drafts=1)), dense)


def table_of(case: Case, family: Family, name: str) -> Table:
    tables = tables_of(case, (family,), capabilities_of(reference))
    return next(table for table in tables if table.name == name)


def cause_of(mutant: str, family: Family, name: str, *, dense: bool = True) -> str | None:
    case = make(dense)
    table = table_of(case, family, name)
    counts = run_trials(resolve(mutant), case, [table], root_seed=2, trials=TRIALS)[table.name]
    assert table.suspects is not None
    return likely_cause(counts, table.law(), table.suspects(table.law()))


@pytest.mark.parametrize("dense", [True, False])
def test_the_right_rule_mixes_to_the_target(dense: bool) -> None:
    """With the right acceptance and the right residual the first token follows p exactly."""
    request = make(dense).requests[0]
    p, q = request.target_tables(CONVENTION)[0][0], request.draft_tables()[0][0]
    right = suspicion._rule(p, q, dense)
    mixed = suspicion._mixed(q, right, suspicion._residuals(p, q, dense))
    np.testing.assert_allclose(mixed, p, rtol=0, atol=1e-12)


def test_the_residual_has_several_tokens() -> None:
    """Else the likeliest of it would be all of it, and no fault."""
    request = make().requests[0]
    p, q = request.target_tables(CONVENTION)[0][0], request.draft_tables()[0][0]
    assert ((p - q) > 0.02).sum() >= 3


@pytest.mark.parametrize("dense", [True, False])
def test_every_bet_is_a_law_that_is_not_the_target(dense: bool) -> None:
    request: TableRequest = make(dense).requests[0]
    law = request.target_tables(CONVENTION)[0][0]
    for suspect in suspicion.of_token(request, 0, dense, CONVENTION, law):
        assert suspect.law.sum() == pytest.approx(1.0, abs=1e-9), suspect.name
        assert (suspect.law >= 0).all(), suspect.name
        assert np.abs(suspect.law - law).sum() > 1e-4, suspect.name


@pytest.mark.parametrize(
    ("mutant", "family", "name", "cause"),
    [
        ("recover-from-target", Family.LAW, "token 0", "follow p, not the residual"),
        ("recover-from-draft", Family.LAW, "token 0", "follow q, not the residual"),
        ("recover-argmax", Family.LAW, "token 0", "the likeliest of the residual"),
        ("recover-abs", Family.LAW, "token 0", "follow |p - q|"),
        ("recover-minus-draft", Family.LAW, "token 0", "follow p without the draft"),
        ("row-plus-one", Family.LAW, "token 0", "the row of the next position"),
        ("accept-all", Family.COUPLING, "draft 0 accepted", "every draft is accepted"),
        ("ratio-inverted", Family.COUPLING, "draft 0 accepted", "pass with q / p"),
        ("q-dropped", Family.COUPLING, "acceptance rate of draft 0", "as if q were not shown"),
        ("bonus-from-last-row", Family.COUPLING, "bonus", "the bonus follows the row before"),
    ],
)
def test_the_bet_on_a_bug_wins(mutant: str, family: Family, name: str, cause: str) -> None:
    said = cause_of(f"mutant:{mutant}", family, f"request 0: {name}")
    assert said is not None
    assert cause in said


def test_equal_laws_are_named_together_and_blame_no_branch() -> None:
    """Recovering (q - p)+ emits q, and so does accepting every draft: text cannot tell."""
    said = cause_of("mutant:recover-reversed", Family.LAW, "request 0: token 0")
    assert said is not None
    assert "every draft is accepted" in said
    assert "(q - p)+" in said
    assert suspicion.branch_of(said) is None
    rule = cause_of("mutant:recover-reversed", Family.COUPLING, "request 0: draft 0 accepted")
    assert rule is None  # drafts pass as they should


def test_a_bug_that_nobody_bets_on_gets_no_cause() -> None:
    assert cause_of("mutant:coin-reused", Family.LAW, "request 0: token 0") is None


def test_a_bet_that_comes_near_is_dropped_once_the_counts_tell_it_apart() -> None:
    law, near = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.25, 0.15])
    truth = np.array([0.6, 0.27, 0.13])
    suspects = [Suspect("near", near)]
    few, many = (truth * 200).astype(np.int64), (truth * 200_000).astype(np.int64)
    assert likely_cause(few, law, suspects) == "near"
    assert likely_cause(many, law, suspects) is None
    assert likely_cause((near * 200_000).astype(np.int64), law, suspects) == "near"


@pytest.mark.parametrize(
    ("cause", "branch"),
    [
        (None, None),
        ("a temperature 1.05 times as high", None),
        ("every draft is accepted", Branch.ACCEPTED),
        ("drafts pass with q / p, not with p / q", Branch.ACCEPTED),
        ("recovered tokens follow q, not the residual (share 0.3)", Branch.RECOVERED),
        ("the bonus follows the row before it (share 1)", Branch.BONUS),
        ("drafts pass with p, or every draft is accepted", Branch.ACCEPTED),
        ("recovered tokens follow q, or every draft is accepted", None),
    ],
)
def test_the_branch_of_a_cause(cause: str | None, branch: Branch | None) -> None:
    assert suspicion.branch_of(cause) is branch
