from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specverify import gate
from specverify.checks import experiment
from specverify.checks.verdict import Cell, Family, Status, Verdict, overall
from specverify.results import Outcome, VerdictRecord

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


def checked(check, p_value, status=Outcome.PASS, alpha=1e-3, family="law", log_e=None):
    return VerdictRecord(
        suite="s", case="c", check=check, family=family, status=status, reason="",
        p_value=p_value, alpha=alpha, log_e=log_e,
    )  # fmt: skip


def test_culprits_are_all_failures_and_what_holm_adds():
    verdicts = [
        checked("a", 1e-30, Outcome.FAIL),
        checked("b", 2.4e-4, Outcome.FAIL),  # at a share of the alpha: its bet was lost for sure
        checked("c", 2.7e-4),  # by itself not rejected, but with two rejections there is room
        checked("d", 0.5),
        checked("e", None, Outcome.INCONCLUSIVE),
        checked("f", None, Outcome.FAIL, alpha=0.0, family="exact"),
    ]
    found = gate.culprits(verdicts, 1e-2, 10)
    assert [culprit.check for culprit in found] == ["s/c/a", "s/c/b", "s/c/c"]
    assert found[0].adjusted_p_value == pytest.approx(10 * 4e-30)
    assert found[1].adjusted_p_value == pytest.approx(9 * 4 * 2.4e-4)
    assert found[2].adjusted_p_value == pytest.approx(8 * 4 * 2.7e-4)
    assert all(culprit.adjusted_p_value <= 1e-2 for culprit in found)
    assert gate.culprits(verdicts[2:], 1e-2, 10) == ()
    assert gate.culprits([], 1e-2, 0) == ()


def test_every_failure_is_a_culprit_however_its_share_was_spent():
    """A p-value near the whole share failed at the share, and so has p <= share in Holm's terms."""
    verdicts = [
        checked("a", 9e-4, Outcome.FAIL),
        checked("b", 9e-4, Outcome.FAIL, family=Family.LAW),
    ]
    pairs = checked("p", 1e-6, Outcome.FAIL, family="independence")
    found = gate.culprits([*verdicts, pairs], 1e-2, 10)
    assert [culprit.check for culprit in found] == ["s/c/p", "s/c/a", "s/c/b"]
    # Looks at pairs share their alpha: as many as there can be are paid for.
    assert found[0].adjusted_p_value == pytest.approx(10 * 4 * 32 * 1e-6)


def test_the_e_value_of_a_run_is_the_mean_of_its_checks():
    assert gate.global_log_e([checked("a", 0.5)]) is None
    found = gate.global_log_e([checked("a", 0.5, log_e=math.log(4)), checked("b", 0.5, log_e=0.0)])
    assert found == pytest.approx(math.log(2.5))
    assert gate.global_log_e([checked("a", 0.0, log_e=math.inf), checked("b", 0.5)]) == math.inf
