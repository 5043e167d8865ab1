from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specverify import _cli_replay, _cli_run, results
from specverify._cli_progress import BarWatcher
from specverify._messages import CaseResult
from specverify._options import CASES_VARIABLE
from specverify.cli import app
from specverify.results import Outcome, VerdictRecord

SUITE_FILE = """
import pytest
from fake_suite import suite

SUITE = suite({name!r}, *{kinds!r}.split())

@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_fake(experiment, verify):
    verify(experiment)
"""
SAMPLER = ("--sampler", "fake_suite:my_sampler")


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Invoke the command in an empty folder, with suites of fakes instead of the real ones."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    declared = {}

    def declare(**suites):
        import fake_suite

        folder = tmp_path / "installed"
        folder.mkdir(exist_ok=True)
        for name, kinds in suites.items():
            declared[name] = fake_suite.suite(name, *kinds.split())
            text = SUITE_FILE.format(name=name, kinds=kinds)
            (folder / f"test_{name}.py").write_text(text)

    def invoke(*args, **suites):
        declare(**suites)
        # The nested pytest must read the files anew, as a fresh process would.
        for name in declared:
            sys.modules.pop(f"test_{name}", None)
        return CliRunner().invoke(app, [str(arg) for arg in args])

    monkeypatch.setattr(_cli_run, "load_suites", lambda: declared)
    monkeypatch.setattr(_cli_replay, "load_suites", lambda: declared)
    monkeypatch.setattr(
        _cli_run, "suite_file", lambda name: tmp_path / "installed" / f"test_{name}.py"
    )
    declare(fake="pass")
    return invoke


@pytest.mark.parametrize(
    ("kinds", "code", "verdict"),
    [
        ("pass pass*2", 0, "PASS"),
        ("pass fail inconclusive", 1, "FAIL"),
        ("pass inconclusive", 3, "INCONCLUSIVE"),
        ("unsupported", 3, "NOT SUPPORTED"),
        ("pass raise", 3, "INCONCLUSIVE"),
        ("pass interrupt pass", 3, "INCONCLUSIVE"),
    ],
)
def test_run_ends_with_the_exit_code_of_its_verdict(command, kinds, code, verdict):
    done = command("run", *SAMPLER, fake=kinds)
    assert done.exit_code == code
    assert f"\n{verdict}: " in done.stdout
    found = results.load("specverify-out/results.json")
    assert found.verdict.word == verdict
    assert {file.name for file in Path("specverify-out").iterdir()} == {
        "results.json",
        "summary.md",
        "junit.xml",
    }


def test_run_says_case_by_case_how_it_goes(command):
    done = command("run", *SAMPLER, fake="pass fail*2")
    assert "[1/2] PASS fake/0-pass: 1 check, 1,000 trials\n" in done.stderr
    assert "[2/2] FAIL fake/1-fail: 2 checks, 1,000 trials, law/check 0: it was" in done.stderr


def test_run_takes_options_suites_and_records_its_command(command, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["specverify", "run", "one", "--seed", "5"])
    done = command(
        "run", "one", *SAMPLER, "--seed", 5, "--alpha", "1e-3", "--power", 0.9, "--tv", 0.2,
        "--profile", "gate", "--out", "here/there", one="pass*4", two="fail",
    )  # fmt: skip
    assert done.exit_code == 0
    settings = results.load("here/there/results.json").settings
    assert (settings.suites, settings.seed, settings.alpha_per_test) == (("one",), 5, 2.5e-4)
    assert (settings.power, settings.tv, settings.profile) == (0.9, 0.2, "gate")
    assert settings.command == ("specverify", "run", "one", "--seed", "5")
    assert settings.sampler.capabilities["greedy"] is False


