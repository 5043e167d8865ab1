"""Whole texts: level, power, what the kernel sees, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from evidence_cases import at_least, at_most, softmax_law

from specverify.evidence import mmd
from specverify.evidence.mmd import mmd_detectable, mmd_test

LAW = softmax_law(20, 3, 1.0)


def texts(law, n, length, seed):
    return np.random.default_rng(seed).choice(len(law), (n, length), p=law)


def test_null_p_values_are_valid():
    runs = 400
    values = np.array(
        [
            mmd_test(
                texts(LAW, 30, 6, 2 * s), texts(LAW, 50, 6, 2 * s + 1),
                alpha=0.05, permutations=199, seed=s,
            ).p_value
            for s in range(runs)
        ]
    )  # fmt: skip
    for level in (0.5, 0.2, 0.05):
        assert at_least(level * 0.9, runs) <= np.sum(values <= level) <= at_most(level, runs)


def test_the_estimate_is_the_distance_of_the_positions():
    shifted = 0.6 * LAW + 0.4 * np.roll(LAW, 1)
    distance = float(np.sum((LAW - shifted) ** 2))
    found = [
        mmd_test(texts(LAW, 60, 5, s), texts(shifted, 80, 5, s + 999), alpha=0.5, permutations=1)
        for s in range(300)
    ]
    values = np.array([each.mmd_squared for each in found])
    error = values.std() / np.sqrt(len(values))
    assert abs(values.mean() - distance) < 5 * error
    assert distance > 10 * error  # the check above can fail


def test_the_estimate_by_its_definition():
    a, b = texts(LAW, 7, 4, 1), texts(LAW, 5, 4, 2)
    same = lambda x, y: (x[:, None] == y[None]).mean(axis=2)  # noqa: E731
    within_a = (same(a, a).sum() - 7) / 42
    within_b = (same(b, b).sum() - 5) / 20
    found = mmd_test(a, b, alpha=0.2, permutations=4)
    assert found.mmd_squared == pytest.approx(within_a + within_b - 2 * same(a, b).mean())
    assert (found.texts_a, found.texts_b, found.length, found.permutations) == (7, 5, 4, 4)


def test_an_engine_that_drifts_is_found_with_about_the_planned_power():
    drifted = 0.75 * LAW + 0.25 * np.roll(LAW, 1)
    distance = float(np.sum((LAW - drifted) ** 2))
    large = texts(LAW, 1500, 8, 5)
    spread = mmd._spread(mmd.agreements(large), 8)
    n, alpha, power, runs = 20, 0.02, 0.9, 60
    while mmd_detectable(spread, n, n, alpha, power) > distance:
        n += 10
    hits = 0
    for s in range(runs):
        a, b = texts(LAW, n, 8, 2 * s), texts(drifted, n, 8, 2 * s + 1)
        found = mmd_test(a, b, alpha=alpha, power=power, permutations=199, seed=s)
        hits += found.rejected
        assert found.detectable == pytest.approx(
            mmd_detectable(spread, n, n, alpha, power), rel=0.3
        )
    # a planning figure: three quarters at least where nine tenths are planned
    assert hits >= at_least(0.75, runs)


def test_a_text_that_ends_too_early_is_found():
    a = texts(LAW, 120, 10, 1)
    b = texts(LAW, 120, 10, 2)
    b[:30, 6:] = -1
    found = mmd_test(a, b, alpha=0.001)
    assert found.rejected
    assert found.mmd_squared > found.threshold
    assert found.permutations == 10_000


def test_dependence_between_positions_is_invisible():
    a = texts(LAW, 300, 2, 1)
    b = np.repeat(texts(LAW, 300, 1, 2), 2, axis=1)  # the same token twice: the margins are right
    assert not mmd_test(a, b, alpha=0.01).rejected


def test_equal_samples_tie_with_their_permutations():
    same = np.tile([3, 1, 2], (10, 1))
    found = mmd_test(same, same, alpha=0.05)
    assert (found.p_value, found.mmd_squared, found.detectable) == (1, 0, 0)


def test_long_texts_are_added_exactly(monkeypatch):
    a, b = texts(LAW, 20, 6, 1), texts(np.roll(LAW, 1), 20, 6, 2)
    single = mmd_test(a, b, alpha=0.05)
    monkeypatch.setattr(mmd, "_EXACT_IN_FLOAT32", 1)
    assert mmd.agreements(a).dtype == np.float64
    double = mmd_test(a, b, alpha=0.05)
    assert single.p_value == double.p_value
    assert single.mmd_squared == pytest.approx(double.mmd_squared, rel=1e-12)


def test_bad_input_is_refused_by_name(monkeypatch):
    good = texts(LAW, 5, 3, 1)
    for bad, message in (
        ([[1, 2, 3]], r"b: got int64\[1, 3\]; expected integers \[n >= 2"),
        ([1, 2, 3], r"b: got int64\[3\]"),
        (np.zeros((4, 0), dtype=int), "b: got"),
        (np.zeros((4, 3)), "b: got float64"),
        ([[1, 2, -2]] * 2, r"b\[0, 2\]: got -2"),
        ([[1, 2, 3], [-1, 2, -1]], r"b\[1, 1\]: got 2; expected a token id"),
        ([[1, 2]] * 2, "b: got texts of 2 positions; expected 3"),
    ):
        with pytest.raises(ValueError, match=message):
            mmd_test(good, bad, alpha=0.05)
    with pytest.raises(ValueError, match="a: got"):
        mmd_test(good[0], good, alpha=0.05)
    for arguments, message in (
        ({"alpha": 1}, "alpha: got 1"),
        ({"alpha": 0.1, "power": 0}, "power: got 0"),
        ({"alpha": 0.1, "permutations": 8}, "permutations: got 8; expected an integer >= 9"),
        ({"alpha": 0.1, "seed": 1.5}, r"seed: got 1\.5"),
    ):
        with pytest.raises(ValueError, match=message):
            mmd_test(good, good, **arguments)
    with pytest.raises(ValueError, match="spread: got 0"):
        mmd_detectable(0, 5, 5, 0.1, 0.9)
    with pytest.raises(ValueError, match="texts_b: got 1"):
        mmd_detectable(0.1, 5, 1, 0.1, 0.9)
    monkeypatch.setattr(mmd, "MOST_TEXTS", 9)
    with pytest.raises(ValueError, match="a, b: got 10 texts; expected at most 9 together"):
        mmd_test(good, good, alpha=0.05)
