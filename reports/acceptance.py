"""Acceptance by draft position, read out of the verdicts on acceptance rates and lengths.

The rate of draft j is unconditional: the share of all trials in which drafts 0 .. j were accepted.
Their sum is the mean number of accepted drafts, because E[A] is the sum of P(A > j); one more token
is emitted in every step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from specverify.results import Outcome, VerdictRecord

_RATE, _LENGTH = "acceptance rate of draft", "accepted length"


@dataclasses.dataclass(frozen=True)
class Rate:
    """How often one draft was accepted.

    Attributes:
        position: of the draft.
        observed: share of the trials.
        expected: the same under the law; ``None`` where the verdict does not hold it.
        status: what the check of this rate came to.
    """

    position: int
    observed: float
    expected: float | None
    status: Outcome


@dataclasses.dataclass(frozen=True)
class Acceptance:
    """Rates of one request of one case.

    Attributes:
        case, request: where.
        rates: by position, as far as the verdicts hold them.
        complete: whether they hold the rate of every draft that was checked.
        expected_drafts: mean number of accepted drafts under the law, ``None`` if not known.
    """

    case: str
    request: int
    rates: tuple[Rate, ...]
    complete: bool
    expected_drafts: float | None

    @property
    def drafts(self) -> float | None:
        """Mean number of accepted drafts, ``None`` if a rate is missing."""
        return sum(rate.observed for rate in self.rates) if self.complete else None

    @property
    def failed(self) -> bool:
        """Whether a rate was rejected."""
        return any(rate.status is Outcome.FAIL for rate in self.rates)


def acceptance(verdicts: Iterable[VerdictRecord]) -> tuple[Acceptance, ...]:
    """Rates of every request whose acceptance was checked, in the order of the verdicts."""
    rates: dict[tuple[str, int], list[Rate]] = {}
    silent: set[tuple[str, int]] = set()
    lengths: dict[tuple[str, int], float | None] = {}
    for verdict in verdicts:
        if verdict.family != "coupling" or verdict.request is None:
            continue
        key = verdict.case, verdict.request
        if _LENGTH in verdict.check:
            lengths[key] = _expected_length(verdict)
        rate = _rate(verdict)
        if rate is not None:
            rates.setdefault(key, []).append(rate)
        elif _RATE in verdict.check:
            silent.add(key)
    return tuple(
        Acceptance(
            *key,
            rates=tuple(sorted(found, key=lambda rate: rate.position)),
            complete=key not in silent,
            expected_drafts=None if key in silent else _mean(found, lengths.get(key)),
        )
        for key, found in rates.items()
    )


def _mean(rates: list[Rate], from_length: float | None) -> float | None:
    known = [rate.expected for rate in rates if rate.expected is not None]
    return sum(known) if len(known) == len(rates) else from_length


def _rate(verdict: VerdictRecord) -> Rate | None:
    """The two cells of a rate are *passed 0* and *passed 1*; without them, the statistic tells."""
    if _RATE not in verdict.check or verdict.position is None or not verdict.trials:
        return None
    passed = next((cell for cell in verdict.worst if cell.label == "passed 1"), None)
    if passed is not None:
        observed, expected = passed.observed / verdict.trials, passed.expected / verdict.trials
        return Rate(verdict.position, observed, expected, verdict.status)
    if verdict.statistic != "binomial" or verdict.value is None:
        return None
    return Rate(verdict.position, verdict.value, None, verdict.status)


def _expected_length(verdict: VerdictRecord) -> float | None:
    if not verdict.trials or sum(cell.observed for cell in verdict.worst) != verdict.trials:
        return None  # some cells are missing
    return sum(int(c.label.split()[-1]) * c.expected for c in verdict.worst) / verdict.trials
