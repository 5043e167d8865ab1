"""Refusals of what may be looked at often, and of the lists of culprits, word for word."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from evidence_refusals import (
    COUNTS,
    GOODNESS,
    NAN,
    OVER,
    Calls,
    P,
    law,
    lawful,
    level,
    refusals,
    refused,
    size,
    table,
)

from specverify import evidence


def sequential(**given: Any) -> object:
    counts = given.pop("counts")
    return evidence.SequentialTest(**given).add(counts)


def certificates(**given: Any) -> object:
    counts = given.pop("counts")
    return evidence.CertificateSequence(**given).add(counts)


def two_sequences(**given: Any) -> object:
    cells, alpha = given.pop("cells"), given.pop("alpha")
    return evidence.SequentialTwoSample(cells, alpha=alpha).add(**given)


CALLS: Calls = [
    (
        evidence.rate_sequence,
        {"successes": 0, "trials": 0},
        {
            "successes": [*size("successes"), (1, f"successes: got 1; {OVER} trials = 0")],
            "trials": size("trials"),
            "confidence": level("confidence"),
        },
    ),
    (
        evidence.mean_sequence,
        {"counts": [2, 1], "values": [0, 1]},
        {
            "counts": table("counts", 2),
            "values": [
                ([1.0], "values: got float64[1]; expected a vector of two numbers or more"),
                ([[0, 1]], "values: got int64[1, 2]; expected a vector of two numbers or more"),
                (["a", "b"], "values: got <U1[2]; expected a vector of two numbers or more"),
                (
                    [2.0, 2.0],
                    "values: got [2. 2.]; expected finite numbers that are not all the same",
                ),
                (
                    [0.0, math.inf],
                    "values: got [ 0. inf]; expected finite numbers that are not all the same",
                ),
            ],
            "confidence": level("confidence"),
        },
    ),
    (
        evidence.tv_drift,
        {"n": 1, "confidence": 0.9, "planned": 1},
        {
            "n": size("n", 1),
            "confidence": level("confidence"),
            "planned": size("planned", 1),
        },
    ),
    (
        certificates,
        {"p": P, "planned": 1, "counts": COUNTS},
        {
            "p": law("p"),
            "planned": size("planned", 1),
            "confidence": level("confidence"),
            "counts": table("counts"),
        },
    ),
    (
        sequential,
        {"p": P, "alpha": 0.01, "counts": COUNTS},
        {
            **GOODNESS,
            "pool_at": [([-1], "n: got -1; expected an integer >= 0")],
            "suspects": [
                (
                    [evidence.Suspect("two", np.array([0.5, 0.5]))],
                    "suspects[two]: got 2 cells; expected 3",
                ),
                (
                    [evidence.Suspect("half", np.array([0.5]))],
                    "suspects[half]: got a sum of 0.5; expected a sum of 1 within 1e-06",
                ),
            ],
        },
    ),
    (
        two_sequences,
        {"cells": 2, "alpha": 0.01, "counts_a": [1, 2], "counts_b": [2, 1]},
        {
            "cells": size("cells", 2),
            "alpha": level("alpha"),
            "counts_a": table("counts_a", 2),
            "counts_b": table("counts_b", 2),
        },
    ),
    (
        evidence.bonferroni_share,
        {"alpha": 0.05, "tests": 1},
        {"alpha": level("alpha"), "tests": size("tests", 1)},
    ),
    (
        evidence.bonferroni_shares,
        {"alpha": 0.05, "weights": [1.0, 2.0]},
        {
            "alpha": level("alpha"),
            "weights": [
                ([], "weights: got none; expected one for each test"),
                ([1.0, 0.0], "weights[1]: got 0.0; expected a finite number > 0"),
            ],
        },
    ),
    (
        evidence.holm,
        {"p_values": [0.0, 1.0], "alpha": 0.05},
        {
            "alpha": level("alpha"),
            "p_values": [
                ([], "p_values: got float64[0]; expected a vector of m >= 1 numbers"),
                ([[0.5]], "p_values: got float64[1, 1]; expected a vector of m >= 1 numbers"),
                ([True], "p_values: got bool[1]; expected a vector of m >= 1 numbers"),
                ([0.5, 1.5], "p_values[1]: got 1.5; expected a p-value from 0 to 1"),
                ([-0.5, 0.5], "p_values[0]: got -0.5; expected a p-value from 0 to 1"),
                ([NAN], "p_values[0]: got nan; expected a p-value from 0 to 1"),
            ],
        },
    ),
    *(
        (
            rule,
            {"log_e": [-math.inf, math.inf], "alpha": 0.05},
            {
                "alpha": level("alpha"),
                "log_e": [
                    ([], "log_e: got float64[0]; expected a vector of m >= 1 numbers"),
                    (
                        [0.0, NAN],
                        "log_e[1]: got nan; expected a log e-value, infinities included",
                    ),
                ],
            },
        )
        for rule in (evidence.e_holm, evidence.e_closed, evidence.e_bh)
    ),
    (
        evidence.global_log_e,
        {"log_e": [0.0]},
        {"log_e": [([NAN], "log_e[0]: got nan; expected a log e-value, infinities included")]},
    ),
]


@pytest.mark.parametrize(("call", "given", "message"), refusals(CALLS))
def test_a_refusal_is_exact(call: Any, given: dict[str, Any], message: str) -> None:
    refused(call, given, message)


@pytest.mark.parametrize(("call", "given"), lawful(CALLS))
def test_the_last_lawful_value_is_taken(call: Any, given: dict[str, Any]) -> None:
    call(**given)
