"""Refusals of the suspects and of what floats are allowed, word for word."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_refusals import (
    ALLOWED,
    COUNTS,
    NAN,
    Calls,
    P,
    above_zero,
    law,
    lawful,
    level,
    refusals,
    refused,
    size,
    table,
)

from specverify import evidence

CALLS: Calls = [
    (
        evidence.leaks,
        {"p": P, "other": [0.2, 0.3, 0.5], "name": "leak"},
        {
            "p": law("p"),
            "other": [*law("other"), ([1.0], "other: got 1 cells; expected 3, those of p")],
            "shares": [([0.5, bad], text) for bad, text in level("shares")],
        },
    ),
    (
        evidence.temperatures,
        {"p": P},
        {"p": law("p"), "factors": [([1.0, bad], text) for bad, text in above_zero("factors")]},
    ),
    (
        evidence.thin_tails,
        {"p": P},
        {"p": law("p"), "masses": [([0.5, bad], text) for bad, text in level("masses")]},
    ),
    (
        evidence.allowance,
        {"steps": ["float32-softmax"], "vocab": 1},
        {"vocab": size("vocab", 1)},
    ),
    (evidence.float_tv, {"steps": ["float32-softmax"], "vocab": 1}, {"vocab": size("vocab", 1)}),
    (
        evidence.envelope_cost,
        {"counts": COUNTS, "p": P, "allowed": ALLOWED},
        {"counts": table("counts"), "p": law("p")},
    ),
    (evidence.envelope_limit, {"p": P, "allowed": ALLOWED}, {"p": law("p")}),
    (
        evidence.envelope_log_e,
        {"log_e": 1.0, "counts": COUNTS, "p": P, "allowed": ALLOWED},
        {
            "counts": table("counts"),
            "p": law("p"),
            "log_e": [(NAN, "log_e: got nan; expected a log e-value")],
        },
    ),
    (ALLOWED.cells, {"p": P}, {"p": law("p")}),
    *(
        (
            evidence.Allowance,
            {},
            {
                field: [
                    (bad, f"{field}: got {bad}; expected a number in [0, 1)")
                    for bad in (-0.001, 1.0, NAN)
                ]
            },
        )
        for field in ("relative", "absolute", "last")
    ),
]


@pytest.mark.parametrize(("call", "given", "message"), refusals(CALLS))
def test_a_refusal_is_exact(call: Any, given: dict[str, Any], message: str) -> None:
    refused(call, given, message)


@pytest.mark.parametrize(("call", "given"), lawful(CALLS))
def test_the_last_lawful_value_is_taken(call: Any, given: dict[str, Any]) -> None:
    call(**given)