def test_nothing_of_the_users_pytest_interferes(command, tmp_path, monkeypatch):
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (tmp_path / "conftest.py").write_text("raise RuntimeError('conftest of the user')")
    (tmp_path / "installed" / "conftest.py").write_text("raise RuntimeError('another one')")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing --no-such-option")
    monkeypatch.setenv("PYTEST_PLUGINS", "no_such_plugin")
    done = command("run", *SAMPLER)
    assert done.exit_code == 0, done.output
    assert os.environ["PYTEST_ADDOPTS"] == "-k nothing --no-such-option"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run", "--sampler", "nope"], "no sampler of that name"),
        (["run", "--sampler", "nowhere:x"], "there is no module 'nowhere'"),
        (["run", "fke", *SAMPLER], "got 'fke'; expected one of fake; did you mean fake?"),
        (["run", *SAMPLER, "--alpha", "0"], "alpha: got 0.0; expected a number strictly between"),
        (["run", *SAMPLER, "--tv", "1"], "tv: got 1.0"),
        (["run", *SAMPLER, "--power", "-1"], "power: got -1.0"),
        (["run", *SAMPLER, "--seed", "-1"], "seed: got -1"),
        (["run", *SAMPLER, "--profile", "fast"], "profile: got 'fast'; expected one of quick"),
        (["run", *SAMPLER, "--device", "meta"], "device: got 'meta'"),
        (["run", *SAMPLER, "--device", "tpu?"], "expected a torch device"),
        (["run", *SAMPLER, "-n", "many"], "workers: got 'many'"),
        (["run", *SAMPLER, "--out", "installed/test_fake.py/x"], "which cannot be written"),
        (["run", *SAMPLER, "--cases", "nowhere"], "cases: got 'nowhere'; expected a file"),
        (["run", *SAMPLER, "--ledger", "nowhere/x"], "its folder does not exist"),
        (["run", *SAMPLER, "--ledger", "installed"], "it is not a regular file"),
        (["run", *SAMPLER, "--ledger", "installed/test_fake.py"], "it is not a ledger"),
        (["ledger", "show", "nowhere"], "there is no such file"),
        (["ledger", "show", "installed/test_fake.py"], "it is not a ledger"),
        (["ledger", "verify", "nowhere"], "there is no such file"),
        (["ledger", "export", "nowhere", "x.csv"], "there is no such file"),
        (["accuracy", "--a", "0.79"], "accuracy: got too little; expected --a, --b and --n"),
        (["accuracy", "--a", "79", "--b", "0.7", "--n", "9"], "--a: got 79.0"),
        (["replay", "sv2.abc"], "is damaged"),
        (["replay", "abc"], "starts with 'sv2.'"),
        (["power", "--cells", "1"], "cells: got 1"),
        (["power", "--alpha", "2"], "alpha: got 2"),
        (["list", "checks", "--sampler", "nope"], "no sampler of that name"),
    ],
)
def test_bad_input_is_one_clear_sentence(command, args, said):
    done = command(*args)
    assert done.exit_code == 2
    assert done.stderr.startswith("specverify: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(Path().glob("specverify-out/*"))


def test_debug_shows_the_traceback(command):
    done = command("run", "--sampler", "nope", "--debug")
    assert done.exit_code == 2
    assert "Traceback" in done.stderr


def test_an_error_of_specverify_itself_is_inconclusive(command, monkeypatch):
    monkeypatch.setattr(_cli_run, "worker_count", lambda _: 1 / 0)
    done = command("run", *SAMPLER)
    assert done.exit_code == 3
    assert "an error of specverify itself, ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_suite_that_does_not_import_is_shown_and_no_pass(command, tmp_path):
    (tmp_path / "installed" / "test_fake.py").write_text("import no_such_module")
    done = command("run", *SAMPLER)  # the fixture has declared the suite before
    assert done.exit_code in (2, 3)
    assert "no_such_module" in done.stderr


def test_replay_prints_the_same_verdict_and_exit_code(command):
    command("run", *SAMPLER, fake="pass fail*2 inconclusive")
    bad = [v for v in results.load("specverify-out/results.json").verdicts if v.replay]
    assert [v.status.value for v in bad] == ["fail", "fail", "inconclusive"]
    for verdict, code in zip(bad[1:], (1, 3), strict=True):
        done = command("replay", verdict.replay)
        assert done.exit_code == code
        assert f"{verdict.status.word} {verdict.name}" in done.stdout
        assert f"p = {verdict.p_value:.3g}" in done.stdout
        assert "Reproduced: the same verdict" in done.stdout


def test_replay_says_so_when_it_comes_out_differently(command):
    command("run", *SAMPLER, fake="fail")
    (bad,) = results.load("specverify-out/results.json").verdicts
    import dataclasses

    import fake_suite

    repaired = dataclasses.replace(fake_suite.suite("fake", "fail").experiments[0], kind="pass")
    _cli_replay.load_suites()["fake"] = dataclasses.replace(
        fake_suite.suite("fake", "fail"), experiments=(repaired,)
    )
    done = CliRunner().invoke(app, ["replay", bad.replay])
    assert done.exit_code == 0
    assert "Not reproduced" in done.stdout


def test_recorded_cases_run_their_suite_alone_and_reach_it_by_name(command, tmp_path):
    rows = tmp_path / "rows.safetensors"
    rows.write_bytes(b"rows")
    done = command("run", *SAMPLER, "--cases", rows, recorded="fail", fake="pass")
    assert done.exit_code == 1
    found = results.load("specverify-out/results.json")
    assert found.settings.suites == ("recorded",)
    assert found.settings.cases_file.path == str(rows)
    assert CASES_VARIABLE not in os.environ
    assert command("replay", found.verdicts[0].replay).exit_code == 1
    rows.write_bytes(b"other rows")
    done = command("replay", found.verdicts[0].replay)
    assert done.exit_code == 2
    assert "not the file" in done.stderr


def test_recorded_cases_are_left_out_without_a_file(command):
    assert command("run", *SAMPLER, recorded="fail", fake="pass").exit_code == 0
    done = command("run", "recorded", *SAMPLER)
    assert done.exit_code == 2
    assert "give a file with --cases" in done.stderr


def test_power_prints_what_the_evidence_computes(command):
    from specverify import evidence

    done = command("power", "--cells", 64, "--tv", 0.01, "--trials", 1000)
    assert done.exit_code == 0
    assert f"{evidence.trials_needed(64, 0.01, 1e-9, 0.999):,} trials" in done.stdout
    assert f"{evidence.detectable_tv(64, 1000, 1e-9, 0.999):.5f}" in done.stdout


def test_lists_and_doctor_name_what_there_is(command):
    assert "reference" in command("list", "samplers").stdout
    assert "mutant:recover-from-target" in command("list", "mutants").stdout
    assert "temperature 0" in command("list", "suites").stdout
    checks = command("list", "checks")
    assert checks.exit_code == 0
    assert "dense-V4-K2" in checks.stdout
    doctor = command("doctor").stdout
    assert "torch" in doctor
    assert "flashspec" in doctor


def test_a_ledger_is_shown_verified_and_exported(command, tmp_path):
    from ledger_cases import fill

    path = tmp_path / "nights.ledger"
    fill(path)
    shown = command("ledger", "show", path, "--case", "random/dense-V4-K2")
    assert shown.exit_code == 0, shown.output
    assert "reference 1.0 on cpu" in shown.stdout
    assert "0: 0-1999" in shown.stdout
    assert "confidence 0.999, however often one looks" in shown.stdout
    assert (
        "no account of subject 'nope'"
        in command("ledger", "show", path, "--sampler", "nope").stderr
    )
    found = command("ledger", "verify", path)
    assert (found.exit_code, "exact" in found.stdout) == (0, True)
    assert command("ledger", "export", path, "cells.csv", "--what", "cells").exit_code == 0
    assert Path("cells.csv").read_text().startswith("account,")
    wrong = command("ledger", "export", path, "x.txt")
    assert (wrong.exit_code, "format: got 'txt'" in wrong.stderr) == (2, True)
    whole = bytearray(path.read_bytes())
    at = whole.index(b"dense-V4-K2")
    whole[at : at + 5] = b"spars"
    path.write_bytes(whole)
    assert command("ledger", "verify", path).exit_code == 1
    assert command("run", *SAMPLER, "--ledger", path).exit_code == 2
    assert path.read_bytes() == whole


def test_a_run_names_its_ledger_in_its_results(command):
    done = command("run", *SAMPLER, "--ledger", "nights.ledger")
    assert done.exit_code == 0, done.output
    assert results.load("specverify-out/results.json").settings.ledger == "nights.ledger"
    assert Path("nights.ledger").exists()


def test_two_accuracies_are_compared(command):
    done = command("accuracy", "--a", 0.79, "--b", 0.77, "--n", 1319)
    assert done.exit_code == 0
    assert done.stdout.startswith("1,319 questions cannot tell 0.79 from 0.77: p = 0.223")


def test_help_and_version_are_light():
    code = (
        "import sys\nfrom specverify.cli import app\n"
        "for args in (['--version'], ['--help'], ['run', '--help'], ['ledger', '--help']):\n"
        "    try: app(args)\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'hypothesis', 'pytest', 'numpy'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("specverify 0.")
    assert done.stdout.rstrip().endswith("heavy: []")
    assert "specverify run --sampler reference" in done.stdout


def test_the_bar_shows_trials_inside_of_a_case_and_prints_what_did_not_pass():
    stream = io.StringIO()
    watcher = BarWatcher(2, ("specverify",), stream)
    watcher.trials(500, 1000)
    bar = watcher._progress.tasks[0]
    assert (bar.completed, bar.total) == (0.5, 2)
    verdict = VerdictRecord(
        suite="s", case="[c]", check="k", family="law", status=Outcome.FAIL, reason="r", trials=9
    )
    watcher.case_finished(CaseResult(verdicts=(verdict,)))
    watcher.close()
    assert bar.completed == 1
    assert "FAIL s/[c]: 1 check, 9 examples, k: r" in stream.getvalue()


@pytest.mark.slow
def test_the_installed_command_verifies_and_replays_a_real_mutant(tmp_path):
    def call(*args):
        command = [sys.executable, "-c", "from specverify.cli import main; main()", *args]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    done = call("run", "acceptance", "--sampler", "mutant:recover-from-target", "-n", "2")
    assert done.returncode == 1, done.stderr
    data = json.loads((tmp_path / "specverify-out" / "results.json").read_text())
    bad = next(v for v in data["verdicts"] if v["status"] == "fail")
    again = call("replay", bad["replay"])
    assert again.returncode == 1
    assert "Reproduced" in again.stdout


def test_a_run_writes_its_html_report(command):
    done = command("run", *SAMPLER, "--html", "pages/report.html", fake="pass fail")
    assert done.exit_code == 1
    assert "Report written to pages/report.html" in done.output
    assert "<b>1</b>" in Path("pages/report.html").read_text("utf-8")


def test_an_html_report_that_cannot_be_written_is_refused_before_anything_runs(command):
    done = command("run", *SAMPLER, "--html", ".")
    assert (done.exit_code, Path("specverify-out/results.json").exists()) == (2, False)
    assert "html: got '.', which is a folder" in done.output


@pytest.mark.parametrize(
    ("found", "name"), [((), "specverify.pytest_plugin"), (("one",), "specverify")]
)
def test_a_tree_that_is_not_installed_names_its_plugin(
    found: tuple[str, ...], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no entry point, ``-p specverify`` would load a package without options."""
    monkeypatch.setattr(_cli_run.metadata, "entry_points", lambda **_: found)
    assert _cli_run.plugin_name() == name
