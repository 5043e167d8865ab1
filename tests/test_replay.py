from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specverify import replay
from specverify._options import RunOptions, file_digest
from specverify.replay import ReplayToken
from specverify.results import Outcome, VerdictRecord

TOKEN = ReplayToken(
    made_by="0.1.0", sampler="fake_suite:my_sampler", suite="fake", case="1-fail",
    check="law/check 0", seed=7, alpha=1e-6 / 149, power=0.999, tv=None, profile="quick",
    trials=None, device="cpu", cases_path=None, cases_digest=None, outcome="fail", n=1000,
    first_trial=None,
)  # fmt: skip


@pytest.fixture
def suites(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    import fake_suite

    return {"fake": fake_suite.suite("fake", "pass", "fail*2", "inconclusive", "raise")}


words = st.text(max_size=40)


@settings(deadline=None)
@given(
    sampler=words, case=words, seed=st.integers(0, 2**80), alpha=st.floats(1e-300, 0.5),
    tv=st.none() | st.floats(1e-6, 0.9), trials=st.none() | st.integers(1, 10**12),
)  # fmt: skip
def test_a_token_gives_back_what_was_put_in(**fields):
    token = TOKEN.model_copy(update=fields)
    assert ReplayToken.decode(token.encode()) == token
    assert ReplayToken.decode(f"  {token.encode()}\n") == token


def test_a_token_is_one_short_word():
    text = TOKEN.encode()
    assert text.startswith("sv2.")
    assert len(text) < 150
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


def test_the_layout_of_a_token_never_changes():
    # A token that an earlier build printed; if this fails, the layout needs a new prefix.
    assert ReplayToken.decode(GOLDEN) == TOKEN


@pytest.mark.parametrize("position", range(4, len(TOKEN.encode()) - 1, 7))
def test_a_changed_letter_is_noticed(position):
    text = TOKEN.encode()
    other = "A" if text[position] != "A" else "B"
    with pytest.raises(ValueError, match="damaged"):
        ReplayToken.decode(text[:position] + other + text[position + 1 :])


@pytest.mark.parametrize("text", ["sv2.", "sv2.AAAA", TOKEN.encode()[:-3], TOKEN.encode() + "AAAA"])
def test_a_part_of_a_token_is_noticed(text):
    with pytest.raises(ValueError, match="damaged"):
        ReplayToken.decode(text)


# A token of the first layout, which knew of no ledger.
OLD = (
    "sv1.WGsZbUMIpCVmp8YXl2aWpFrlVsYXJ-YW5KQWQcWBlKEuxAQlkOeTM1KTsxWAusx1zPTMDQ1NDCyNLU0tzY0NTU"
    "0wXI_qWDRXQgw1NDAwiAUA"
)


@pytest.mark.parametrize("text", ["", "sv1.AAAA", OLD, "hello"])
def test_another_version_is_named_as_such(text):
    with pytest.raises(ValueError, match="starts with 'sv2"):
        ReplayToken.decode(text)


def test_a_check_that_did_not_pass_is_reproduced_alone(suites):
    options = TOKEN.options()
    answer = replay.rerun(TOKEN, options, suites)
    (verdict,) = answer.verdicts
    assert (verdict.status, verdict.trials, verdict.alpha) == (Outcome.FAIL, 1000, TOKEN.alpha)
    assert ReplayToken.decode(verdict.replay) == TOKEN.model_copy(
        update={"made_by": ReplayToken.decode(verdict.replay).made_by}
    )


def test_the_error_of_a_case_is_reproduced_too(suites):
    answer = replay.rerun(TOKEN.model_copy(update={"case": "3-raise"}), TOKEN.options(), suites)
    assert answer.error is not None
    assert "ZeroDivisionError" in answer.error.detail


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"suite": "nope"}, "expected one of fake"),
        ({"case": "1-fial"}, "did you mean 1-fail"),
        ({"check": "nope"}, "answered no check 'nope', only law/check 0, law/check 1"),
    ],
)
def test_what_does_not_exist_here_is_named(suites, fields, message):
    with pytest.raises(ValueError, match=message):
        replay.rerun(TOKEN.model_copy(update=fields), TOKEN.options(), suites)


def test_another_file_of_rows_is_refused(tmp_path):
    rows = tmp_path / "rows"
    rows.write_bytes(b"one")
    options = RunOptions(sampler="x", cases=rows)
    verdict = VerdictRecord(
        suite="s", case="c", check="k", family="law", status=Outcome.FAIL, reason="r"
    )
    text = replay.stamp(verdict, options, 0.1, file_digest(rows))
    moved = tmp_path / "moved"
    rows.rename(moved)
    with pytest.raises(ValueError, match="cases: got"):
        ReplayToken.decode(text).options()
    assert ReplayToken.decode(text).options(moved).cases == moved
    moved.write_bytes(b"two")
    with pytest.raises(ValueError, match="not the file that the token was made for"):
        ReplayToken.decode(text).options(moved)


GOLDEN = (
    "sv2.MDgnwEMIpCVmp8YXl2aWpFrlVsYXJ-YW5KQWQcWBlKEuxAQlkOeTM1KTsxWAusx1zPTMDQ1NDCyNLU0tzY0NTU"
    "0wXI_qWDRXQgw1NDAwAAvEAgA"
)
