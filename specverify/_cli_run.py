"""The command ``specverify run``: check everything, run pytest on the suites, say what came out."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from specverify import _cli_report, gate
from specverify._cli_errors import BadInputError, user_input
from specverify._cli_progress import LineWatcher, make_watcher
from specverify._diagnosis import diagnosis, error_text
from specverify._messages import WATCHER
from specverify._options import (
    RunOptions,
    announced_cases,
    open_subject,
    prepare_ledger,
    prepare_out,
)
from specverify.checks.experiment import Suite
from specverify.environment import usable_cpus
from specverify.results import Outcome, RunResults

RECORDED = "recorded"
"""The suite whose cases come from a file; it is run when a file is given."""

_SHOWN = 5
_FOREIGN = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")


def run(
    options: RunOptions, names: Sequence[str], workers: str, *, html: Path | None = None
) -> int:
    """Run suites on a sampler and print the verdict.

    Args:
        options: of the run; ``options.out`` must be set.
        names: suites to run, none for all.
        workers: number of processes, or ``auto``.
        html: file for the HTML report, none if ``None``.

    Returns:
        The exit code.

    Raises:
        BadInputError: before anything runs, if something that the user gave cannot be used.
    """
    assert options.out is not None
    with announced_cases(options.cases):
        with user_input():
            count = worker_count(workers)
            suites = chosen(load_suites(), names, options)
            prepare_out(options.out)
            if html is not None:
                _cli_report.prepare(html)
            prepare_ledger(options, open_subject(options))
            files = [suite_file(name) for name in suites]
        cases = sum(len(suite.experiments) for suite in suites.values())
        watcher = make_watcher(cases, ("specverify", *sys.argv[1:]))
        try:
            with _own_pytest():
                code = pytest.main(pytest_args(options, files, count), plugins=[_Plugin(watcher)])
        finally:
            watcher.close()
    if watcher.results is None:
        return _broken(watcher, int(code))
    show(watcher.results, options.out)
    if html is not None:
        _cli_report.write(watcher.results, html)
    return int(gate.exit_code(watcher.results.verdict))


def load_suites() -> dict[str, Suite]:
    """The installed suites by name."""
    from specverify.suites import all_suites

    return all_suites()


def chosen(
    suites: Mapping[str, Suite], names: Sequence[str], options: RunOptions
) -> dict[str, Suite]:
    """The suites that were asked for, or those that make sense if none was.

    Raises:
        ValueError: for an unknown name.
    """
    for name in names:
        if name not in suites:
            close = difflib.get_close_matches(name, suites, n=2)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise ValueError(f"suite: got {name!r}; expected one of {', '.join(suites)}{hint}")
    if options.cases is None and RECORDED in names:
        raise ValueError(f"suite: {RECORDED!r} verifies recorded rows; give a file with --cases")
    if not names and options.cases is not None:
        names = [RECORDED]
    elif not names:
        names = [name for name in suites if name != RECORDED]
    if RECORDED in names and RECORDED not in suites:
        raise ValueError(f"cases: this installation has no suite {RECORDED!r} to verify them with")
    return {name: suites[name] for name in names}


def worker_count(text: str) -> int:
    """Number of processes from what the user typed.

    Raises:
        ValueError: if it is neither a count nor ``auto``.
    """
    if text == "auto":
        return usable_cpus()
    if not text.isdecimal():
        raise ValueError(f"workers: got {text!r}; expected a count or auto")
    return max(int(text), 1)


def suite_file(name: str) -> Path:
    """The test module of a suite, wherever the package is installed."""
    spec = importlib.util.find_spec(f"specverify.suites.test_{name}")
    if spec is None or spec.origin is None:
        raise ValueError(f"suite: {name!r} is declared but its test module is not installed")
    return Path(spec.origin)


def pytest_args(options: RunOptions, files: Sequence[Path], workers: int) -> list[str]:
    """The arguments of pytest: our suites and plugin, and nothing of the user's own set-up."""
    assert options.out is not None
    args = [
        *map(str, files),
        "-c", os.devnull, "--rootdir", str(files[0].parent), "--noconftest",
        "--import-mode", "importlib", "-p", "specverify", "-p", "no:terminal",
        "-p", "no:cacheprovider", "--junitxml", str(options.out / "junit.xml"),
        "-o", "junit_suite_name=specverify",
    ]  # fmt: skip
    if workers > 1:
        args += ["-p", "xdist", "-n", str(workers), "--dist", "worksteal"]
    given = {name: getattr(options, name) for name in options.__dataclass_fields__}
    for name, value in given.items():
        if value is not None:
            args.append(f"--specverify-{name.replace('_', '-')}={value}")
    return args


def show(results: RunResults, out: Path) -> None:
    """Print what did not pass, the table of suites, the verdict and where the files are."""
    from specverify.reports.terminal import report

    console = Console()
    order = {Outcome.FAIL: 0, Outcome.ERROR: 1, Outcome.INCONCLUSIVE: 2}
    bad = sorted(
        (verdict for verdict in results.verdicts if verdict.status in order),
        key=lambda verdict: order[verdict.status],
    )
    # One check of a case is enough to see what is wrong; the others are in the files.
    firsts = list({(verdict.suite, verdict.case): verdict for verdict in reversed(bad)}.values())
    shown = firsts[::-1][:_SHOWN]
    for verdict in shown:
        # soft_wrap: a replay line that is broken into two cannot be copied.
        console.print(Text(diagnosis(verdict)), soft_wrap=True)
    if len(bad) > len(shown):
        console.print(f"... and {len(bad) - len(shown)} more in {out / 'summary.md'}", markup=False)
    for error in results.errors:
        sys.stderr.write(error_text(error) + "\n")
    console.print(report(results))
    files = ", ".join(name for name in ("results.json", "summary.md", "junit.xml"))
    console.print(f"Written to {out}: {files}", markup=False, highlight=False, soft_wrap=True)


class _Plugin:
    """Registers the watcher under the name that the plugin of specverify looks for."""

    def __init__(self, watcher: LineWatcher) -> None:
        self._watcher = watcher

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.register(self._watcher, WATCHER)


@contextlib.contextmanager
def _own_pytest() -> Generator[None, None, None]:
    """Keep the user's environment variables and other plugins out of our pytest for a while."""
    before = {name: os.environ.pop(name, None) for name in _FOREIGN}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _broken(watcher: LineWatcher, code: int) -> int:
    for text in watcher.broken:
        sys.stderr.write(text + "\n")
    if code == pytest.ExitCode.USAGE_ERROR:
        raise BadInputError("pytest refused the run; the reason is printed above")
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        sys.stderr.write("specverify: INCONCLUSIVE: there was no case to run; this is no pass\n")
    else:
        sys.stderr.write("specverify: INCONCLUSIVE: the run ended before any case was answered\n")
    return int(gate.ExitCode.INCONCLUSIVE)
