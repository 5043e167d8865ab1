"""The controller's side of the plugin: collect the verdicts of all tests and write the files.

Every finished case goes to ``results.partial.jsonl`` at once, so that nothing finished is lost if
the process is killed.  At the end (also after Ctrl-C) that file is replaced by ``results.json``:
where a partial file is found, its run died.
"""

from __future__ import annotations

import datetime
import time
from typing import Any

import pytest

from specverify import _runner, environment, gate
from specverify._messages import HEADER, RESULT, WATCHER, CaseResult, Header, Watcher
from specverify._options import RunOptions, file_digest
from specverify.results import (
    CasesRecord,
    ErrorRecord,
    Outcome,
    RunResults,
    RunSettings,
    RunStatus,
    VerdictRecord,
    write,
    write_text,
)

_PARTIAL = "results.partial.jsonl"


class Recorder:
    """A plugin of pytest that lives in the controller, or in the only process."""

    def __init__(self, config: pytest.Config, options: RunOptions) -> None:
        self._config = config
        self._options = options
        self._header: Header | None = None
        self._answers: dict[str, CaseResult] = {}
        self._started = datetime.datetime.now(datetime.UTC)
        self._clock = time.perf_counter()
        self._internal_error: ErrorRecord | None = None
        self._results: RunResults | None = None
        # What an earlier run left must not be taken for the answer of this one.
        for name in (_PARTIAL, "results.json", "summary.md"):
            if options.out is not None:
                (options.out / name).unlink(missing_ok=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the verdicts out of a report, leaving a readable line for each in ``junit.xml``."""
        carried = [value for name, value in report.user_properties if name == RESULT]
        headers = [value for name, value in report.user_properties if name == HEADER]
        if headers and self._header is None:
            self._header = Header.model_validate_json(str(headers[0]))
        found = [CaseResult.model_validate_json(str(value)) for value in carried]
        report.user_properties[:] = [
            pair for pair in report.user_properties if pair[0] not in (HEADER, RESULT)
        ] + [(v.check, _line(v)) for result in found for v in result.verdicts]
        if headers or (report.when not in ("setup", "call", "teardown") and self._header):
            self._take(report, found)

    def pytest_internalerror(self, excrepr: object) -> None:
        """Keep what went wrong in pytest or its plugins for the results."""
        self._internal_error = ErrorRecord(
            where="pytest", message="the run ended in an internal error", detail=str(excrepr)
        )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the files; a run that verified nothing does not leave pytest green."""
        if self._header is None:
            return
        results = self._collect(self._header, exitstatus)
        self._results = results
        if self._options.out is not None:
            self._write(results)
        if results.verdict is not Outcome.PASS and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        watcher = self._watcher()
        if watcher is not None:
            watcher.run_finished(results)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say in pytest's own summary what the run came to."""
        if self._results is not None:
            from specverify.reports.sentences import headline

            terminalreporter.write_sep("=", "specverify")
            terminalreporter.write_line(headline(self._results))

    def _take(self, report: pytest.TestReport, found: list[CaseResult]) -> None:
        earlier = self._answers.get(report.nodeid)
        result = _result(report, found, earlier)
        if result is None:
            return
        self._answers[report.nodeid] = result
        self._append(result)
        watcher = self._watcher()
        if watcher is not None and earlier is None:
            watcher.case_finished(result)

    def _append(self, result: CaseResult) -> None:
        if self._options.out is not None:
            # Opened anew for each case: closing hands the line to the system whatever comes next.
            with (self._options.out / _PARTIAL).open("a", encoding="utf-8") as stream:
                stream.write(result.model_dump_json() + "\n")

    def _write(self, results: RunResults) -> None:
        from specverify.reports.summary import markdown

        assert self._options.out is not None
        write(results, self._options.out / "results.json")
        write_text(self._options.out / "summary.md", markdown(results))
        (self._options.out / _PARTIAL).unlink(missing_ok=True)

    def _collect(self, header: Header, exitstatus: int) -> RunResults:
        answers = self._answers.values()
        verdicts = sorted(
            (verdict for answer in answers for verdict in answer.verdicts),
            key=lambda verdict: (verdict.suite, verdict.case, verdict.check),
        )
        errors = [answer.error for answer in answers if answer.error is not None]
        if self._internal_error is not None:
            errors.append(self._internal_error)
        finished = len(self._answers)
        status = _status(exitstatus, complete=finished >= header.cases)
        complete = status is RunStatus.FINISHED and not errors
        return RunResults(
            status=status,
            verdict=gate.overall((v.status for v in verdicts), complete=complete),
            started=self._started.isoformat(timespec="seconds"),
            seconds=time.perf_counter() - self._clock,
            cases_planned=header.cases,
            cases_finished=finished,
            settings=self._settings(header, sorted({verdict.suite for verdict in verdicts})),
            environment=environment.collect(),
            verdicts=tuple(verdicts),
            errors=tuple(errors),
            culprits=gate.culprits(verdicts, self._options.alpha, header.tests),
            global_log_e=gate.global_log_e(verdicts),
        )

    def _settings(self, header: Header, suites: list[str]) -> RunSettings:
        options, watcher = self._options, self._watcher()
        arguments = tuple(map(str, self._config.invocation_params.args))
        cases = None
        if options.cases is not None:
            cases = CasesRecord(path=str(options.cases), digest=file_digest(options.cases))
        return RunSettings(
            sampler=header.sampler, suites=tuple(suites), seed=options.seed, alpha=options.alpha,
            alpha_per_test=header.alpha_per_test, tests=header.tests, power=options.power,
            tv=options.tv, confidence=header.confidence, profile=options.profile,
            device=options.device, trials=options.trials, cases_file=cases,
            ledger=str(options.ledger) if options.ledger else None,
            workers=len(getattr(self._config.option, "tx", None) or [None]),
            command=watcher.command if watcher is not None else ("pytest", *arguments),
        )  # fmt: skip

    def _watcher(self) -> Watcher | None:
        watcher: Watcher | None = self._config.pluginmanager.get_plugin(WATCHER)
        return watcher


_FAILING = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.ERROR)


