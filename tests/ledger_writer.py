"""What the writing processes of the ledger tests do; importable by a process that starts afresh."""

from __future__ import annotations

import os
import resource
import signal

from ledger_cases import shard

from specverify.ledger import Ledger


def write_for_ever(path, root_seed, pipe):
    """Commit shards until killed; say at the start that it runs, and after each commit what it was.

    What is said goes through a pipe, one short write each, and survives the process.
    """
    os.write(pipe.fileno(), b"started\n")
    with Ledger.open(path) as ledger:
        while True:
            taken = shard(ledger, root_seed)
            os.write(pipe.fileno(), f"{taken.first_trial} {taken.trials}\n".encode())


def write_some(path, root_seed, shards, barrier, pipe):
    """Commit so many shards, beginning when all others do, and say which trials they were."""
    barrier.wait()
    with Ledger.open(path) as ledger:
        pipe.send([shard(ledger, root_seed).first_trial for _ in range(shards)])


def die_at(path, statement):
    """Commit one shard, and be killed when SQLite begins its n-th statement since opening."""
    with Ledger.open(path) as ledger:
        left = statement

        def count(_):
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        ledger._connection.set_trace_callback(count)
        shard(ledger)


def create(path, pipe):
    """Create a ledger and say whether it worked."""
    try:
        Ledger.open(path).close()
        pipe.send("")
    except ValueError as error:
        pipe.send(str(error))


def without_permission(path, read_only, pipe):
    """Open as a user who may not write, and say what the ledger said."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        with Ledger.open(path, read_only) as ledger:
            pipe.send(str(len(ledger.accounts())))
    except ValueError as error:
        pipe.send(str(error))


def on_a_full_disk(path, limit, pipe):
    """Commit a shard where no file may grow beyond a limit, and say what the ledger said."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        with Ledger.open(path) as ledger:
            shard(ledger)
        pipe.send("")
    except ValueError as error:
        pipe.send(str(error))
