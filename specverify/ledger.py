"""The ledger: an account of evidence that grows from run to run, in one SQLite file.

A run takes trials that nobody has used (:meth:`Ledger.reserve`), runs them, and records all tables
of the case at once (:meth:`Ledger.commit`).  Reserving and committing are one transaction each, so
a process may be killed at any moment: its unfinished shard is lost, its trials are never used
again, and nothing is ever counted twice.  Several processes may write at the same time.
What an account is, is the business of ``specverify._ledger_keys``; ``docs/ledger.md`` describes
the file.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Generator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy.typing as npt

from specverify import _ledger_audit, _ledger_file, _ledger_read, _ledger_write
from specverify._ledger_export import export_ledger
from specverify._ledger_file import LedgerError
from specverify._ledger_keys import (
    TRIALS_SCHEMA,
    Account,
    AccountGroup,
    FloatArray,
    Reservation,
    SeedRange,
    ShardEntry,
    Totals,
    below,
    capabilities_digest,
    digest,
    law_digest,
    name,
    source_digest,
)
from specverify.evidence import validate

LOCK_TIMEOUT = 30.0
"""Seconds to wait for another writer. A writer holds the lock for the inserts of one shard."""


class Ledger:
    """An open ledger; a context manager. Made by :meth:`open`, used by one thread of one process.

    Attributes:
        path: of the file, absolute.
        read_only: whether it was opened for reading.
    """

    def __init__(
        self, path: Path, read_only: bool, connection: sqlite3.Connection, timeout: float
    ) -> None:
        """Use :meth:`open`."""
        self.path = path
        self.read_only = read_only
        self._connection = connection
        self._timeout = timeout
        self._process = os.getpid()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        read_only: bool = False,
        *,
        check: bool = True,
        timeout: float = LOCK_TIMEOUT,
    ) -> Self:
        """Open a ledger, or create it.

        A file that is not a ledger, has another file version or is damaged is refused and left as
        it is, to the byte.

        Args:
            path: of the file; created if it does not exist, unless ``read_only``.
            read_only: change nothing; the file and its folder may be read-only.
            check: read the whole file and check its structure and the checksum of every row. A
                process that opens what its parent has just checked may leave that out.
            timeout: seconds to wait for the lock of another process, in this and in every later
                call.

        Raises:
            LedgerError: if the file cannot be used, and why.
            ValueError: if ``timeout`` is not a positive number.
        """
        where = _existing(path, timeout, create=not read_only)
        with _ledger_file.translated(where, timeout):
            question = _ledger_audit.damage if check else _ledger_audit.nothing
            problems = _ledger_audit.examine(where, timeout, question)
            if problems:
                more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
                raise LedgerError(f"ledger {where}: it is damaged: {problems[0]}{more}")
            connection = _ledger_file.connect_checked(where, read_only, timeout)
        return cls(where, read_only, connection, timeout)

    def close(self) -> None:
        """Close the file; the ledger cannot be used afterwards."""
        if os.getpid() == self._process:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def next_trial(self, group: AccountGroup, root_seed: int, *, multiple: int = 2) -> int:
        """The trial that :meth:`reserve` would begin with; others may take it meanwhile.

        Raises:
            LedgerError: if the file cannot be read.
            ValueError: naming the field that is wrong.
        """
        _checked_seed(root_seed, multiple)
        with self._reading() as connection:
            return _ledger_read.first_unused(connection, group, root_seed, multiple)

    def reserve(
        self,
        group: AccountGroup,
        root_seed: int,
        trials: int,
        *,
        multiple: int = 2,
        run: str = "run",
    ) -> Reservation:
        """Take the next unused trials of a case, for this process alone and for ever.

        Args:
            group: the subject and the case.
            root_seed: in [0, 2**63).
            trials: how many, at least 1.
            multiple: the first trial is a multiple of it: 2 for pairs of trials, the block for
                subjects without per-request seeds.
            run: name of the run, for people.

        Returns:
            The reservation; its ``first_trial`` is where to begin.

        Raises:
            LedgerError: if the file cannot be written, or is locked for longer than the timeout.
            ValueError: naming the field that is wrong.
        """
        _checked_seed(root_seed, multiple)
        below("trials", trials, 1, _ledger_write.TRIAL_LIMIT + 1)
        name("run", run)
        with self._writing() as connection:
            return _ledger_write.reserve(connection, group, root_seed, trials, multiple, run)

    def commit(
        self,
        reservation: Reservation,
        counts: Mapping[str, npt.ArrayLike],
        laws: Mapping[str, npt.ArrayLike],
        *,
        trials: int | None = None,
        log_e: Mapping[str, float] | None = None,
    ) -> dict[str, Account]:
        """Record all tables of a shard, in one transaction.

        Args:
            reservation: from :meth:`reserve`, of this file.
            counts: [cells] integers >= 0 for each table, by name.
            laws: [cells] the exact law of each table, as the counts were judged by.
            trials: the trials that were run, if fewer than reserved (early stopping): the first
                ones. The rest is lost.
            log_e: natural logarithm of the e-value of this shard alone, by table, where there is
                one.

        Returns:
            The account of each table.

        Raises:
            LedgerError: if the file cannot be written, or is locked for longer than the timeout;
                nothing was recorded, and the same call may be made again.
            ValueError: naming the field that is wrong, or if the reservation was committed before.
        """
        run = _ledger_write.checked_trials(trials, reservation)
        with self._reading() as connection:
            tables = _ledger_write.prepare(
                connection, reservation.group, run, counts, laws, log_e or {}
            )
        with self._writing() as connection:
            _ledger_write.commit(connection, reservation, run, tables)
        return {table.account.table: table.account for table in tables}

    def accounts(self, group: AccountGroup | None = None) -> list[Account]:
        """Every account, or those of one case, in the order of their keys.

        Raises:
            LedgerError: if the file cannot be read.
        """
        with self._reading() as connection:
            found = [account for _, account in _ledger_read.numbered_accounts(connection)]
        return [account for account in found if group in (None, account.group)]

    def totals(self, account: Account) -> Totals:
        """Counts, trials and seed ranges of an account; zeros if nothing was ever recorded.

        Raises:
            LedgerError: if the file cannot be read.
            ValueError: if stored counts are damaged.
        """
        with self._reading() as connection:
            return _ledger_read.totals(connection, account)

    def shards(self, account: Account) -> list[ShardEntry]:
        """What each shard brought to an account, in the order of its trials.

        Raises:
            LedgerError: if the file cannot be read.
        """
        with self._reading() as connection:
            return _ledger_read.shards(connection, _ledger_read.account_id(connection, account))

    def law(self, account: Account | str) -> FloatArray:
        """The law of an account or of a digest: [cells] float64, to the bit as it was given.

        Raises:
            LedgerError: if the file cannot be read.
            ValueError: if the ledger does not hold it.
        """
        wanted = account.law if isinstance(account, Account) else digest("law", account)
        with self._reading() as connection:
            return _ledger_read.law(connection, wanted)

    def verify(self) -> list[str]:
        """Recompute checksums, digests, sums and ranges.

        Returns:
            The problems in words; none if the ledger is exact.

        Raises:
            LedgerError: if the file cannot be read at all.
        """
        with self._reading() as connection:
            return _ledger_audit.audit(connection)

    def export(
        self, path: str | os.PathLike[str], format: str = "csv", what: str = "shards"
    ) -> int:
        """Write the ledger as a flat table; an existing file is replaced, at once or not at all.

        Args:
            path: of the file to write.
            format: ``csv`` (UTF-8, one header line) or ``parquet`` (needs pyarrow).
            what: ``shards``, one row for each shard and account; or ``cells``, one row for each
                cell of each account with its probability and its total count.

        Returns:
            Number of rows.

        Raises:
            LedgerError: if the ledger cannot be read.
            ValueError: if an argument is wrong, pyarrow is absent or the file cannot be written.
        """
        with self._reading() as connection:
            return export_ledger(connection, self.path, Path(path), format, what)

    @contextlib.contextmanager
    def _reading(self) -> Generator[sqlite3.Connection, None, None]:
        """Around several reads of one and the same state."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextlib.contextmanager
    def _writing(self) -> Generator[sqlite3.Connection, None, None]:
        """Around a write; IMMEDIATE, so that what is read inside cannot change before it ends."""
        if self.read_only:
            raise LedgerError(f"ledger {self.path}: it was opened for reading only")
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Generator[sqlite3.Connection, None, None]:
        if os.getpid() != self._process:
            raise LedgerError(
                f"ledger {self.path}: it was opened by process {self._process}; a connection does "
                "not survive a fork, open the ledger in each process"
            )
        with _ledger_file.translated(self.path, self._timeout):
            self._connection.execute(begin)
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                # After an error, also one of COMMIT itself; SQLite may have rolled back already.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")


