from __future__ import annotations

import io
import json
import math
import subprocess
import sys

import pytest
from rich.console import Console
from specverify.reports.digest import digest, powered
from specverify.reports.sentences import headline, paragraph
from specverify.reports.summary import markdown
from specverify.reports.terminal import report

from specverify import environment, results
from specverify.results import CulpritRecord, Outcome, RunResults, RunStatus, VerdictRecord


def verdict(check="law/joint", status=Outcome.PASS, **fields):
    defaults = {
        "suite": "random", "case": "V4", "family": "law", "reason": "as expected", "trials": 1000,
        "alpha": 1e-8, "p_value": 0.5, "power": 0.999,
    }  # fmt: skip
    return VerdictRecord(check=check, status=status, **{**defaults, **fields})


def run_of(*verdicts, verdict=Outcome.PASS, sampler="reference", **fields):
    settings = results.RunSettings(
        sampler=results.SamplerRecord(name=sampler, version="1.0"), suites=("random",), seed=0,
        alpha=1e-6, alpha_per_test=1e-8, tests=100, power=0.999, tv=None, confidence=0.999,
        profile="quick", device="cpu", command=("specverify", "run"),
    )  # fmt: skip
    defaults = {
        "status": RunStatus.FINISHED, "started": "2026-01-01T00:00:00+00:00", "seconds": 1.5,
        "cases_planned": 1, "cases_finished": 1,
    }  # fmt: skip
    return results.RunResults(
        verdict=verdict, settings=settings, environment=environment.collect(), verdicts=verdicts,
        **{**defaults, **fields},
    )  # fmt: skip


def test_what_is_written_is_read_back_even_if_json_has_no_such_number(tmp_path):
    path = tmp_path / "results.json"
    written = run_of(verdict(value=math.inf, p_value=0.1 + 0.2), verdict("b", value=-math.inf))
    results.write(written, path)
    assert results.load(path) == written
    raw = json.loads(path.read_text(), parse_constant=pytest.fail)  # strict JSON: no Infinity
    assert next(iter(raw)) == "schema_version"
    assert raw["verdicts"][0]["value"] == "Infinity"
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


def test_not_a_number_survives_too(tmp_path):
    results.write(run_of(verdict(value=math.nan)), tmp_path / "r.json")
    assert math.isnan(results.load(tmp_path / "r.json").verdicts[0].value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "schema_version None"),
        ('{"schema_version": 2}', "schema_version 2; expected 1"),
        ('{"schema_version": 1, "status": "finished"}', "field verdict: Field required"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_words(tmp_path, text, message):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        results.load(path)


def test_every_field_of_the_schema_is_described():
    schema = results.RunResults.model_json_schema()
    models = [schema, *(m for m in schema["$defs"].values() if "properties" in m)]
    missing = [
        f"{model['title']}.{name}"
        for model in models
        for name, field in model["properties"].items()
        if not field.get("description")
    ]
    assert not missing


def test_a_failed_write_leaves_the_old_file_alone(tmp_path, monkeypatch):
    path = tmp_path / "summary.md"
    path.write_text("old")
    monkeypatch.setattr(results.os, "fdopen", lambda *_, **__: pytest.fail("disk full"))
    with pytest.raises(pytest.fail.Exception):
        results.write_text(path, "new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["summary.md"]


def test_environment_names_versions_and_leaves_out_what_is_absent(monkeypatch):
    monkeypatch.setattr(environment, "PACKAGES", ("torch", "no-such-package"))
    found = environment.collect()
    assert set(found.packages) == {"torch"}
    assert found.cpu_count >= 1


def test_digest_counts_the_trials_of_a_case_once():
    sums = digest([verdict("a"), verdict("b", trials=900), verdict("c", case="V8", trials=10)])
    assert (sums.trials, sums.checks, sums.alpha_spent) == (1010, 3, pytest.approx(3e-8))


def test_a_pass_says_what_it_was_powered_to_catch():
    run = run_of(
        verdict("a", cells=4, tv_requested=0.01, tv_detectable=0.008),
        verdict("b", cells=16, tv_requested=0.01, tv_detectable=0.01),
        verdict("c", Outcome.NOT_SUPPORTED),
    )
    assert headline(run) == (
        "PASS: 2 checks, false-alarm probability of the whole run at most 1e-06; every law was "
        "powered to catch TV 0.010 in tables of up to 16 cells with probability 0.999; 1 other "
        "check not supported by the sampler, so not verified."
    )


def test_a_pass_does_not_promise_for_large_tables_what_holds_for_small_ones():
    run = run_of(
        verdict("a", cells=16, tv_requested=0.01, tv_detectable=0.01),
        verdict("b", cells=60, tv_requested=0.02, tv_detectable=0.02),
        verdict("c", cells=80, tv_requested=0.025, tv_detectable=0.025),
    )
    reach = powered(run)
    assert (reach.tv, reach.cells, reach.beyond, reach.largest) == (0.01, 16, 0.025, 80)
    assert "TV 0.010 in tables of up to 16 cells, and TV 0.025 in larger ones" in headline(run)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"verdict": Outcome.FAIL}, "FAIL: 1 of 3 checks reject the sampler"),
        ({"verdict": Outcome.INCONCLUSIVE}, "1 of 3 checks ended before the promised power"),
        (
            {"verdict": Outcome.INCONCLUSIVE, "cases_planned": 9, "status": RunStatus.INTERRUPTED},
            "the run was interrupted, and 8 of 9 cases were not run",
        ),
        ({"verdict": Outcome.NOT_SUPPORTED}, "nothing was verified; this is not a pass"),
    ],
)
def test_the_other_verdicts_in_words(fields, said):
    checks = (verdict("a", Outcome.FAIL), verdict("b", Outcome.INCONCLUSIVE), verdict("c"))
    assert said in headline(run_of(*checks, **fields))


