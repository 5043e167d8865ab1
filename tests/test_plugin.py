from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
import specverify.reports.summary

import specverify._plugin_impl
import specverify.registry  # noqa: F401
from specverify import results
from specverify.replay import ReplayToken

pytest_plugins = "pytester"

SUITE_FILE = """
import pytest
from fake_suite import HypothesisProbe, suite

SUITE = suite({name!r}, *{kinds!r}.split())

@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_fake(experiment, verify):
    verify(experiment)
"""


@pytest.fixture
def run(pytester):
    """Run pytest on a suite of fakes: the outcome, and the results where any were written."""
    pytester.copy_example(str(Path(__file__).with_name("fake_suite.py")))

    def run(kinds, *args, runner="runpytest_inprocess", sampler="fake_suite:my_sampler"):
        pytester.makepyfile(test_fake=SUITE_FILE.format(name="fake", kinds=kinds))
        given = ["--specverify-sampler", sampler] if sampler else []
        done = getattr(pytester, runner)(
            "-p", "no:cacheprovider", "-p", "no:cov", "--specverify-out", "out", *given, *args
        )
        path = pytester.path / "out" / "results.json"
        return done, results.load(path) if path.exists() else None

    return run


@pytest.mark.parametrize(
    ("kinds", "code", "verdict"),
    [
        ("pass pass*3", 0, "pass"),
        ("pass unsupported", 0, "pass"),
        ("pass fail inconclusive", 1, "fail"),
        ("pass inconclusive", 1, "inconclusive"),
        ("pass raise", 1, "inconclusive"),
        ("pass empty", 1, "inconclusive"),
        ("pass overspend", 1, "inconclusive"),
        ("unsupported unsupported", 1, "not-supported"),
    ],
)
def test_the_verdict_of_a_run(run, kinds, code, verdict):
    done, found = run(kinds)
    assert (int(done.ret), found.verdict.value, found.status.value) == (code, verdict, "finished")
    assert found.cases_finished == found.cases_planned == len(kinds.split())
    assert f"{verdict.upper().replace('-', ' ')}:" in done.stdout.str()


def test_alpha_is_split_over_what_is_run_and_not_over_what_is_deselected(run):
    _, everything = run("pass*2 pass*3 unsupported*9 pass*5", "--specverify-alpha", "1e-3")
    assert (everything.settings.tests, everything.settings.alpha_per_test) == (10, 1e-4)
    assert sum(verdict.alpha for verdict in everything.verdicts) == pytest.approx(1e-3)
    _, fewer = run("pass*2 pass*3 pass*5", "--specverify-alpha", "1e-3", "-k", "not 2-pass")
    assert (fewer.settings.tests, fewer.cases_planned) == (5, 2)
    assert fewer.settings.alpha_per_test == 2e-4


def test_a_failure_prints_reason_numbers_cells_and_a_token_that_reproduces_it(run):
    done, found = run("pass fail*2", "--specverify-seed", "7", "--specverify-profile", "gate")
    done.stdout.fnmatch_lines([
        "*FAIL fake/1-fail/law/check 0: it was told to fail by gate*",
        "*n = 1,000, cressie-read = inf, p = *, alpha = *, cells = 4,*certified TV <= 0.005*",
        "*token [[]1] | [*]  3 / 2.5*",
        "*specverify replay sv2.*",
    ])  # fmt: skip
    failed = [verdict for verdict in found.verdicts if verdict.status == "fail"]
    token = ReplayToken.decode(failed[1].replay)
    assert (token.suite, token.case, token.check) == ("fake", "1-fail", "law/check 1")
    assert (token.seed, token.profile, token.alpha) == (7, "gate", found.settings.alpha_per_test)
    assert all(verdict.replay is None for verdict in found.verdicts if verdict.status == "pass")


def test_the_files_are_written_and_junit_tells_every_check(run, pytester):
    run("pass*2 fail", "--junitxml", "junit.xml")
    out = pytester.path / "out"
    assert {file.name for file in out.iterdir()} == {"results.json", "summary.md"}
    assert "**FAIL**" in (out / "summary.md").read_text()
    junit = (pytester.path / "junit.xml").read_text()
    assert 'name="law/check 1" value="pass n=1000' in junit
    assert "replay=sv2." in junit
    assert "specverify.result" not in junit


def test_workers_change_no_verdict(run):
    def same(verdict):
        return verdict.model_dump(exclude={"seconds"})

    kinds = "pass*3 fail*2 pass inconclusive unsupported pass*4"
    _, alone = run(kinds, "--specverify-seed", "3")
    done, shared = run(kinds, "--specverify-seed", "3", "-n", "2")
    assert int(done.ret) == 1
    assert shared.settings.workers == 2
    assert list(map(same, shared.verdicts)) == list(map(same, alone.verdicts))
    assert shared.settings.alpha_per_test == alone.settings.alpha_per_test


def test_ctrl_c_loses_nothing_that_was_finished(run, pytester):
    with pytest.raises(KeyboardInterrupt):
        run("pass*2 interrupt pass")
    found = results.load(pytester.path / "out" / "results.json")
    assert (found.status.value, found.verdict.value) == ("interrupted", "inconclusive")
    assert (found.cases_finished, found.cases_planned) == (1, 3)
    assert [verdict.case for verdict in found.verdicts] == ["0-pass", "0-pass"]
    assert "2 of 3 cases were not run" in (pytester.path / "out" / "summary.md").read_text()


