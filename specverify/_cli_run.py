"""The command ``specverify run``: check everything, run pytest on the suites, say what came out."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

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
from specverify.results import Outcome, RunResults, VerdictRecord, write, write_text

if TYPE_CHECKING:
    from specverify._cli_corpus import First

RECORDED = "recorded"
"""The suite whose cases come from a file; it is run when a file is given."""

_SHOWN = 5
_FOREIGN = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")


def run(
    options: RunOptions,
    names: Sequence[str],
    workers: str,
    *,
    html: Path | None = None,
    keep: bool = False,
) -> int:
    """Run suites on a sampler and print the verdict.

    Args:
        options: of the run; ``options.out`` must be set.
        names: suites to run, none for all.
        workers: number of processes, or ``auto``.
        html: file for the HTML report, none if ``None``.
        keep: add the failures that are shown to the corpus.

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
            first = _corpus_first(options)
        if first is not None and first.failed is not None:
            return _ended_by_corpus(options, first, html)
        cases = sum(len(suite.experiments) for suite in suites.values())
        watcher = make_watcher(cases, ("specverify", *sys.argv[1:]))
        try:
            with _own_pytest():
                left = _without_corpus(options, first)
                code = pytest.main(pytest_args(left, files, count), plugins=[_Plugin(watcher)])
        finally:
            watcher.close()
    if watcher.results is None:
        return _broken(watcher, int(code))
    shown = show(watcher.results, options.out)
    if html is not None:
        _cli_report.write(watcher.results, html)
    if keep and options.corpus is not None:
        _keep(options.corpus, shown)
    outcomes = (
        [watcher.results.verdict] if first is None else [watcher.results.verdict, first.outcome]
    )
    return int(gate.exit_code(gate.overall(outcomes)))


def _corpus_first(options: RunOptions) -> First | None:
    """Replay the corpus, if there is one.

    Raises:
        ValueError: naming the line of a token that cannot be run here.
    """
    if options.corpus is None:
        return None
    from specverify._cli_corpus import run_first

    console = Console(stderr=True)
    return run_first(options, lambda line: console.print(Text(line), soft_wrap=True))


def _ended_by_corpus(options: RunOptions, first: First, html: Path | None) -> int:
    """Show and write the failure that is back; the suites are not run."""
    from specverify._cli_corpus import results_of
    from specverify.reports.summary import markdown

    assert options.out is not None
    results = results_of(options, open_subject(options), first)
    write(results, options.out / "results.json")
    write_text(options.out / "summary.md", markdown(results))
    (options.out / "junit.xml").unlink(missing_ok=True)
    show(results, options.out)
    if html is not None:
        _cli_report.write(results, html)
    sys.stderr.write("specverify: a failure of the corpus is back, so the suites were not run\n")
    return int(gate.ExitCode.FAIL)


def ready_corpus(corpus: Path | None, add: bool) -> None:
    """Make the file of a corpus that failures will be added to.

    Raises:
        ValueError: if none is named, or it cannot be written.
    """
    if add and corpus is None:
        raise ValueError("corpus_add: got no corpus; name the file with --corpus")
    if add and corpus is not None and not corpus.exists():
        from specverify.corpus import create

        create(corpus)


def _without_corpus(options: RunOptions, first: First | None) -> RunOptions:
    """The options of the suites: the corpus has been run, and has spent its share."""
    if first is None:
        return options
    return dataclasses.replace(options, corpus=None, corpus_all=False, alpha=first.alpha)


def _keep(path: Path, shown: Sequence[VerdictRecord]) -> None:
    """Add the tokens of failures to the corpus."""
    from specverify._cli_corpus import add

    tokens = [v.replay for v in shown if v.status is Outcome.FAIL and v.replay is not None]
    if tokens:
        add(path, tokens)


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


def plugin_name() -> str:
    """What ``-p`` takes: the entry point, or the module in a tree that is not installed."""
    installed = metadata.entry_points(group="pytest11", name="specverify")
    return "specverify" if installed else "specverify.pytest_plugin"


def pytest_args(options: RunOptions, files: Sequence[Path], workers: int) -> list[str]:
    """The arguments of pytest: our suites and plugin, and nothing of the user's own set-up."""
    assert options.out is not None
    args = [
        *map(str, files),
        "-c", os.devnull, "--rootdir", str(files[0].parent), "--noconftest",
        "--import-mode", "importlib", "-p", plugin_name(), "-p", "no:terminal",
        "-p", "no:cacheprovider", "--junitxml", str(options.out / "junit.xml"),
        "-o", "junit_suite_name=specverify",
    ]  # fmt: skip
    if workers > 1:
        args += ["-p", "xdist", "-n", str(workers), "--dist", "worksteal"]
    given = {name: getattr(options, name) for name in options.__dataclass_fields__}
    for name, value in given.items():
        if value is not None and value is not False:
            args.append(f"--specverify-{name.replace('_', '-')}={value}")
    return args


def show(results: RunResults, out: Path) -> list[VerdictRecord]:
    """Print what did not pass, the table of suites, the verdict and where the files are.

    Returns:
        the checks that were printed.
    """
    from specverify.reports.terminal import report

    console = Console()
    order = {Outcome.FAIL: 0, Outcome.ERROR: 1, Outcome.INCONCLUSIVE: 2}
    bad = sorted(
        (verdict for verdict in results.verdicts if verdict.status in order),
        key=lambda verdict: (order[verdict.status], verdict.shrunk is None, verdict.cause is None),
    )
    shown = _telling(bad)[:_SHOWN]
    for verdict in shown:
        # soft_wrap: a replay line that is broken into two cannot be copied.
        console.print(Text(diagnosis(verdict)), soft_wrap=True)
    if len(bad) > len(shown):
        console.print(f"... and {len(bad) - len(shown)} more in {out / 'summary.md'}", markup=False)
    for error in results.errors:
        sys.stderr.write(error_text(error) + "\n")
    console.print(report(results))
    names = ("results.json", "summary.md", "junit.xml")
    files = ", ".join(name for name in names if (out / name).exists())
    console.print(f"Written to {out}: {files}", markup=False, highlight=False, soft_wrap=True)
    return shown


def _telling(bad: Sequence[VerdictRecord]) -> list[VerdictRecord]:
    """One check of each case, each suite's first before the second of any.

    One is enough to see what is wrong; the others are in the files.
    """
    cases: dict[tuple[str, str], VerdictRecord] = {}
    for verdict in bad:
        cases.setdefault((verdict.suite, verdict.case), verdict)
    seen: Counter[tuple[bool, str]] = Counter()
    ranked = []
    for verdict in cases.values():
        key = (verdict.status is Outcome.FAIL, verdict.suite)
        ranked.append((not key[0], seen[key], verdict))
        seen[key] += 1
    return [verdict for *_, verdict in sorted(ranked, key=lambda entry: entry[:2])]


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
