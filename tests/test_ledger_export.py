"""What other tools and people get out of a ledger."""

from __future__ import annotations

import csv
import shutil
import sys

import pytest
from ledger_cases import (
    CELLS,
    LAWS,
    account,
    expected,
    fill,
)

from specverify import _cli_ledger
from specverify._ledger_certificate import account_certificate
from specverify.ledger import (
    Ledger,
    SeedRange,
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


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_export_as_csv(filled, tmp_path):
    with Ledger.open(filled, read_only=True) as ledger:
        assert ledger.export(tmp_path / "shards.csv") == 12
        assert ledger.export(tmp_path / "cells.csv", what="cells") == sum(CELLS.values())
        for bad in ({"format": "xlsx"}, {"what": "all"}):
            with pytest.raises(ValueError, match=f"{next(iter(bad))}: got"):
                ledger.export(tmp_path / "new.csv", **bad)
        for own in ("evidence.ledger", "evidence.ledger-wal"):
            with pytest.raises(ValueError, match="the ledger itself"):
                ledger.export(tmp_path / own)
        with pytest.raises(ValueError, match="cannot be written"):
            ledger.export(tmp_path / "no" / "shards.csv")
    shards = rows_of(tmp_path / "shards.csv")
    wide = [row for row in shards if row["check"] == "wide"]
    assert [(row["root_seed"], row["first_trial"], row["trials"]) for row in wide] == [
        ("0", "0", "1000"), ("0", "1000", "1000"), ("0", "2500", "1000"), ("7", "0", "1000"),
    ]  # fmt: skip
    assert {row["law"] for row in wide} == {account().law}
    cells = [r for r in rows_of(tmp_path / "cells.csv") if r["account"] == wide[0]["account"]]
    with Ledger.open(filled) as ledger:
        assert [int(row["count"]) for row in cells] == ledger.totals(account()).counts.tolist()
    assert [float(row["probability"]) for row in cells] == LAWS["wide"].tolist()
    assert sorted(item.name for item in tmp_path.iterdir()) == [
        "cells.csv", "evidence.ledger", "shards.csv",
    ]  # fmt: skip


def test_export_as_parquet(filled, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    with Ledger.open(filled, read_only=True) as ledger:
        ledger.export(tmp_path / "shards.parquet", "parquet")
        ledger.export(tmp_path / "shards.csv", "csv")
    table = parquet.read_table(tmp_path / "shards.parquet").to_pylist()
    said = [{k: "" if v is None else str(v) for k, v in row.items()} for row in table]
    assert said == rows_of(tmp_path / "shards.csv")


def test_parquet_without_pyarrow_says_what_to_install(filled, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with (
        Ledger.open(filled, read_only=True) as ledger,
        pytest.raises(ValueError, match=r"pyarrow is not installed: pip install .*\[parquet\]"),
    ):
        ledger.export(tmp_path / "shards.parquet", "parquet")
    assert [item.name for item in tmp_path.iterdir()] == [filled.name]


def test_show_prints_trials_ranges_and_certificate(filled, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    _cli_ledger.show(filled)
    said = capsys.readouterr().out
    assert "reference 1.0 on cpu" in said
    (line,) = [line for line in said.splitlines() if " small " in line]
    found = account_certificate(expected("small"), LAWS["small"], 0.999)
    for part in ("random/dense-V4-K2", account("small").law[:8], "4,000", "0: 0-1999",
                 f"{found.tv_observed:.5f}", f"{found.tv_upper:.5f}"):  # fmt: skip
        assert part in line
    assert "0: 2500-3499" in said
    assert "7: 0-999" in said
    _cli_ledger.show(filled, subject="reference", case="dense-V4-K2")
    assert "3 accounts" in capsys.readouterr().out
    with pytest.raises(ValueError, match="no account of subject 'other'"):
        _cli_ledger.show(filled, subject="other")
    with pytest.raises(ValueError, match="confidence: got 1"):
        _cli_ledger.show(filled, confidence=1)


def test_many_seed_ranges_are_cut_short():
    said = _cli_ledger.ranges(tuple(SeedRange(0, i, i + 1) for i in range(0, 20, 2)))
    assert said.splitlines()[-1] == "and 6 more"


def test_the_command_verifies_and_exports(filled, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert _cli_ledger.verify(filled) == 0
    assert "3 accounts, exact" in capsys.readouterr().out
    _cli_ledger.export(filled, tmp_path / "out.csv")
    assert "12 rows of shards" in capsys.readouterr().out
    assert len(rows_of(tmp_path / "out.csv")) == 12
    with pytest.raises(ValueError, match="format: got 'txt'"):
        _cli_ledger.export(filled, tmp_path / "out.txt")
    data = filled.read_bytes()
    filled.write_bytes(data.replace(b"2026-08-01", b"2027-08-01", 1))
    assert _cli_ledger.verify(filled) == 1
    assert "its checksum does not match" in capsys.readouterr().out
