"""The gate: how alpha is shared out, what the parts of a run add up to, and the exit code.

The false-alarm probability of a whole run is at most ``alpha`` because each of its ``m``
statistical tests rejects a correct sampler with probability at most ``alpha / m`` (Bonferroni's
inequality: valid whatever the dependence between the tests).  ``m`` is counted before anything
runs, so it depends neither on the outcomes nor on the number of workers.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Sequence

from specverify import evidence
from specverify.checks.diagnosis import Shrunk
from specverify.checks.verdict import Family, Verdict
from specverify.results import (
    CellRecord,
    CulpritRecord,
    LookRecord,
    Outcome,
    ShrunkRecord,
    VerdictRecord,
)

_ROUNDING = 1e-9


class ExitCode(enum.IntEnum):
    """What the ``specverify`` command returns to the shell."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    INCONCLUSIVE = 3


def split(alpha: float, tests: int) -> float:
    """The share of ``alpha`` that each of ``tests`` statistical tests may spend (Bonferroni).

    Args:
        alpha: false-alarm probability of the whole run, in (0, 1).
        tests: number of statistical tests, >= 0; with none there is nothing to share and the
            whole of ``alpha`` is returned.

    Raises:
        ValueError: if an argument is out of its range.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha: got {alpha}; expected a number strictly between 0 and 1")
    if tests < 0:
        raise ValueError(f"tests: got {tests}; expected a count >= 0")
    return alpha / max(tests, 1)


def record(verdict: Verdict) -> VerdictRecord:
    """The verdict of a check in the form that is written to disk."""
    fields = {
        field.name: getattr(verdict, field.name)
        for field in dataclasses.fields(verdict)
        if field.name not in ("status", "family", "branch", "shrunk", "worst", "looks")
    }
    return VerdictRecord(
        **fields,
        family=verdict.family.value,
        status=Outcome(verdict.status.value),
        branch=None if verdict.branch is None else verdict.branch.value,
        shrunk=None if verdict.shrunk is None else _shrunk(verdict.shrunk),
        worst=tuple(
            CellRecord(label=cell.label, observed=cell.observed, expected=cell.expected)
            for cell in verdict.worst
        ),
        looks=tuple(LookRecord(**dataclasses.asdict(look)) for look in verdict.looks),
    )


def _shrunk(found: Shrunk) -> ShrunkRecord:
    fields = dataclasses.asdict(found)
    return ShrunkRecord(**fields | {"branch": None if found.branch is None else found.branch.value})


def overspent(verdicts: Iterable[VerdictRecord], budget: float) -> float | None:
    """The alpha that ``verdicts`` spent, if it is more than their ``budget``; else ``None``.

    An experiment that runs more tests than it planned would break the promise of the whole run.
    """
    spent = sum(verdict.alpha for verdict in verdicts)
    return spent if spent > budget * (1 + _ROUNDING) else None


_LEAST_SHARE = 0.25
"""Least share of a test's alpha behind its p-value: looks with a ledger. See ``checks.watch``."""
_MOST_LOOKS = 32
"""Pairs of trials share theirs among their looks; 2e8 trials are looked at 31 times."""


def culprits(
    verdicts: Sequence[VerdictRecord], alpha: float, tests: int
) -> tuple[CulpritRecord, ...]:
    """The checks that Holm's rule rejects: all that failed a test, and maybe more.

    A p-value enters divided by the least share of alpha that its test may have spent, so that the
    union of a check's looks and its final test is paid for; one that failed enters with at most its
    share, which is what failing means.  Tests that gave no p-value enter with 1.

    Args:
        verdicts: of the run.
        alpha: bound on the probability of naming any check wrongly.
        tests: statistical tests of the run, among which alpha was split.

    Returns:
        the culprits, strongest evidence first; none if no check failed a test.
    """
    tested = [v for v in verdicts if v.p_value is not None and v.alpha > 0]
    if not any(verdict.status is Outcome.FAIL for verdict in tested):
        return ()
    p_values = [_adjusted(verdict) for verdict in tested]
    family = p_values + [1.0] * (tests - len(p_values))
    found = evidence.holm(family, alpha)
    return tuple(
        CulpritRecord(check=tested[i].name, adjusted_p_value=found.adjusted[i])
        for i in found.culprits
        if i < len(tested)
    )


def _adjusted(verdict: VerdictRecord) -> float:
    assert verdict.p_value is not None
    looks = _MOST_LOOKS if verdict.family == Family.INDEPENDENCE else 1
    p_value = min(1.0, verdict.p_value * looks / _LEAST_SHARE)
    return min(p_value, verdict.alpha) if verdict.status is Outcome.FAIL else p_value


def global_log_e(verdicts: Iterable[VerdictRecord]) -> float | None:
    """Ln of the run's e-value that every law holds: the mean of all, whatever their dependence.

    Returns:
        ``None`` if no check has an e-value.
    """
    found = [verdict.log_e for verdict in verdicts if verdict.log_e is not None]
    return evidence.global_log_e(found) if found else None


def overall(outcomes: Iterable[Outcome], *, complete: bool = True) -> Outcome:
    """What the parts of a run add up to.

    One failure fails the run, even one that was interrupted: its share of alpha was fixed before.
    An error of the harness or a case that was not run leaves the run inconclusive.  A run in which
    nothing could be verified is *not supported*, never a pass.

    Args:
        outcomes: of all checks.
        complete: whether every planned case was run.
    """
    seen = set(outcomes)
    if Outcome.FAIL in seen:
        return Outcome.FAIL
    if not complete or seen & {Outcome.ERROR, Outcome.INCONCLUSIVE}:
        return Outcome.INCONCLUSIVE
    return Outcome.PASS if Outcome.PASS in seen else Outcome.NOT_SUPPORTED


def exit_code(outcome: Outcome) -> ExitCode:
    """The exit code of a verdict: whatever is neither a pass nor a failure is inconclusive."""
    return {Outcome.PASS: ExitCode.PASS, Outcome.FAIL: ExitCode.FAIL}.get(
        outcome, ExitCode.INCONCLUSIVE
    )
