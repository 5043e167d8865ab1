"""The HTML report: what it says, that it needs nothing else, and what a person sees of it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import browser
import numpy as np
import pytest
from report_records import Page, exam_of, failure, looking, mark, row, run_of, verdict
from specverify.reports.html import html
from typer.testing import CliRunner

from specverify import gate, results
from specverify.checks.verdict import Family, Look, Status, Verdict
from specverify.cli import app
from specverify.results import CellRecord, LookRecord, Outcome

ROOT = Path(__file__).parents[1]
EVIL = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\"'&"


def test_the_verdict_comes_first_in_words():
    page = Page(html(run_of(verdict(), failure())))
    assert "FAIL 1 of 2 checks reject the sampler" in page.text
    assert "The emitted tokens do not have the distribution of the target." in page.text
    assert "mutant:x" in page.text[: page.text.index("Look here first")]


def test_the_key_facts_are_there():
    text = Page(html(run_of(failure(), capabilities={"dense": True, "dtypes": ["a", "b"]}))).text
    for fact in (
        "alpha 1e-6 1e-8 for each of 100 tests", "seed 7 profile quick", "specverify 0.1.0",
        "power 0.999", "2026-01-02 03:04", "torch 2.13.0", "CPython 3.11.7", "dense yes",
        "dtypes a, b", "specverify run --sampler mutant:x",
    ):  # fmt: skip
        assert fact in text


def test_a_check_shows_observed_against_expected_and_its_replay_token():
    text = Page(html(run_of(failure()))).text
    assert "token 4 104 0.0 impossible under the law" in text
    assert "token 2 300 200.0 +50%, 7.9 s.d." in text  # 100 / sqrt(200 * 0.8)
    assert "specverify replay sv1.abc-DEF_1" in text
    assert "observed 0.3 true at most 0.04 (confidence 0.999) detectable 0.05" in text
    assert "p-value 1e-40 share of alpha 1e-8" in text


def test_a_check_without_numbers_shows_its_reason_and_nothing_to_open():
    exact = verdict(
        "exact/greedy", family="exact", reason="40 layouts, no violation", p_value=None, alpha=0,
        tv_observed=None, tv_certified=None, tv_detectable=None, tv_requested=None,
    )  # fmt: skip
    page = Page(html(run_of(exact, outcome=Outcome.PASS)))
    assert "40 layouts, no violation" in page.text
    assert not [a for a in page.all("details") if a["class"].startswith("check")]


def test_the_page_needs_no_script_and_no_network():
    text = html(run_of(failure(), verdict()), exam_of(row("mutant:a", random=mark(5))))
    page = Page(text)
    assert not page.all("script")
    assert not page.all("link")
    assert not re.search(r"https?:|url\(|@import", text)
    links = [a["href"] for _, a in page.elements if "href" in a]
    targets = {a["id"] for _, a in page.elements if "id" in a}
    assert {href.removeprefix("#") for href in links} <= targets
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def poisoned():
    """A run and an exam in which every text of the user's is an attack."""
    bad = failure(
        EVIL, suite=EVIL, case=EVIL, family=EVIL, reason=EVIL, statistic=EVIL, replay=EVIL,
        worst=(CellRecord(label=EVIL, observed=1, expected=2.0),),
    )  # fmt: skip
    plain = verdict(EVIL, Outcome.NOT_SUPPORTED, reason=EVIL, tv_observed=None, p_value=None)
    run = run_of(
        bad, plain, sampler=EVIL, capabilities={EVIL: EVIL, "list": [EVIL], "map": {EVIL: EVIL}},
        errors=(results.ErrorRecord(where=EVIL, message=EVIL, detail=EVIL),),
    )  # fmt: skip
    environment = run.environment.model_copy(update={"packages": {EVIL: EVIL}, "platform": EVIL})
    settings = run.settings.model_copy(
        update={"cases_file": results.CasesRecord(path=EVIL, digest=EVIL), "device": EVIL}
    )
    exam = exam_of(row(EVIL, right=False, random=mark(5).model_copy(update={"check": EVIL})))
    update = {"environment": environment, "settings": settings, "started": EVIL}
    return run.model_copy(update=update), exam.model_copy(update={"suites": ["random", EVIL]})