def test_reports_show_foreign_names_literally():
    name = "my|file:<b>[red]x[/red]`*"
    run = run_of(verdict("a", Outcome.FAIL, reason=f"{name}\n| row"), sampler=name)
    text = markdown(run)
    rows = [line for line in text.splitlines() if line.startswith("| random/")]
    assert len(rows) == 1
    assert rows[0].replace("\\|", "").count("|") == 9
    assert "<b>" not in text.replace("\\<b\\>", "")
    shown = io.StringIO()
    Console(width=200, file=shown).print(report(run))
    assert name in shown.getvalue()


def test_markdown_puts_the_verdict_first_and_the_replay_line_beside_the_check():
    run = run_of(verdict("a", Outcome.FAIL, replay="sv1.abc"), verdict("b"), verdict=Outcome.FAIL)
    lines = markdown(run).splitlines()
    assert lines[2].startswith("**FAIL**: 1 of 2 checks reject")
    assert any("law/" not in line and "`specverify replay sv1.abc`" in line for line in lines)
    assert "alpha 2e-08 spent of 1e-06" in paragraph(run)


def test_markdown_names_the_culprits_and_the_e_value_of_the_run_in_one_line():
    culprits = tuple(CulpritRecord(check=f"s/c/k|{i}", adjusted_p_value=1e-9) for i in range(12))
    run = run_of(verdict("a", Outcome.FAIL)).model_copy(
        update={"culprits": culprits, "global_log_e": math.inf}
    )
    assert RunResults.model_validate_json(run.model_dump_json()) == run
    (line,) = (line for line in markdown(run).splitlines() if "Culprits" in line)
    assert "(Holm's rule, alpha 1e-06): s/c/k\\|0, s/c/k\\|1" in line
    assert "and 2 more" in line
    assert line.endswith("All laws together: log e = inf, where ln(1 / alpha) is 13.8.")
    assert "Culprits" not in markdown(run_of(verdict("a")))


def test_results_and_reports_need_no_torch():
    code = (
        "import sys, specverify, specverify.results, specverify.environment, specverify.gate,"
        "specverify.reports.summary, specverify.reports.terminal\n"
        "print(sorted({'torch', 'hypothesis', 'pytest', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
