"""From counts and a law to a verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from specverify import evidence
from specverify.cases import FloatArray
from specverify.checks.experiment import Settings
from specverify.checks.tables import EXACT, Table
from specverify.checks.verdict import Cell, Family, Look, Status, Verdict
from specverify.checks.watch import LOOKING_SHARE, Alarm, TableWatch, likely_cause, margins
from specverify.trials import IntArray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What every table of a case has in common.

    Attributes:
        suite: where the check belongs.
        case: likewise.
        settings: alpha share, power and confidence.
        planned: trials that the requested deviation needs.
        trials: trials that were run.
        requested_tv: the run's requested deviation.
    """

    suite: str
    case: str
    settings: Settings
    planned: int
    trials: int
    requested_tv: float

    def entries(self, total: int) -> int:
        """Entries that the planned trials would put into a table that now holds ``total``."""
        return -(-self.planned * max(total, 1) // self.trials)


SMALL_TABLE = 6
"""Tables up to this size are shown whole; of larger ones that pass, no cell is worth a look."""


def judge_table(
    table: Table, counts: IntArray, question: Question, looks: Sequence[Look] = ()
) -> Verdict:
    """Test the counts of one table at the full budget.

    The decision is Cressie-Read on pooled cells, for tables of two cells the exact binomial; the
    total variation and its certificate stand beside it.  Pairs are tested for independence with
    the margins that were seen, so that a wrong margin is not called dependence.  The requested
    deviation is the run's, or what the planned number of trials detects in a table of this size,
    whichever is larger; it never depends on how many trials were run.

    Args:
        table: what was counted, and its law.
        counts: [cells] int64.
        question: the rest.
        looks: what was known on the way; kept if the table fails.
    """
    settings = question.settings
    alpha = settings.alpha * (1 - LOOKING_SHARE)
    law = table.law()
    found = _test(table, counts, law, alpha, settings.power)
    planned = question.entries(int(counts.sum()))
    promised = max(question.requested_tv, _detectable(table, law, planned, alpha, settings.power))
    reached = found.detectable_tv <= promised * (1 + 1e-9)
    forgiven = found.rejected and _forgiven(table, counts, law, found, alpha)
    rejected = found.rejected and not forgiven
    status = Status.FAIL if rejected else Status.PASS if reached else Status.INCONCLUSIVE
    base = _base(table, counts, question)
    failed = status is Status.FAIL
    cause = _cause(table, counts, law) if failed else None
    return dataclasses.replace(
        base,
        status=status,
        reason=_reason(table.family, found, base.tv_observed or 0.0, status, promised)
        + (FORGIVEN if forgiven else "")
        + _because(cause),
        branch=table.branch if failed else None,
        cause=cause,
        statistic=found.statistic,
        value=found.value,
        p_value=found.p_value,
        cells=found.cells,
        tv_requested=promised,
        tv_detectable=found.detectable_tv,
        worst=_worst(table, counts, law) if failed or law.shape[0] <= SMALL_TABLE else (),
        looks=tuple(looks) if failed else (),
        log_e=looks[-1].log_e if looks else None,
    )


def judge_early(watch: TableWatch, question: Question) -> Verdict:
    """The verdict of a table when a case stopped before its full budget."""
    table, counts = watch.table, watch.counts
    base = dataclasses.replace(_base(table, counts, question), log_e=watch.log_e)
    if watch.alarm is None:
        return dataclasses.replace(
            base,
            status=Status.INCONCLUSIVE,
            reason=f"stopped after {question.trials} trials: another check of this case failed",
        )
    total = int(counts.sum())
    return dataclasses.replace(
        base,
        status=Status.FAIL,
        reason=_alarm_reason(watch.alarm, total, question.entries(total)),
        statistic=watch.alarm.statistic,
        value=watch.alarm.value,
        p_value=watch.alarm.p_value,
        tv_requested=question.requested_tv,
        branch=watch.alarm.branch or table.branch,
        cause=watch.alarm.cause,
        worst=_worst(table, counts, watch.law),
        looks=tuple(watch.looks),
    )


def _base(table: Table, counts: IntArray, question: Question) -> Verdict:
    """What a verdict on a table holds whatever it comes to."""
    certificate = evidence.certificate(counts, table.law(), question.settings.confidence)
    return Verdict(
        suite=question.suite,
        case=question.case,
        check=f"{table.family}/{table.name}",
        family=table.family,
        status=Status.INCONCLUSIVE,
        reason="",
        trials=int(counts.sum()),
        alpha=question.settings.alpha,
        power=question.settings.power,
        tv_observed=certificate.tv_observed,
        tv_certified=certificate.tv_upper,
        confidence=certificate.confidence,
        request=table.request,
        position=table.position,
    )


def _test(
    table: Table, counts: IntArray, law: FloatArray, alpha: float, power: float
) -> evidence.Evidence:
    """Cressie-Read; for two cells the exact binomial; for pairs the test of independence."""
    if table.family is Family.INDEPENDENCE:
        rows, columns = margins(table, law)
        return evidence.independence(
            counts.reshape(table.shape), rows, columns, alpha=alpha, power=power
        )
    if law.shape[0] == 2:
        total = int(counts.sum())
        return evidence.binomial_test(
            int(counts[1]), total, float(law[1]), alpha=alpha, power=power
        )
    return evidence.cressie_read(counts, law, alpha=alpha, power=power)


FORGIVEN = "; the deviation is within what the declared arithmetic alone may cause"


def _forgiven(
    table: Table, counts: IntArray, law: FloatArray, found: evidence.Evidence, alpha: float
) -> bool:
    """Whether some law within the float allowance of the subject explains the counts."""
    if found.zero_hits or table.allowed == EXACT or table.family is Family.INDEPENDENCE:
        return False
    return not evidence.tolerant_test(counts, law, table.allowed, alpha=alpha).rejected


def _detectable(table: Table, law: FloatArray, trials: int, alpha: float, power: float) -> float:
    if table.family is Family.INDEPENDENCE:
        return evidence.independence_detectable(
            *margins(table, law), trials, alpha=alpha, power=power
        )
    if law.shape[0] == 2:
        return evidence.binomial_detectable(float(law[1]), trials, alpha=alpha, power=power)
    return evidence.pooled_detectable_tv(evidence.pool(law, trials), trials, alpha, power)


def _alarm_reason(alarm: Alarm, total: int, planned: int) -> str:
    budget = f"alarm at {total} trials (the fixed test runs {planned})"
    cause = _because(alarm.cause)
    if alarm.zero_hits:
        return f"{alarm.zero_hits} trials fell where the law has probability 0: {budget}{cause}"
    kind = "pairs are not independent" if "independence" in alarm.statistic else "law rejected"
    return f"{kind}, p = {alarm.p_value:.2g}: {budget}{cause}"


def _cause(table: Table, counts: IntArray, law: FloatArray) -> str | None:
    """What explains the counts of a table that failed at its full budget, as it does early."""
    if table.suspects is None or table.family is Family.INDEPENDENCE:
        return None
    return likely_cause(counts, law, table.suspects(law))


LIKELY = "; likely cause: "
"""What stands between a reason and its cause."""


def _because(cause: str | None) -> str:
    return f"{LIKELY}{cause}" if cause else ""


def _reason(
    family: Family,
    found: evidence.Evidence,
    observed: float,
    status: Status,
    promised: float,
) -> str:
    if found.zero_hits:
        return f"{found.zero_hits} of {found.trials} trials fell where the law has probability 0"
    if status is Status.FAIL and family is Family.INDEPENDENCE:
        return f"{found.trials} pairs are not independent: p = {found.p_value:.2g}"
    if status is Status.FAIL:
        return (
            f"{found.trials} trials do not follow the law: p = {found.p_value:.2g}, "
            f"TV about {observed:.3g}"
        )
    if status is Status.INCONCLUSIVE:
        return (
            f"{found.trials} trials catch TV {found.detectable_tv:.3g}; "
            f"TV {promised:.3g} was asked for"
        )
    merged = f" between pooled cells ({found.merged_mass:.0%} of the mass is merged)"
    return (
        f"{found.trials} trials follow the law; TV {found.detectable_tv:.3g}"
        f"{merged if found.merged_mass >= 0.005 else ''} would have been caught"
    )


def _worst(table: Table, counts: IntArray, law: FloatArray) -> tuple[Cell, ...]:
    cells = evidence.worst_cells(counts, law)
    expected = np.asarray(law) * int(counts.sum())
    return tuple(Cell(table.label(int(c)), int(counts[c]), float(expected[c])) for c in cells)
