"""What a suite declares and a gate runs: one case, its checks, and how many of them spend alpha."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Protocol

from specverify.checks.verdict import Verdict
from specverify.contract import Capabilities
from specverify.subjects import Subject


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """How much work a run may do.

    Attributes:
        name: quick, gate or nightly.
        tv: deviation to catch, for samplers that take many requests a call.
        tv_unbatched: the same for samplers of one request a call.
        tv_cells: the largest table that ``tv`` is promised for; larger tables get what the same
            number of trials detects, and their verdicts say so.
        examples: hypothesis layouts for each exact property.
        copies_unbatched: share of a layout's copies that samplers of one request a call are asked.
        max_trials: budget of trials for each case; a check that needs more is inconclusive.
        tv_recorded: deviation to catch on recorded rows, whose vocabularies are real.
    """

    name: str
    tv: float
    tv_unbatched: float
    tv_cells: int
    examples: int
    copies_unbatched: float
    max_trials: int
    tv_recorded: float


PROFILES = {
    "quick": Profile(
        name="quick",
        tv=0.01,
        tv_unbatched=0.05,
        tv_cells=16,
        examples=40,
        copies_unbatched=1 / 8,
        max_trials=4_000_000,
        tv_recorded=0.1,
    ),
    "gate": Profile(
        name="gate",
        tv=0.01,
        tv_unbatched=0.03,
        tv_cells=64,
        examples=200,
        copies_unbatched=1 / 2,
        max_trials=20_000_000,
        tv_recorded=0.05,
    ),
    "nightly": Profile(
        name="nightly",
        tv=0.005,
        tv_unbatched=0.02,
        tv_cells=256,
        examples=1000,
        copies_unbatched=1.0,
        max_trials=200_000_000,
        tv_recorded=0.03,
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run decides for all of its experiments.

    Attributes:
        root_seed: every random number of the run derives from it.
        alpha: the share of the run's alpha that one statistical test spends.
        power: promised probability of catching the requested deviation.
        tv: requested total variation; ``None`` takes the profile's.
        confidence: of the certificates.
        profile: how much work may be done.
        device: torch device type the subject runs on.
        trials: run exactly this many trials instead of planning them (replays, exams).
        shrink: look for the smallest failing layout; exams only count and do without.
        ledger: file in which evidence adds up from run to run; ``None`` keeps none.
        first_trial: where a shard of a ledger began, to run it again; ``None`` without a ledger.
    """

    root_seed: int = 0
    alpha: float = 1e-9
    power: float = 0.999
    tv: float | None = None
    confidence: float = 0.999
    profile: Profile = PROFILES["quick"]
    device: str = "cpu"
    trials: int | None = None
    shrink: bool = True
    ledger: str | None = None
    first_trial: int | None = None

    def requested_tv(self, capabilities: Capabilities) -> float:
        """The deviation that this run promises to catch in a sampler with these capabilities."""
        if self.tv is not None:
            return self.tv
        return self.profile.tv if capabilities.batched else self.profile.tv_unbatched

    def copies(self, capabilities: Capabilities, declared: int) -> int:
        """How often a call repeats a layout, at least once.

        Args:
            capabilities: of the subject.
            declared: by the experiment, for samplers that take many requests a call.
        """
        share = 1.0 if capabilities.batched else self.profile.copies_unbatched
        return max(1, round(declared * share))


@dataclasses.dataclass(frozen=True)
class Plan:
    """What an experiment would do with a subject.

    Attributes:
        tests: number of statistical tests, each of which spends one share of alpha.
        unsupported: why the subject cannot be asked this, ``None`` if it can.
    """

    tests: int
    unsupported: str | None = None


Progress = Callable[[int, int], None]
"""Called with (trials done, trials planned) while an experiment runs."""


class Experiment(Protocol):
    """One case of a suite. Cheap to make: pytest collects hundreds in every worker."""

    @property
    def suite(self) -> str:
        """Name of the suite, for example ``random``."""
        ...

    @property
    def case(self) -> str:
        """Stable name of the case, unique in its suite; also the pytest id."""
        ...

    def plan(self, capabilities: Capabilities) -> Plan:
        """Count the tests before anything runs, so that alpha can be split at collection."""
        ...

    def run(
        self, subject: Subject, settings: Settings, progress: Progress | None = None
    ) -> list[Verdict]:
        """Run the case and answer every check of it; never raises for a fault of the subject."""
        ...


class Side(enum.StrEnum):
    """What a rejection by a suite says of a sampler.

    LAW: the emitted text, or something the sampler promises of it, is wrong; no lossless method
    is ever rejected here.  COUPLING: it does not follow the acceptance rule that it declares, and
    may be lossless all the same.  EITHER: with the same coins it emits other tokens than the rule
    that it declares, which is one or the other.
    """

    LAW = "law"
    COUPLING = "coupling"
    EITHER = "either"


@dataclasses.dataclass(frozen=True)
class Suite:
    """A named list of experiments, declared by a module of ``specverify.suites``.

    Attributes:
        name: unique, for example ``random``.
        summary: one line.
        experiments: its cases.
        side: what a rejection by it says of a sampler.
    """

    name: str
    summary: str
    experiments: tuple[Experiment, ...]
    side: Side = Side.LAW
