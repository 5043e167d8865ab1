"""What the HTML report computes before it is written: orders, sentences, places in drawings."""

from __future__ import annotations

import math

import pytest
from report_records import Page, exam_of, failure, looking, mark, row, run_of, verdict
from specverify.reports import numbers
from specverify.reports.acceptance import acceptance
from specverify.reports.axes import Axis
from specverify.reports.cells import change
from specverify.reports.checks import by_suite, look_first
from specverify.reports.heat import heat
from specverify.reports.html import html
from specverify.reports.looks import e_plot, rejects_at, tv_plot
from specverify.reports.meaning import meaning
from specverify.reports.strips import p_strip, tv_strip

from specverify.results import CellRecord, LookRecord, Outcome


def test_the_first_to_look_at_is_the_plainest_failure_of_each_case():
    checks = [
        failure("law/joint", case="a", cells=64), failure("law/token", case="a", cells=4),
        failure("exact/layout", case="b", family="exact"), verdict(case="c"),
        verdict(case="d", status=Outcome.INCONCLUSIVE), failure("law/token", case="e", cells=2),
        failure("law/joint", case="e", cells=64, cause="a wrong row"),
    ]  # fmt: skip
    found = look_first(by_suite(checks))
    assert [check.verdict.name for check in found] == [
        "random/b/exact/layout", "random/e/law/joint", "random/a/law/token", "random/d/law/joint",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("families", "said"),
    [
        (
            {"coupling"},
            "declares is broken; every check of the emitted law passed (1)",
        ),
        ({"independence"}, "share randomness"),
        ({"law", "coupling"}, "do not have the distribution of the target"),
        ({"exact"}, "every single emission"),
        ({"exact", "coupling"}, "begin with the exact ones"),
    ],
)
def test_a_failure_is_explained_by_its_families(families, said):
    bad = [failure(str(name), family=name) for name in families]
    assert said in meaning(run_of(verdict(), *bad))


def test_drafts_that_do_not_follow_their_q_say_nothing_of_the_emitted_law():
    drafts = failure("law/request 0: draft 1 after each prefix", suite="drafting")
    assert "The drafts do not have" in meaning(run_of(drafts, verdict()))
    assert "The emitted tokens do not have" in meaning(run_of(drafts, failure()))
    passed = verdict("law/request 0: draft 0", suite="drafting")
    assert "no check of the emitted law" in meaning(run_of(passed, failure(family="coupling")))


def test_a_broken_rule_does_not_claim_a_law_that_nobody_checked():
    assert "no check of the emitted law was completed" in meaning(
        run_of(failure(family="coupling"), verdict(status=Outcome.INCONCLUSIVE))
    )


def test_the_strip_of_total_variation_has_one_scale():
    strip = tv_strip(verdict(tv_observed=0.01, tv_certified=0.04, tv_requested=0.02))
    unit = strip.observed - strip.zero
    assert strip.certified - strip.zero == pytest.approx(4 * unit, abs=2)
    assert strip.requested - strip.zero == pytest.approx(2 * unit, abs=2)
    assert tv_strip(verdict(tv_observed=None)) is None


def test_a_p_value_of_alpha_stands_at_alpha_and_smaller_ones_to_the_right():
    at, right, far = (p_strip(verdict(p_value=p)) for p in (1e-8, 1e-12, 0.0))
    assert at.p_value == at.axis.alpha
    assert right.p_value > right.axis.alpha
    assert not right.beyond
    assert far.beyond
    assert p_strip(verdict(p_value=None)) is None


def test_total_variation_is_drawn_against_trials_with_its_band_and_thresholds():
    plot = tv_plot(looking(tv_detectable=0.05, tv_requested=0.02))
    first, middle, last = plot.points
    assert middle[0] == pytest.approx((first[0] + last[0]) / 2, abs=1)  # decades of trials
    assert first[1] == last[1]
    assert [y < first[1] for _, y in plot.band] == [True] * 3 + [False] * 3
    lines = {line.kind: line.at for line in plot.lines}
    assert lines["detectable"] == first[1]
    assert lines["requested"] > first[1]  # lower in the drawing


def test_the_e_process_is_drawn_against_the_level_that_rejects():
    plot = e_plot(looking())
    (line,) = plot.lines
    assert [y < line.at for _, y in plot.points] == [False, False, True]
    text = Page(html(run_of(looking()))).text
    assert "Total variation against trials" in text
    assert "it rejects at 20" in text


