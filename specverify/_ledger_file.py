"""The ledger's file: made whole or not at all, opened or refused, never waited for too long.

Everything that is read before a file is trusted goes through SQLite itself.  Opening the file a
second time by other means and closing it would drop the POSIX locks of the whole process.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import NoReturn

from specverify._ledger_schema import APPLICATION_ID, FILE_VERSION, script


class LedgerError(ValueError):
    """The file cannot be used as a ledger: not one, damaged, locked, read-only, or the disk full.

    A ``ValueError``, because the file is something that the user gave.
    """


_PRAGMAS = (
    "foreign_keys = ON",
    # FULL: evidence that was reported to a person must not vanish with the power. A shard is two
    # commits, so the price is two fsyncs for thousands or millions of trials.
    "synchronous = FULL",
    "trusted_schema = OFF",
    "cell_size_check = ON",
)


def connect(path: Path, mode: str, timeout: float) -> sqlite3.Connection:
    """A connection in autocommit mode; transactions are explicit.

    Args:
        path: absolute, of an existing file.
        mode: SQLite's URI parameters, ``mode=rw``, ``mode=ro`` or ``mode=ro&immutable=1``.
        timeout: seconds to wait for a lock.

    Raises:
        sqlite3.Error: if it cannot be opened.
    """
    uri = f"{path.as_uri()}?{mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None)
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def translated(path: Path, timeout: float) -> Generator[None, None, None]:
    """Around database work: errors of SQLite become sentences.

    Raises:
        LedgerError: in place of ``sqlite3.Error``.
    """
    try:
        yield
    except UnicodeDecodeError as error:  # a name in SQLite's own message, from a damaged page
        raise LedgerError(f"ledger {path}: it is damaged: {error}") from error
    except sqlite3.Error as error:
        fail(path, timeout, error)


def fail(path: Path, timeout: float, error: sqlite3.Error) -> NoReturn:
    """Say what an error of SQLite means for the user.

    Raises:
        LedgerError: always.
    """
    # The low byte is the primary code; the rest says where it happened.
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    said = {
        sqlite3.SQLITE_BUSY: f"another process has held its lock for more than {timeout:g} s",
        sqlite3.SQLITE_LOCKED: "another connection of this process holds its lock",
        sqlite3.SQLITE_FULL: "the disk is full; nothing was written",
        sqlite3.SQLITE_IOERR: "the disk cannot be read or written; nothing was recorded",
        sqlite3.SQLITE_READONLY: "it cannot be written (read-only file or folder)",
        sqlite3.SQLITE_CANTOPEN: "it cannot be opened (read-only folder, or no permission)",
        sqlite3.SQLITE_PERM: "it cannot be opened (no permission)",
        sqlite3.SQLITE_NOTADB: "it is not a ledger",
        sqlite3.SQLITE_CORRUPT: "it is damaged",
    }.get(code, "SQLite refused the work")
    raise LedgerError(f"ledger {path}: {said}: {error}") from error


def create(path: Path, timeout: float) -> None:
    """Make an empty ledger under a temporary name and put it in place at once.

    A process killed on the way leaves at most a hidden temporary file.  If two processes create the
    same ledger, one of them finds that it exists, which is as good.

    Raises:
        LedgerError: if the folder does not exist, cannot be written or is full.
    """
    stale = path.with_name(f"{path.name}-wal")
    if stale.exists():
        raise LedgerError(
            f"ledger {path}: the file is missing, but {stale.name} beside it holds commits; put "
            "the ledger back, or move that file away"
        )
    if not path.parent.is_dir():
        raise LedgerError(f"ledger {path}: its folder does not exist")
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.new")
    try:
        with translated(path, timeout):
            _write_empty(fresh, timeout)
        _put_in_place(fresh, path)
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)


def _write_empty(fresh: Path, timeout: float) -> None:
    with contextlib.closing(connect(fresh, "mode=rwc", timeout)) as connection:
        connection.executescript(script())
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise sqlite3.OperationalError(f"no write-ahead log on this file system, only {mode}")


def _put_in_place(fresh: Path, path: Path) -> None:
    try:
        # A link, not a rename: it fails when the name is taken, and so never replaces a ledger.
        path.hardlink_to(fresh)
    except FileExistsError:
        return
    except OSError as error:
        raise LedgerError(f"ledger {path}: it cannot be created: {error}") from error
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def require_ledger(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is no ledger, or one of another version.

    Raises:
        LedgerError: if it is.
        sqlite3.Error: if it cannot be read.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise LedgerError(
            f"ledger {path}: it is not a ledger (application id {application:#x}; expected "
            f"{APPLICATION_ID:#x})"
        )
    if version != FILE_VERSION:
        raise LedgerError(
            f"ledger {path}: its file version is {version}; this specverify reads and writes "
            f"version {FILE_VERSION} only"
        )


def has_wal(path: Path) -> bool:
    """Whether the ledger has a write-ahead file: it is open somewhere, or a process was killed."""
    return path.with_name(f"{path.name}-wal").exists()


def untouched_mode(path: Path) -> str:
    """How to look at a file without leaving a trace.

    Without a write-ahead file nobody has it open, and reading it as immutable makes no side files.
    """
    return "mode=ro" if has_wal(path) else "mode=ro&immutable=1"


def reading_mode(path: Path) -> str:
    """How to open a ledger for reading while others may write to it.

    Readers of a write-ahead log take part in its locking, so they need its side files.  Where the
    folder cannot be written, nobody writes there either.
    """
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return "mode=rw"
    return untouched_mode(path)


def fingerprint(path: Path) -> tuple[int, int, bool]:
    """What changes when somebody writes: size, time of change, and whether there is a log."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, has_wal(path)


def connect_checked(path: Path, read_only: bool, timeout: float) -> sqlite3.Connection:
    """A connection to a file that has been looked at; for writing, proved able to write.

    Raises:
        LedgerError: if the file system cannot hold a write-ahead log.
        sqlite3.Error: if the file cannot be opened, written or locked.
    """
    connection = connect(path, reading_mode(path) if read_only else "mode=rw", timeout)
    try:
        if read_only:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("SELECT 1 FROM groups LIMIT 1").fetchone()
            return connection
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        # SQLite opens what it cannot write for reading and says so at the first write only.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    if mode != "wal":
        connection.close()
        raise LedgerError(f"ledger {path}: its file system holds no write-ahead log, only {mode}")
    return connection
