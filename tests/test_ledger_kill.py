"""Processes that write to one ledger, at once and until they are killed.

What is asked is always the same: the ledger holds exactly the trials that it says, each once.  A
ledger that committed its tables one by one, counted a reservation, or handed out the same trials
twice, would be found out by the counts, which are a function of the trial numbers.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sqlite3
import time

import ledger_writer
import numpy as np
import pytest
from ledger_cases import CELLS, account, outcomes, shard

from specverify.ledger import Ledger, LedgerError, verify_file

KILLS = 50


@pytest.fixture(scope="module")
def context():
    """Processes that are forked from a small server, which has imported what is slow."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["specverify.ledger"])
    return made


def told(context, target, *args):
    """Run a function in a process of its own and return what it says."""
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(*args, theirs))
    process.start()
    theirs.close()
    said = ours.recv()
    process.join()
    ours.close()
    process.close()
    return said


def committed(path):
    """(root seed, first trial, trials) of every shard, from SQL of the test's own."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            "SELECT root_seed, first_trial, s.trials FROM shards s JOIN reservations r USING (id) "
            "ORDER BY root_seed, first_trial"
        ).fetchall()


def reservations(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT COUNT(*) FROM reservations").fetchone()[0]


def assert_exact(path):
    """Every account holds what its trials give, and every table the same trials."""
    assert verify_file(path) == []
    shards = committed(path)
    with Ledger.open(path, read_only=True) as ledger:
        for table in CELLS if shards else ():
            totals = ledger.totals(account(table))
            expected = sum(outcomes(table, *shard) for shard in shards)
            assert np.array_equal(totals.counts, expected)
            assert totals.shards == len(shards)
            assert totals.trials == sum(trials for _, _, trials in shards)
        assert len(ledger.accounts()) == (len(CELLS) if shards else 0)
    return shards


def killed(context, path, root_seed, commits, share):
    """Let a process commit so often, kill it in the next shard, and return the commits it told of.

    The moment is a share of the time that a shard takes, as measured: on a busy machine too, the
    kill falls anywhere between opening and committing.
    """
    ours, theirs = context.Pipe()
    process = context.Process(
        target=ledger_writer.write_for_ever, args=(path, root_seed, theirs), daemon=True
    )
    process.start()
    theirs.close()
    said = b""
    while said.count(b"\n") <= commits:
        began = time.perf_counter()
        said += os.read(ours.fileno(), 1 << 16)
    # The first wait is for the process to start; a shard takes about as long as an opening.
    time.sleep(share * (time.perf_counter() - began if commits else 0.02))
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    said += b"".join(iter(lambda: os.read(ours.fileno(), 1 << 16), b""))
    ours.close()
    process.close()
    started, *lines = said.decode().splitlines()
    assert started == "started"
    return [(root_seed, *map(int, line.split())) for line in lines]


@pytest.mark.slow
def test_fifty_kills_at_random_moments_lose_at_most_the_unfinished_shard(context, tmp_path):
    path = tmp_path / "evidence.ledger"
    moments = random.Random(20260801)
    told_of: list[tuple[int, int, int]] = []
    lost = 0
    for kill in range(KILLS):
        before = set(committed(path)) if path.exists() else set()
        told_of += (
            said := killed(
                context, path, kill % 2, moments.choice((0, 1, 1, 2, 3)), moments.uniform(0, 1.5)
            )
        )
        if not path.exists():  # killed while it was made
            assert said == []
            continue
        shards = assert_exact(path)
        # What was told is there; beyond it at most the one commit that was not told any more.
        assert set(told_of) <= set(shards)
        assert len(set(shards) - before - set(said)) <= 1
        told_of = shards
        lost = reservations(path) - len(shards)
    assert len(told_of) > KILLS
    # Vacuous unless processes were also hit between reserving and committing.
    assert lost > 0


def test_a_kill_at_any_statement_leaves_all_of_a_shard_or_nothing(context, tmp_path):
    results = []
    for statement in range(200):
        path = tmp_path / f"{statement}.ledger"
        Ledger.open(path).close()
        process = context.Process(target=ledger_writer.die_at, args=(path, statement))
        process.start()
        process.join()
        code = process.exitcode
        process.close()
        shards = assert_exact(path)
        with Ledger.open(path) as ledger:
            # Never reused: after a reservation that stands, the next trials come behind it.
            again = shard(ledger)
        assert again.first_trial == 1000 * reservations(path) - 1000
        results.append((len(shards), reservations(path) - 1))
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert code == 0, "the shard took more statements than were tried"
    # In order: nothing, then a reservation without a shard, then both.
    assert results == sorted(results)
    assert set(results) == {(0, 0), (0, 1), (1, 1)}


def test_processes_that_write_at_once_never_use_the_same_trials(context, tmp_path):
    path = tmp_path / "evidence.ledger"
    pipes, processes = [], []
    barrier = context.Barrier(4)
    for _ in range(4):
        ours, theirs = context.Pipe()
        # The ledger does not exist yet: they also create it at once.
        process = context.Process(
            target=ledger_writer.write_some, args=(path, 3, 25, barrier, theirs)
        )
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    firsts = [first for pipe in pipes for first in pipe.recv()]
    for process, pipe in zip(processes, pipes, strict=True):
        process.join()
        assert process.exitcode == 0
        process.close()
        pipe.close()
    assert sorted(firsts) == [1000 * i for i in range(100)]
    assert [first for _, first, _ in assert_exact(path)] == sorted(firsts)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def shut_folder(tmp_path):
    """A folder that nobody but root can write, below folders that everybody can enter."""
    for folder in (tmp_path, *tmp_path.parents):
        if any(part.startswith("pytest-") for part in folder.parts):
            folder.chmod(0o755)
    folder = tmp_path / "shut"
    folder.mkdir()
    return folder


def test_a_folder_that_cannot_be_written_is_a_clear_error_and_can_be_read(context, tmp_path):
    folder = shut_folder(tmp_path)
    path = folder / "evidence.ledger"
    with Ledger.open(path) as ledger:
        shard(ledger)
    content = path.read_bytes()
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        said = told(context, ledger_writer.without_permission, path, False)
        assert str(path) in said
        assert "cannot be" in said
        assert "read-only" in said
        absent = told(context, ledger_writer.without_permission, folder / "new.ledger", False)
        assert "new.ledger: it cannot be opened (read-only folder" in absent
        assert told(context, ledger_writer.without_permission, path, True) == str(len(CELLS))
        assert [item.name for item in folder.iterdir()] == [path.name]
        assert path.read_bytes() == content
    finally:
        folder.chmod(0o755)


def test_a_full_disk_is_a_clear_error_and_nothing_is_half_written(context, tmp_path):
    path = tmp_path / "evidence.ledger"
    assert "cannot be read or written" in told(context, ledger_writer.on_a_full_disk, path, 4096)
    assert list(tmp_path.iterdir()) == []
    with Ledger.open(path) as ledger:
        shard(ledger)
    found = set()
    for limit in range(28_672, 90_000, 4096):  # side files alone need 32 KiB
        before, taken = assert_exact(path), reservations(path)
        said = told(context, ledger_writer.on_a_full_disk, path, limit)
        after = assert_exact(path)
        assert after[: len(before)] == before
        assert len(after) - len(before) == (said == "")
        assert said == "" or "nothing was recorded" in said
        found.add((len(after) - len(before), reservations(path) - taken))
    # Vacuous unless the disk was full at the reservation, at the commit, and not at all.
    assert found == {(0, 0), (0, 1), (1, 1)}


def test_two_that_create_the_same_ledger_both_get_it(context, tmp_path):
    path = tmp_path / "evidence.ledger"
    assert [told(context, ledger_writer.create, path) for _ in range(2)] == ["", ""]
    with pytest.raises(LedgerError, match="folder does not exist"):
        Ledger.open(tmp_path / "no" / "evidence.ledger")
