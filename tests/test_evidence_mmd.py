"""Whole texts: level, power, what the kernel sees, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from evidence_cases import at_least, at_most, softmax_law
from scipy import stats

from specverify.evidence import mmd
from specverify.evidence.mmd import mmd_detectable, mmd_spectrum, mmd_test, mmd_texts_needed
from specverify.evidence.power import noncentrality

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
    usual = mmd_test(a, b, alpha=0.2)
    assert usual == mmd_test(a, b, alpha=0.2, seed=0)
    assert usual != mmd_test(a, b, alpha=0.2, seed=1)


def test_an_engine_that_drifts_is_found_with_the_planned_power():
    drifted = 0.75 * LAW + 0.25 * np.roll(LAW, 1)
    distance = float(np.sum((LAW - drifted) ** 2))
    spectrum = mmd_spectrum(texts(LAW, 600, 8, 5))
    alpha, power, runs = 0.02, 0.9, 60
    n = mmd_texts_needed(spectrum, distance, alpha, power)
    hits, stated = 0, []
    for s in range(runs):
        a, b = texts(LAW, n, 8, 2 * s), texts(drifted, n, 8, 2 * s + 1)
        found = mmd_test(a, b, alpha=alpha, power=power, permutations=199, seed=s)
        hits += found.rejected
        stated.append(found.detectable)
    assert hits >= at_least(power, runs)
    assert np.mean(stated) == pytest.approx(distance, rel=0.2)


def test_the_spectrum_of_independent_positions():
    """Each position has the eigenvalues of diag(p) - p p^T, divided by the number of positions."""
    length = 4
    values = np.linalg.eigvalsh(np.diag(LAW) - np.outer(LAW, LAW)) / length
    found = mmd_spectrum(texts(LAW, 3000, length, 7))
    assert found.trace == pytest.approx(length * values.sum(), rel=0.01)
    assert found.spread == pytest.approx(np.sqrt(length * np.sum(values**2)), rel=0.02)
    assert found.largest == pytest.approx(values.max(), rel=0.1)
    few = mmd_spectrum(texts(LAW, 6, length, 7))  # the largest is lost in the noise of six texts
    assert few.spread**2 / few.trace <= few.largest <= few.spread


def test_equal_eigenvalues_give_noncentral_chi_square():
    """With d equal eigenvalues l the law is known: the plan keeps its promise at little cost."""
    spectrum = mmd.Spectrum(trace=1.0, spread=0.2, largest=0.04)  # d = 25
    n, alpha, power = 10**6, 0.01, 0.95
    found = mmd_detectable(spectrum, n, n, alpha, power)
    unit = 0.04 * 2 / n
    assert stats.ncx2.sf(stats.chi2.isf(alpha, 25), 25, found / unit) >= power
    assert found <= 1.1 * noncentrality(26, alpha, power) * unit


def test_a_plan_and_what_it_detects_invert():
    spectrum = mmd_spectrum(texts(LAW, 400, 6, 3))
    for distance in (1.9, 0.3, 0.01, 1e-4):
        n = mmd_texts_needed(spectrum, distance, 0.001, 0.99)
        assert mmd_detectable(spectrum, n, n, 0.001, 0.99) <= distance
        assert n == 2 or mmd_detectable(spectrum, n - 1, n - 1, 0.001, 0.99) > distance
    assert mmd_detectable(spectrum, 2, 2, 1e-9, 0.999) == mmd.MOST
    assert mmd_detectable(spectrum, 50, 50, 0.5, 0.01) == 0


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
    many = np.zeros((257, 257), dtype=int)  # 257**3 agreements: no number of float32
    assert mmd_test(many[:100], many[100:], alpha=0.1, permutations=9).mmd_squared == 0


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
    same = mmd_spectrum([[1, 2]] * 5)
    assert (same.trace, same.spread, same.largest) == (0, 0, 0)
    with pytest.raises(ValueError, match=r"spectrum\.spread: got 0"):
        mmd_detectable(same, 5, 5, 0.1, 0.9)
    with pytest.raises(ValueError, match="texts_b: got 1"):
        mmd_detectable(mmd_spectrum(good), 5, 1, 0.1, 0.9)
    with pytest.raises(ValueError, match="distance: got 0"):
        mmd_texts_needed(mmd_spectrum(good), 0, 0.1, 0.9)
    with pytest.raises(ValueError, match="texts: got 3 texts; expected 4 to"):
        mmd_spectrum(good[:3])
    monkeypatch.setattr(mmd, "MOST_TEXTS", 9)
    with pytest.raises(ValueError, match="a, b: got 10 texts; expected at most 9 together"):
        mmd_test(good, good, alpha=0.05)
