"""What a shard brings, checked and compressed before the lock is taken, and how rows are written.

Everything slow (digests, compression) happens outside the write transaction, so that a writer
holds the lock for the time of the inserts alone.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import sqlite3
from collections.abc import Mapping

import numpy.typing as npt

from specverify import _ledger_read
from specverify._ledger_audit import fits
from specverify._ledger_codec import pack
from specverify._ledger_keys import (
    Account,
    AccountGroup,
    Reservation,
    below,
    law_values,
    name,
)
from specverify._ledger_schema import insert, insert_as
from specverify.evidence import validate

TRIAL_LIMIT = 1 << 56
"""Trials of one root seed: the counter of the streams has this many."""
SEED_LIMIT = 1 << 63
"""Root seeds below this fit SQLite's integers."""


@dataclasses.dataclass(frozen=True)
class Prepared:
    """One table of a shard, ready to be inserted."""

    account: Account
    total: int
    counts: bytes
    law: bytes | None
    log_e: float | None


def prepare(
    connection: sqlite3.Connection,
    group: AccountGroup,
    trials: int,
    counts: Mapping[str, npt.ArrayLike],
    laws: Mapping[str, npt.ArrayLike],
    log_e: Mapping[str, float],
) -> list[Prepared]:
    """Check and compress the tables of a shard.

    Raises:
        ValueError: naming the field and the table that is wrong.
    """
    if not counts:
        raise ValueError("counts: got no table; expected every table of the case")
    if laws.keys() != counts.keys():
        raise ValueError(f"laws: got {sorted(laws)}; expected one for each of {sorted(counts)}")
    if not log_e.keys() <= counts.keys():
        raise ValueError(f"log_e: got {sorted(log_e)}; expected names among {sorted(counts)}")
    return [
        _prepared(connection, group, table, trials, counts[table], laws[table], log_e.get(table))
        for table in counts
    ]


def _prepared(
    connection: sqlite3.Connection,
    group: AccountGroup,
    table: str,
    trials: int,
    counts: npt.ArrayLike,
    law: npt.ArrayLike,
    log_e: float | None,
) -> Prepared:
    name("counts: table name", table)
    validate.law(f"laws[{table!r}]", law)
    account = Account.of(group, table, law)
    checked = validate.table(f"counts[{table!r}]", counts, account.cells)
    total = int(checked.sum())
    if not fits(total, trials):
        raise ValueError(
            f"counts[{table!r}]: got a sum of {total}; expected {trials}, or one entry for every "
            f"few of the {trials} trials, or as many from each"
        )
    if log_e is not None and (not isinstance(log_e, int | float) or math.isnan(log_e)):
        raise ValueError(f"log_e[{table!r}]: got {log_e!r}; expected a number")
    known = connection.execute("SELECT 1 FROM laws WHERE digest = ?", (account.law,)).fetchone()
    return Prepared(
        account=account,
        total=total,
        counts=pack(checked),
        law=None if known else pack(law_values(law)),
        log_e=None if log_e is None else float(log_e),
    )


def reserve(
    connection: sqlite3.Connection,
    group: AccountGroup,
    root_seed: int,
    trials: int,
    multiple: int,
    run: str,
) -> Reservation:
    """Take the next trials; inside a write transaction.

    Raises:
        ValueError: if the root seed has no trials left.
    """
    number = _ledger_read.group_id(connection, group)
    if number is None:
        number = insert(connection, "groups", *_ledger_read.group_values(group))
    first = _ledger_read.first_unused(connection, group, root_seed, multiple)
    below("trials", first + trials, 1, TRIAL_LIMIT + 1)
    row = (number, root_seed, first, trials, now(), run)
    return Reservation(
        id=insert(connection, "reservations", *row),
        group=group,
        root_seed=root_seed,
        first_trial=first,
        trials=trials,
    )


def commit(
    connection: sqlite3.Connection, reservation: Reservation, trials: int, tables: list[Prepared]
) -> None:
    """Write a shard with all its tables; inside a write transaction.

    Raises:
        ValueError: if the reservation is not of this ledger, or was committed before.
    """
    group = _require_reserved(connection, reservation)
    insert_as(connection, "shards", reservation.id, trials, len(tables), now())
    for table in tables:
        account = _account_id(connection, group, table)
        insert(
            connection, "entries", reservation.id, account, table.total, table.counts, table.log_e
        )


def _require_reserved(connection: sqlite3.Connection, reservation: Reservation) -> int:
    row = connection.execute(
        "SELECT group_id, root_seed, first_trial, trials FROM reservations WHERE id = ?",
        (reservation.id,),
    ).fetchone()
    group = _ledger_read.group_id(connection, reservation.group)
    key = (group, reservation.root_seed, reservation.first_trial, reservation.trials)
    if row is None or row != key:
        raise ValueError(f"reservation: got {reservation}; this ledger never gave it")
    if connection.execute("SELECT 1 FROM shards WHERE id = ?", (reservation.id,)).fetchone():
        raise ValueError(f"reservation: got number {reservation.id}, which was committed before")
    return int(row[0])


def _account_id(connection: sqlite3.Connection, group: int, table: Prepared) -> int:
    account = table.account
    found = _ledger_read.account_id(connection, account)
    if found is not None:
        return found
    law = connection.execute("SELECT id FROM laws WHERE digest = ?", (account.law,)).fetchone()
    if law is None:
        if table.law is None:
            raise RuntimeError(f"law {account.law} was in the ledger and is gone")
        law_id = insert(connection, "laws", account.law, account.cells, table.law)
    else:
        law_id = int(law[0])
    return insert(connection, "accounts", group, account.table, law_id)


def now() -> str:
    """The time, ISO 8601 in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def checked_trials(trials: int | None, reservation: Reservation) -> int:
    """The number of trials that were run of a reservation; all of them if not said.

    Raises:
        ValueError: if there are none, or more than were reserved.
    """
    if trials is None:
        return reservation.trials
    return below("trials", trials, 1, reservation.trials + 1)
