from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import os
import shutil

import hypothesis.strategies as st
import ledger_cases
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays
from ledger_cases import (
    CELLS,
    FILLED,
    LAWS,
    account,
    assert_as_filled,
    fill,
    group,
    outcomes,
    shard,
)

from specverify._ledger_codec import pack, unpack_counts, unpack_law
from specverify.contract import Capabilities
from specverify.ledger import (
    Account,
    Ledger,
    LedgerError,
    SeedRange,
    capabilities_digest,
    law_digest,
    source_digest,
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


def test_a_next_run_continues_and_the_counts_add_up(filled):
    with Ledger.open(filled) as ledger:
        assert_as_filled(ledger)
        assert ledger.next_trial(group(), 0) == 3500
        assert ledger.next_trial(group(), 1) == 0
        assert shard(ledger).first_trial == 3500
        assert ledger.totals(account()).trials == 5000
        assert ledger.verify() == []


def test_an_account_without_shards_is_empty(path):
    with Ledger.open(path) as ledger:
        totals = ledger.totals(account())
        assert not totals.counts.any()
        assert totals.counts.shape == (CELLS["wide"],)
        assert (totals.trials, totals.entries, totals.shards, totals.ranges) == (0, 0, 0, ())
        assert totals.log_e is None
        assert ledger.accounts() == ledger.shards(account()) == ledger.verify() == []
        with pytest.raises(ValueError, match="law: got digest"):
            ledger.law(account())


def test_trials_begin_at_a_multiple_and_are_never_given_twice(path):
    with Ledger.open(path) as ledger:
        first = [ledger.reserve(group(), 0, n, multiple=m).first_trial for n, m in
                 [(1, 2), (5, 2), (10, 8), (8, 8), (1, 1), (1, 2)]]  # fmt: skip
    assert first == [0, 2, 8, 24, 32, 34]


OTHER = {
    "subject": "reference-match",
    "version": "1.1",
    "suite": "mixed",
    "case": "dense-V4-K3",
    "capabilities": capabilities_digest(Capabilities(filtering=True)),
    "device": "cuda",
    "schema": 2,
}


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(group())])
def test_a_changed_key_starts_a_new_account(filled, field):
    other = group(**{field: OTHER[field]})
    with Ledger.open(filled) as ledger:
        assert ledger.next_trial(other, 0) == 0
        taken = ledger.reserve(other, 0, 1000)
        ledger.commit(taken, {t: outcomes(t, 0, 0, 1000) for t in CELLS}, LAWS)
        assert ledger.totals(account(**{field: OTHER[field]})).trials == 1000
        assert ledger.totals(account()).ranges == FILLED
        assert len(ledger.accounts()) == 2 * len(CELLS)
        assert len(ledger.accounts(other)) == len(CELLS)
        assert ledger.verify() == []


def test_a_law_that_differs_in_the_last_bit_starts_a_new_account(filled):
    changed = LAWS["small"].copy()
    changed[0] = np.nextafter(changed[0], 1)
    laws = LAWS | {"small": changed}
    with Ledger.open(filled) as ledger:
        taken = ledger.reserve(group(), 0, 1000)
        counts = {t: outcomes(t, 0, taken.first_trial, 1000) for t in CELLS}
        made = ledger.commit(taken, counts, laws)
        # Trials go on: the two accounts must not share any.
        assert taken.first_trial == 3500
        assert ledger.totals(account("small")).ranges == FILLED
        assert ledger.totals(made["small"]).ranges == (SeedRange(0, 3500, 4500),)
        assert ledger.totals(account("wide")).trials == 5000
        assert np.array_equal(ledger.law(made["small"]), changed)


def test_early_stopping_counts_what_was_run(path):
    with Ledger.open(path) as ledger:
        taken = ledger.reserve(group(), 0, 1000)
        counts = {"small": outcomes("small", 0, 0, 301), "pairs": outcomes("pairs", 0, 0, 301)}
        laws = {table: LAWS[table] for table in counts}
        ledger.commit(taken, counts, laws, trials=301, log_e={"small": math.inf})
        assert ledger.totals(account("small")).ranges == (SeedRange(0, 0, 301),)
        assert ledger.totals(account("pairs")).entries == 150
        assert ledger.next_trial(group(), 0) == 1000
        assert ledger.verify() == []
        assert ledger.totals(account("small")).log_e == math.inf
        assert ledger.totals(account("pairs")).log_e is None