def test_without_a_level_of_its_own_a_look_rejects_at_the_share_of_alpha():
    looks = LookRecord(trials=10, log_e=1.0), LookRecord(trials=20, log_e=math.inf)
    found = failure(looks=looks, alpha=1e-8)
    assert rejects_at(found) == pytest.approx(-math.log(1e-8))
    assert e_plot(found).points[-1][1] < e_plot(found).lines[0].at  # infinity is at the top
    assert tv_plot(found) is None


def test_one_look_is_no_curve():
    found = looking()
    once = found.model_copy(update={"looks": found.looks[:1]})
    assert tv_plot(once) is e_plot(once) is None


def rate(j, observed, cells=(), **fields):
    return verdict(
        f"coupling/request 0: acceptance rate of draft {j}", family="coupling", request=0,
        position=j, statistic="binomial", value=observed, worst=cells, **fields,
    )  # fmt: skip


def test_acceptance_adds_up_to_the_emitted_length():
    cells = (
        CellRecord(label="passed 0", observed=400, expected=300.0),
        CellRecord(label="passed 1", observed=600, expected=700.0),
    )
    (found,) = acceptance([rate(1, 0.25), rate(0, 0.9, cells, status=Outcome.FAIL), verdict()])
    assert [(r.position, r.observed, r.expected) for r in found.rates] == [
        (0, 0.6, 0.7), (1, 0.25, None),
    ]  # fmt: skip
    assert found.drafts == pytest.approx(0.85)
    assert found.failed
    assert found.expected_drafts is None
    text = Page(html(run_of(rate(0, 0.6), rate(1, 0.25)))).text
    assert "emitted 1.850" in text


def test_a_rate_that_is_missing_makes_no_length():
    stopped = rate(1, None, status=Outcome.INCONCLUSIVE).model_copy(update={"statistic": None})
    (found,) = acceptance([rate(0, 0.6), stopped])
    assert (len(found.rates), found.drafts, found.expected_drafts) == (1, None, None)
    text = Page(html(run_of(rate(0, 0.6), stopped))).text
    assert "not every position is known" in text
    assert "emitted 1" not in text


def test_a_complete_table_of_lengths_gives_the_expected_length():
    lengths = tuple(
        CellRecord(label=f"accepted {k}", observed=n, expected=e)
        for k, n, e in ((0, 500, 400.0), (1, 300, 300.0), (2, 200, 300.0))
    )
    whole = verdict("coupling/request 0: accepted length", family="coupling", request=0)
    table = whole.model_copy(update={"worst": lengths})
    assert acceptance([rate(0, 0.5), table])[0].expected_drafts == pytest.approx(0.9)
    part = whole.model_copy(update={"worst": lengths[:2]})
    assert acceptance([rate(0, 0.5), part])[0].expected_drafts is None


def test_the_matrix_is_the_stronger_the_sooner_a_mutant_was_caught():
    found = heat(exam_of(
        row("reference", "correct", greedy=mark(900, caught=False, complete=True)),
        row("innocent", "correct", right=False, greedy=mark(900)),
        row("mutant:fast", greedy=mark(0), random=mark(100)),
        row("mutant:slow", greedy=mark(8000, caught=False), random=mark(200_000)),
    ))  # fmt: skip
    kinds = [[cell.kind for cell in line.cells] for line in found.rows]
    assert kinds == [["ok", "none"], ["accused", "none"], ["h5", "h5"], ["short", "h1"]]
    assert [line.name for line in found.rows][2:] == ["fast", "slow"]


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "\N{EN DASH}"), (0.0123456, "0.0123"), (1e-9, "1e-9"), (3e20, "3e20"), (0.0, "0")],
)
def test_numbers_are_short(value, said):
    assert numbers.number(value) == said


def test_a_p_value_that_no_float_can_hold_is_not_called_zero():
    assert numbers.p_value(0.0) == "< 1e-300"
    assert numbers.p_value(1e-9) == "1e-9"


@pytest.mark.parametrize("high", [1e-4, 0.037, 0.5, 1.0, 7.3, 480.0])
@pytest.mark.parametrize("log", [False, True])
def test_an_axis_has_a_few_ticks_inside_it(high, log):
    axis = Axis(high / 50 if log else 0.0, high, 10, 550, log=log)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 6
    places = [tick.at for tick in ticks]
    assert places == sorted(places)
    assert 10 <= places[0] < places[-1] <= 550
    assert len({tick.label for tick in ticks}) == len(ticks)


def test_the_deviation_of_a_cell_is_told_in_words():
    assert change(CellRecord(label="", observed=0, expected=0.0), 10) == "never, as the law says"
    assert change(CellRecord(label="", observed=10, expected=10.0), 10) == "+0%"
