"""The harness's own exam: every mutant must be caught, no correct sampler may be accused.

The matrix shows, for each mutant and suite, the trials at detection.  There are two stages, a short
one and the full budget, and each spends its own share of alpha, so a correct sampler is accused
with probability at most alpha over both.  A mutant that is caught in the first stage skips the
second: the cells of the other suites are censored, not passed.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping

from specverify.checks.experiment import Settings, Side, Suite
from specverify.checks.statistical import budget
from specverify.checks.verdict import Status, Verdict
from specverify.mutants import Kind
from specverify.subjects import Subject

FIRST_STAGE = 8_000
"""Trials of the short stage, where suites stop that did not catch what another suite caught."""
STAGES = 2
DEEP = frozenset({"differential", "metamorphic", "tail", "drafting"})
"""Suites that cost most; a quick exam asks them last, and only where it must."""
LAWFUL_PREFIX = "lawful:"
SHORT_BUDGET = 24_000
"""Trials of the second stage of a quick exam, for subjects that must not be rejected."""
QUICK_EXAMPLES = 20
"""Layouts of the exact properties in a quick exam, the deep suites apart."""


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
        side: what a rejection by the suite says.
    """

    caught: bool
    trials: int
    check: str | None
    complete: bool
    supported: bool = True
    side: Side = Side.LAW


@dataclasses.dataclass(frozen=True)
class Row:
    """One subject: its marks by suite, and whether the harness said the right thing."""

    subject: str
    role: Role
    marks: Mapping[str, Mark]

    @property
    def right(self) -> bool:
        """Whether the suites that should have caught it did, and no other.

        LOSSY: caught where the law or the declared rule is judged, not by the coupling alone.
        SLOW: caught by the coupling, and by no law.  CORRECT: not at all.
        """
        if self.role is Role.LOSSY:
            return self._caught(Side.LAW, Side.EITHER)
        if self.role is Role.SLOW:
            return self._caught(Side.COUPLING) and not self._caught(Side.LAW)
        return not self._caught(*Side)

    def _caught(self, *sides: Side) -> bool:
        return any(mark.caught and mark.side in sides for mark in self.marks.values())


def examine(
    subject: Subject,
    role: Role,
    suites: Iterable[Suite],
    settings: Settings,
    look_done: Callable[[str, int], None] | None = None,
    *,
    thorough: bool = True,
) -> Row:
    """Put one subject through the suites.

    Without ``thorough``, the :data:`DEEP` suites are asked only about a lossy mutant that no other
    suite caught (of a mutant with a drafter: all suites but ``drafting``), who must not be rejected
    stops at :data:`SHORT_BUDGET`, and a lawful variant sits the first stage alone.

    Args:
        subject: a mutant or a correct sampler.
        role: what is expected of it.
        suites: in the order of the matrix.
        settings: of the exam; ``alpha`` is the share of one test in one stage.
        look_done: called with (suite, trials) after every stage of a suite.
        thorough: ask every suite about everybody, with the full budget.
    """
    marks: dict[str, Mark] = {}
    open_ = {suite.name: suite for suite in _ordered(suites, subject)}
    drafts = _has_drafter(subject)
    stages = _stages(subject, role, settings, thorough)
    for number, trials in enumerate(stages):
        for suite in list(open_.values()):
            costly = suite.name != "drafting" if drafts else suite.name in DEEP
            if costly and not thorough and (role is not Role.LOSSY or _seen(marks)):
                continue
            chosen = settings if thorough or suite.name in DEEP else _fewer_layouts(settings)
            mark = _look(subject, suite, chosen, trials, trials == stages[-1], number == 0)
            marks[suite.name] = _keep_support(marks.get(suite.name), mark)
            if mark.caught or not marks[suite.name].supported:
                del open_[suite.name]
            if look_done is not None:
                look_done(suite.name, trials)
        if role is Role.LOSSY and _seen(marks):
            break
    return Row(subject.name, role, marks)


def _has_drafter(subject: Subject) -> bool:
    return getattr(subject.sampler, "drafter", None) is not None


def _ordered(suites: Iterable[Suite], subject: Subject) -> list[Suite]:
    """Cheap suites first; for a subject with a drafter, the suite of drafters before all."""
    if _has_drafter(subject):
        return sorted(suites, key=lambda suite: suite.name != "drafting")
    return sorted(suites, key=lambda suite: suite.name in DEEP)


def _stages(subject: Subject, role: Role, settings: Settings, thorough: bool) -> list[int]:
    """Trials of each stage."""
    full = budget(settings, settings.requested_tv(subject.capabilities))[1]
    if not thorough and role is not Role.LOSSY:
        full = min(full, SHORT_BUDGET)
        if subject.name.startswith(LAWFUL_PREFIX):
            full = min(full, FIRST_STAGE)
    return sorted({min(FIRST_STAGE, full), full})


def _fewer_layouts(settings: Settings) -> Settings:
    profile = dataclasses.replace(settings.profile, examples=QUICK_EXAMPLES)
    return dataclasses.replace(settings, profile=profile)


def _seen(marks: Mapping[str, Mark]) -> bool:
    """Whether a suite that says something of the text has caught the subject."""
    return any(mark.caught and mark.side is not Side.COUPLING for mark in marks.values())


def _keep_support(before: Mark | None, mark: Mark) -> Mark:
    """Exact checks run at the first look only, so support is what any look could ask."""
    if before is None or before.supported == mark.supported:
        return mark
    return dataclasses.replace(mark, supported=True)


def _look(
    subject: Subject,
    suite: Suite,
    settings: Settings,
    trials: int,
    complete: bool,
    first: bool,
) -> Mark:
    supported = False
    for experiment in suite.experiments:
        plan = experiment.plan(subject.capabilities)
        if plan.unsupported:
            continue
        supported = True
        if plan.tests == 0 and not first:
            continue  # an exact check says the same at every look
        share = dataclasses.replace(settings, trials=trials if plan.tests else None)
        failed = _first_failure(experiment.run(subject, share))
        if failed is not None:
            check = f"{failed.case}: {failed.check}"
            return Mark(True, failed.trials, check, complete, side=suite.side)
    return Mark(False, trials, None, complete, supported, suite.side)


def _first_failure(verdicts: Iterable[Verdict]) -> Verdict | None:
    return next((verdict for verdict in verdicts if verdict.status is Status.FAIL), None)
