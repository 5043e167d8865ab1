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
from specverify.mutants import Kind, Mutant, Need
from specverify.subjects import Subject

FIRST_STAGE = 8_000
"""Trials of the short stage, where suites stop that did not catch what another suite caught."""
STAGES = 2
DEEP = frozenset({"differential", "metamorphic", "tail", "drafting"})
"""Suites that cost most; a quick exam asks them last, and only where it must."""
LAWFUL_PREFIX = "lawful:"
TEXT = ("random", "mixed", "exclusion", "independence", "tail", "drafting")
LAYERS: dict[Need, tuple[str, ...]] = {
    Need.MARGINAL: TEXT,
    Need.JOINT: TEXT,
    Need.ACCEPTANCE: ("acceptance",),
    Need.SUPPORT: ("support", *TEXT),
    Need.LAYOUT: ("greedy", "support", "mixed", "acceptance", "differential", "metamorphic"),
    Need.GREEDY: ("greedy", "mixed"),
    Need.COINS: ("differential",),
    Need.STREAMS: ("independence", "metamorphic", "drafting"),
    Need.BATCH: ("metamorphic",),
    Need.DRAFTS: ("drafting",),
    Need.TOKENS: ("differential", "metamorphic"),
}
"""The suites that check each property; a mutant must be caught by one of those that it names."""
FORMULA = frozenset({Need.MARGINAL, Need.JOINT})
MOST_TRIALS = 20_000
"""Within which a wrong formula must be caught."""
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
        exact: whether the suite runs no trials; ``trials`` are layouts then.
    """

    caught: bool
    trials: int
    check: str | None
    complete: bool
    supported: bool = True
    side: Side = Side.LAW
    exact: bool = False


@dataclasses.dataclass(frozen=True)
class Row:
    """One subject: its marks by suite, and whether the harness said the right thing."""

    subject: str
    role: Role
    marks: Mapping[str, Mark]
    layers: tuple[str, ...] = ()
    formula: bool = False

    @property
    def right(self) -> bool:
        """Whether the suites that should have caught it did, in time, and no other.

        LOSSY: caught where the law or the declared rule is judged, not by the coupling alone.
        SLOW: caught by the coupling, and by no law.  CORRECT: not at all.
        """
        if self.role is Role.CORRECT:
            return not self._caught(*Side)
        if not self.named or self.late:
            return False
        if self.role is Role.LOSSY:
            return self._caught(Side.LAW, Side.EITHER)
        return self._caught(Side.COUPLING) and not self._caught(Side.LAW)

    @property
    def named(self) -> bool:
        """Whether a suite that it names caught it; any will do where it names none."""
        return any(
            m.caught and (s in self.layers or not self.layers) for s, m in self.marks.items()
        )

    @property
    def detected(self) -> int | None:
        """Trials (or layouts) at which the first suite that it names caught it."""
        return min(
            (m.trials for s, m in self.marks.items() if m.caught and s in self.layers),
            default=None,
        )

    @property
    def late(self) -> bool:
        """Whether it is a wrong formula that took more than :data:`MOST_TRIALS`."""
        return self.formula and (self.detected is None or self.detected > MOST_TRIALS)

    def _caught(self, *sides: Side) -> bool:
        return any(mark.caught and mark.side in sides for mark in self.marks.values())


def layers_of(mutant: Mutant | None) -> tuple[str, ...]:
    """The suites that check what a mutant breaks, in the order in which it names the properties."""
    if mutant is None:
        return ()
    return tuple(dict.fromkeys(suite for need in mutant.needs for suite in LAYERS[need]))


def examine(
    subject: Subject,
    role: Role,
    suites: Iterable[Suite],
    settings: Settings,
    look_done: Callable[[str, int], None] | None = None,
    *,
    thorough: bool = True,
    mutant: Mutant | None = None,
) -> Row:
    """Put one subject through the suites.

    Without ``thorough``, the :data:`DEEP` suites are asked only about a lossy mutant that no other
    suite caught, or none of those that it names (of a mutant with a drafter: all suites but
    ``drafting``), who must not be rejected stops at :data:`SHORT_BUDGET`, and a lawful variant sits
    the first stage alone.

    Args:
        subject: a mutant or a correct sampler.
        role: what is expected of it.
        suites: in the order of the matrix.
        settings: of the exam; ``alpha`` is the share of one test in one stage.
        look_done: called with (suite, trials) after every stage of a suite.
        thorough: ask every suite about everybody, with the full budget.
        mutant: what the subject is, if it is one: its ``needs`` say which suites must catch it, its
            ``tv`` what the last stage of these suites is powered for.
    """
    marks: dict[str, Mark] = {}
    open_ = {suite.name: suite for suite in _ordered(suites, subject)}
    drafts = _has_drafter(subject)
    layers = layers_of(mutant)
    formula = mutant is not None and mutant.tv is None and bool(FORMULA & {*mutant.needs})
    stages = _stages(subject, role, settings, thorough, mutant)
    row = Row(subject.name, role, marks, layers, formula and role is Role.LOSSY)
    for number, trials in enumerate(stages):
        for suite in _asked(open_, number, mutant):
            costly = suite.name != "drafting" if drafts else suite.name in DEEP
            wanted = not _seen(marks) or (suite.name in layers and not row.named)
            if costly and not thorough and (role is not Role.LOSSY or not wanted):
                continue
            if number and role is Role.LOSSY and _done(row):
                break
            chosen = settings if thorough or suite.name in DEEP else _fewer_layouts(settings)
            mark = _look(subject, suite, chosen, trials, trials == stages[-1], number == 0)
            marks[suite.name] = _keep_support(marks.get(suite.name), mark)
            if mark.caught or not marks[suite.name].supported:
                del open_[suite.name]
            if look_done is not None:
                look_done(suite.name, trials)
        if role is Role.LOSSY and _done(row):
            break
    return row


def _done(row: Row) -> bool:
    """Whether a lossy mutant was caught as it should be."""
    return _seen(row.marks) and row.named


def _asked(open_: Mapping[str, Suite], stage: int, mutant: Mutant | None) -> list[Suite]:
    """The suites of a stage; where power is needed, those that a mutant names, as it names them."""
    if stage == 0 or mutant is None or mutant.tv is None:
        return list(open_.values())
    return [open_[name] for name in layers_of(mutant) if name in open_]


def _has_drafter(subject: Subject) -> bool:
    return getattr(subject.sampler, "drafter", None) is not None


def _ordered(suites: Iterable[Suite], subject: Subject) -> list[Suite]:
    """Cheap suites first; for a subject with a drafter, the suite of drafters before all."""
    if _has_drafter(subject):
        return sorted(suites, key=lambda suite: suite.name != "drafting")
    return sorted(suites, key=lambda suite: suite.name in DEEP)


def _stages(
    subject: Subject, role: Role, settings: Settings, thorough: bool, mutant: Mutant | None
) -> list[int]:
    """Trials of each stage."""
    if mutant is not None and mutant.tv is not None:
        settings = dataclasses.replace(settings, tv=mutant.tv)
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
    plans = [experiment.plan(subject.capabilities) for experiment in suite.experiments]
    supported = any(plan.unsupported is None for plan in plans)
    exact = not any(plan.tests for plan in plans)
    if exact:  # its layouts are all there is
        complete, budgeted = True, settings.profile.examples
    else:
        budgeted = trials
    for experiment, plan in zip(suite.experiments, plans, strict=True):
        if plan.unsupported:
            continue
        if plan.tests == 0 and not first:
            continue  # an exact check says the same at every look
        share = dataclasses.replace(settings, trials=trials if plan.tests else None)
        failed = _first_failure(experiment.run(subject, share))
        if failed is not None:
            check = f"{failed.case}: {failed.check}"
            return Mark(True, failed.trials, check, complete, side=suite.side, exact=exact)
    return Mark(False, budgeted, None, complete, supported, suite.side, exact)


def _first_failure(verdicts: Iterable[Verdict]) -> Verdict | None:
    return next((verdict for verdict in verdicts if verdict.status is Status.FAIL), None)
