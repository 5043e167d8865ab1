"""What the pytest plugin does once there is a suite to run: see :mod:`specverify.pytest_plugin`.

Alpha is split in every process over the whole collection, so that workers of pytest-xdist, which
all collect the same tests, agree on the share without talking.  Verdicts travel from a worker to
the controller in the ``user_properties`` of the test's report.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from contextlib import ExitStack
from typing import Any, Protocol

import pydantic
import pytest

from specverify import _runner, gate, replay
from specverify._diagnosis import diagnosis, error_text
from specverify._messages import HEADER, RESULT, WATCHER, CaseResult, Header
from specverify._options import (
    RunOptions,
    announced_cases,
    file_digest,
    open_subject,
    prepare_ledger,
    prepare_out,
)
from specverify._recorder import Recorder
from specverify.checks.experiment import Experiment, Progress, Settings
from specverify.checks.shrink import Shrinking
from specverify.results import Outcome, SamplerRecord
from specverify.subjects import Subject

_NO_SAMPLER = (
    "suites of specverify were collected, but no sampler was named; "
    "give --specverify-sampler NAME, or deselect them"
)


@dataclasses.dataclass(frozen=True)
class _Session:
    """What the verify fixture needs; ``problem`` says why nothing may run in this worker."""

    options: RunOptions | None = None
    subject: Subject | None = None
    settings: Settings | None = None
    shrinking: Shrinking = dataclasses.field(default_factory=Shrinking)
    problem: str | None = None


_SESSION = pytest.StashKey[_Session]()


class Verifier(Protocol):
    """What the ``verify`` fixture gives to a test."""

    def __call__(self, experiment: Experiment) -> None:
        """Run the experiment and let the test pass, fail or skip by its verdicts."""


def configure(config: pytest.Config) -> None:
    """Check the options; in the controller (or the only process), start recording.

    Raises:
        pytest.UsageError: if an option is wrong, before anything is collected.
    """
    options = _options(config)
    cases = ExitStack()
    cases.enter_context(announced_cases(options.cases))
    config.add_cleanup(cases.close)
    if _is_worker(config):
        return
    try:
        subject = open_subject(options)
        if options.out is not None:
            prepare_out(options.out)
        prepare_ledger(options, subject)
        if options.corpus is not None:
            _run_corpus(options)
    except ValueError as error:
        raise pytest.UsageError(f"specverify: {error}") from None
    config.pluginmanager.register(Recorder(config, options), "specverify-recorder")


def _run_corpus(options: RunOptions) -> None:
    """Replay the corpus; a token that fails again ends the run before it begins.

    Raises:
        ValueError: naming the line of a token that cannot be run here.
    """
    from specverify._cli_corpus import run_first

    said: list[str] = []
    first = run_first(options, said.append)
    said += [diagnosis(verdict) for verdict in first.verdicts if verdict.status is Outcome.FAIL]
    sys.stderr.write("".join(f"{line}\n" for line in said))
    if first.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE):
        pytest.exit(
            f"specverify: the corpus came out as {first.outcome.word}",
            returncode=int(gate.exit_code(first.outcome)),
        )


def activate(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Count the tests of all collected experiments and share alpha out among them.

    Raises:
        pytest.UsageError: if no sampler is named, or something would retry failed tests.
    """
    session = _Session(problem=_problem(config, items))
    if session.problem is not None:
        # A worker cannot refuse the run in words that reach the user, but its tests can.
        if not _is_worker(config):
            raise pytest.UsageError(f"specverify: {session.problem}")
    elif config.getoption("specverify_sampler") is not None:
        session = _share_alpha(_options(config), items)
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
        import torch

        torch.set_num_threads(1)
    config.stash[_SESSION] = session


def _share_alpha(options: RunOptions, items: list[pytest.Item]) -> _Session:
    subject = open_subject(options)
    plans = [_experiment(item).plan(subject.capabilities) for item in items]
    tests = sum(plan.tests for plan in plans if plan.unsupported is None)
    settings = options.settings(gate.split(_alpha(options), tests))
    header = Header(
        tests=tests,
        alpha_per_test=settings.alpha,
        confidence=settings.confidence,
        cases=len(items),
        sampler=SamplerRecord(
            name=subject.name,
            version=subject.version,
            capabilities=_plain(dataclasses.asdict(subject.capabilities)),
        ),
    ).model_dump_json()
    for item in items:
        item.user_properties.append((HEADER, header))
    return _Session(options, subject, settings)


