"""Run one experiment and hold it to its promises; shared by the plugin and by replay.

What goes wrong inside the sampler is a verdict, and the experiment's business.  What goes wrong in
the harness is caught here: it becomes an *error*, which is never a pass.
"""

from __future__ import annotations

import dataclasses
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from specverify import gate
from specverify.checks.experiment import Experiment, Plan, Progress, Settings
from specverify.results import ErrorRecord, Outcome, VerdictRecord
from specverify.subjects import Subject

if TYPE_CHECKING:
    from specverify.checks.shrink import Shrinking
    from specverify.checks.verdict import Verdict

WHOLE_CASE = "case"
"""Name of the check in the record of a case that could not be asked at all."""

_HYPOTHESIS_PROFILE = "specverify"


@dataclasses.dataclass(frozen=True)
class Answer:
    """What an experiment answered.

    Attributes:
        verdicts: one record for each check; never empty.
        error: the fault of the harness, if there was one.
    """

    verdicts: tuple[VerdictRecord, ...]
    error: ErrorRecord | None = None


def answer(
    experiment: Experiment,
    subject: Subject,
    settings: Settings,
    progress: Progress | None = None,
    shrinking: Shrinking | None = None,
) -> Answer:
    """Run ``experiment`` on ``subject``; a case that it does not support is not run.

    Args:
        experiment: one case.
        subject: the sampler under test.
        settings: of the run.
        progress: called while trials run.
        shrinking: what the process has shrunk so far; statistical failures are left as they are
            if ``None``.
    """
    try:
        plan = experiment.plan(subject.capabilities)
        if plan.unsupported is not None:
            return Answer((not_supported(experiment.suite, experiment.case, plan.unsupported),))
        with fixed_hypothesis():
            verdicts = experiment.run(subject, settings, progress)
            if shrinking is not None:
                verdicts = _explained(shrinking, experiment, subject, settings, verdicts)
        return Answer(_checked(experiment, plan, settings, [gate.record(v) for v in verdicts]))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        return failed(experiment.suite, experiment.case, said, traceback.format_exc())


def _explained(
    shrinking: Shrinking,
    experiment: Experiment,
    subject: Subject,
    settings: Settings,
    verdicts: list[Verdict],
) -> list[Verdict]:
    """The verdicts with an explanation; a fault of the explainer takes no verdict away."""
    try:
        return shrinking.explain(experiment, subject, settings, verdicts)
    except Exception as error:
        text = f"{type(error).__name__} while looking for the smallest layout: {error}"
        sys.stderr.write(f"specverify: {experiment.suite}/{experiment.case}: {text}\n")
        return verdicts


def not_supported(suite: str, case: str, reason: str) -> VerdictRecord:
    """The record of a whole case that was not run."""
    return VerdictRecord(
        suite=suite, case=case, check=WHOLE_CASE, family="harness",
        status=Outcome.NOT_SUPPORTED, reason=reason,
    )  # fmt: skip


def failed(suite: str, case: str, said: str, detail: str) -> Answer:
    """The answer of a case that the harness could not run to its end."""
    message = f"the harness failed, so nothing is known of the sampler here: {said}"
    record = VerdictRecord(
        suite=suite, case=case, check=WHOLE_CASE, family="harness",
        status=Outcome.ERROR, reason=message,
    )  # fmt: skip
    return Answer((record,), ErrorRecord(where=f"{suite}/{case}", message=message, detail=detail))


def _checked(
    experiment: Experiment, plan: Plan, settings: Settings, records: list[VerdictRecord]
) -> tuple[VerdictRecord, ...]:
    if not records:
        raise RuntimeError(f"experiment {experiment.case!r} answered no check")
    strangers = [r for r in records if (r.suite, r.case) != (experiment.suite, experiment.case)]
    if strangers or len({r.check for r in records}) != len(records):
        raise RuntimeError(f"experiment {experiment.case!r} answered under a wrong or double name")
    spent = gate.overspent(records, settings.alpha * plan.tests)
    if spent is not None:
        raise RuntimeError(
            f"experiment {experiment.case!r} planned {plan.tests} tests at alpha "
            f"{settings.alpha:.3g} each, but spent {spent:.3g}"
        )
    return tuple(records)


@contextmanager
def fixed_hypothesis() -> Generator[None, None, None]:
    """Give hypothesis one fixed profile for a while, whatever profile the user has loaded."""
    import hypothesis

    profile = hypothesis.settings(
        hypothesis.settings.get_profile("default"),
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[
            hypothesis.Phase.explicit,
            hypothesis.Phase.generate,
            hypothesis.Phase.shrink,
        ],
    )
    hypothesis.settings.register_profile(_HYPOTHESIS_PROFILE, profile)
    before = hypothesis.settings.get_current_profile_name()
    hypothesis.settings.load_profile(_HYPOTHESIS_PROFILE)
    try:
        yield
    finally:
        hypothesis.settings.load_profile(before)
