"""Refusals where two tables or two accuracies are compared, word for word."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_refusals import (
    OVER,
    Calls,
    above_zero,
    lawful,
    level,
    refusals,
    refused,
    share,
    size,
    table,
)

from specverify import evidence
from specverify.evidence.accuracies import most_discordant
from specverify.evidence.accuracy_power import independent_discordance

ACCURACY = {"alpha": level("alpha"), "power": level("power"), "confidence": level("confidence")}


CALLS: Calls = [
    (
        evidence.two_sample_test,
        {"counts_a": [10, 20], "counts_b": [20, 10], "alpha": 0.01},
        {
            "counts_a": [
                *table("counts_a", 2)[1:],
                (
                    [],
                    "counts_a: got float64[0]; expected integers [1], one for each cell of the law",
                ),
            ],
            "counts_b": table("counts_b", 2),
            "alpha": level("alpha"),
            "power": level("power"),
            "floor": above_zero("floor"),
            "seed": size("seed"),
        },
    ),
    (
        evidence.compare_paired,
        {"both": 0, "only_a": 0, "only_b": 0, "questions": 1},
        {
            "both": [*size("both"), (2, f"both: got 2; {OVER} questions - only_a - only_b = 1")],
            "only_a": [*size("only_a"), (2, f"only_a: got 2; {OVER} questions = 1")],
            "only_b": [*size("only_b"), (2, f"only_b: got 2; {OVER} questions = 1")],
            "questions": size("questions", 1),
            **ACCURACY,
        },
    ),
    (
        evidence.compare_unpaired,
        {"right_a": 0, "questions_a": 1, "right_b": 0, "questions_b": 1, "alpha": 1.01e-8},
        {
            "right_a": [*size("right_a"), (2, f"right_a: got 2; {OVER} questions_a = 1")],
            "right_b": [*size("right_b"), (2, f"right_b: got 2; {OVER} questions_b = 1")],
            "questions_a": size("questions_a", 1),
            "questions_b": size("questions_b", 1),
            **ACCURACY,
            "alpha": [*level("alpha"), (1e-8, "alpha: got 1e-08; expected more than 1e-08")],
        },
    ),
    (
        independent_discordance,
        {"accuracy_a": 0.0, "accuracy_b": 1.0},
        {"accuracy_a": share("accuracy_a"), "accuracy_b": share("accuracy_b")},
    ),
    (
        most_discordant,
        {"difference": -1, "questions": 1, "alpha": 0.05},
        {
            "difference": [
                *size("difference", -1),
                (2, f"difference: got 2; {OVER} questions = 1"),
            ],
            "questions": size("questions", 1),
            "alpha": level("alpha"),
        },
    ),
]


@pytest.mark.parametrize(("call", "given", "message"), refusals(CALLS))
def test_a_refusal_is_exact(call: Any, given: dict[str, Any], message: str) -> None:
    refused(call, given, message)


@pytest.mark.parametrize(("call", "given"), lawful(CALLS))
def test_the_last_lawful_value_is_taken(call: Any, given: dict[str, Any]) -> None:
    call(**given)