@pytest.mark.slow
def test_a_killed_process_leaves_what_was_finished_and_nothing_of_an_earlier_run(run, pytester):
    run("pass")
    run("pass*2 die pass", runner="runpytest_subprocess")
    (partial,) = (pytester.path / "out").iterdir()
    assert partial.name == "results.partial.jsonl"
    (line,) = partial.read_text().splitlines()
    assert [verdict["case"] for verdict in json.loads(line)["verdicts"]] == ["0-pass"] * 2


@pytest.mark.slow
def test_a_worker_that_dies_is_an_error_and_no_pass(run):
    done, found = run("pass die pass", "-n", "2")
    assert int(done.ret) == 1
    assert found.verdict == "inconclusive"
    assert {v.case: v.status.value for v in found.verdicts} == {
        "0-pass": "pass", "1-die": "error", "2-pass": "pass",
    }  # fmt: skip
    assert "crashed" in found.errors[0].detail


def test_stopping_at_the_first_failure_is_not_a_finished_run(run):
    _, found = run("inconclusive pass", "-x")
    assert (found.status.value, found.verdict.value) == ("interrupted", "inconclusive")


def test_a_broken_fixture_is_an_error_and_keeps_the_verdicts(run, pytester):
    pytester.makeconftest("""
        import pytest
        @pytest.fixture(autouse=True)
        def broken():
            yield
            raise OSError("disk full")
    """)
    _, found = run("pass")
    assert found.verdict == "inconclusive"
    assert [verdict.status.value for verdict in found.verdicts] == ["error", "pass"]
    assert "disk full" in found.errors[0].detail


def test_only_check_reports_that_check_alone(run):
    _, found = run("pass*3", "--specverify-only-check", "law/check 1")
    assert [verdict.check for verdict in found.verdicts] == ["law/check 1"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--specverify-sampler", "nope"], "no sampler of that name"),
        (["--specverify-sampler", "reference", "--specverify-alpha", "2"], "alpha: got 2.0"),
        (["--specverify-sampler", "reference", "--specverify-device", "meta"], "device: got"),
        (["--specverify-sampler", "reference", "--specverify-profile", "x"], "profile: got 'x'"),
        (["--specverify-sampler", "reference", "--specverify-cases", "x"], "cases: got 'x'"),
        ([], "no sampler was named"),
        (["--specverify-sampler", "reference", "--reruns", "2"], "failed tests would be retried"),
    ],
)
def test_wrong_usage_is_refused_before_anything_runs(run, pytester, args, message):
    pytester.makeconftest("""
        def pytest_addoption(parser):
            parser.addoption("--reruns", type=int)
    """)
    done, found = run("pass", *args, sampler=None)
    assert int(done.ret) == pytest.ExitCode.USAGE_ERROR
    assert message in done.stderr.str()
    assert found is None


def test_the_flaky_marker_is_refused_too(run, pytester):
    pytester.makeconftest("""
        import pytest
        def pytest_configure(config):
            config.addinivalue_line("markers", "flaky: retried")
        @pytest.hookimpl(tryfirst=True)
        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker(pytest.mark.flaky(reruns=3))
    """)
    done, _ = run("fail")
    assert int(done.ret) == pytest.ExitCode.USAGE_ERROR
    assert "flaky marker" in done.stderr.str()


def test_hypothesis_profiles_of_the_user_do_not_matter(run, pytester):
    pytester.makeconftest("""
        from hypothesis import settings
        settings.register_profile("mine", max_examples=3, derandomize=False)
        settings.load_profile("mine")
    """)
    run("pass")
    text = SUITE_FILE.replace(
        "SUITE = suite({name!r}, *{kinds!r}.split())",
        "from specverify.checks.experiment import Suite\n"
        "SUITE = Suite('fake', '', (HypothesisProbe('fake', 'probe'),))",
    )
    pytester.makepyfile(test_fake=text)
    before = hypothesis.settings.get_current_profile_name()
    pytester.runpytest_inprocess(
        "-p", "no:cov", "--specverify-sampler", "fake_suite:my_sampler", "--specverify-out", "out"
    )
    hypothesis.settings.load_profile(before)
    (verdict,) = results.load(pytester.path / "out" / "results.json").verdicts
    assert verdict.reason == "examples=100 derandomize=True"


def test_other_tests_are_left_alone(pytester):
    pytester.makepyfile("def test_other(): pass")
    done = pytester.runpytest_inprocess("-p", "no:cov", "--specverify-sampler", "reference")
    done.assert_outcomes(passed=1)
    assert "specverify" not in done.stdout.str().split("collected")[1]


def test_a_run_without_suites_loads_nothing_of_the_library(pytester):
    pytester.makepyfile("""
        import sys
        def test_light():
            heavy = {"torch", "numpy", "pydantic", "specverify._plugin_impl"}
            assert not heavy & set(sys.modules)
    """)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_module_that_pytest_loads_is_thin():
    code = (
        "import sys, pytest; before = set(sys.modules); import specverify.pytest_plugin\n"
        "print(sorted(m for m in set(sys.modules) - before if '.' not in m or 'specv' in m))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['specverify', 'specverify.pytest_plugin']"
