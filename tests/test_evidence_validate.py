"""Bad input is refused with the name of the field."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from specverify import evidence
from specverify.evidence import validate

P = np.array([0.5, 0.3, 0.2])
COUNTS = [5, 3, 2]
cressie_read = partial(evidence.cressie_read, alpha=1e-3)
pearson = partial(evidence.pearson, alpha=1e-3)
tv_test = partial(evidence.tv_test, alpha=1e-3)
TABLE_TESTS = [cressie_read, pearson, tv_test, evidence.certificate, evidence.worst_cells]


@pytest.mark.parametrize("call", TABLE_TESTS)
@pytest.mark.parametrize(
    ("counts", "field"),
    [
        ([5, -3, 2], r"counts\[1\]: got -3"),
        ([5, 3], r"counts: got int64\[2\]"),
        ([5.0, 3.0, 2.0], "counts: got float64"),
        ([[5, 3, 2]], "counts"),
        ([True, False, True], "counts: got bool"),
        ([float("nan"), 3, 2], "counts"),
    ],
)
def test_counts_are_checked(call, counts, field):
    with pytest.raises(ValueError, match=field):
        call(counts, P)


@pytest.mark.parametrize("call", TABLE_TESTS)
@pytest.mark.parametrize(
    ("p", "field"),
    [
        ([0.5, 0.3, 0.3], "p: got a sum of 1.1"),
        ([0.5, 0.7, -0.2], r"p\[2\]: got -0.2"),
        ([0.5, float("nan"), 0.2], r"p\[1\]: got nan"),
        ([0.5, float("inf"), 0.2], r"p\[1\]: got inf"),
        ([], "p: got"),
        ([[0.5, 0.3, 0.2]], "p: got"),
        (["a", "b", "c"], "p: got"),
    ],
)
def test_laws_are_checked(call, p, field):
    with pytest.raises(ValueError, match=field):
        call(COUNTS, p)


def test_a_law_within_float_error_is_rescaled():
    law = validate.law("p", P * (1 + 5e-7))
    assert law.sum() == pytest.approx(1, abs=1e-15)
    with pytest.raises(ValueError, match="p: got a sum"):
        validate.law("p", P * (1 + 2e-6))


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 2.0, float("nan")])
def test_levels_are_checked(level):
    calls = {
        "alpha": [
            lambda: evidence.cressie_read(COUNTS, P, alpha=level),
            lambda: evidence.tv_test(COUNTS, P, alpha=level),
            lambda: evidence.tv_threshold(P, 10, level),
            lambda: evidence.trials_needed(4, 0.1, level, 0.999),
            lambda: evidence.trials_needed_for_law(P, 0.1, level, 0.999),
            lambda: evidence.detectable_tv(4, 10, level, 0.999),
            lambda: evidence.binomial_test(1, 2, 0.5, alpha=level),
            lambda: evidence.binomial_trials_needed(0.5, 0.1, level, 0.999),
        ],
        "power": [
            lambda: evidence.pearson(COUNTS, P, alpha=0.1, power=level),
            lambda: evidence.tv_detectable(P, 10, 0.1, level),
            lambda: evidence.tv_trials_needed(P, 0.1, 0.1, level),
            lambda: evidence.binomial_detectable(0.5, 10, 0.1, level),
        ],
        "tv": [
            lambda: evidence.trials_needed(4, level, 0.1, 0.9),
            lambda: evidence.trials_needed_for_law(P, level, 0.1, 0.9),
            lambda: evidence.tv_trials_needed(P, level, 0.1, 0.9),
        ],
        "deviation": [lambda: evidence.binomial_trials_needed(0.5, level, 0.1, 0.9)],
        "confidence": [
            lambda: evidence.certificate(COUNTS, P, level),
            lambda: evidence.clopper_pearson(1, 2, level),
        ],
    }
    for field, functions in calls.items():
        for function in functions:
            with pytest.raises(ValueError, match=f"{field}: got"):
                function()


def test_numbers_are_checked():
    with pytest.raises(ValueError, match="n: got -1; expected an integer >= 0"):
        evidence.pool(P, -1)
    with pytest.raises(ValueError, match=r"n: got 1\.5; expected an integer"):
        evidence.pool(P, 1.5)
    with pytest.raises(ValueError, match="n: got 0; expected an integer >= 1"):
        evidence.expected_tv(P, 0)
    with pytest.raises(ValueError, match="cells: got 0"):
        evidence.trials_needed(0, 0.1, 0.1, 0.9)
    for floor in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="floor: got"):
            evidence.pool(P, 10, floor)
    for slack in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="slack: got"):
            evidence.trials_needed_for_law(P, 0.1, 0.1, 0.9, slack=slack)
    with pytest.raises(ValueError, match="successes: got 3; expected at most trials = 2"):
        evidence.binomial_test(3, 2, 0.5, alpha=0.1)
    with pytest.raises(ValueError, match="successes: got 3"):
        evidence.clopper_pearson(3, 2)
    with pytest.raises(ValueError, match=r"probability: got 1\.5"):
        evidence.binomial_test(1, 2, 1.5, alpha=0.1)
    with pytest.raises(ValueError, match="most: got 0"):
        evidence.worst_cells(COUNTS, P, 0)
