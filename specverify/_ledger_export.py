"""The ledger as a flat table for other tools: CSV with the standard library, Parquet with pyarrow.

Rows are made one account at a time and written beside the target, which is replaced at the end: a
reader never sees half a file.
"""

from __future__ import annotations

import contextlib
import csv
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from specverify import _ledger_read
from specverify._ledger_codec import Value
from specverify._ledger_keys import Account
from specverify._optional import require

Rows = list[tuple[Value, ...]]

SHARD_COLUMNS = {
    "account": "int64", "subject": "string", "version": "string", "suite": "string",
    "case": "string", "check": "string", "capabilities": "string", "device": "string",
    "schema": "int64", "law": "string", "cells": "int64", "root_seed": "int64",
    "first_trial": "int64", "trials": "int64", "entries": "int64", "log_e": "float64",
    "created": "string", "run": "string",
}  # fmt: skip
"""Columns of the table of shards, with their types. ``account`` joins it to the other one."""

CELL_COLUMNS = {
    "account": "int64", "cell": "int64", "probability": "float64", "count": "int64",
}  # fmt: skip
"""Columns of the table of cells, with their types."""


def export_ledger(
    connection: sqlite3.Connection, ledger: Path, target: Path, format: str, what: str
) -> int:
    """Write one of the two tables; see :meth:`specverify.ledger.Ledger.export`.

    Raises:
        ValueError: if an argument is wrong, pyarrow is absent or the file cannot be written.
    """
    if what not in ("shards", "cells"):
        raise ValueError(f"what: got {what!r}; expected shards or cells")
    writers = {"csv": _write_csv, "parquet": _write_parquet}
    if format not in writers:
        raise ValueError(f"format: got {format!r}; expected csv or parquet")
    taken = [ledger.with_name(ledger.name + suffix) for suffix in ("", "-wal", "-shm")]
    if target.resolve() in taken or (target.exists() and target.samefile(ledger)):
        raise ValueError(f"path: got {target}, the ledger itself; expected another file")
    columns, rows = (SHARD_COLUMNS, _shard_rows) if what == "shards" else (CELL_COLUMNS, _cell_rows)
    accounts = _ledger_read.numbered_accounts(connection)
    parts = (rows(connection, number, account) for number, account in accounts)
    fresh = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.new")
    try:
        written = writers[format](fresh, columns, parts)
        fresh.replace(target)
    except OSError as error:
        raise ValueError(f"path: {target} cannot be written: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
    return written


def _shard_rows(connection: sqlite3.Connection, number: int, account: Account) -> Rows:
    group = account.group
    key = (
        number, group.subject, group.version, group.suite, group.case, account.table,
        group.capabilities, group.device, group.schema, account.law, account.cells,
    )  # fmt: skip
    return [
        (
            *key, shard.trials.root_seed, shard.trials.first_trial, shard.trials.trials,
            shard.entries, shard.log_e, shard.created, shard.run,
        )
        for shard in _ledger_read.shards(connection, number)
    ]  # fmt: skip


def _cell_rows(connection: sqlite3.Connection, number: int, account: Account) -> Rows:
    law = _ledger_read.law(connection, account.law).tolist()
    counts = _ledger_read.totals(connection, account).counts.tolist()
    return [(number, cell, p, n) for cell, (p, n) in enumerate(zip(law, counts, strict=True))]


_Writer = Callable[[Path, dict[str, str], Iterator[Rows]], int]


def _write_csv(path: Path, columns: dict[str, str], parts: Iterator[Rows]) -> int:
    written = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for rows in parts:
            writer.writerows(rows)
            written += len(rows)
    return written


def _write_parquet(path: Path, columns: dict[str, str], parts: Iterator[Rows]) -> int:
    arrow = require("pyarrow", "parquet")
    parquet = require("pyarrow.parquet", "parquet")
    schema = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in columns.items()])
    written = 0
    with parquet.ParquetWriter(path, schema) as writer:
        for rows in parts:
            arrays = zip(*rows, strict=True)
            table = [arrow.array(a, f.type) for a, f in zip(arrays, schema, strict=True)]
            writer.write_table(arrow.Table.from_arrays(table, schema=schema))
            written += len(rows)
    return written