def test_names_from_the_users_code_are_text_and_never_markup():
    text = html(*poisoned())
    page = Page(text)
    assert "<script" not in text
    assert "<img" not in text
    assert not [name for _, a in page.elements for name in a if name.startswith("on")]
    assert page.text.count("<script>document.title='owned'</script>") >= 20
    assert page.all("td", title=EVIL)  # an attribute that a quote did not end


def test_no_template_switches_escaping_off():
    for path in (ROOT / "reports" / "templates").iterdir():
        text = path.read_text("utf-8")
        assert not re.search(r"\|\s*safe|autoescape|Markup", text), path.name


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_a_filter_and_colours(outcome):
    page = Page(html(run_of(verdict(status=outcome), outcome=Outcome.INCONCLUSIVE)))
    assert page.all("input", id=f"show-{outcome.value}")
    assert page.all("label", **{"for": f"show-{outcome.value}"})
    css = (ROOT / "reports" / "templates" / "report.css").read_text("utf-8")
    assert f"#show-{outcome.value}:checked ~ details .check:not(.{outcome.value})" in css
    assert css.count(f"--{outcome.value}:") == 3  # light, dark, print


def test_filters_are_given_for_outcomes_that_occur_only():
    page = Page(html(run_of(verdict(), failure())))
    assert [a["id"] for a in page.all("input")] == ["show-all", "show-pass", "show-fail"]


def test_the_first_failure_is_open_and_the_others_are_closed():
    page = Page(html(run_of(failure("law/joint", case="a"), failure("law/token", case="b"))))
    opened = ["open" in a for a in page.all("details", **{"class": "check fail"})]
    assert opened == [True, False]


def test_a_suite_that_passed_is_closed_and_one_that_did_not_is_open():
    page = Page(html(run_of(verdict(suite="good"), failure(suite="poor"))))
    good, poor = (a for a in page.all("details") if a["class"].startswith("suite"))
    assert "open" not in good
    assert "open" in poor


def test_looks_go_from_a_verdict_to_the_file_and_back(tmp_path):
    look = Look(trials=1000, log_e=math.inf, rejects_at=19.1, tv_observed=0.1)
    found = gate.record(Verdict(
        suite="random", case="V4", check="law/joint", family=Family.LAW, status=Status.FAIL,
        reason="no", looks=(look,),
    ))  # fmt: skip
    results.write(run_of(found), tmp_path / "r.json")
    (read,) = results.load(tmp_path / "r.json").verdicts
    assert read.looks == (
        LookRecord(trials=1000, log_e=math.inf, rejects_at=19.1, tv_observed=0.1),
    )


def test_a_file_from_before_there_were_looks_is_read(tmp_path):
    path = tmp_path / "r.json"
    results.write(run_of(verdict()), path)
    data = json.loads(path.read_text())
    del data["verdicts"][0]["looks"]
    path.write_text(json.dumps(data))
    assert results.load(path).verdicts[0].looks == ()


def test_the_exam_is_shown_with_those_it_got_wrong():
    exam = exam_of(
        row("mutant:a", random=mark(412)),
        row("mutant:b", right=False, random=mark(9, caught=False)),
        row("innocent", "correct", right=False, random=mark(7)),
    )
    text = Page(html(run_of(verdict()), exam)).text
    assert "1 survived: mutant:b; falsely accused: innocent" in text
    assert "a . 412 what mutant:a does textbook" in text
    assert "b SURVIVED" in text
    assert "innocent ACCUSED" in text


def test_the_same_results_give_the_same_bytes():
    run = run_of(looking(), verdict())
    assert html(run) == html(run)


def report(*args):
    return CliRunner().invoke(app, ["report", *map(str, args)])


def test_the_command_writes_one_file(tmp_path):
    results.write(run_of(failure()), tmp_path / "results.json")
    exam = tmp_path / "exam.json"
    exam.write_text(exam_of(row("mutant:a", random=mark(412))).model_dump_json())
    out = tmp_path / "new folder" / "report.html"
    done = report(tmp_path / "results.json", "--html", out, "--exam", exam)
    assert done.exit_code == 0  # reading worked; the verdict is not asked for again
    assert "Report written to" in done.output
    assert "Exam of the harness" in Page(out.read_text("utf-8")).text
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


