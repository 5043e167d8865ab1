"""What a failure says in every report: where, why, the smallest layout, and the lines to paste."""

from __future__ import annotations

import dataclasses
import io

import pytest
from report_records import Page, failure, run_of, verdict
from rich.console import Console
from specverify.reports.html import html
from specverify.reports.summary import markdown
from specverify.reports.terminal import failures

from specverify import gate
from specverify._cli_progress import case_line
from specverify._cli_run import _telling
from specverify._diagnosis import diagnosis
from specverify._messages import CaseResult
from specverify.checks.diagnosis import Branch, Cell, Shrunk, ShrunkRequest
from specverify.checks.verdict import Family, Status, Verdict
from specverify.results import Outcome, ShrunkRecord, ShrunkRequestRecord, VerdictRecord

SNIPPET = "from specverify import registry\nsampler = registry.resolve('mutant:x')\n"
SHRUNK = Shrunk(
    requests=(
        ShrunkRequest(drafts=2, placeholders=(1,), temperature=0.75, top_k=3, top_p=0.9, min_p=0.1),
        ShrunkRequest(drafts=1, tokens=(4,), temperature=0.0),
        ShrunkRequest(drafts=0),
    ),
    vocab=3, dense=True, rows="one row for all", check="law/request 1: token 0",
    reason="the law is rejected", request=1, position=0, branch=Branch.RECOVERED,
    worst=(Cell("token 2", 7, 70.0),), tried=23, trials=1358, complete=False,
)  # fmt: skip


def failed(**fields) -> VerdictRecord:
    one = Verdict(
        suite="random", case="V4", check="law/request 1: token 0", family=Family.LAW,
        status=Status.FAIL, reason="law rejected", trials=1000, alpha=1e-9, p_value=1e-30,
        request=1, position=0, branch=Branch.RECOVERED, cause="recovered tokens follow p",
        shrunk=SHRUNK, snippet=SNIPPET, replay="sv2.abc",
    )  # fmt: skip
    return gate.record(dataclasses.replace(one, **fields))


def test_the_record_holds_what_the_check_found():
    record = failed()
    assert record.place == "layer random, request 1, position 0, branch recovered"
    assert record.shrunk.branch == "recovered"
    assert record.shrunk.size == "3 requests, 3 drafts, V = 3"
    assert record.shrunk.short == "3 requests, 3 drafts, V = 3 (request 1, recovered)"
    assert record.shrunk.lines == (
        "3 requests, 3 drafts, V = 3; q shown; one row for all",
        "request 0: 2 drafts, never proposed at 1, T = 0.75, top-k 3, top-p 0.9, min-p 0.1",
        "request 1: drafts 4, greedy",
        "request 2: no drafts, T = 1",
        "law/request 1: token 0: the law is rejected",
        "the search ended because its time did; there may be a smaller one",
    )
    again = VerdictRecord.model_validate_json(record.model_dump_json())
    assert again == record


def test_a_layout_of_one_request_is_told_in_the_singular():
    found = ShrunkRecord(
        requests=(ShrunkRequestRecord(drafts=1, tokens=(-1,)),), vocab=2, dense=False,
        rows="r", check="c", reason="d",
    )  # fmt: skip
    assert found.short == "1 request, 1 draft, V = 2"
    assert found.lines[:2] == (
        "1 request, 1 draft, V = 2; one-hot drafts; r",
        "request 0: drafts placeholder, T = 1",
    )


def printed(results) -> str:
    stream = io.StringIO()
    Console(file=stream, width=60).print(failures(results), soft_wrap=True)
    return stream.getvalue()


@pytest.mark.parametrize(
    "show", [diagnosis, lambda v: printed(run_of(v)), lambda v: markdown(run_of(v))]
)
def test_every_text_shows_where_why_and_the_smallest_layout(show):
    text = show(failed()).replace("\\", "")
    assert "layer random, request 1, position 0, branch recovered" in text
    assert "request 1: drafts 4, greedy" in text
    assert "law/request 1: token 0: the law is rejected" in text


def test_the_diagnosis_ends_with_lines_to_paste():
    lines = diagnosis(failed()).splitlines()
    assert "  likely cause: recovered tokens follow p" in lines
    assert "      token 2: observed 7, expected 70.0" in lines
    assert lines[-2:] == [f"    {line}" for line in SNIPPET.splitlines()]
    told = diagnosis(failed(reason="x; likely cause: recovered tokens follow p"))
    assert told.count("recovered tokens follow p") == 1


def test_an_exact_reason_that_holds_its_layout_is_not_told_twice():
    text = diagnosis(failed(reason="wrong\nsmallest layout that shows it:\n1 request"))
    assert text.count("smallest layout") == 1
    assert "smallest" not in diagnosis(failed(shrunk=None))
    passed = verdict(request=1, position=0)
    assert "where" not in diagnosis(passed)


def test_progress_tells_the_smallest_layout():
    line = case_line(CaseResult(verdicts=(failed(),)))
    assert line.endswith("smallest layout: 3 requests, 3 drafts, V = 3 (request 1, recovered)")


def test_no_backtick_ends_the_code_of_the_summary():
    evil = failed(snippet="x = '````'\n")
    assert "`````python\nx = '````'\n`````" in markdown(run_of(evil))


def test_the_page_shows_it_too():
    page = Page(html(run_of(failed(), failure())))
    assert "Where: layer random, request 1, position 0, branch recovered" in page.text
    assert "Likely cause: recovered tokens follow p" in page.text
    assert "(of 23 tried)" in page.text
    assert "token 2: observed 7, expected 70.0" in page.text
    assert "registry.resolve('mutant:x')" in page.text
    evil = "<script>alert(1)</script>"
    assert evil not in html(run_of(failed(cause=evil, snippet=evil, reason=evil)))


def test_what_is_printed_is_one_check_a_case_and_a_first_of_every_suite():
    def one(suite, case, status=Outcome.FAIL):
        return verdict(f"law/{suite}{case}", status, suite=suite, case=case)

    bad = [one("a", "1"), one("a", "1"), one("a", "2"), one("b", "1"),
           one("c", "1", Outcome.INCONCLUSIVE)]  # fmt: skip
    assert [(v.suite, v.case) for v in _telling(bad)] == [
        ("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"),
    ]  # fmt: skip
