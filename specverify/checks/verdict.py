"""The answer of one check: a record, never a bare boolean."""

from __future__ import annotations

import dataclasses
import enum
import time
from typing import Protocol

from specverify.checks.diagnosis import Branch, Cell, Shrunk

ACCOUNT_STATISTIC = "e-process of all runs in the ledger (log e)"
"""Statistic of a check that failed by what several runs found together, and by no run alone."""


class Status(enum.StrEnum):
    """What a check found.

    PASS: not rejected, with the promised power reached.  FAIL: rejected at its share of alpha, or
    an exact property was violated.  INCONCLUSIVE: the budget ended before the promised power.
    NOT_SUPPORTED: the subject cannot be asked this; never counted as passed.
    """

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_SUPPORTED = "not-supported"


class Family(enum.StrEnum):
    """What a check relies on.

    EXACT spends no alpha.  LAW must hold for every lossless method.  COUPLING holds for the
    acceptance rule that the method declares.  INDEPENDENCE asks whether randomness is reused.
    """

    EXACT = "exact"
    LAW = "law"
    COUPLING = "coupling"
    INDEPENDENCE = "independence"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    """What a check that may stop early knew after some of its trials.

    Attributes:
        trials: trials so far.
        log_e: natural logarithm of the e-process.
        rejects_at: value of ``log_e`` that rejects: ln(1 / alpha), alpha being what looking may
            spend.
        tv_observed: plug-in total variation so far.
        tv_certified: upper bound on the true total variation so far.
    """

    trials: int
    log_e: float | None = None
    rejects_at: float | None = None
    tv_observed: float | None = None
    tv_certified: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer of one check on one case.

    Attributes:
        suite, case, check: where it comes from; together they are unique in a run.
        family: what the check relies on.
        status: PASS, FAIL, INCONCLUSIVE or NOT_SUPPORTED.
        reason: one sentence for a person.
        trials: n, the number of trials (for exact checks: of examples) behind it.
        statistic, value, p_value: the test that decided, where there is one.
        alpha: the share of the run's false-alarm probability that it spent; 0 for exact checks.
        power: the probability with which a deviation of ``tv_detectable`` is rejected.
        cells: cells of the table after pooling.
        tv_requested: the deviation that the run asked to be caught.
        tv_detectable: the smallest total variation caught with probability ``power`` at this n.
        tv_observed: plug-in total variation between counts and law.
        tv_certified: upper bound on the true total variation that holds with ``confidence``.
        confidence: of ``tv_certified``.
        request, position: where in the batch, if the check looks at one place.
        branch: the part of a verification step that the fault lies in, where that is known.
        cause: what would explain the failure, where a directed bet does.
        shrunk: the smallest layout that was found to fail still.
        snippet: lines of Python that show the failure without the suites.
        worst: the cells that deviate most.
        looks: each look at the data, in order of trials; empty for a check that looks once.
        log_e: natural logarithm of this run's e-value, where the check has one.
        first_trial: number of the first trial; not 0 where a ledger has earlier ones.
        account_trials: trials of all runs in the ledger, this one included.
        account_log_e: natural logarithm of the e-value of all these runs together: the mean of the
            product of theirs and of one bet that goes on through all their trials.
        account_certified: upper bound on the true total variation from all these runs, which holds
            with ``confidence`` however often one looks.
        seconds: wall time.
        replay: token that reruns this check alone.
    """

    suite: str
    case: str
    check: str
    family: Family
    status: Status
    reason: str
    trials: int = 0
    statistic: str | None = None
    value: float | None = None
    p_value: float | None = None
    alpha: float = 0.0
    power: float | None = None
    cells: int | None = None
    tv_requested: float | None = None
    tv_detectable: float | None = None
    tv_observed: float | None = None
    tv_certified: float | None = None
    confidence: float | None = None
    request: int | None = None
    position: int | None = None
    branch: Branch | None = None
    cause: str | None = None
    shrunk: Shrunk | None = None
    snippet: str | None = None
    worst: tuple[Cell, ...] = ()
    looks: tuple[Look, ...] = ()
    log_e: float | None = None
    first_trial: int = 0
    account_trials: int | None = None
    account_log_e: float | None = None
    account_certified: float | None = None
    seconds: float = 0.0
    replay: str | None = None


class Asked(Protocol):
    """What a verdict is an answer to: every experiment is one."""

    @property
    def suite(self) -> str:
        """Name of the suite."""
        ...

    @property
    def case(self) -> str:
        """Name of the case."""
        ...


def exact_verdict(
    asked: Asked,
    check: str,
    status: Status,
    reason: str,
    *,
    trials: int = 0,
    started: float | None = None,
) -> Verdict:
    """The answer of an exact check, which spends no alpha.

    Args:
        asked: the experiment.
        check: name of the check, without its family.
        status: what was found.
        reason: one sentence for a person.
        trials: examples behind it.
        started: ``time.perf_counter()`` at the start, if its time is to be told.
    """
    return Verdict(
        suite=asked.suite,
        case=asked.case,
        check=f"{Family.EXACT}/{check}",
        family=Family.EXACT,
        status=status,
        reason=reason,
        trials=trials,
        seconds=0.0 if started is None else time.perf_counter() - started,
    )


def overall(statuses: list[Status]) -> Status:
    """The verdict of a run: the worst of its parts, and never a pass when nothing was verified."""
    for status in (Status.FAIL, Status.INCONCLUSIVE, Status.PASS):
        if status in statuses:
            return status
    return Status.NOT_SUPPORTED


__all__ = [
    "ACCOUNT_STATISTIC",
    "Asked",
    "Cell",
    "Family",
    "Look",
    "Status",
    "Verdict",
    "exact_verdict",
    "overall",
]
