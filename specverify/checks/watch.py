"""Looking while trials come in: a broken sampler is rejected in a fraction of the budget.

Half of a test's share of alpha pays for looking, half for the test at the full budget.  Tables with
a law are watched by the composite e-process, which may be looked at as often as one likes (Ville's
inequality); pairs by the test of independence, whose looks share their half.  With a ledger, the
half for looking pays for two: for the looks of this run, and for the evidence of all runs together.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from specverify import evidence
from specverify.cases import FloatArray
from specverify.checks.diagnosis import Branch
from specverify.checks.experiment import Settings
from specverify.checks.suspicion import OR, branch_of
from specverify.checks.tables import EXACT, Table
from specverify.checks.verdict import Family, Look
from specverify.trials import IntArray

GROWTH = 1.5
"""Ratio of the trials at one look and the look before."""
FIRST_LOOK = 1_000
LOOKING_SHARE = 0.5
"""Share of a test's alpha that is spent on looking early."""


def looking_alpha(settings: Settings) -> float:
    """What the looks of one run may spend; with a ledger, the account may spend as much again."""
    shard = settings.ledger is not None or settings.first_trial is not None
    return settings.alpha * LOOKING_SHARE / (2 if shard else 1)


def schedule(trials: int, block: int) -> list[int]:
    """Trials at each look: whole blocks, growing geometrically, the last one the full budget.

    Args:
        trials: the full budget.
        block: trials in one call of the subject.
    """
    looks = {trials}
    at = float(trials)
    while (at := at / GROWTH) >= min(FIRST_LOOK, trials / GROWTH):
        looks.add(min(trials, max(1, round(at / block)) * block))
    return sorted(looks)


@dataclasses.dataclass(frozen=True)
class Alarm:
    """Why a table was rejected before the full budget."""

    statistic: str
    value: float
    p_value: float
    zero_hits: int
    cause: str | None
    branch: Branch | None = None


class TableWatch:
    """One table under watch.

    Args:
        table: with its law.
        settings: of the run; ``alpha`` is the share of this test.
        looks: how many there will be before the full budget.
    """

    def __init__(self, table: Table, settings: Settings, looks: int) -> None:
        self.table = table
        self.law = table.law()
        self.counts = np.zeros(table.cells, dtype=np.int64)
        self.alarm: Alarm | None = None
        self.looks: list[Look] = []
        self._settings = settings
        self._alpha = looking_alpha(settings)
        self._looks = max(looks, 1)
        self._suspects = table.suspects(self.law) if table.suspects is not None else []
        self._process = self._make_process()

    @property
    def log_e(self) -> float | None:
        """Ln of the e-value of all trials so far; ``None`` for pairs, which have none."""
        return self.looks[-1].log_e if self.looks else None

    def log_e_of(self, counts: IntArray) -> float | None:
        """Ln of the e-value of any counts of this table, by the same bets; ``None`` for pairs."""
        process = self._make_process()
        return None if process is None else process.add(counts).log_e

    def _make_process(self) -> evidence.SequentialTest | None:
        if self.table.family is Family.INDEPENDENCE:
            return None
        return evidence.SequentialTest(self.law, alpha=self._alpha, suspects=self._suspects)

    def look(self, new: IntArray, *, last: bool) -> None:
        """Add counts and look; ``alarm`` is set once the table is rejected.

        Pairs are not looked at when the budget is full: their fixed test follows.
        """
        self.counts = self.counts + new
        if last and self.table.family is Family.INDEPENDENCE:
            return
        if self.table.family is Family.INDEPENDENCE:
            self.alarm = self._pairs()
        elif self._process is not None:
            found = self._process.add(new)
            self.looks.append(self._record(found))
            self.alarm = self._bets(found)

    def _record(self, found: evidence.AnytimeEvidence) -> Look:
        certificate = evidence.certificate(self.counts, self.law, self._settings.confidence)
        return Look(
            trials=found.trials,
            log_e=found.log_e,
            tv_observed=certificate.tv_observed,
            tv_certified=certificate.tv_upper,
            rejects_at=-math.log(self._alpha),
        )

    def _bets(self, found: evidence.AnytimeEvidence) -> Alarm | None:
        if not found.rejected or self._forgiven(found):
            return None
        cause = likely_cause(self.counts, self.law, self._suspects)
        return Alarm(
            statistic="composite e-process (log e)",
            value=found.log_e,
            p_value=found.p_value,
            zero_hits=found.zero_hits,
            cause=cause,
            branch=branch_of(cause),
        )

    def _forgiven(self, found: evidence.AnytimeEvidence) -> bool:
        """Whether the bets win no more than the subject's arithmetic may hand them."""
        if found.zero_hits or self.table.allowed == EXACT:
            return False
        cost = evidence.envelope_cost(self.counts, self.law, self.table.allowed)
        return found.log_e_max - cost < -math.log(self._alpha)

    def _pairs(self) -> Alarm | None:
        rows, columns = margins(self.table, self.law)
        found = evidence.independence(
            self.counts.reshape(self.table.shape),
            rows,
            columns,
            alpha=self._alpha / self._looks,
            power=self._settings.power,
        )
        if not found.rejected:
            return None
        return Alarm(found.statistic, found.value, found.p_value, 0, None)


EXPLAINED, NEARLY_ALL = 0.9, 0.95
"""Shares of the deviation: what a suspect must explain before it is named, and what it must where
the counts tell it from the truth; some bets are right in kind only, a leak of 3 for one of 5 %."""
ALIKE = 1e-6
"""Difference of log-likelihoods up to which two suspects have one law: rounding."""
MOST_CAUSES = 3
KEPT = 0.999
"""Probability that the suspect which is true is not dropped for the noise in the counts."""
_FLOOR = 1e-9


def likely_cause(
    counts: IntArray, law: FloatArray, suspects: Sequence[evidence.Suspect]
) -> str | None:
    """The suspect that explains the counts best, if it explains the deviation.

    Suspects that explain them as well, because they would emit the same, are named beside it.

    What is to be explained is the log-likelihood between the law and the observed frequencies
    (n times their relative entropy), with a small floor under every probability.
    """
    frequencies = counts / max(1, int(counts.sum()))
    best = _log_likelihood(counts, frequencies)
    gap = best - _log_likelihood(counts, law)
    scores = [(_log_likelihood(counts, suspect.law), suspect.name) for suspect in suspects]
    score = max((score for score, _ in scores), default=-np.inf)
    noise = float(stats.chi2.ppf(KEPT, max(1, law.shape[0] - 1))) / 2  # Wilks: of the true law
    left = best - score
    if left > (1 - EXPLAINED) * gap or (left > noise and left > (1 - NEARLY_ALL) * gap):
        return None
    same = [name for found, name in sorted(scores, reverse=True) if found >= score - ALIKE]
    return OR.join(same[:MOST_CAUSES])


def _log_likelihood(counts: IntArray, law: FloatArray) -> float:
    seen = counts > 0
    return float(counts[seen] @ np.log(np.maximum(law[seen], _FLOOR)))


def margins(table: Table, law: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The laws of the two members of a pair."""
    pairs = law.reshape(table.shape)
    return pairs.sum(axis=1), pairs.sum(axis=0)
