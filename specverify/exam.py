"""The harness's own exam: every mutant must be caught, no correct sampler may be accused.

The matrix shows, for each mutant and suite, the trials at detection.  Looks are taken at growing
numbers of trials and every look spends its own share of alpha, so a correct sampler is accused with
probability at most alpha over all looks.  Once a mutant is caught, the other suites stop at a cap:
their cells are censored, not passed.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence

from specverify.checks.experiment import Experiment, Settings, Suite
from specverify.checks.statistical import budget
from specverify.checks.verdict import Status, Verdict
from specverify.mutants import Kind
from specverify.subjects import Subject

LOOKS = (2_000, 8_000, 32_000, 128_000)
"""Trials at each look; the last look is the full budget of the run."""
CENSOR_AT = 8_000
"""Where suites stop that did not catch a mutant which another suite caught."""
ACCEPTANCE = "acceptance"


class Role(enum.StrEnum):
    """What the exam expects of a subject."""

    LOSSY = "lossy"
    SLOW = "slow"
    CORRECT = "correct"

    @classmethod
    def of(cls, kind: Kind) -> Role:
        """The role of a mutant of this kind."""
        return cls(kind.value)


@dataclasses.dataclass(frozen=True)
class Mark:
    """One cell of the matrix.

    Attributes:
        caught: whether a check of the suite failed.
        trials: at detection, or where the suite stopped looking.
        check: case and check that failed first.
        complete: whether the suite was followed to its full budget.
        supported: False if nothing of the suite could be asked.
    """

    caught: bool
    trials: int
    check: str | None
    complete: bool
    supported: bool = True


@dataclasses.dataclass(frozen=True)
class Row:
    """One subject: its marks by suite, and whether the harness said the right thing."""

    subject: str
    role: Role
    marks: Mapping[str, Mark]

    @property
    def right(self) -> bool:
        """LOSSY: caught outside ``acceptance``.  SLOW: caught there alone.  CORRECT: not at all."""
        law = any(mark.caught for name, mark in self.marks.items() if name != ACCEPTANCE)
        coupling = ACCEPTANCE in self.marks and self.marks[ACCEPTANCE].caught
        if self.role is Role.LOSSY:
            return law
        return not law and coupling == (self.role is Role.SLOW)


def examine(
    subject: Subject,
    role: Role,
    suites: Iterable[Suite],
    settings: Settings,
    look_done: Callable[[str, int], None] | None = None,
) -> Row:
    """Put one subject through the suites.

    Args:
        subject: a mutant or a correct sampler.
        role: what is expected of it.
        suites: in the order of the matrix.
        settings: of the exam; ``alpha`` is the share of one test at one look.
        look_done: called with (suite, trials) after every look.
    """
    marks: dict[str, Mark] = {}
    open_: dict[str, Suite] = {suite.name: suite for suite in suites}
    full = budget(settings, settings.requested_tv(subject.capabilities))[1]
    looks = [n for n in LOOKS if n < full] + [full]
    for number, trials in enumerate(looks):
        for suite in list(open_.values()):
            mark = _look(subject, suite.experiments, settings, trials, trials == full, number == 0)
            marks[suite.name] = _keep_support(marks.get(suite.name), mark)
            if mark.caught or not marks[suite.name].supported:
                del open_[suite.name]
            if look_done is not None:
                look_done(suite.name, trials)
        caught = any(m.caught for name, m in marks.items() if name != ACCEPTANCE)
        if role is Role.LOSSY and caught and trials >= CENSOR_AT:
            break
    return Row(subject.name, role, marks)


def _keep_support(before: Mark | None, mark: Mark) -> Mark:
    """Exact checks run at the first look only, so support is what any look could ask."""
    if before is None or before.supported == mark.supported:
        return mark
    return dataclasses.replace(mark, supported=True)


def _look(
    subject: Subject,
    experiments: Sequence[Experiment],
    settings: Settings,
    trials: int,
    complete: bool,
    first: bool,
) -> Mark:
    supported = False
    for experiment in experiments:
        plan = experiment.plan(subject.capabilities)
        if plan.unsupported:
            continue
        supported = True
        if plan.tests == 0 and not first:
            continue  # an exact check says the same at every look
        share = dataclasses.replace(settings, trials=trials if plan.tests else None)
        failed = _first_failure(experiment.run(subject, share))
        if failed is not None:
            return Mark(True, failed.trials, f"{failed.case}: {failed.check}", complete)
    return Mark(False, trials, None, complete, supported)


def _first_failure(verdicts: Iterable[Verdict]) -> Verdict | None:
    return next((verdict for verdict in verdicts if verdict.status is Status.FAIL), None)
