from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specverify import gate
from specverify.checks import experiment
from specverify.checks.verdict import Cell, Family, Status, Verdict, overall
from specverify.results import Outcome

outcomes = st.lists(st.sampled_from(Outcome), max_size=6)


@given(st.floats(1e-12, 0.5), st.integers(1, 10_000))
def test_the_shares_never_add_up_to_more_than_alpha(alpha, tests):
    share = gate.split(alpha, tests)
    assert math.fsum([share] * tests) <= alpha * (1 + 1e-12)
    assert share > 0


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1e-9, math.nan, 2.0])
def test_alpha_outside_of_its_range_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha: got"):
        gate.split(alpha, 3)


def test_a_negative_count_is_refused_and_none_is_allowed():
    with pytest.raises(ValueError, match="tests: got -1"):
        gate.split(0.1, -1)
    assert gate.split(0.1, 0) == 0.1


@given(outcomes, st.booleans())
def test_a_pass_means_that_something_passed_and_nothing_is_open(seen, complete):
    verdict = gate.overall(seen, complete=complete)
    allowed = {Outcome.PASS, Outcome.NOT_SUPPORTED}
    passes = complete and Outcome.PASS in seen and set(seen) <= allowed
    assert (verdict is Outcome.PASS) == passes
    assert (verdict is Outcome.FAIL) == (Outcome.FAIL in seen)
    assert (gate.exit_code(verdict) == 0) == passes


@given(st.lists(st.sampled_from(Status), max_size=6))
def test_a_finished_run_agrees_with_the_rule_of_the_checks(statuses):
    assert gate.overall(Outcome(s.value) for s in statuses) == overall(statuses).value


def test_exit_codes():
    assert [int(gate.exit_code(outcome)) for outcome in Outcome] == [0, 1, 3, 3, 3]
    assert gate.overall([]) is Outcome.NOT_SUPPORTED


def test_the_record_mirrors_every_field_of_a_verdict():
    verdict = Verdict(
        suite="s", case="c", check="k", family=Family.LAW, status=Status.FAIL, reason="r",
        trials=7, statistic="x", value=math.inf, p_value=0.0, alpha=1e-9, power=0.9, cells=3,
        tv_requested=0.1, tv_detectable=0.2, tv_observed=0.3, tv_certified=0.4, confidence=0.5,
        request=1, position=2, worst=(Cell("a", 1, 2.0),), seconds=3.0, replay="t",
    )  # fmt: skip
    record = gate.record(verdict)
    for field in dataclasses.fields(Verdict):
        if field.name != "worst":
            assert getattr(record, field.name) == getattr(verdict, field.name), field.name
    assert record.worst[0].model_dump() == {"label": "a", "observed": 1, "expected": 2.0}


def test_spending_more_than_planned_is_noticed_and_rounding_is_not():
    def spent(alpha):
        return gate.record(
            Verdict(suite="s", case="c", check="k", family=Family.LAW, status=Status.PASS,
                    reason="r", alpha=alpha)
        )  # fmt: skip

    assert gate.overspent([spent(0.1)] * 3, 0.3) is None
    assert gate.overspent([spent(0.1)] * 4, 0.3) == pytest.approx(0.4)


def test_profile_names_known_without_torch_are_those_of_the_experiments():
    from specverify._options import PROFILE_NAMES

    assert tuple(experiment.PROFILES) == PROFILE_NAMES