def test_without_a_file_to_write_the_command_prints_the_tables(tmp_path):
    results.write(run_of(failure()), tmp_path / "results.json")
    done = report(tmp_path / "results.json")
    assert done.exit_code == 0
    assert "1 of 1 check reject" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("none.json", "--html", "x.html"), "results: got 'none.json', which cannot be read"),
        (("bad.json", "--html", "x.html"), "not valid JSON"),
        (("good.json", "--html", "."), "html: got '.', which is a folder"),
        (("good.json", "--html", "good.json/x.html"), "html: got 'good.json', which cannot be"),
        (("good.json", "--html", "x.html", "--exam", "none.json"), "exam: got 'none.json'"),
        (("good.json", "--html", "x.html", "--exam", "bad.json"), "not the results of an exam"),
        (("good.json", "--exam", "bad.json"), "name one with --html"),
    ],
)
def test_bad_input_is_refused_in_words(tmp_path, monkeypatch, args, said):
    monkeypatch.chdir(tmp_path)
    results.write(run_of(failure()), tmp_path / "good.json")
    (tmp_path / "bad.json").write_text("{")
    done = report(*args)
    assert (done.exit_code, said in done.output) == (2, True), done.output
    assert not (tmp_path / "x.html").exists()


SAMPLE = ROOT / "docs" / "sample-report.html"


@pytest.mark.skipif(not SAMPLE.exists(), reason="the documentation is not beside these tests")
def test_the_sample_is_small_whole_and_names_no_machine():
    text = SAMPLE.read_text("utf-8")
    assert len(text.encode()) < 300_000
    said = Page(text).text
    assert "specverify run" in said
    assert not re.search(r"(?<![\w.])/(tmp|home|root|work|usr|Users)\b", said)


seen = pytest.mark.skipif(browser.find() is None, reason="no Chromium or Chrome is installed")
GREEN, RED = (0x19, 0x70, 0x3A), (0xC0, 0x1F, 0x2E)


def amount(picture, colour):
    return int((picture == np.array(colour, np.uint8)).all(axis=2).sum())


@seen
def test_a_person_sees_light_and_dark(tmp_path):
    page = tmp_path / "report.html"
    page.write_text(html(run_of(failure(), verdict())), encoding="utf-8")
    light = browser.screenshot(page, tmp_path)
    dark = browser.screenshot(page, tmp_path, dark=True)
    assert tuple(light[0, 0]) == (255, 255, 255)
    assert tuple(dark[0, 0]) == (0x10, 0x14, 0x1A)
    assert amount(light, RED) > 500  # the verdict and its badges
    assert amount(dark, (0xFF, 0x70, 0x78)) > 500


@seen
def test_a_person_filters_the_checks_by_status(tmp_path):
    suites = [verdict(f"law/{i}") for i in range(5)] + [failure("law/x")]
    text = html(run_of(*suites))
    bare = re.sub(r'<section id="(first|environment|reading)">.*?</section>', "", text, flags=re.S)
    page, size = tmp_path / "report.html", (900, 1200)
    page.write_text(bare, encoding="utf-8")
    both = browser.screenshot(page, tmp_path, size=size)
    chosen = bare.replace('id="show-all" checked', 'id="show-all"')
    page.write_text(chosen.replace('id="show-fail"', 'id="show-fail" checked'), encoding="utf-8")
    failed = browser.screenshot(page, tmp_path, size=size)
    # Five green badges go; the bar and the counts above stay, and so does the red badge.
    assert amount(failed, GREEN) < amount(both, GREEN) - 5 * 200
    assert amount(failed, RED) == pytest.approx(amount(both, RED), rel=0.1)


@seen
def test_an_attack_in_a_name_is_read_and_not_run(tmp_path):
    page = tmp_path / "report.html"
    page.write_text(html(*poisoned()), encoding="utf-8")
    found = browser.dom(page, tmp_path)
    title = re.search(r"<title>(.*?)</title>", found, re.S)
    assert title is not None
    assert title[1].startswith("FAIL: &lt;script&gt;")
    assert "<script" not in found
    assert "<img" not in found
