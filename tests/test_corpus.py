"""A corpus of replay tokens: read, added to, and run before everything else."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest
from test_replay import OLD, TOKEN
from typer.testing import CliRunner

from specverify import _cli_corpus, corpus, registry, replay
from specverify._options import RunOptions
from specverify.cli import app
from specverify.results import Outcome, load

MUTANT = "mutant:bonus-missing"
GREEDY = {"suite": "greedy", "case": "beside-random", "check": "exact/beside-random"}


def token(**fields):
    return TOKEN.model_copy(update=fields)


def made(case="greedy-length", sampler=MUTANT, **fields):
    """A token of an exact check of the suite of acceptance, which is cheap."""
    chosen = {"suite": "acceptance", "case": case, "check": f"exact/{case}", "sampler": sampler}
    chosen["trials"] = 8
    return token(**chosen | fields)


def options(path, **fields):
    return RunOptions(**{"sampler": MUTANT, "corpus": path} | fields)


# --- the file -----------------------------------------------------------------------------------


def test_comments_and_empty_lines_are_free_and_doubles_count_once(tmp_path):
    path = tmp_path / "c"
    one, two = TOKEN.encode(), token(seed=8).encode()
    path.write_text(f"# head\n\n{one}  # why it was\n  {two}\n{one}\n")
    entries = corpus.read(path)
    assert [(e.line, e.text, e.token.seed) for e in entries] == [(3, one, 7), (4, two, 8)]
    assert entries[0].name == "fake/1-fail/law/check 0"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# a\nhello\n", r"line 2: token: got 'hello'; expected one that starts with 'sv2"),
        (f"{OLD}\n", r"line 1: token: got .*another start means another version"),
        (f"{TOKEN.encode()}\n{TOKEN.encode()[:-4]}\n", "line 2: token: .* is damaged"),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, words):
    path = tmp_path / "c"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        corpus.read(path)


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"corpus: got .* cannot be read"):
        corpus.read(tmp_path / "none")
    path = tmp_path / "c"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8 text"):
        corpus.read(path)


def test_tokens_are_added_once_and_nothing_else_changes(tmp_path):
    path = tmp_path / "c"
    assert [t.seed for t in corpus.add(path, [TOKEN.encode()])] == [7]
    before = path.read_text()
    assert before.startswith("# Failures that once were")
    assert "# fake/1-fail/law/check 0: fail after 1,000 trials" in before
    # Another version, another split of alpha: the same failure. Another seed: another one.
    again = token(made_by="9.9", alpha=1e-7, n=5)
    assert corpus.add(path, [again.encode(), TOKEN.encode()]) == []
    assert path.read_text() == before
    assert [t.seed for t in corpus.add(path, [token(seed=8).encode()])] == [8]
    assert path.read_text().startswith(before)
    assert len(corpus.read(path)) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_a_line_without_its_end_is_not_joined_with_the_next(tmp_path):
    path = tmp_path / "c"
    path.write_text(TOKEN.encode())
    corpus.add(path, [token(seed=8).encode()])
    assert [e.token.seed for e in corpus.read(path)] == [7, 8]


def test_a_name_with_line_breaks_stays_in_its_comment(tmp_path):
    path = tmp_path / "c"
    corpus.add(path, [token(sampler="a\nsv2.b", check="x\ny").encode()])
    assert len(corpus.read(path)) == 1


def test_nothing_is_written_where_a_token_is_bad(tmp_path):
    path = tmp_path / "c"
    with pytest.raises(ValueError, match="is damaged"):
        corpus.add(path, [TOKEN.encode(), "sv2.AAAA"])
    assert not path.exists()
    with pytest.raises(ValueError, match="cannot be written"):
        corpus.create(tmp_path / "no" / "folder")


def test_a_corpus_spends_at_most_half_of_alpha(tmp_path):
    path = tmp_path / "c"
    corpus.add(path, [token(seed=s, alpha=1e-9).encode() for s in range(4)])
    entries = corpus.read(path)
    assert corpus.shares(entries, 1e-6) == [1e-9] * 4
    assert sum(corpus.shares(entries, 4e-9)) == pytest.approx(2e-9)
    chosen = options(path, sampler=TOKEN.sampler, alpha=1e-6)
    assert _cli_corpus.alpha_left(chosen) == pytest.approx(1e-6 - 4e-9)


# --- a run with a corpus ------------------------------------------------------------------------


def test_a_failure_that_is_back_is_told_first_and_ends_the_corpus(tmp_path):
    path = tmp_path / "c"
    corpus.add(path, [made().encode(), token(sampler=MUTANT, **GREEDY).encode()])
    said: list[str] = []
    first = _cli_corpus.run_first(options(path), said.append)
    assert first.outcome is Outcome.FAIL
    assert first.failed.token.case == "greedy-length"
    assert len(first.verdicts) == 1
    assert f"line {first.failed.line} of {path} FAILS AGAIN" in said[-1]
    results = _cli_corpus.results_of(options(path), registry.resolve(MUTANT), first)
    assert (results.verdict, len(results.verdicts)) == (Outcome.FAIL, 1)


def test_tokens_of_other_samplers_are_left_out_unless_asked_for(tmp_path):
    path = tmp_path / "c"
    corpus.add(path, [made(sampler="mutant:old-name").encode()])
    said: list[str] = []
    first = _cli_corpus.run_first(options(path), said.append)
    assert (first.outcome, first.verdicts) == (Outcome.PASS, ())
    assert "1 of 1 tokens were made for mutant:old-name and are left out" in said[0]
    assert "--corpus-all" in said[0]
    renamed = _cli_corpus.run_first(options(path, corpus_all=True), said.append)
    assert renamed.outcome is Outcome.FAIL
    repaired = options(path, sampler="reference", corpus_all=True)
    assert _cli_corpus.run_first(repaired, said.append).outcome is Outcome.PASS
    assert "line 5: PASS acceptance/greedy-length/exact/greedy-length" in said[-1]


def test_a_token_that_cannot_be_run_here_is_named_by_its_line(tmp_path):
    path = tmp_path / "c"
    corpus.add(path, [made("gone").encode()])
    with pytest.raises(ValueError, match=r"line 5: case: suite 'acceptance' has no case 'gone'"):
        _cli_corpus.run_first(options(path), lambda _: None)
    moved = made(cases_path="rows.gone", cases_digest="0" * 16)
    path.unlink()
    corpus.add(path, [moved.encode()])
    with pytest.raises(ValueError, match=r"line 5: cases: got 'rows.gone'; expected a file"):
        _cli_corpus.run_first(options(path), lambda _: None)


def test_options_want_a_file(tmp_path):
    with pytest.raises(ValueError, match=r"corpus: got .*; expected a file of replay tokens"):
        RunOptions(sampler="x", corpus=tmp_path / "none")
    with pytest.raises(ValueError, match="corpus_all: got no corpus"):
        RunOptions(sampler="x", corpus_all=True)


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-c", "from specverify.cli import main; main()", *map(str, arguments)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_commands(tmp_path):
    path, run = tmp_path / "c", functools.partial(CliRunner().invoke, app)
    text = made().encode()
    added = run(["corpus", "add", str(path), text, text])
    assert added.exit_code == 0
    assert (
        "added acceptance/greedy-length/exact/greedy-length (mutant:bonus-missing)" in added.output
    )
    assert "1 already there" in added.output
    shown = run(["corpus", "show", str(path)])
    assert "5: acceptance/greedy-length/exact/greedy-length (mutant:bonus-missing" in shown.output
    bad = run(["corpus", "add", str(path), "nonsense"])
    assert bad.exit_code == 2
    lone = run(["run", "--sampler", MUTANT, "--corpus-add", "--out", str(tmp_path / "o")])
    assert lone.exit_code == 2


def test_a_run_with_a_corpus_that_fails_again(tmp_path):
    path, out = tmp_path / "c", tmp_path / "o"
    corpus.add(path, [made().encode()])
    result = CliRunner().invoke(
        app, ["run", "greedy", "--sampler", MUTANT, "--corpus", str(path), "--out", str(out)]
    )
    assert result.exit_code == 1
    assert "FAIL acceptance/greedy-length" in result.output
    results = load(out / "results.json")
    assert results.verdict is Outcome.FAIL
    assert [verdict.suite for verdict in results.verdicts] == ["acceptance"]
    assert "greedy-length" in (out / "summary.md").read_text()
    assert not (out / "junit.xml").exists()


@pytest.mark.slow
def test_failures_are_kept_and_come_first_the_next_time(tmp_path):
    path, out = tmp_path / "c", tmp_path / "o"
    arguments = ["run", "acceptance", "--sampler", MUTANT, "--corpus", path, "--out", out]
    first = command(*arguments, "--corpus-add")
    assert first.returncode == 1
    kept = corpus.read(path)
    assert kept
    assert all(entry.token.sampler == MUTANT for entry in kept)
    again = command(*arguments)
    assert again.returncode == 1
    assert "FAILS AGAIN" in again.stderr
    assert "the suites were not run" in again.stderr
    repaired = command(
        "run", "greedy", "--sampler", "reference", "--corpus", path, "--corpus-all", "--out", out
    )
    assert repaired.returncode == 0, repaired.stderr
    raw = json.loads((out / "results.json").read_text())
    assert raw["settings"]["alpha"] < 1e-6


@pytest.mark.slow
def test_the_plugin_runs_a_corpus_first(tmp_path):
    path = tmp_path / "c"
    corpus.add(path, [made().encode()])
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "--pyargs", "specverify.suites.test_greedy",
         "-p", "no:cacheprovider", "--specverify-sampler", MUTANT,
         "--specverify-corpus", str(path)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 1
    assert "FAILS AGAIN" in result.stderr
    assert "the corpus came out as FAIL" in result.stdout + result.stderr


def test_a_replay_and_a_corpus_agree(tmp_path):
    path = tmp_path / "c"
    corpus.add(path, [made().encode()])
    verdict = _cli_corpus.run_first(options(path), lambda _: None).verdicts[0]
    assert replay.ReplayToken.decode(verdict.replay).case == "greedy-length"
