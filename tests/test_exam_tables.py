"""The tables of accusations and of diagnoses: who is asked, in which order, and what is counted."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from specverify.checks.diagnosis import Branch
from specverify.checks.verdict import Family, Status, Verdict
from specverify.mutants import Place
from specverify.mutants.lawful import LAWFUL

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import accusations
import diagnoses

# --- accusations --------------------------------------------------------------------------------


def run(sampler: str, seed: int, *accused: str) -> accusations.Run:
    return accusations.Run(
        sampler=sampler, version="1", seed=seed, code="c", verdict="fail" if accused else "pass",
        tests=10, checks=12, accusations=list(accused), errors=[], not_supported=0, seconds=1.0,
    )  # fmt: skip


def test_everybody_who_must_not_be_accused_is_asked() -> None:
    names = accusations.everybody()
    assert {f"lawful:{name}" for name in LAWFUL} < set(names)
    assert {"reference", "reference-match", "flashspec", "transformers"} < set(names)


def test_samplers_take_turns_and_done_runs_are_left_out() -> None:
    first = accusations.FIRST_SEED
    todo = accusations.tasks(["a", "b"], 3, {"b": 2}, {("a", first)})
    assert todo == [("b", first), ("a", first + 1), ("b", first + 1), ("a", first + 2)]


def test_the_bound_on_the_rate_is_exact() -> None:
    """With none accused of n it is 1 - 0.05**(1/n), the rate at which that happens in 5 %."""
    assert accusations.upper_bound(0, 30) == pytest.approx(1 - 0.05 ** (1 / 30), rel=1e-9)
    assert accusations.upper_bound(1, 30) > accusations.upper_bound(0, 30)


def test_an_accusation_is_counted_shown_and_fails(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    runs = [run("reference", 1), run("lawful:float32", 1, "law/x: because")]
    rows.write_text("".join(json.dumps(dataclasses.asdict(one)) + "\n" for one in runs))
    table = tmp_path / "table.md"
    options = ["--table-only", "--rows", str(rows), "--markdown", str(table)]
    assert accusations.load(rows) == runs
    assert accusations.main(options) == 1
    text = table.read_text(encoding="utf-8")
    assert "**1 of 2 runs accused" in text
    assert "- `lawful:float32`, seed 1: law/x: because" in text
    rows.write_text(json.dumps(dataclasses.asdict(runs[0])) + "\n")
    assert accusations.main(options) == 0
    assert "**0 of 1 runs accused" in table.read_text(encoding="utf-8")


def test_without_a_run_there_is_no_verdict(tmp_path: Path) -> None:
    assert accusations.main(["--table-only", "--rows", str(tmp_path / "none.jsonl")]) == 3


# --- diagnoses ----------------------------------------------------------------------------------


def failed(**changes: object) -> Verdict:
    fields = {
        "suite": "random", "case": "c", "check": "law/x", "family": Family.LAW,
        "status": Status.FAIL, "reason": "",
    }  # fmt: skip
    return Verdict(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verdict", "place"),
    [
        (failed(), None),
        (failed(branch=Branch.BONUS), Place.BONUS),
        (failed(family=Family.INDEPENDENCE), Place.REQUEST),
        (failed(family=Family.INDEPENDENCE, branch=Branch.DRAFTED), Place.DRAFTED),
        (failed(suite="metamorphic", case="beside-greedy", branch=Branch.BONUS), Place.REQUEST),
        (failed(suite="metamorphic", case="unwritten-memory", branch=Branch.BONUS), Place.BONUS),
        (failed(reason="request 0: num_emitted is 4; expected 1 .. 3"), Place.LAYOUT),
    ],
)
def test_the_place_that_a_failure_names(verdict: Verdict, place: Place | None) -> None:
    assert diagnoses.place_of(verdict) is place


def diagnosis(named: str | None) -> diagnoses.Diagnosis:
    return diagnoses.Diagnosis("m", ["bonus"], named, "s/c: x", "request 0", "", "", 1.0)


def test_the_score_counts_what_is_right() -> None:
    found = [diagnosis("bonus")] * 9 + [diagnosis(None)]
    assert diagnoses.score(found) == 0.9
    assert diagnoses.score([*found, diagnosis("accepted")]) < diagnoses.BAR
    text = diagnoses.markdown(found)
    assert "**9 of 10 name the right place**" in text
    assert "| nothing | **wrong** |" in text
    assert diagnoses.score([]) == 0.0


def test_a_mutant_is_diagnosed_end_to_end() -> None:
    found = diagnoses.diagnose("recover-from-target")
    assert found.right
    assert "follow p, not the residual" in found.cause
