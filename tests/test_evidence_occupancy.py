"""The law of the number of different values: by enumeration, by simulation, far into the tail."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from evidence_refusals import Calls, lawful, level, refusals, refused, size
from hypothesis import given
from hypothesis import strategies as st

from specverify import evidence

RATES = {"alpha": 1e-9, "power": 0.999}


def surjections(draws: int, values: int) -> int:
    """Ways to draw each of the values at least once (inclusion and exclusion)."""
    return sum((-1) ** j * math.comb(values, j) * (values - j) ** draws for j in range(values + 1))


@pytest.mark.parametrize(("draws", "values"), [(1, 1), (4, 1), (3, 2), (5, 3), (3, 6), (6, 4)])
def test_the_law_is_that_of_all_sequences(draws: int, values: int) -> None:
    seen = [len(set(one)) for one in itertools.product(range(values), repeat=draws)]
    counted = np.bincount(seen, minlength=min(draws, values) + 1) / len(seen)
    assert evidence.distinct_law(draws, values) == pytest.approx(counted, abs=1e-15)


@pytest.mark.parametrize(
    ("draws", "values", "distinct"), [(120, 64, 20), (90, 64, 33), (300, 40, 9)]
)
def test_no_digit_is_lost_far_into_the_tail(draws: int, values: int, distinct: int) -> None:
    """By exact fractions: C(m, d) surjections of n draws onto d values."""
    ways = Fraction(math.comb(values, distinct) * surjections(draws, distinct), values**draws)
    assert evidence.distinct_law(draws, values)[distinct] == pytest.approx(float(ways), rel=1e-12)
    assert float(ways) < 1e-6


@given(st.integers(0, 60), st.integers(1, 60))
def test_a_law_is_a_law(draws: int, values: int) -> None:
    law = evidence.distinct_law(draws, values)
    assert law.shape == (min(draws, values) + 1,)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    mean = values * (1 - (1 - 1 / values) ** draws)
    assert law @ np.arange(law.size) == pytest.approx(mean)


def test_the_law_is_nobodys_to_change() -> None:
    evidence.distinct_law(5, 7)[:] = 0
    assert evidence.distinct_law(5, 7).sum() == pytest.approx(1)


def test_a_birthday() -> None:
    """Of 23 people two share a birthday with probability 0.5073."""
    assert 1 - evidence.distinct_law(23, 365)[23] == pytest.approx(0.5073, abs=5e-5)


def test_the_p_value_is_the_lower_tail() -> None:
    law = evidence.distinct_law(40, 30)
    for seen in (1, 15, 22, 30):
        found = evidence.distinct_test(seen, 40, 30, alpha=1e-3, power=0.9)
        assert found.p_value == pytest.approx(law[: seen + 1].sum(), rel=1e-12)
        assert found.rejected == (found.p_value <= 1e-3)
        assert (found.trials, found.cells, found.value) == (40, 30, seen)
        assert (found.statistic, found.alpha, found.power) == ("different values", 1e-3, 0.9)
    assert evidence.distinct_test(0, 0, 30, **RATES).p_value == 1
    assert evidence.distinct_law(3, 3).sum() > 1  # by rounding
    assert evidence.distinct_test(3, 3, 3, **RATES).p_value == 1


@pytest.mark.parametrize(("values", "reached"), [(64, 33), (64, 9), (64, 1), (8192, 4097), (2, 1)])
def test_planned_draws_keep_their_promise(values: int, reached: int) -> None:
    """At the plan and a tenth more, draws that are confined are rejected; one less is too few."""
    needed = evidence.distinct_draws_needed(values, reached, **RATES)
    for draws in (needed, needed + 1, math.floor(1.1 * needed)):
        assert rejects(draws, values, reached) >= RATES["power"]
        found = evidence.distinct_detectable(draws, values, **RATES)
        assert found <= 1 - reached / values + 1e-12
    assert rejects(needed - 1, values, reached) < RATES["power"]


def rejects(draws: int, values: int, reached: int, alpha: float = RATES["alpha"]) -> float:
    """The exact power against draws of equally likely values, only some of which come."""
    tail = evidence.distinct_law(draws, values).cumsum()
    critical = int((tail <= alpha).sum())
    return float(evidence.distinct_law(draws, reached)[:critical].sum())


@pytest.mark.parametrize("draws", [0, 5, 40, 400])
def test_what_is_detected_is_the_most_that_is(draws: int) -> None:
    values = 64
    tv = evidence.distinct_detectable(draws, values, **RATES)
    reach = round((1 - tv) * values)
    assert reach == 0 or rejects(draws, values, reach) >= RATES["power"]
    assert rejects(draws, values, reach + 1) < RATES["power"]
    assert evidence.distinct_test(min(draws, values), draws, values, **RATES).detectable_tv == tv


@pytest.mark.parametrize(("draws", "reached"), [(40, 24), (60, 36), (100, 48)])
def test_the_promised_power_itself_is_enough_to_detect(draws: int, reached: int) -> None:
    power = rejects(draws, 64, reached, 1e-3)
    assert evidence.distinct_detectable(draws, 64, 1e-3, power) == 1 - reached / 64
    more = math.nextafter(power, 1)
    assert evidence.distinct_detectable(draws, 64, 1e-3, more) == 1 - (reached - 1) / 64


@pytest.mark.parametrize("draws", [5, 7, 9])
def test_the_promised_power_itself_is_enough_to_plan(draws: int) -> None:
    power = rejects(draws, 12, 6, 0.2)
    assert evidence.distinct_draws_needed(12, 6, 0.2, power) == draws
    assert evidence.distinct_draws_needed(12, 6, 0.2, math.nextafter(power, 1)) > draws


def test_a_tail_of_alpha_itself_is_rejected() -> None:
    alpha = float(evidence.distinct_law(40, 64).cumsum()[25])
    less = math.nextafter(alpha, 0)
    assert evidence.distinct_test(25, 40, 64, alpha=alpha, power=0.9).rejected
    assert evidence.distinct_detectable(40, 64, alpha, 0.9) == 0.5
    assert evidence.distinct_detectable(40, 64, less, 0.9) > 0.5


def test_a_plan_holds_up_to_a_tenth_more_draws_themselves() -> None:
    """10 draws would do and 11 would not; 11 is a tenth more than 10."""
    assert rejects(10, 9, 6, 0.3) >= 0.7
    assert rejects(11, 9, 6, 0.3) < 0.7
    assert evidence.distinct_draws_needed(9, 6, 0.3, 0.7) == 13


def test_one_value_is_never_too_few() -> None:
    assert evidence.distinct_detectable(100, 1, **RATES) == 1
    assert evidence.distinct_test(1, 100, 1, **RATES).p_value == 1


def test_coarse_coins_are_rejected_and_fine_ones_are_not() -> None:
    """A uniform of 10 bits over 2,048 values, 400 runs; the false alarms at 5 %."""
    rng = np.random.default_rng(7)
    values, rates = 2048, {"alpha": 0.05, "power": 0.95}
    draws = evidence.distinct_draws_needed(values, 1024, **rates)
    coarse, fine = rng.integers(0, 1024, (400, draws)) * 2, rng.integers(0, values, (400, draws))
    found = [
        np.mean(
            [
                evidence.distinct_test(len(set(run)), draws, values, **rates).rejected
                for run in runs.tolist()
            ]
        )
        for runs in (coarse, fine)
    ]
    assert found[0] > 0.9
    assert found[1] < 0.09


CALLS: Calls = [
    (
        evidence.distinct_law,
        {"draws": 0, "values": 1},
        {"draws": size("draws"), "values": size("values", 1)},
    ),
    (
        evidence.distinct_detectable,
        {"draws": 0, "values": 1, **RATES},
        {
            "draws": size("draws"),
            "values": size("values", 1),
            "alpha": level("alpha"),
            "power": level("power"),
        },
    ),
    (
        evidence.distinct_draws_needed,
        {"values": 2, "reached": 1, **RATES},
        {
            "values": size("values", 2),
            "reached": [
                *size("reached", 1),
                (2, "reached: got 2; expected fewer than the 2 values"),
            ],
            "alpha": level("alpha"),
            "power": level("power"),
        },
    ),
    (
        evidence.distinct_test,
        {"distinct": 3, "draws": 3, "values": 5, **RATES},
        {
            "distinct": [
                *size("distinct"),
                *[
                    (
                        wrong,
                        f"distinct: got {wrong}; expected at most the 3 draws and the 5 values, "
                        "and 0 without draws only",
                    )
                    for wrong in (4, 0)
                ],
            ],
            "draws": size("draws"),
            "values": size("values", 1),
            "alpha": level("alpha"),
            "power": level("power"),
        },
    ),
]


@pytest.mark.parametrize(("call", "given", "message"), refusals(CALLS))
def test_a_refusal_is_exact(call: Any, given: dict[str, Any], message: str) -> None:
    refused(call, given, message)


@pytest.mark.parametrize(("call", "given"), lawful(CALLS))
def test_the_last_lawful_value_is_taken(call: Any, given: dict[str, Any]) -> None:
    call(**given)


def test_more_values_than_draws_and_no_values_are_told_apart() -> None:
    message = "distinct: got 6; expected at most the 9 draws and the 5 values, and 0 without"
    with pytest.raises(ValueError, match=message):
        evidence.distinct_test(6, 9, 5, **RATES)
    with pytest.raises(ValueError, match="distinct: got 1; expected at most the 0 draws"):
        evidence.distinct_test(1, 0, 5, **RATES)
