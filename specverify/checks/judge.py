"""From counts and a law to a verdict."""

from __future__ import annotations

import numpy as np

from specverify import evidence
from specverify.cases import FloatArray
from specverify.checks.experiment import Settings
from specverify.checks.tables import Table
from specverify.checks.verdict import Cell, Family, Status, Verdict
from specverify.trials import IntArray


def judge_table(
    table: Table,
    counts: IntArray,
    *,
    suite: str,
    case: str,
    settings: Settings,
    planned: int,
    requested_tv: float,
) -> Verdict:
    """Test the counts of one table against its law.

    The decision is Cressie-Read on pooled cells, for tables of two cells the exact binomial; the
    total variation and its certificate stand beside it.  Pairs are tested for independence with
    the margins that were seen, so that a wrong margin is not called dependence.  The requested
    deviation is the run's, or what the planned number of trials detects in a table of this size,
    whichever is larger; it never depends on how many trials were run.

    Args:
        table: what was counted, and its law.
        counts: [cells] int64.
        suite: where the check belongs.
        case: likewise.
        settings: alpha share, power and confidence.
        planned: entries that the full budget would have put into this table.
        requested_tv: the run's requested deviation.
    """
    law = table.law()
    total = int(counts.sum())
    found = _test(table, counts, law, settings)
    certificate = evidence.certificate(counts, law, settings.confidence)
    promised = max(requested_tv, _detectable(table, law, planned, settings))
    reached = found.detectable_tv <= promised * (1 + 1e-9)
    status = Status.FAIL if found.rejected else Status.PASS if reached else Status.INCONCLUSIVE
    return Verdict(
        suite=suite,
        case=case,
        check=f"{table.family}/{table.name}",
        family=table.family,
        status=status,
        reason=_reason(table.family, found, certificate, status, promised),
        trials=total,
        statistic=found.statistic,
        value=found.value,
        p_value=found.p_value,
        alpha=settings.alpha,
        power=settings.power,
        cells=found.cells,
        tv_requested=promised,
        tv_detectable=found.detectable_tv,
        tv_observed=certificate.tv_observed,
        tv_certified=certificate.tv_upper,
        confidence=certificate.confidence,
        request=table.request,
        position=table.position,
        worst=_worst(table, counts, law, total) if status is Status.FAIL else (),
    )


def _test(table: Table, counts: IntArray, law: FloatArray, settings: Settings) -> evidence.Evidence:
    """Cressie-Read; for two cells the exact binomial; for pairs the test of independence."""
    if table.family is Family.INDEPENDENCE:
        rows, columns = _margins(table, law)
        return evidence.independence(
            counts.reshape(table.shape), rows, columns, alpha=settings.alpha, power=settings.power
        )
    if law.shape[0] == 2:
        total = int(counts.sum())
        return evidence.binomial_test(
            int(counts[1]), total, float(law[1]), alpha=settings.alpha, power=settings.power
        )
    return evidence.cressie_read(counts, law, alpha=settings.alpha, power=settings.power)


def _margins(table: Table, law: FloatArray) -> tuple[FloatArray, FloatArray]:
    pairs = law.reshape(table.shape)
    return pairs.sum(axis=1), pairs.sum(axis=0)


def _detectable(table: Table, law: FloatArray, trials: int, settings: Settings) -> float:
    if table.family is Family.INDEPENDENCE:
        return evidence.independence_detectable(
            *_margins(table, law), trials, alpha=settings.alpha, power=settings.power
        )
    if law.shape[0] == 2:
        return evidence.binomial_detectable(
            float(law[1]), trials, alpha=settings.alpha, power=settings.power
        )
    pooling = evidence.pool(law, trials)
    return evidence.pooled_detectable_tv(pooling, trials, settings.alpha, settings.power)


def _reason(
    family: Family,
    found: evidence.Evidence,
    certificate: evidence.Certificate,
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
            f"TV about {certificate.tv_observed:.3g}"
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


def _worst(table: Table, counts: IntArray, law: FloatArray, total: int) -> tuple[Cell, ...]:
    cells = evidence.worst_cells(counts, law)
    expected = np.asarray(law) * total
    return tuple(Cell(table.label(int(c)), int(counts[c]), float(expected[c])) for c in cells)