def test_log_e_values_add_up_only_when_every_shard_has_one(path):
    with Ledger.open(path) as ledger:
        for log_e in ({"small": 1.5}, {"small": -0.25}, {}):
            taken = ledger.reserve(group(), 0, 10, run="nightly 7")
            counts = {"small": outcomes("small", 0, taken.first_trial, 10)}
            ledger.commit(taken, counts, {"small": LAWS["small"]}, log_e=log_e)
            found = ledger.totals(account("small"))
            assert found.log_e == {1: 1.5, 2: 1.25, 3: None}[found.shards]
        parts = ledger.shards(account("small"))
    assert [part.log_e for part in parts] == [1.5, -0.25, None]
    assert [part.trials.first_trial for part in parts] == [0, 10, 20]
    assert {part.run for part in parts} == {"nightly 7"}


def test_a_shard_is_counted_once(filled, tmp_path):
    counts = {"small": outcomes("small", 0, 0, 10)}
    laws = {"small": LAWS["small"]}
    with Ledger.open(filled) as ledger, Ledger.open(tmp_path / "other.ledger") as other:
        taken = ledger.reserve(group(), 3, 10)
        ledger.commit(taken, counts, laws)
        with pytest.raises(ValueError, match=r"reservation: .* committed before"):
            ledger.commit(taken, counts, laws)
        for stranger in (taken, dataclasses.replace(taken, first_trial=10)):
            with pytest.raises(ValueError, match=r"reservation: .* never gave it"):
                other.commit(stranger, counts, laws)
        assert ledger.totals(account("small")).trials == 4010
        assert ledger.verify() == other.verify() == []


SMALL = outcomes("small", 0, 0, 10)


@pytest.mark.parametrize(
    ("counts", "laws", "options", "said"),
    [
        ({}, {}, {}, "counts: got no table"),
        ({"small": SMALL}, {}, {}, "laws: got"),
        ({"small": SMALL - 1}, {"small": LAWS["small"]}, {}, r"counts\['small'\]\[\d\]: got -1"),
        ({"small": SMALL[:-1]}, {"small": LAWS["small"]}, {}, r"counts\['small'\]: got int64\[6"),
        ({"small": SMALL / 1}, {"small": LAWS["small"]}, {}, r"counts\['small'\]: got float64"),
        ({"small": SMALL}, {"small": LAWS["small"] / 2}, {}, r"laws\['small'\]: got a sum of 0.5"),
        ({"small": SMALL}, {"small": LAWS["small"] * np.nan}, {}, r"laws\['small'\]\[0\]: got nan"),
        ({"small": SMALL * 0}, {"small": LAWS["small"]}, {}, r"counts\['small'\]: got a sum of 0"),
        ({" ": SMALL}, {" ": LAWS["small"]}, {}, "counts: table name: got ' '"),
        ({"small": SMALL}, {"small": LAWS["small"]}, {"trials": 11}, "trials: got 11"),
        ({"small": SMALL}, {"small": LAWS["small"]}, {"trials": 9}, r"counts\['small'\]: got a su"),
        ({"small": SMALL}, {"small": LAWS["small"]}, {"trials": 0}, "trials: got 0"),
        ({"small": SMALL}, {"small": LAWS["small"]}, {"log_e": {"x": 0.0}}, "log_e: got"),
        ({"small": SMALL}, {"small": LAWS["small"]}, {"log_e": {"small": math.nan}}, r"log_e\['sm"),
    ],
)  # fmt: skip
def test_a_wrong_shard_is_refused_and_may_be_put_right(path, counts, laws, options, said):
    with Ledger.open(path) as ledger:
        taken = ledger.reserve(group(), 0, 10)
        with pytest.raises(ValueError, match=said):
            ledger.commit(taken, counts, laws, **options)
        assert ledger.accounts() == ledger.verify() == []
        ledger.commit(taken, {"small": SMALL}, {"small": LAWS["small"]})
        assert ledger.totals(account("small")).trials == 10


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ledger: ledger.reserve(group(), -1, 10), "root_seed: got -1"),
        (lambda ledger: ledger.reserve(group(), 1 << 63, 10), "root_seed: got"),
        (lambda ledger: ledger.reserve(group(), 0, 0), "trials: got 0"),
        (lambda ledger: ledger.reserve(group(), 0, 1.5), "trials: got 1.5"),
        (lambda ledger: ledger.reserve(group(), 0, 10, multiple=0), "multiple: got 0"),
        (lambda ledger: ledger.reserve(group(), 0, 10, run=""), "run: got ''"),
        (lambda ledger: ledger.reserve(group(), 5, 1), "trials: got"),
        (lambda ledger: ledger.next_trial(group(), -1), "root_seed: got -1"),
        (lambda ledger: ledger.law("abc"), "law: got 'abc'"),
        (lambda _: group(version=""), "version: got ''"),
        (lambda _: group(version=None), "version: got None"),
        (lambda _: group(capabilities="ab"), "capabilities: got 'ab'"),
        (lambda _: group(schema=0), "schema: got 0"),
        (lambda _: Account(group="g", table="t", law="0" * 64, cells=1), "group: got str"),
        (lambda _: Account(group=group(), table="t", law="0" * 64, cells=0), "cells: got 0"),
        (lambda _: Account.of(group(), "t", [0.5, 0.4]), "law: got a sum"),
        (lambda _: capabilities_digest({}), "capabilities: got dict"),
        (lambda _: source_digest(len), "sampler: got"),
        (lambda _: Ledger.open("x.ledger", timeout=0), "timeout: got 0"),
    ],
)
def test_bad_input_names_the_field(path, call, said):
    with Ledger.open(path) as ledger:
        ledger.reserve(group(), 5, 1 << 56)
        with pytest.raises(ValueError, match=said):
            call(ledger)