def _alpha(options: RunOptions) -> float:
    """What the suites may spend: a corpus has its share, the same in every worker."""
    if options.corpus is None:
        return options.alpha
    from specverify._cli_corpus import alpha_left

    return alpha_left(options)


def verifier(request: pytest.FixtureRequest) -> Verifier:
    """The value of the ``verify`` fixture for one test."""
    session = request.config.stash.get(_SESSION, _Session(problem=_NO_SAMPLER))
    return functools.partial(_verify, request.node, session)


def _verify(item: pytest.Item, session: _Session, experiment: Experiment) -> None:
    __tracebackhide__ = True
    if session.options is None or session.subject is None or session.settings is None:
        pytest.fail(session.problem or _NO_SAMPLER, pytrace=False)
    answer = _runner.answer(
        experiment,
        session.subject,
        session.settings,
        _progress(item.config),
        session.shrinking,
    )
    digest = _digest(session.options)
    answer = replay.stamped(answer, session.options, session.settings.alpha, digest)
    only = session.options.only_check
    if only is not None and answer.error is None:
        kept = tuple(verdict for verdict in answer.verdicts if verdict.check == only)
        answer = dataclasses.replace(answer, verdicts=kept)
    result = CaseResult(verdicts=answer.verdicts, error=answer.error)
    item.user_properties.append((RESULT, result.model_dump_json()))
    _conclude(result)


def _conclude(result: CaseResult) -> None:
    __tracebackhide__ = True
    if result.error is not None:
        pytest.fail(error_text(result.error), pytrace=False)
    bad = [v for v in result.verdicts if v.status in (Outcome.FAIL, Outcome.INCONCLUSIVE)]
    if bad:
        # Failures first: an inconclusive check beside one is of no interest yet.
        bad.sort(key=lambda verdict: verdict.status is not Outcome.FAIL)
        pytest.fail("\n".join(map(diagnosis, bad)), pytrace=False)
    if all(verdict.status is Outcome.NOT_SUPPORTED for verdict in result.verdicts):
        reasons = dict.fromkeys(verdict.reason for verdict in result.verdicts)
        pytest.skip("not supported: " + "; ".join(reasons) if reasons else "no check of that name")


def _options(config: pytest.Config) -> RunOptions:
    given = {
        field.name: config.getoption(f"specverify_{field.name}")
        for field in dataclasses.fields(RunOptions)
    }
    try:
        return RunOptions(**{name: value for name, value in given.items() if value is not None})
    except ValueError as error:
        raise pytest.UsageError(f"specverify: {error}") from None


def _problem(config: pytest.Config, items: list[pytest.Item]) -> str | None:
    retrying = [name for name in ("reruns", "retries", "force_flaky") if _asked(config, name)]
    if not retrying and any(item.get_closest_marker("flaky") for item in items):
        retrying = ["the flaky marker"]
    if retrying:
        return (
            f"failed tests would be retried ({retrying[0]}), and a statistical test that is "
            "repeated until it passes has no false-alarm probability; switch retries off "
            "(-p no:rerunfailures)"
        )
    if config.getoption("specverify_sampler") is None and not config.option.collectonly:
        return _NO_SAMPLER
    return None


def _asked(config: pytest.Config, name: str) -> bool:
    if config.getoption(name, default=None):
        return True
    try:
        return str(config.getini(name)).strip() not in ("", "0", "None", "[]")
    except (KeyError, ValueError):
        return False


def _progress(config: pytest.Config) -> Progress | None:
    watcher = config.pluginmanager.get_plugin(WATCHER)
    return None if watcher is None else watcher.trials


@functools.cache
def _digest(options: RunOptions) -> str | None:
    return None if options.cases is None else file_digest(options.cases)


def _experiment(item: pytest.Item) -> Experiment:
    experiment: Experiment = item.callspec.params["experiment"]  # type: ignore[attr-defined]
    return experiment


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


_ANY = pydantic.TypeAdapter(Any)


def _plain(value: Any) -> Any:
    """The value in terms of JSON alone."""
    return _ANY.dump_python(value, mode="json")
