"""The checks of a run as the HTML report shows them: by suite and case, worst first to look at."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from specverify.reports.cells import CellBar, cell_bars
from specverify.reports.digest import Digest, digest
from specverify.reports.looks import Plot, e_plot, tv_plot
from specverify.reports.strips import PStrip, TvStrip, p_strip, tv_strip

from specverify.results import Outcome, VerdictRecord

_ORDER = {Outcome.FAIL: 0, Outcome.ERROR: 1, Outcome.INCONCLUSIVE: 2}
_FAMILIES = ("exact", "law", "coupling", "independence")


@dataclasses.dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        anchor: its id in the page.
        verdict: what is shown.
        title: its name without the family, which stands beside it.
        tv, p: strips, ``None`` without such numbers.
        cells: worst cells.
        tv_looks, e_looks: plots against the trials, ``None`` for a check that looked once.
    """

    anchor: str
    verdict: VerdictRecord
    title: str
    tv: TvStrip | None
    p: PStrip | None
    cells: tuple[CellBar, ...]
    tv_looks: Plot | None
    e_looks: Plot | None

    @property
    def detailed(self) -> bool:
        """Whether there is more to show than fits into its row."""
        return bool(self.tv or self.p or self.cells or self.verdict.replay or self.verdict.snippet)


@dataclasses.dataclass(frozen=True)
class Case:
    """The checks of one case."""

    name: str
    checks: tuple[Check, ...]

    @property
    def statuses(self) -> list[Outcome]:
        """Outcomes that occur, in a fixed order."""
        return [o for o in Outcome if any(c.verdict.status is o for c in self.checks)]


@dataclasses.dataclass(frozen=True)
class Suite:
    """The cases of one suite, with their numbers."""

    name: str
    cases: tuple[Case, ...]
    sums: Digest

    @property
    def statuses(self) -> list[Outcome]:
        """Outcomes that occur, in a fixed order."""
        return [o for o in Outcome if self.sums.count(o)]


def by_suite(verdicts: Sequence[VerdictRecord]) -> tuple[Suite, ...]:
    """Group verdicts, which are ordered by suite and case."""
    checks = [_check(number, verdict) for number, verdict in enumerate(verdicts)]
    suites = itertools.groupby(checks, key=lambda check: check.verdict.suite)
    return tuple(_suite(name, list(group)) for name, group in suites)


def look_first(suites: Sequence[Suite], most: int = 5) -> list[Check]:
    """The checks to begin with: one of each case, the plainest property and smallest table first.

    A violated exact property needs no statistics, and a reason that names a cause saves the search
    for one; a law on few cells is easier to read than a joint law; dependence often follows from
    either.
    """
    cases = [case for suite in suites for case in suite.cases]
    bad = [[c for c in case.checks if c.verdict.status in _ORDER] for case in cases]
    firsts = [min(found, key=_plainness) for found in bad if found]
    return sorted(firsts, key=_plainness)[:most]


def _plainness(check: Check) -> tuple[int, bool, int, int, float]:
    verdict = check.verdict
    unexplained = verdict.family != "exact" and verdict.cause is None and verdict.shrunk is None
    family = _FAMILIES.index(verdict.family) if verdict.family in _FAMILIES else len(_FAMILIES)
    cells = verdict.cells or len(verdict.worst)
    return _ORDER[verdict.status], unexplained, family, cells, -(verdict.tv_observed or 0.0)


def _suite(name: str, checks: list[Check]) -> Suite:
    cases = itertools.groupby(checks, key=lambda check: check.verdict.case)
    return Suite(
        name=name,
        cases=tuple(Case(case, tuple(group)) for case, group in cases),
        sums=digest(check.verdict for check in checks),
    )


def _check(number: int, verdict: VerdictRecord) -> Check:
    return Check(
        anchor=f"check-{number}",
        verdict=verdict,
        title=verdict.check.removeprefix(f"{verdict.family}/"),
        tv=tv_strip(verdict),
        p=p_strip(verdict),
        cells=cell_bars(verdict),
        tv_looks=tv_plot(verdict),
        e_looks=e_plot(verdict),
    )