def _status(exitstatus: int, *, complete: bool) -> RunStatus:
    if exitstatus == pytest.ExitCode.INTERNAL_ERROR:
        return RunStatus.CRASHED
    return RunStatus.FINISHED if complete else RunStatus.INTERRUPTED


def _result(
    report: pytest.TestReport, found: list[CaseResult], earlier: CaseResult | None
) -> CaseResult | None:
    """What one phase of a test adds, ``None`` if nothing."""
    if report.when == "teardown":
        # The verdicts of the call stand, but a fixture that breaks afterwards is no pass either.
        return _fault(report, earlier.verdicts if earlier else ()) if report.failed else None
    verdicts = tuple(verdict for result in found for verdict in result.verdicts)
    errors = [result.error for result in found if result.error is not None]
    if report.failed and not any(verdict.status in _FAILING for verdict in verdicts):
        return _fault(report, verdicts)
    if found:
        return CaseResult(verdicts=verdicts, error=errors[0] if errors else None)
    return _skipped(report) if report.skipped else None


def _skipped(report: pytest.TestReport) -> CaseResult:
    suite, case = _place(report)
    reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else "skipped"
    return CaseResult(verdicts=(_runner.not_supported(suite, case, str(reason)),))


def _fault(report: pytest.TestReport, kept: tuple[VerdictRecord, ...]) -> CaseResult:
    suite, case = _place(report)
    last = (report.longreprtext.strip().splitlines() or ["no reason given"])[-1]
    answer = _runner.failed(suite, case, last, report.longreprtext)
    return CaseResult(verdicts=kept + answer.verdicts, error=answer.error)


def _place(report: pytest.TestReport) -> tuple[str, str]:
    module, _, rest = report.nodeid.partition("::")
    suite = module.rpartition("/")[2].removesuffix(".py").removeprefix("test_")
    case = rest.partition("[")[2].removesuffix("]")
    return suite, case or rest


def _line(verdict: VerdictRecord) -> str:
    numbers = f"n={verdict.trials} alpha={verdict.alpha:.3g}"
    p_value = "" if verdict.p_value is None else f" p={verdict.p_value:.3g}"
    token = "" if verdict.replay is None else f" replay={verdict.replay}"
    return f"{verdict.status.value} {numbers}{p_value}{token}"
