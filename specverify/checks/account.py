"""One run's share of a ledger: take unused trials, record what came of them, add everything up.

The trials of all runs are fresh, so two e-processes span them.  The *product* of the runs'
e-values: every run bets anew, with what the runs before it have won.  And the bet that *goes on*:
the composite bet on all counts so far, as if the runs were one.  It pays for not knowing the
deviation once, the product every night, so it finds what is too small for any single night; the
product does not care what happened before.  Their mean is an e-process as well: if the law holds,
it reaches 1 / alpha at *any* night with probability at most alpha (Ville's inequality; Ramdas,
Gruenwald, Vovk & Shafer 2023, Statist. Sci. 38:576).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from specverify._ledger_certificate import account_certificate
from specverify.checks.experiment import Settings
from specverify.checks.verdict import ACCOUNT_STATISTIC, Status, Verdict
from specverify.checks.watch import TableWatch, looking_alpha
from specverify.ledger import (
    AccountGroup,
    Ledger,
    Reservation,
    Totals,
    capabilities_digest,
    source_digest,
)
from specverify.subjects import Subject


def subject_version(subject: Subject) -> str:
    """What the ledger takes for the version of a subject.

    Raises:
        ValueError: if it has no version and its source cannot be read.
    """
    return subject.version or source_digest(subject.sampler)


def group_of(subject: Subject, suite: str, case: str, device: str) -> AccountGroup:
    """The accounts of one case of a subject.

    Args:
        subject: the sampler.
        suite: name of the suite.
        case: name of the case.
        device: torch device; its number is of no account.

    Raises:
        ValueError: as :func:`subject_version`.
    """
    return AccountGroup(
        subject=subject.name,
        version=subject_version(subject),
        suite=suite,
        case=case,
        capabilities=capabilities_digest(subject.capabilities),
        device=device.partition(":")[0],
    )


@dataclasses.dataclass(frozen=True)
class Shard:
    """Trials of a ledger that belong to this run.

    The file is opened anew for each transaction: a connection would not survive the fork of a
    worker, and opening takes less than a millisecond.

    Attributes:
        ledger: path of the file.
        reservation: the trials.
    """

    ledger: str
    reservation: Reservation

    @classmethod
    def of_run(
        cls, subject: Subject, suite: str, case: str, settings: Settings, trials: int, step: int
    ) -> Shard | None:
        """The next unused trials of a case of this run; ``None`` if it keeps no ledger.

        Args:
            subject: the sampler under test.
            suite: name of the suite.
            case: the name that the trials are drawn by: of recorded rows it holds their digest.
            settings: of the run.
            trials: how many; rounded up to whole steps.
            step: trials that cannot be divided.

        Raises:
            LedgerError: if the file cannot be written.
            ValueError: as :func:`subject_version`.
        """
        if settings.ledger is None:
            return None
        group = group_of(subject, suite, case.removeprefix(f"{suite}/"), settings.device)
        return cls.take(settings.ledger, group, settings.root_seed, trials, step)

    @classmethod
    def take(
        cls, ledger: str, group: AccountGroup, root_seed: int, trials: int, step: int
    ) -> Shard:
        """Reserve the next unused trials of a case.

        Args:
            ledger: path of a file whose soundness was checked when the run began.
            group: the accounts.
            root_seed: of the run.
            trials: how many; rounded up to whole steps.
            step: trials that cannot be divided, as :func:`specverify.trials.block_size`.

        Raises:
            LedgerError: if the file cannot be written.
        """
        whole = -(-trials // step) * step
        with Ledger.open(ledger, check=False) as opened:
            return cls(ledger, opened.reserve(group, root_seed, whole, multiple=step))

    def settle(self, watches: Sequence[TableWatch], done: int) -> list[Totals]:
        """Record the counts of all tables at once, and add up each account.

        Args:
            watches: the tables with the counts of this run.
            done: trials that were run; the others are lost.

        Returns:
            the totals of each table, in order, this run included.

        Raises:
            LedgerError: if the file cannot be written; then nothing was recorded.
        """
        with Ledger.open(self.ledger, check=False) as opened:
            accounts = opened.commit(
                self.reservation,
                {watch.table.name: watch.counts for watch in watches},
                {watch.table.name: watch.law for watch in watches},
                trials=done,
                log_e={
                    watch.table.name: watch.log_e for watch in watches if watch.log_e is not None
                },
            )
            return [opened.totals(accounts[watch.table.name]) for watch in watches]


def first_trial_of(shard: Shard | None, settings: Settings) -> int:
    """Where the trials of a run begin: at its shard, or where a replay is told to, or at 0."""
    return shard.reservation.first_trial if shard else settings.first_trial or 0


def with_accounts(
    verdicts: Sequence[Verdict],
    watches: Sequence[TableWatch],
    shard: Shard | None,
    done: int,
    settings: Settings,
) -> list[Verdict]:
    """Settle a shard, and give each verdict what its account holds.

    Args:
        verdicts: of this run alone, one for each watch.
        watches: the tables with the counts of this run.
        shard: of the run; without one the verdicts stay as they are.
        done: trials that were run.
        settings: of the run.

    Raises:
        LedgerError: as :meth:`Shard.settle`.
    """
    if shard is None:
        return list(verdicts)
    found = shard.settle(watches, done)
    return [
        with_account(verdict, watch, totals, settings)
        for verdict, watch, totals in zip(verdicts, watches, found, strict=True)
    ]


def with_account(
    verdict: Verdict, watch: TableWatch, totals: Totals, settings: Settings
) -> Verdict:
    """The verdict of a run with what the account holds; a failure if all runs together reject.

    Args:
        verdict: of this run alone.
        watch: its table.
        totals: of the account, this run included.
        settings: of the run.
    """
    found = account_certificate(totals.counts, watch.law, settings.confidence)
    log_e = _log_e(watch, totals)
    verdict = dataclasses.replace(
        verdict,
        account_trials=totals.trials,
        account_log_e=log_e,
        account_certified=found.tv_upper,
    )
    needed = -math.log(looking_alpha(settings))
    if verdict.status is Status.FAIL or log_e is None or log_e < needed:
        return verdict
    return dataclasses.replace(
        verdict,
        status=Status.FAIL,
        reason=(
            f"this run alone does not reject, but the evidence of all {totals.shards} runs in the "
            f"ledger together does: log e = {log_e:.1f} after {totals.trials} trials, "
            f"{needed:.1f} rejects (bets on fresh trials multiply, so adding up is lawful)"
        ),
        statistic=ACCOUNT_STATISTIC,
        value=log_e,
        p_value=math.exp(-log_e),
        cells=None,
        tv_detectable=None,
        looks=tuple(watch.looks),
    )


def _log_e(watch: TableWatch, totals: Totals) -> float | None:
    """Ln of the mean of both e-values of all runs; ``None`` for pairs."""
    going_on = watch.log_e_of(totals.counts)
    if totals.log_e is None or going_on is None:
        return None
    return float(np.logaddexp(totals.log_e, going_on)) - math.log(2)
