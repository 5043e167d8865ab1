"""Files that are not, or no longer, sound ledgers; locks and readers."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3

import numpy as np
import pytest
from ledger_cases import (
    LAWS,
    account,
    assert_as_filled,
    fill,
    group,
    outcomes,
    shard,
)

from specverify import _ledger_schema
from specverify._ledger_audit import fits
from specverify._ledger_codec import pack, row_checksum
from specverify.ledger import (
    Ledger,
    LedgerError,
    verify_file,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "evidence.ledger"


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    made = tmp_path_factory.mktemp("ledger") / "evidence.ledger"
    fill(made)
    return made


@pytest.fixture
def filled(path, made_once):
    """A closed ledger as ``fill`` makes it."""
    shutil.copy(made_once, path)
    return path


def test_what_is_written_is_never_changed(filled):
    with contextlib.closing(sqlite3.connect(filled)) as connection:
        for table in _ledger_schema.COLUMNS:
            for statement in (f"UPDATE {table} SET id = id + 100", f"DELETE FROM {table}"):
                with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                    connection.execute(statement)
        with pytest.raises(sqlite3.IntegrityError, match="reserved already"):
            _ledger_schema.insert(connection, "reservations", 1, 0, 999, 2, "now", "run")
    assert verify_file(filled) == []


def doctored(path, statement, *values):
    """Change a closed ledger as no program should: triggers aside, checksums recomputed."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(statement, values)
        for table, columns in _ledger_schema.COLUMNS.items():
            for row in connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall():
                connection.execute(
                    f"UPDATE {table} SET checksum = ? WHERE id = ?",
                    (row_checksum(table, row), row[0]),
                )
        for _, sql in triggers:
            connection.execute(sql)
        connection.commit()


LESS = outcomes("small", 0, 0, 999)


@pytest.mark.parametrize(
    ("statement", "values", "said"),
    [
        ("UPDATE entries SET counts = ? WHERE id = 2", [pack(LESS)], "do not sum to 1000"),
        ("UPDATE entries SET counts = ?, total = 999 WHERE id = 2", [pack(LESS)],
         "999 entries do not fit 1000 trials"),
        ("UPDATE entries SET counts = ? WHERE id = 2", [pack(LESS[1:])], "got 48 bytes"),
        ("UPDATE entries SET counts = ? WHERE id = 2", [b"no"], "does not decompress"),
        ("DELETE FROM entries WHERE id = 2", [], "entries: 11 rows are left of 12"),
        ("DELETE FROM entries WHERE id = 12", [], "it has 2 entries in 2 tables of 3"),
        ("UPDATE accounts SET table_name = 'wide ' WHERE id = 99 OR law_id = 1", [], None),
        ("UPDATE laws SET data = ? WHERE cells = 7", [pack(np.arange(7) / 21)], "its digest is"),
        ("UPDATE laws SET data = ? WHERE cells = 7", [pack(np.ones(7))], "a sum of 7"),
        ("UPDATE shards SET trials = 2000 WHERE id = 1", [], "2000 trials were run of 1000"),
        ("UPDATE reservations SET first_trial = 1500 WHERE id = 4", [], "are taken twice"),
        ("UPDATE accounts SET group_id = 2 WHERE id = 1", [], "refers to a missing row of groups"),
        ("UPDATE entries SET total = 'many' WHERE id = 2", [], "do not sum to many"),
        ("UPDATE laws SET cells = 1 << 62 WHERE id = 2", [], "laws"),
        ("UPDATE sqlite_schema SET type = CAST(type AS BLOB) WHERE name = 'entries_of_shard'", [],
         "index entries_of_shard: it is not what"),
        ("DROP INDEX entries_of_shard", [], "index entries_of_shard: it is not what"),
    ],
)  # fmt: skip
def test_verify_finds_what_does_not_add_up(filled, statement, values, said):
    doctored(filled, statement, *values)
    problems = verify_file(filled)
    # A table under another name is another account, and exact: a control for the doctor itself.
    assert any(said in problem for problem in problems) if said else problems == []


def test_entries_of_another_case_are_found(filled):
    with Ledger.open(filled) as ledger:
        ledger.reserve(group(case="another"), 0, 10)
    doctored(filled, "UPDATE accounts SET group_id = 2 WHERE table_name = 'small'")
    assert [p for p in verify_file(filled) if "belong to another case" in p]


@pytest.mark.parametrize(
    ("total", "trials", "fit"),
    [(10, 10, True), (5, 10, True), (5, 11, True), (30, 10, True), (3, 10, True),
     (9, 10, False), (11, 10, False), (6, 10, False), (0, 10, False), (10, 0, False)],
)  # fmt: skip
def test_entries_fit_trials(total, trials, fit):
    assert fits(total, trials) is fit


