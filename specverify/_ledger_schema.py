"""The tables of the ledger's file.

A *group* is a case of a subject, a *law* an exact probability vector, an *account* a table of a
group with its law.  A *reservation* takes trials out of circulation for ever; a *shard* says that
the trials of a reservation were run; an *entry* is what a shard brought to an account.
Rows are inserted and never changed: triggers refuse the rest, so that a slip of any program that
opens the file is an error and not a wrong total.
"""

from __future__ import annotations

import sqlite3

from specverify._ledger_codec import Value, row_checksum

APPLICATION_ID = 0x73_70_76_6C
"""The letters ``spvl`` in the header of the file: this is a ledger."""

FILE_VERSION = 1
"""Layout of the tables below (``PRAGMA user_version``). A file of another one is refused."""

COLUMNS: dict[str, tuple[str, ...]] = {
    "groups": (
        "id", "subject", "version", "suite", "case_name", "capabilities", "device", "schema",
    ),
    "laws": ("id", "digest", "cells", "data"),
    "accounts": ("id", "group_id", "table_name", "law_id"),
    "reservations": ("id", "group_id", "root_seed", "first_trial", "trials", "created", "run"),
    "shards": ("id", "trials", "tables", "created"),
    "entries": ("id", "shard_id", "account_id", "total", "counts", "log_e"),
}  # fmt: skip
"""Columns of each table, without its checksum, which is SHA-256 over these in this order."""

_TABLES = """
CREATE TABLE groups (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  subject TEXT NOT NULL, version TEXT NOT NULL, suite TEXT NOT NULL, case_name TEXT NOT NULL,
  capabilities TEXT NOT NULL, device TEXT NOT NULL, schema INTEGER NOT NULL,
  checksum BLOB NOT NULL,
  UNIQUE (subject, version, suite, case_name, capabilities, device, schema)
);
CREATE TABLE laws (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  digest TEXT NOT NULL UNIQUE, cells INTEGER NOT NULL CHECK (cells > 0), data BLOB NOT NULL,
  checksum BLOB NOT NULL
);
CREATE TABLE accounts (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  group_id INTEGER NOT NULL REFERENCES groups, table_name TEXT NOT NULL,
  law_id INTEGER NOT NULL REFERENCES laws,
  checksum BLOB NOT NULL,
  UNIQUE (group_id, table_name, law_id)
);
CREATE TABLE reservations (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  group_id INTEGER NOT NULL REFERENCES groups, root_seed INTEGER NOT NULL CHECK (root_seed >= 0),
  first_trial INTEGER NOT NULL CHECK (first_trial >= 0),
  trials INTEGER NOT NULL CHECK (trials > 0),
  created TEXT NOT NULL, run TEXT NOT NULL,
  checksum BLOB NOT NULL,
  UNIQUE (group_id, root_seed, first_trial)
);
CREATE TABLE shards (
  id INTEGER PRIMARY KEY REFERENCES reservations,
  trials INTEGER NOT NULL CHECK (trials > 0), tables INTEGER NOT NULL CHECK (tables > 0),
  created TEXT NOT NULL,
  checksum BLOB NOT NULL
);
CREATE TABLE entries (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  shard_id INTEGER NOT NULL REFERENCES shards, account_id INTEGER NOT NULL REFERENCES accounts,
  total INTEGER NOT NULL CHECK (total > 0), counts BLOB NOT NULL, log_e REAL,
  checksum BLOB NOT NULL,
  UNIQUE (account_id, shard_id)
);
CREATE INDEX entries_of_shard ON entries (shard_id);
CREATE TRIGGER reservations_overlap BEFORE INSERT ON reservations
WHEN EXISTS (
  SELECT 1 FROM reservations WHERE group_id = NEW.group_id AND root_seed = NEW.root_seed
  AND first_trial < NEW.first_trial + NEW.trials AND NEW.first_trial < first_trial + trials
)
BEGIN SELECT RAISE(ABORT, 'these trials are reserved already'); END;
"""

_APPEND_ONLY = """
CREATE TRIGGER {table}_no_{verb} BEFORE {verb} ON {table}
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""


def script() -> str:
    """The statements that make an empty ledger."""
    guards = [
        _APPEND_ONLY.format(table=table, verb=verb)
        for table in COLUMNS
        for verb in ("UPDATE", "DELETE")
    ]
    return "".join(
        [
            "BEGIN EXCLUSIVE;",
            f"PRAGMA application_id = {APPLICATION_ID};",
            f"PRAGMA user_version = {FILE_VERSION};",
            _TABLES,
            *guards,
            "COMMIT;",
        ]
    )


def insert(connection: sqlite3.Connection, table: str, *values: Value) -> int:
    """Insert a row under the next number, with its checksum; only inside a write transaction.

    Args:
        connection: to the ledger.
        table: name of the table.
        values: of its columns after ``id``.

    Returns:
        The number of the row.
    """
    (number,) = connection.execute(f"SELECT COALESCE(MAX(id), 0) + 1 FROM {table}").fetchone()
    insert_as(connection, table, number, *values)
    return int(number)


def insert_as(connection: sqlite3.Connection, table: str, number: int, *values: Value) -> None:
    """Insert a row under a number of the caller's."""
    row = (number, *values)
    columns = COLUMNS[table]
    if len(row) != len(columns):
        raise ValueError(f"{table}: got {len(row)} values; expected {', '.join(columns)}")
    marks = ", ".join("?" * (len(row) + 1))
    names = ", ".join((*columns, "checksum"))
    connection.execute(
        f"INSERT INTO {table} ({names}) VALUES ({marks})", (*row, row_checksum(table, row))
    )