def _checked_seed(root_seed: int, multiple: int) -> None:
    below("root_seed", root_seed, 0, _ledger_write.SEED_LIMIT)
    below("multiple", multiple, 1, _ledger_write.TRIAL_LIMIT + 1)


def verify_file(path: str | os.PathLike[str], *, timeout: float = LOCK_TIMEOUT) -> list[str]:
    """What :meth:`Ledger.verify` finds, also in a file that is too damaged to be opened.

    The file is left as it is, to the byte.

    Returns:
        The problems in words; none if the ledger is exact.

    Raises:
        LedgerError: if there is no such file, or it is not a ledger of this version.
        ValueError: if ``timeout`` is not a positive number.
    """
    where = _existing(path, timeout)
    with _ledger_file.translated(where, timeout):
        return _ledger_audit.examine(where, timeout, _ledger_audit.audit)


def _existing(path: str | os.PathLike[str], timeout: float, create: bool = False) -> Path:
    """The absolute path of a file that exists.

    Raises:
        LedgerError: if there is none, or it is not a file.
        ValueError: if ``timeout`` is not a positive number.
    """
    validate.positive("timeout", timeout)
    try:
        where = Path(path).resolve()
        if create and not where.exists():
            _ledger_file.create(where, timeout)
        if not where.exists():
            raise LedgerError(f"ledger {where}: there is no such file")
        if not where.is_file():
            raise LedgerError(f"ledger {where}: it is not a regular file")
    except OSError as error:
        raise LedgerError(f"ledger {path}: it cannot be reached: {error}") from error
    return where


__all__ = [
    "LOCK_TIMEOUT",
    "TRIALS_SCHEMA",
    "Account",
    "AccountGroup",
    "Ledger",
    "LedgerError",
    "Reservation",
    "SeedRange",
    "ShardEntry",
    "Totals",
    "capabilities_digest",
    "law_digest",
    "source_digest",
    "verify_file",
]
