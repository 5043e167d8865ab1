"""Refusals of the tests of one table: every field, word for word, and the last lawful values."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_refusals import (
    ALLOWED,
    COUNTS,
    GOODNESS,
    OVER,
    Bad,
    Calls,
    P,
    above_zero,
    law,
    lawful,
    level,
    refusals,
    refused,
    share,
    size,
    table,
)

from specverify import evidence


def counts_in_table(rows: int, columns: int) -> Bad:
    cells = rows * columns
    return [
        (
            [1] * (cells - 1),
            f"counts: got int64[{cells - 1}]; "
            f"expected integers [{cells}], one for each cell of the law",
        )
    ]


CALLS: Calls = [
    (
        evidence.cressie_read,
        {"counts": COUNTS, "p": P, "alpha": 0.01},
        {**GOODNESS, "power": level("power"), "floor": above_zero("floor")},
    ),
    (
        evidence.pearson,
        {"counts": COUNTS, "p": P, "alpha": 0.01},
        {**GOODNESS, "power": level("power"), "floor": above_zero("floor")},
    ),
    (
        evidence.tv_test,
        {"counts": COUNTS, "p": P, "alpha": 0.01},
        {**GOODNESS, "power": level("power")},
    ),
    (
        evidence.tolerant_test,
        {"counts": COUNTS, "p": P, "allowed": ALLOWED, "alpha": 0.01},
        {**GOODNESS, "power": level("power"), "floor": above_zero("floor")},
    ),
    (
        evidence.certificate,
        {"counts": COUNTS, "p": P},
        {"counts": table("counts"), "p": law("p"), "confidence": level("confidence")},
    ),
    (
        evidence.worst_cells,
        {"counts": COUNTS, "p": P},
        {"counts": table("counts"), "p": law("p"), "most": size("most", 1)},
    ),
    (
        evidence.dirichlet_log_e,
        {"counts": COUNTS, "p": P},
        {"counts": table("counts"), "p": law("p")},
    ),
    (evidence.expected_tv, {"p": P, "n": 1}, {"p": law("p"), "n": size("n", 1)}),
    (
        evidence.tv_threshold,
        {"p": P, "n": 1, "alpha": 0.01},
        {"p": law("p"), "n": size("n", 1), "alpha": level("alpha")},
    ),
    (
        evidence.binomial_test,
        {"successes": 0, "trials": 0, "probability": 0.5, "alpha": 0.01},
        {
            "successes": [
                *size("successes"),
                (1, f"successes: got 1; {OVER} trials = 0"),
            ],
            "trials": size("trials"),
            "probability": share("probability"),
            "alpha": level("alpha"),
            "power": level("power"),
        },
    ),
    (
        evidence.clopper_pearson,
        {"successes": 0, "trials": 0},
        {
            "successes": [*size("successes"), (1, f"successes: got 1; {OVER} trials = 0")],
            "trials": size("trials"),
            "confidence": level("confidence"),
        },
    ),
    (
        evidence.pool,
        {"p": P, "n": 0},
        {"p": law("p"), "n": size("n"), "floor": above_zero("floor")},
    ),
    (
        evidence.independence,
        {"counts": [[5, 5], [5, 5]], "row_law": [0.5] * 2, "column_law": [0.5] * 2, "alpha": 0.01},
        {
            "counts": counts_in_table(2, 2),
            "row_law": law("row_law"),
            "column_law": law("column_law"),
            "alpha": level("alpha"),
            "power": level("power"),
            "floor": above_zero("floor"),
        },
    ),
]


@pytest.mark.parametrize(("call", "given", "message"), refusals(CALLS))
def test_a_refusal_is_exact(call: Any, given: dict[str, Any], message: str) -> None:
    refused(call, given, message)


@pytest.mark.parametrize(("call", "given"), lawful(CALLS))
def test_the_last_lawful_value_is_taken(call: Any, given: dict[str, Any]) -> None:
    call(**given)
