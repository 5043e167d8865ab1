"""Is the ledger as it was written, and does it add up?

:func:`damage` is what every opening asks: SQLite's own structure and the checksum of every row.
:func:`audit` recomputes everything that can be recomputed.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from specverify import _ledger_file
from specverify._ledger_codec import row_checksum, unpack_counts, unpack_law
from specverify._ledger_keys import law_digest
from specverify._ledger_schema import COLUMNS, script

Question = Callable[[sqlite3.Connection], list[str]]


def examine(path: Path, timeout: float, question: Question) -> list[str]:
    """Ask a file for its problems without a trace of having looked.

    Args:
        path: absolute, of an existing file.
        timeout: seconds to wait for a lock.
        question: :func:`damage`, :func:`audit` or :func:`nothing`.

    Raises:
        LedgerError: if it is not a ledger, or one of another version.
        sqlite3.Error: if it cannot be read.
    """
    mode = _ledger_file.untouched_mode(path)
    before = _ledger_file.fingerprint(path)
    problems = _asked(path, mode, timeout, question)
    if problems and _ledger_file.fingerprint(path) != before:
        # Somebody began to write while the file was read without locks: look again, with them.
        problems = _asked(path, "mode=ro", timeout, question)
    return problems


def _asked(path: Path, mode: str, timeout: float, question: Question) -> list[str]:
    with contextlib.closing(_ledger_file.connect(path, mode, timeout)) as connection:
        _ledger_file.require_ledger(connection, path)
        connection.execute("BEGIN")  # one state, however long it takes
        return question(connection)


def nothing(connection: sqlite3.Connection) -> list[str]:  # noqa: ARG001
    """No problems beyond those that :func:`examine` itself finds."""
    return []


def damage(connection: sqlite3.Connection) -> list[str]:
    """Problems of the file itself: structure, tables, references, checksums of rows."""
    return _collected(connection, (_structure, _tables, _references, _checksums))


def audit(connection: sqlite3.Connection) -> list[str]:
    """Every problem that can be found: :func:`damage`, lost rows, laws, sums and overlaps."""
    deep = (_lost_rows, _laws, _entries, _incomplete_shards, _overlaps)
    return damage(connection) + _collected(connection, deep)


_Check = Callable[[sqlite3.Connection], Iterator[str]]


def _collected(connection: sqlite3.Connection, checks: tuple[_Check, ...]) -> list[str]:
    problems: list[str] = []
    for check in checks:
        try:
            problems.extend(check(connection))
        except (sqlite3.Error, ValueError, TypeError, OverflowError, MemoryError) as error:
            # What cannot be read is a problem, and damage may put any value anywhere; the other
            # checks may still say more.
            problems.append(f"{check.__name__.strip('_').replace('_', ' ')}: {error}")
    return problems


def _structure(connection: sqlite3.Connection) -> Iterator[str]:
    for (said,) in connection.execute("PRAGMA integrity_check"):
        if said != "ok":
            yield f"structure: {said}"


def _tables(connection: sqlite3.Connection) -> Iterator[str]:
    """Tables, constraints and triggers are those of an empty ledger."""
    wanted = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        empty.executescript(script())
        expected = set(empty.execute(wanted))
    for kind, name, _ in sorted(expected ^ set(connection.execute(wanted)), key=repr):
        yield f"{kind} {name}: it is not what a ledger has"


def _references(connection: sqlite3.Connection) -> Iterator[str]:
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield f"{table} row {row}: refers to a missing row of {parent}"


def _checksums(connection: sqlite3.Connection) -> Iterator[str]:
    for table, columns in COLUMNS.items():
        for *values, checksum in connection.execute(
            f"SELECT {', '.join(columns)}, checksum FROM {table}"
        ):
            if row_checksum(table, values) != checksum:
                yield f"{table} row {values[0]}: its checksum does not match"


def _lost_rows(connection: sqlite3.Connection) -> Iterator[str]:
    """Rows are numbered without gaps, and SQLite remembers the last number apart from them."""
    last = dict(connection.execute("SELECT name, seq FROM sqlite_sequence"))
    for table in COLUMNS:
        if table == "shards":  # numbered like their reservations, of which some are never run
            continue
        (rows,) = connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
        if rows != last.get(table, 0):
            yield f"{table}: {rows} rows are left of {last.get(table, 0)}"


def _laws(connection: sqlite3.Connection) -> Iterator[str]:
    for number, digest, cells, data in connection.execute(
        "SELECT id, digest, cells, data FROM laws"
    ):
        try:
            found = law_digest(unpack_law(data, cells))
        except ValueError as error:
            yield f"laws row {number}: {error}"
            continue
        if found != digest:
            yield f"laws row {number}: its digest is {found[:16]}, not {digest[:16]}"


def _entries(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute(
        "SELECT e.id, e.total, e.counts, l.cells, s.trials, r.trials FROM entries e "
        "JOIN accounts a ON a.id = e.account_id JOIN laws l ON l.id = a.law_id "
        "JOIN shards s ON s.id = e.shard_id JOIN reservations r ON r.id = s.id"
    )
    for number, total, data, cells, trials, reserved in rows:
        try:
            counts = unpack_counts(data, cells)
        except ValueError as error:
            yield f"entries row {number}: {error}"
            continue
        if int(counts.sum()) != total or int(counts.min()) < 0:
            yield f"entries row {number}: its counts do not sum to {total}"
        if not fits(total, trials):
            yield f"entries row {number}: {total} entries do not fit {trials} trials"
        if trials > reserved:
            yield f"entries row {number}: {trials} trials were run of {reserved} reserved"


def fits(total: int, trials: int) -> bool:
    """Whether so many entries can come from so many trials.

    One entry for every k trials (k = 2 for pairs; a last short group is dropped), or k from each.
    """
    if not 0 < total < trials:
        return total >= trials > 0 and total % trials == 0
    return trials // (trials // total) == total


def _incomplete_shards(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute(
        "SELECT s.id, s.tables, COUNT(e.id), COUNT(DISTINCT a.table_name), "
        "SUM(a.group_id <> r.group_id) FROM shards s JOIN reservations r ON r.id = s.id "
        "LEFT JOIN entries e ON e.shard_id = s.id LEFT JOIN accounts a ON a.id = e.account_id "
        "GROUP BY s.id"
    )
    for number, tables, found, distinct, strangers in rows:
        if not tables == found == distinct:
            yield f"shard {number}: it has {found} entries in {distinct} tables of {tables}"
        if strangers:
            yield f"shard {number}: {strangers} of its entries belong to another case"


def _overlaps(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute(
        "SELECT id, group_id, root_seed, first_trial, trials FROM reservations "
        "ORDER BY group_id, root_seed, first_trial"
    )
    stop: dict[tuple[int, int], int] = {}
    for number, group, root_seed, first_trial, trials in rows:
        if first_trial < stop.get((group, root_seed), 0):
            yield f"reservation {number}: its trials from {first_trial} on are taken twice"
        stop[group, root_seed] = max(stop.get((group, root_seed), 0), first_trial + trials)
