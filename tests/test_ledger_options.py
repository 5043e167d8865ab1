"""The options of a run with a ledger: refused before anything runs, or handed to every worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ledger_runs import REFERENCE, accounts, run

from specverify import results
from specverify._options import RunOptions, prepare_ledger


def call(folder, *args, workers="1"):
    command = [sys.executable, "-c", "from specverify.cli import main; main()", "run", *args]
    given = ("--sampler", "reference", "--tv", "0.2", "--ledger", "nights.ledger", "-n", workers)
    return subprocess.run(
        [*command, *given], capture_output=True, text=True, cwd=folder, check=False
    )


@pytest.mark.slow
def test_workers_share_a_ledger(tmp_path):
    """Every worker opens the file by itself; whatever their number, the totals are the same."""
    for number, workers in enumerate(("2", "1"), start=1):
        done = call(tmp_path, "random", workers=workers)
        assert done.returncode == 0, done.stderr + done.stdout
        stored = accounts(tmp_path / "nights.ledger")
        assert {totals.shards for _, totals in stored} == {number}
        assert {len(totals.ranges) for _, totals in stored} == {1}
    last = results.load(tmp_path / "specverify-out" / "results.json")
    assert last.settings.ledger == "nights.ledger"
    laws = [v for v in last.verdicts if v.account_log_e is not None]
    assert laws
    assert {v.account_trials for v in laws} == {2 * v.trials for v in laws}
    assert "nights.ledger" in (tmp_path / "specverify-out" / "summary.md").read_text()


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"not a ledger at all" * 300, "it is not a ledger"), (None, "it is damaged")],
)
def test_a_ledger_that_cannot_be_used_is_refused_and_left_alone(tmp_path, content, said):
    path = tmp_path / "nights.ledger"
    if content is None:
        run(str(path))
        whole = bytearray(path.read_bytes())
        at = whole.index(b"token 0")
        whole[at : at + 5] = b"nekot"
        content = bytes(whole)
    path.write_bytes(content)
    options = RunOptions(sampler="reference", ledger=path)
    with pytest.raises(ValueError, match=said):
        prepare_ledger(options, REFERENCE)
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["nights.ledger"]


def test_a_ledger_without_room_beside_it_is_refused(tmp_path):
    """A limit on the size of files stands for a disk that is full after a few pages."""
    path = tmp_path / "nights.ledger"
    run(str(path))
    content = path.read_bytes()
    code = (
        f"import resource, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "from ledger_runs import REFERENCE\n"
        "from specverify._options import RunOptions, prepare_ledger\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))\n"
        "prepare_ledger(RunOptions(sampler='r', ledger=Path(sys.argv[1])), REFERENCE)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path],
        cwd=Path(__file__).parent,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stderr.splitlines()[-1].startswith("ValueError: ledger: got ")
    assert "beside which nothing can be written" in done.stderr
    assert path.read_bytes() == content


def test_a_replay_cannot_name_a_ledger(tmp_path):
    with pytest.raises(ValueError, match=r"^first_trial: got a ledger as well"):
        RunOptions(sampler="r", ledger=tmp_path / "x", first_trial=0)
    with pytest.raises(ValueError, match=r"^first_trial: got 3; expected an even count"):
        RunOptions(sampler="r", first_trial=3)