def content(folder):
    return {item.name: item.read_bytes() for item in folder.iterdir()}


def _text(path):
    path.write_text("not a ledger\n" * 500)


def _other_database(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE groups (id INTEGER)")


def _other_version(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")


def _cut_off(path):
    os.truncate(path, path.stat().st_size // 2)


def _flipped(path):
    data = bytearray(path.read_bytes())
    where = data.index(row_checksum_of(path))
    data[where] ^= 1
    path.write_bytes(data)


def row_checksum_of(path):
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        return connection.execute("SELECT checksum FROM entries WHERE id = 2").fetchone()[0]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_text, "it is not a ledger"),
        (lambda path: path.write_bytes(b""), "it is not a ledger"),
        (_other_database, "it is not a ledger"),
        (_other_version, "file version is 2; this specverify reads and writes version 1"),
        (_cut_off, "it is damaged"),
        (_flipped, "entries row 2: its checksum does not match"),
    ],
)
def test_a_file_that_is_no_sound_ledger_is_refused_and_left_untouched(
    filled, damage, said, read_only
):
    if damage in (_text, _other_database):
        filled.unlink()
    damage(filled)
    before = content(filled.parent)
    with pytest.raises(LedgerError, match=r"evidence\.ledger") as caught:
        Ledger.open(filled, read_only)
    assert said in str(caught.value)
    assert content(filled.parent) == before


def test_any_changed_byte_is_noticed_or_changes_nothing(filled):
    """SQLite keeps counters of its own and bytes of no use; everything else must be noticed."""
    sound = filled.read_bytes()
    used = [place for place, byte in enumerate(sound) if byte]
    schema = [place for place in used if place < 8192]  # whose damage SQLite reports in many ways
    places = random.Random(7)
    noticed = 0
    for turn in range(200):
        data = bytearray(sound)
        data[places.choice(used if turn % 4 else schema)] ^= 1 << places.randrange(8)
        filled.write_bytes(data)
        try:
            ledger = Ledger.open(filled, read_only=True)
        except LedgerError:
            noticed += 1
            assert filled.read_bytes() == data
            continue
        with ledger:
            assert_as_filled(ledger)
    assert noticed > 100


def test_damage_behind_a_pending_log_is_refused_and_left_untouched(filled, tmp_path):
    """As after a kill: the log holds commits, and opening for writing would move them."""
    copy = tmp_path / "copy"
    copy.mkdir()
    with Ledger.open(filled) as ledger:
        shard(ledger)
        for item in tmp_path.glob("evidence.ledger*"):
            shutil.copy(item, copy)
    shutil.copytree(copy, tmp_path / "control")
    with Ledger.open(tmp_path / "control" / filled.name) as ledger:
        assert ledger.totals(account()).trials == 5000
    path = copy / filled.name
    _flip_law(path)
    before = content(copy)
    with pytest.raises(LedgerError, match="damaged"):
        Ledger.open(path)
    assert verify_file(path)
    after = content(copy)
    # The index of the log is rebuilt by every reader; it holds no evidence.
    for name in before:
        if not name.endswith("-shm"):
            assert after[name] == before[name]


def _flip_law(path):
    data = bytearray(path.read_bytes())
    data[data.index(pack(LAWS["small"])) + 5] ^= 1
    path.write_bytes(data)


def test_a_log_without_its_ledger_is_not_built_upon(path):
    path.with_name("evidence.ledger-wal").write_bytes(b"commits")
    with pytest.raises(LedgerError, match=r"evidence\.ledger-wal beside it holds commits"):
        Ledger.open(path)
    with pytest.raises(LedgerError, match="no such file"):
        Ledger.open(path, read_only=True)
    with pytest.raises(LedgerError, match="not a regular file"):
        Ledger.open(path.parent)


def test_nobody_waits_longer_than_the_timeout(filled):
    with (
        contextlib.closing(sqlite3.connect(filled, isolation_level=None)) as other,
        Ledger.open(filled, timeout=0.05) as ledger,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"held its lock for more than 0\.05 s"):
            ledger.reserve(group(), 0, 10)
        with pytest.raises(LedgerError, match=r"held its lock for more than 0\.05 s"):
            Ledger.open(filled, timeout=0.05)
        assert_as_filled(ledger)  # readers do not wait
        other.execute("ROLLBACK")
        assert ledger.reserve(group(), 0, 10).first_trial == 3500


def test_a_reader_does_not_write(filled):
    before = content(filled.parent)
    with Ledger.open(filled, read_only=True) as ledger:
        with pytest.raises(LedgerError, match="opened for reading only"):
            ledger.reserve(group(), 0, 10)
        with pytest.raises(sqlite3.OperationalError):
            ledger._connection.execute("DROP TABLE entries")
    assert content(filled.parent) == before