def test_a_shard_that_does_not_fit_on_the_disk_leaves_nothing(filled):
    counts = {t: outcomes(t, 0, 3500, 1000) for t in CELLS}
    law = np.random.default_rng(0).dirichlet(np.ones(CELLS["wide"]))
    with Ledger.open(filled) as ledger:
        taken = ledger.reserve(group(), 0, 1000)
        (pages,) = ledger._connection.execute("PRAGMA page_count").fetchone()
        ledger._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(LedgerError, match="the disk is full; nothing was written"):
            ledger.commit(taken, counts, LAWS | {"wide": law})
        assert_as_filled(ledger)
        assert ledger.verify() == []
        ledger._connection.execute("PRAGMA max_page_count = 100000")
        ledger.commit(taken, counts, LAWS | {"wide": law})
        assert ledger.totals(account("small")).trials == 5000


def test_a_connection_is_not_used_by_another_process(filled, monkeypatch):
    with Ledger.open(filled) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            with pytest.raises(LedgerError, match="does not survive a fork"):
                ledger.accounts()
            ledger.close()
        assert_as_filled(ledger)


def test_digests():
    law = [0.25, 0.0, 0.75]
    plain = hashlib.sha256(np.array(law, dtype="<f8").tobytes()).hexdigest()
    assert law_digest(law) == law_digest([0.25, -0.0, 0.75]) == plain
    assert law_digest(np.array(law)[::-1]) != plain
    changes = {"one_hot": False, "convention": "vllm", "devices": ("cuda",)}
    each = [capabilities_digest(Capabilities(**{k: v})) for k, v in changes.items()]
    assert len({*each, capabilities_digest(Capabilities())}) == 4
    source = source_digest(shard)
    assert source == source_digest(functools.partial(ledger_cases.outcomes, "small"))
    assert source != source_digest(Ledger)
    with open(ledger_cases.__file__, "rb") as file:  # noqa: PTH123
        assert source == f"sha256:{hashlib.sha256(file.read()).hexdigest()}"


@given(arrays.arrays(np.int64, st.integers(1, 50), elements=st.integers(0, 2**62)))
def test_counts_are_stored_to_the_bit(counts):
    assert np.array_equal(unpack_counts(pack(counts), counts.size), counts)
    with pytest.raises(ValueError, match="stored array"):
        unpack_counts(pack(counts), counts.size + 1)


def test_a_law_of_a_large_vocabulary_is_stored_to_the_bit(path):
    law = np.random.default_rng(1).dirichlet(np.full(152_064, 0.1))
    counts = np.random.default_rng(2).multinomial(100_000, law)
    assert np.array_equal(unpack_law(pack(law), law.size).view(np.int64), law.view(np.int64))
    with Ledger.open(path) as ledger:
        taken = ledger.reserve(group(), 0, 100_000)
        made = ledger.commit(taken, {"first token": counts}, {"first token": law})["first token"]
        assert np.array_equal(ledger.law(made).view(np.int64), law.view(np.int64))
        assert np.array_equal(ledger.totals(made).counts, counts)
