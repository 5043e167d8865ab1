"""What the ledger tests count.

The outcome of a trial is a function of its number alone, so that the counts which a ledger must
hold follow from its seed ranges.  Imports little: processes that are killed begin here.
"""

from __future__ import annotations

from unittest import mock

import numpy as np

from specverify import _ledger_write
from specverify.ledger import Account, AccountGroup, Ledger, SeedRange

CELLS = {"wide": 2_003, "small": 7, "pairs": 5}
LAWS = {table: np.full(cells, 1 / cells) for table, cells in CELLS.items()}


def group(**changes):
    """The case that the tests count."""
    fields = {
        "subject": "reference",
        "version": "1.0",
        "suite": "random",
        "case": "dense-V4-K2",
        "capabilities": "c0" * 32,
    }
    return AccountGroup(**(fields | changes))


def outcomes(table, root_seed, first_trial, trials):
    """Counts of the trials ``first_trial .. first_trial + trials - 1``."""
    step = 2 if table == "pairs" else 1
    numbers = np.arange(first_trial, first_trial + trials - step + 1, step, dtype=np.uint64)
    mixed = (numbers + np.uint64(root_seed)) * np.uint64(0x9E3779B97F4A7C15)
    cells = (mixed >> np.uint64(33)) % np.uint64(CELLS[table])
    return np.bincount(cells.astype(np.int64), minlength=CELLS[table])


def shard(ledger, root_seed=0, trials=1000):
    """Reserve, run and commit once."""
    taken = ledger.reserve(group(), root_seed, trials)
    counts = {t: outcomes(t, root_seed, taken.first_trial, trials) for t in CELLS}
    ledger.commit(taken, counts, LAWS)
    return taken


def account(table="wide", **changes):
    """The account of a table under its law."""
    return Account.of(group(**changes), table, LAWS[table])


FILLED = (SeedRange(0, 0, 2000), SeedRange(0, 2500, 3500), SeedRange(7, 0, 1000))
"""What :func:`fill` commits; trials 2000 to 2499 are reserved and lost."""


def fill(path):
    """Write a ledger of four shards, the same bytes every time."""
    now = mock.patch.object(_ledger_write, "now", return_value="2026-08-01T00:00:00+00:00")
    with now, Ledger.open(path) as ledger:
        shard(ledger)
        shard(ledger)
        ledger.reserve(group(), 0, 500)
        shard(ledger)
        shard(ledger, root_seed=7)


def expected(table):
    """Counts of ``FILLED``."""
    return sum(outcomes(table, r.root_seed, r.first_trial, r.trials) for r in FILLED)


def assert_as_filled(ledger):
    """Exactly the shards of :func:`fill` are there."""
    assert len(ledger.accounts()) == len(CELLS)
    for table in CELLS:
        totals = ledger.totals(account(table))
        assert np.array_equal(totals.counts, expected(table))
        assert totals.ranges == FILLED
        assert (totals.trials, totals.shards, totals.log_e) == (4000, 4, None)
        assert totals.entries == totals.counts.sum() == (2000 if table == "pairs" else 4000)
        assert np.array_equal(ledger.law(account(table)), LAWS[table])
