"""Questions that the ledger answers; every function takes a connection and changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import numpy as np

from specverify._ledger_codec import unpack_counts, unpack_law
from specverify._ledger_keys import (
    Account,
    AccountGroup,
    FloatArray,
    SeedRange,
    ShardEntry,
    Totals,
    joined,
)

GROUP_COLUMNS = "subject, version, suite, case_name, capabilities, device, schema"


def group_values(group: AccountGroup) -> tuple[str, str, str, str, str, str, int]:
    """The values of ``GROUP_COLUMNS``."""
    return (
        group.subject, group.version, group.suite, group.case, group.capabilities, group.device,
        group.schema,
    )  # fmt: skip


def group_id(connection: sqlite3.Connection, group: AccountGroup) -> int | None:
    """The number of a group, ``None`` if the ledger has none."""
    row = connection.execute(
        f"SELECT id FROM groups WHERE ({GROUP_COLUMNS}) = (?, ?, ?, ?, ?, ?, ?)",
        group_values(group),
    ).fetchone()
    return None if row is None else int(row[0])


def first_unused(
    connection: sqlite3.Connection, group: AccountGroup, root_seed: int, multiple: int
) -> int:
    """The next trial that nobody has reserved, rounded up to a multiple."""
    row = connection.execute(
        "SELECT first_trial + trials FROM reservations WHERE group_id = ? AND root_seed = ? "
        "ORDER BY first_trial DESC LIMIT 1",
        (group_id(connection, group), root_seed),
    ).fetchone()
    used = 0 if row is None else int(row[0])
    return -(-used // multiple) * multiple


def numbered_accounts(connection: sqlite3.Connection) -> Iterator[tuple[int, Account]]:
    """Every account with its number, in the order of the key."""
    rows = connection.execute(
        f"SELECT a.id, a.table_name, l.digest, l.cells, {GROUP_COLUMNS} FROM accounts a "
        "JOIN groups g ON g.id = a.group_id JOIN laws l ON l.id = a.law_id "
        f"ORDER BY {GROUP_COLUMNS}, a.id"
    ).fetchall()
    for number, table, law, cells, *key in rows:
        fields = ("subject", "version", "suite", "case", "capabilities", "device", "schema")
        group = AccountGroup(**dict(zip(fields, key, strict=True)))
        yield number, Account(group=group, table=table, law=law, cells=cells)


def account_id(connection: sqlite3.Connection, account: Account) -> int | None:
    """The number of an account, ``None`` if the ledger has none."""
    row = connection.execute(
        "SELECT a.id FROM accounts a JOIN laws l ON l.id = a.law_id "
        "WHERE a.group_id = ? AND a.table_name = ? AND l.digest = ?",
        (group_id(connection, account.group), account.table, account.law),
    ).fetchone()
    return None if row is None else int(row[0])


def law(connection: sqlite3.Connection, digest: str) -> FloatArray:
    """The law of a digest.

    Raises:
        ValueError: if the ledger does not hold it, or its bytes are damaged.
    """
    row = connection.execute("SELECT data, cells FROM laws WHERE digest = ?", (digest,)).fetchone()
    if row is None:
        raise ValueError(f"law: got digest {digest}; the ledger holds no such law")
    return unpack_law(row[0], row[1])


_ENTRIES = (
    "FROM entries e JOIN shards s ON s.id = e.shard_id JOIN reservations r ON r.id = s.id "
    "WHERE e.account_id = ? ORDER BY r.root_seed, r.first_trial"
)


def shards(connection: sqlite3.Connection, number: int | None) -> list[ShardEntry]:
    """What every shard brought to the account of this number, in the order of the trials."""
    rows = connection.execute(
        "SELECT r.root_seed, r.first_trial, s.trials, e.total, e.log_e, s.created, r.run "
        f"{_ENTRIES}",
        (number,),
    )
    return [
        ShardEntry(
            trials=SeedRange(root_seed, first_trial, first_trial + trials),
            entries=total,
            log_e=log_e,
            created=created,
            run=run,
        )
        for root_seed, first_trial, trials, total, log_e, created, run in rows
    ]


def totals(connection: sqlite3.Connection, account: Account) -> Totals:
    """The sum over the shards of an account.

    Raises:
        ValueError: if stored bytes are damaged.
    """
    number = account_id(connection, account)
    counts = np.zeros(account.cells, dtype=np.int64)
    for (data,) in connection.execute(f"SELECT e.counts {_ENTRIES}", (number,)):
        counts += unpack_counts(data, account.cells)
    parts = shards(connection, number)
    logs = [part.log_e for part in parts if part.log_e is not None]
    return Totals(
        counts=counts,
        trials=sum(part.trials.trials for part in parts),
        entries=sum(part.entries for part in parts),
        ranges=joined([part.trials for part in parts]),
        shards=len(parts),
        log_e=sum(logs) if parts and len(logs) == len(parts) else None,
    )
