"""``specverify accuracy``: what it prints and which files it refuses."""

from __future__ import annotations

import json

import pytest
from scipy import stats

from specverify._cli_accuracy import accuracy, compare_files, read_results


def write(path, results):
    path.write_text("".join(json.dumps({"id": i, "correct": c}) + "\n" for i, c in results))
    return path


def said(capsys):
    return " ".join(capsys.readouterr().out.split())


def test_two_accuracies_that_cannot_be_told_apart(capsys):
    accuracy(a=0.79, b=0.77, n=1319)
    text = said(capsys)
    assert "1,319 questions cannot tell 0.79 from 0.77: p = 0.223" in text
    assert "9,039 would be needed for power 0.9" in text
    assert "at most 162 of the 1,319 answers differ" in text
    assert "-0.0119 to +0.0513" in text


def test_two_accuracies_that_can(capsys):
    accuracy(a=0.79, b=0.6, n=1319, discordance=0.3, power=0.8)
    text = said(capsys)
    assert "1,319 questions tell 0.79 from 0.6: p < 1e-08" in text
    assert "30.0% answered differently (as asked)" in text
    assert "with power 0.8" in text


def test_equal_and_extreme_accuracies_have_no_plan(capsys):
    accuracy(a=0.5, b=0.5, n=10)
    assert "cannot tell 0.5 from 0.5: p = 1" in (text := said(capsys))
    assert "Questions that would" not in text
    accuracy(a=1, b=0, n=1)
    text = said(capsys)
    assert "1 question cannot tell 1 from 0" in text
    assert "power 0.9 none" in text


def test_two_files_are_paired_by_question(tmp_path, capsys):
    # the second engine loses 30 questions, wins 8, out of 400, in another order and format
    first = write(tmp_path / "a.jsonl", [(i, i < 320) for i in range(400)])
    second = tmp_path / "b.csv"
    rows = [(i, int(30 <= i < 320 or i >= 392)) for i in reversed(range(400))]
    second.write_text("note,id,correct\n" + "".join(f"x,{i},{c}\n" for i, c in rows))
    accuracy(files=(first, second))
    text = said(capsys)
    p_value = stats.binomtest(8, 38, 0.5).pvalue
    assert f"400 questions tell 0.8 from 0.745: p = {p_value:.3g} (exact paired test" in text
    assert "30, 8" in text
    assert "(as observed)" in text
    found = compare_files(first, second, alpha=0.05, power=0.9, confidence=0.95)
    assert (found.only_a, found.only_b, found.questions_a) == (30, 8, 400)


def test_all_the_ways_to_say_right(tmp_path):
    path = tmp_path / "r.jsonl"
    lines = ['{"id": "a", "correct": true}', "", '{"id": "b", "correct": 0}',
             '{"id": 3, "correct": "Yes", "answer": 7}']  # fmt: skip
    path.write_text("\n".join(lines))
    assert read_results(path) == {"a": True, "b": False, "3": True}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.jsonl", "", "got no results"),
        ("r.jsonl", "{", "line 1: not JSON"),
        ("r.jsonl", "[1]", r"line 1: got \[1\]; expected an object"),
        ("r.jsonl", '{"id": "a"}', "line 1: got correct None; expected true or false"),
        ("r.jsonl", '{"id": "a", "correct": 0.5}', "line 1: got correct 0.5"),
        ("r.jsonl", '{"id": "a", "correct": 2}', "line 1: got correct 2"),
        ("r.jsonl", '{"correct": true}', "line 1: got id None; expected a text"),
        ("r.jsonl", '{"id": true, "correct": true}', "line 1: got id True"),
        ("r.jsonl", '{"id": "", "correct": true}', "line 1: got id ''"),
        (
            "r.jsonl",
            '{"id": 1, "correct": true}\n{"id": "1", "correct": false}',
            "line 2: got question '1' again",
        ),
        ("r.csv", "", "got the columns none; expected id and correct"),
        ("r.csv", "id,right\n1,1\n", "got the columns id, right"),
        ("r.csv", "id,correct\n1,1\n2\n", "line 3: got correct None"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_results(path)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match="cannot be read as text"):
        read_results(tmp_path / "absent.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="cannot be read as text"):
        read_results(tmp_path / "binary.jsonl")


def test_files_on_other_questions_are_refused(tmp_path):
    full = write(tmp_path / "full.jsonl", [("q1", True), ("q2", False), ("q3", True)])
    part = write(tmp_path / "part.jsonl", [("q1", True), ("q3", True)])
    for pair in ((full, part), (part, full)):
        with pytest.raises(
            ValueError, match=r"part.jsonl: got no result for 1 of the 3 questions of .*'q2'"
        ):
            accuracy(files=pair)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "accuracy: got too little"),
        ({"a": 0.5, "b": 0.5}, "accuracy: got too little"),
        ({"a": 79, "b": 0.5, "n": 10}, "--a: got 79; expected an accuracy from 0 to 1"),
        ({"a": 0.5, "b": float("nan"), "n": 10}, "--b: got nan"),
        ({"a": 0.5, "b": 0.4, "n": 0}, "--n: got 0; expected a number of questions"),
        ({"a": 0.5, "b": 0.4, "n": 10, "alpha": 0}, "alpha: got 0"),
        (
            {"a": 0.5, "b": 0.4, "n": 10, "discordance": 0.05},
            "--discordance: got 0.05; expected a share from 0.1",
        ),
        ({"a": 0.5, "b": 0.4, "n": 10, "discordance": 1.5}, "--discordance: got 1.5"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        accuracy(**arguments)


def test_files_and_accuracies_exclude_each_other(tmp_path):
    path = write(tmp_path / "a.jsonl", [("q", True)])
    with pytest.raises(ValueError, match="--files: got --a, --b or --n as well"):
        accuracy(a=0.5, files=(path, path))
