"""Statistical failures shrink to the smallest case, and say which branch is at fault."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from specverify.suites.declare import case, r

from specverify import _runner, reproduce
from specverify.cases import Seeding
from specverify.checks.branches import branch_at, decision_that_differs, first_fault
from specverify.checks.diagnosis import Branch
from specverify.checks.experiment import Settings
from specverify.checks.shrink import Shrinking
from specverify.checks.small_cases import (
    MAX_REQUESTS,
    Rows,
    SmallCase,
    SmallRequest,
    bounds_of,
    within,
)
from specverify.checks.statistical import StatisticalExperiment
from specverify.checks.verdict import Family, Status, Verdict
from specverify.contract import Emission
from specverify.mutants import MUTANTS
from specverify.reference import reference
from specverify.results import Outcome
from specverify.subjects import Subject

SETTINGS = Settings(root_seed=1, alpha=1e-9)
LAW, COUPLING = (Family.INDEPENDENCE, Family.LAW), (Family.COUPLING,)


def subject(name: str) -> Subject:
    return Subject.of(MUTANTS[name].build(), f"mutant:{name}")


def experiment(families=LAW, dense=True, specs=None) -> StatisticalExperiment:
    specs = specs or (r(drafts=2), r(drafts=2, temperature=0.75))
    return case("toy", "V5", 5, *specs, dense=dense, families=families)


@functools.cache
def explained(name: str, families=LAW) -> Verdict | None:
    return searched(name, families)


def searched(name: str, families=LAW) -> Verdict | None:
    one = experiment(families)
    verdicts = one.run(subject(name), SETTINGS)
    assert any(verdict.status is Status.FAIL for verdict in verdicts)
    found = Shrinking().explain(one, subject(name), SETTINGS, verdicts)
    assert [v.check for v in found] == [v.check for v in verdicts]
    return next((verdict for verdict in found if verdict.shrunk is not None), None)


@pytest.mark.parametrize(
    ("name", "families", "branch"),
    [
        ("row-plus-one", LAW, Branch.ACCEPTED),
        ("recover-from-target", LAW, Branch.RECOVERED),
        ("bonus-from-last-row", LAW, Branch.BONUS),
        ("q-dropped", COUPLING, Branch.ACCEPTED),
    ],
)
def test_a_failure_shrinks_and_names_its_branch(name, families, branch) -> None:
    verdict = explained(name, families)
    assert verdict is not None
    found = verdict.shrunk
    assert len(found.requests) == 1
    assert found.requests[0].drafts == 1
    assert found.vocab == 2
    assert (found.request, found.branch, verdict.branch) == (0, branch, verdict.branch)
    assert verdict.branch is not None
    assert found.complete
    assert found.worst
    assert found.trials <= 3_100  # n follows from the deviation that is looked for


def test_a_search_is_a_function_of_its_seed() -> None:
    one, two = explained("recover-from-target"), searched("recover-from-target")
    assert one.shrunk == two.shrunk
    assert one.snippet == two.snippet


def test_what_passed_is_left_alone_and_so_is_an_exam() -> None:
    one = experiment()
    right = Subject.of(reference, "reference")
    quick = dataclasses.replace(SETTINGS, trials=2_000)
    verdicts = one.run(right, quick)
    assert Shrinking().explain(one, right, SETTINGS, verdicts) is verdicts
    wrong = subject("row-plus-one")
    failed = one.run(wrong, SETTINGS)
    exam = dataclasses.replace(SETTINGS, shrink=False)
    assert Shrinking().explain(one, wrong, exam, failed) is failed
    assert Shrinking(wanted="law/nothing").explain(one, wrong, SETTINGS, failed) is failed


def test_one_failure_of_a_kind_is_shrunk() -> None:
    one, wrong = experiment(), subject("row-plus-one")
    failed = one.run(wrong, SETTINGS)
    shrinking = Shrinking()
    assert shrinking.explain(one, wrong, SETTINGS, failed) is not failed
    assert shrinking.explain(one, wrong, SETTINGS, failed) is failed
    none = Shrinking(most=0)
    assert none.explain(one, wrong, SETTINGS, failed) is failed


def test_a_fault_of_the_contract_shrinks_as_well() -> None:
    def raises(batch):
        if batch.num_drafts:
            raise RuntimeError("no drafts, please")
        return reference(batch)

    wrong = Subject.of(raises)
    one = experiment()
    verdicts = Shrinking().explain(one, wrong, SETTINGS, one.run(wrong, SETTINGS))
    assert verdicts[0].check == "exact/contract"
    assert [request.drafts for request in verdicts[0].shrunk.requests] == [1]
    assert "no drafts, please" in verdicts[0].shrunk.reason


def test_a_fault_of_the_explainer_takes_no_verdict_away(capfd) -> None:
    class Broken(Shrinking):
        def explain(self, *_):
            raise KeyError("ours")

    answer = _runner.answer(experiment(), subject("row-plus-one"), SETTINGS, None, Broken())
    assert answer.error is None
    assert any(verdict.status is Outcome.FAIL for verdict in answer.verdicts)
    assert "while looking for the smallest layout: 'ours'" in capfd.readouterr().err


def test_time_ends_a_search() -> None:
    one, wrong = experiment(), subject("recover-from-target")
    failed = one.run(wrong, SETTINGS)
    assert Shrinking(seconds=0.0).explain(one, wrong, SETTINGS, failed) is failed


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "leak-5-percent", "accept-2-percent", "ratio-inverted", "recover-abs", "recover-argmax",
        "recover-from-draft", "residual-of-position-0", "draft-row-of-neighbour", "coin-reused",
        "coin-same-all-rows", "bonus-from-first-request", "accept-all", "draft-temperature-twice",
    ],
)  # fmt: skip
def test_other_mutants_shrink(name) -> None:
    verdict = explained(name)
    assert verdict is not None
    assert len(verdict.shrunk.requests) <= 2
    assert verdict.shrunk.vocab <= 4


def test_the_snippet_shows_a_statistical_failure_by_itself() -> None:
    verdict = explained("row-plus-one")
    assert len(verdict.snippet.splitlines()) <= 5
    said = subprocess.run(
        [sys.executable, "-c", verdict.snippet], capture_output=True, text=True, check=True
    ).stdout
    assert said.startswith(f"FAIL {verdict.shrunk.check}")
    cell = verdict.shrunk.worst[0]
    assert f"{cell.label}: observed {cell.observed:,}, expected {cell.expected:,.1f}" in said


def test_a_snippet_that_names_no_check_says_what_there_is() -> None:
    small = SmallCase(vocab=2, requests=(SmallRequest(),))
    with pytest.raises(ValueError, match="expected one of law/request 0: joint of 2 tokens, law/"):
        reproduce.count(subject("q-dropped"), small, "law/nothing", trials=100, tv=0.1)
    with pytest.raises(ValueError, match="what: got 'dance'; expected step"):
        reproduce.count(subject("q-dropped"), small, "law/x", trials=100, tv=0.1, what="dance")


# --- the family ---------------------------------------------------------------------------------

MOST = bounds_of(
    experiment(
        specs=(
            r(drafts=0),
            r(drafts=2, temperature=0.0),
            r(drafts=3, top_k=3, top_p=0.8, placeholders=frozenset({1})),
            r(drafts=1, drafting="greedy"),
            r(drafts=2),
        )
    ).make(),
    request=4,
)


def test_the_largest_member_has_a_request_of_each_kind_and_the_one_at_fault() -> None:
    assert len(MOST.requests) == MAX_REQUESTS
    assert {request.number for request in MOST.requests} >= {0, 1, 2, 4}
    assert MOST.requests[2].placeholders == (1,)
    assert (MOST.vocab, MOST.dense, MOST.rows) == (5, True, Rows.PREFIX)
    bounds = bounds_of(experiment(specs=(r(drafts=1, drafting="greedy"),)).make())
    assert bounds.requests[0].drafting == "greedy"


@settings(max_examples=60, deadline=None)
@given(within(MOST, one_hot=True))
def test_members_are_no_larger_than_their_bounds_and_read_back_from_their_text(small) -> None:
    assert 1 <= len(small.requests) <= len(MOST.requests)
    assert 2 <= small.vocab <= MOST.vocab
    numbers = [request.number for request in small.requests]
    assert numbers == sorted(set(numbers))
    names = {"SmallCase": SmallCase, "SmallRequest": SmallRequest}
    assert eval(small.literal, names) == small
    for request in small.requests:
        assert all(slot < request.drafts for slot in request.placeholders)


@given(st.sampled_from(list(Rows)))
@settings(deadline=None)
def test_leaving_a_request_out_changes_no_row_of_another(rows) -> None:
    one, two = SmallRequest(drafts=2), SmallRequest(drafts=2, number=1)
    both = SmallCase(vocab=3, requests=(one, two), dense=True, rows=rows).case
    alone = SmallCase(vocab=3, requests=(two,), dense=True, rows=rows).case
    pairs = zip(
        (*both.requests[1].target, *both.requests[1].draft),
        (*alone.requests[0].target, *alone.requests[0].draft),
        strict=True,
    )
    assert all(torch.equal(old, new) for old, new in pairs)
    first, second = both.requests[0].target[0], both.requests[1].target[0]
    assert torch.equal(first, second) == (rows is Rows.ONE)
    inner = both.requests[0].target[1]
    assert (len(torch.unique(inner, dim=0)) > 1) == (rows is Rows.PREFIX)


def test_words_are_understood_where_enums_are_meant() -> None:
    small = SmallCase(vocab=2, requests=(SmallRequest(),), rows="prefix", seeding="same")
    assert (small.rows, small.seeding) == (Rows.PREFIX, Seeding.SAME)
    assert small.literal == (
        "SmallCase(vocab=2, requests=(SmallRequest(),), rows='prefix', seeding='same')"
    )


# --- branches -----------------------------------------------------------------------------------


def failed(branch, position, check="c", status=Status.FAIL) -> Verdict:
    return Verdict(
        suite="s", case="c", check=check, family=Family.COUPLING, status=status, reason="",
        branch=branch, position=position, request=0, p_value=1e-20,
    )  # fmt: skip


def test_the_first_fault_along_the_chain_is_the_one() -> None:
    shadow = failed(Branch.BONUS, 2)
    later = failed(Branch.ACCEPTED, 1)
    fault = failed(Branch.RECOVERED, 0, "fault")
    passed = failed(Branch.ACCEPTED, 0, status=Status.PASS)
    nowhere = failed(None, 0)
    assert first_fault([shadow, later, passed, nowhere, fault]) is fault
    assert first_fault([passed, nowhere]) is None


def test_the_branch_of_a_token() -> None:
    layout = reproduce.batch(logits=[[0.0] * 3] * 5, drafts=[[1, 2], [-1]], temperature=[1.0, 1.0])

    def at(tokens, count, request, position):
        emission = Emission(torch.tensor([tokens, tokens]), torch.tensor([count, count]))
        return branch_at(layout, emission, request, position)

    assert at([1, 0, -1], 2, 0, 0) is Branch.ACCEPTED
    assert at([1, 0, -1], 2, 0, 1) is Branch.RECOVERED
    assert at([1, 2, -1], 2, 0, 1) is Branch.ACCEPTED  # the draft itself stands there
    assert at([1, 2, 0], 3, 0, 2) is Branch.BONUS
    assert at([0, -1, -1], 1, 1, 0) is Branch.BONUS
    assert at([0, -1, -1], 1, 1, 2) is None


def test_the_decision_in_which_two_verifications_differ() -> None:
    layout = reproduce.batch(logits=[[0.0] * 3] * 5, drafts=[[1, 2], [-1]], temperature=[1.0, 1.0])

    def differ(one, two, request=0):
        emissions = [
            Emission(
                torch.tensor([[*tokens, *[-1] * (3 - len(tokens))]] * 2),
                torch.tensor([len(tokens)] * 2),
            )
            for tokens in (one, two)
        ]
        return decision_that_differs(layout, *emissions, request)

    assert differ([1, 0], [1, 0]) is None
    assert differ([1, 0], [1, 2, 0]) == (1, Branch.ACCEPTED)
    assert differ([1, 2], [1, 2, 0]) == (1, Branch.ACCEPTED)  # the draft itself was drawn
    assert differ([0], [2]) == (0, Branch.RECOVERED)
    assert differ([1, 2, 0], [1, 2, 1]) == (2, Branch.BONUS)
    assert differ([0], [2], request=1) == (0, Branch.BONUS)  # nothing was proposed
