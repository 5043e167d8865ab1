"""The comparison of whole texts, part by part, from the definition of MMD on all pairs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from evidence_cases import softmax_law
from evidence_records import same
from evidence_refusals import level, refused, size
from scipy import stats

from specverify.evidence import mmd

LAW = softmax_law(6, 3, 1.0)
SPECTRUM = mmd.Spectrum(trace=0.7, spread=0.15, largest=0.05)


def texts(n: int, length: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).choice(len(LAW), (n, length), p=LAW)


def agreement(texts: np.ndarray) -> np.ndarray:
    return np.asarray((texts[:, None] == texts[None]).sum(axis=2))


def distance(pairs: np.ndarray, first: np.ndarray, length: int) -> float:
    """The unbiased estimate for one division of the texts, pair by pair."""
    share = pairs / length
    a, b = np.flatnonzero(first), np.flatnonzero(~first)
    within = [np.mean([share[i, j] for i in group for j in group if i != j]) for group in (a, b)]
    return float(sum(within) - 2 * share[np.ix_(a, b)].mean())


def test_a_comparison_of_texts_by_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmd, "_BLOCK", 8)
    a, b, length, most = texts(6, 4, 1), (texts(5, 4, 2) + 1) % 6, 4, 19
    pairs, first = agreement(np.concatenate([a, b])), np.arange(11) < 6
    rng = np.random.default_rng(3)
    divisions = [
        row
        for number in (8, 8, 3)
        for row in rng.permuted(np.broadcast_to(first, (number, 11)), axis=1)
    ]
    null = np.array([distance(pairs, row, length) for row in divisions])
    observed = distance(pairs, first, length)
    found = mmd.mmd_test(a, b, alpha=0.1, power=0.8, permutations=most, seed=3)
    same(
        found,
        mmd_squared=observed,
        threshold=float(np.sort(null)[math.ceil(0.9 * 18)]),
        p_value=(1 + int((null >= observed - 1e-12).sum())) / 20,
        alpha=0.1,
        texts_a=6,
        texts_b=5,
        length=4,
        permutations=19,
        detectable=mmd.mmd_detectable(mmd.mmd_spectrum(np.concatenate([a, b])), 6, 5, 0.1, 0.8),
        power=0.8,
    )
    assert found.rejected == (found.p_value <= 0.1)


def test_permutations_that_are_not_given() -> None:
    a = texts(3, 2, 1)
    assert mmd.mmd_test(a, a, alpha=0.05).permutations == 999
    assert mmd.mmd_test(a, a, alpha=0.01).permutations == 1000
    assert mmd.mmd_test(a, a, alpha=0.3, permutations=3).permutations == 3
    assert mmd.mmd_test(a, a, alpha=0.05).power == 0.99
    even = np.tile([3, 1], (4, 1))
    same_texts = mmd.mmd_test(even, even, alpha=0.05, permutations=19)
    assert (same_texts.detectable, same_texts.threshold) == (0.0, 0.0)


def test_agreements_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = texts(5, 3, 4)
    sample[1, 2] = sample[3, 2] = -1
    monkeypatch.setattr(mmd, "_EXACT_IN_FLOAT32", 16)
    found = mmd.agreements(sample)
    np.testing.assert_array_equal(found, agreement(sample))
    assert found.dtype == np.float32
    monkeypatch.setattr(mmd, "_EXACT_IN_FLOAT32", 15)
    assert mmd.agreements(sample).dtype == np.float64


def test_the_spectrum_by_its_definition() -> None:
    for n, length, seed in ((40, 3, 5), (300, 2, 6)):
        sample = texts(n, length, seed)
        share = agreement(sample) / length
        means = share.mean(axis=1)
        kernel = share - means[:, None] - means[None] + share.mean()
        trace = float(np.trace(kernel)) / (n - 1)
        np.fill_diagonal(kernel, 0)
        square = float((kernel**2).sum()) / (n * (n - 1))
        seen, edge = float(np.linalg.eigvalsh(kernel)[-1]) / n, math.sqrt(square / n)
        largest = (seen + math.sqrt(max(0.0, seen**2 - 4 * edge**2))) / 2
        if seen <= 2 * edge:
            largest = edge
        found = mmd.mmd_spectrum(sample)
        assert (found.trace, found.spread) == pytest.approx((trace, math.sqrt(square)), rel=1e-5)
        wanted = min(max(largest, square / trace), math.sqrt(square))
        assert found.largest == pytest.approx(wanted, rel=5e-3)


def test_the_largest_eigenvalue_without_the_noise() -> None:
    """A matrix with one large eigenvalue, above and below where it shows: 2 spread / sqrt(N)."""
    n, spread = 100, 0.5
    for top in (0.3, 0.11, 0.09):
        matrix = np.diag(np.r_[[top * n], np.full(n - 1, 0.02 * n)])
        wanted = (top + math.sqrt(top**2 - 0.01)) / 2 if top > 0.1 else 0.05
        assert mmd._largest(matrix, spread) == pytest.approx(wanted, rel=2e-2)
    noise = np.random.default_rng(1).normal(size=(400, 400))
    noise += noise.T  # eigenvalues close to each other, so that an early stop would show
    top = np.linalg.eigvalsh(noise)[-1] / 400
    assert mmd._largest(noise, 1e-6) == pytest.approx(top, rel=1e-3)
    assert mmd._largest(np.diag(np.r_[[1.0, 3.0, -9.0], np.zeros(9)]), 0.1) == pytest.approx(
        (0.25 + math.sqrt(0.0625 - 0.04 / 12)) / 2, rel=1e-3
    )


def test_the_largest_eigenvalue_lies_between_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = texts(30, 3, 5)
    for estimate in (-1.0, 99.0):
        monkeypatch.setattr(mmd, "_largest", lambda *_, estimate=estimate: estimate)
        found = mmd.mmd_spectrum(sample)
        wanted = found.spread**2 / found.trace if estimate < 0 else found.spread
        assert found.largest == pytest.approx(wanted, rel=1e-6)


def missing(far: float, n: int, m: int, alpha: float, power: float) -> float:
    """Threshold plus the quantile of the deviation, by the two moments of each law."""
    mixed = n * m / (n + m) ** 2 * far
    trace = SPECTRUM.trace + mixed
    square = SPECTRUM.spread**2 + 2 * SPECTRUM.largest * mixed + mixed**2
    units, degrees = square / trace, trace**2 / square
    threshold = units * float(stats.chi2.isf(alpha, degrees)) - trace
    width = 1 / n + 1 / m
    variance = 2 * SPECTRUM.spread**2 + 4 * SPECTRUM.largest * far / width
    return width * (threshold + stats.norm.ppf(power) * math.sqrt(variance)) - far


@pytest.mark.parametrize(("n", "m"), [(50, 50), (200, 30), (2, 900)])
def test_what_is_detected_is_what_just_is_not_missing(n: int, m: int) -> None:
    for far in (0.0, 0.1, 1.5):
        found = mmd._missing(far, SPECTRUM, n, m, 0.01, 0.9)
        assert found == pytest.approx(missing(far, n, m, 0.01, 0.9), rel=1e-9)
    found = mmd.mmd_detectable(SPECTRUM, n, m, 0.01, 0.9)
    if found < mmd.MOST:
        assert missing(found, n, m, 0.01, 0.9) == pytest.approx(0, abs=1e-9)
    else:
        assert missing(mmd.MOST, n, m, 0.01, 0.9) >= 0


def test_plans_for_texts_at_their_ends() -> None:
    assert mmd.mmd_texts_needed(SPECTRUM, 2.5, 0.01, 0.9) == 2
    least = mmd.mmd_texts_needed(SPECTRUM, 0.05, 0.01, 0.9)
    assert missing(0.05, least, least, 0.01, 0.9) <= 0 < missing(0.05, least - 1, least - 1, 0.01,
                                                                0.9)  # fmt: skip
    for n in (64, 48):
        just = mmd.mmd_detectable(SPECTRUM, n, n, 0.01, 0.9)
        assert mmd.mmd_texts_needed(SPECTRUM, just, 0.01, 0.9) == n
    assert mmd.mmd_detectable(SPECTRUM, 2, 2, 1e-9, 0.999) == 2.0
    assert mmd.mmd_detectable(SPECTRUM, 90, 90, 0.6, 0.1) == 0.0
    assert mmd.mmd_spectrum([[1], [2], [1], [2]]).spread > 0
    just = mmd.TextEvidence(mmd_squared=0.1, threshold=0.1, p_value=0.05, alpha=0.05, texts_a=2,
                            texts_b=2, length=1, permutations=19, detectable=2.0,
                            power=0.9)  # fmt: skip
    assert just.rejected


TWO = [[0, 1], [1, 0]]
SHAPE = "expected integers [n >= 2, L >= 1], padded with -1"
TOKEN = "expected a token id >= 0, or -1 from the end of the text on"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("a", [[0, 1]], f"a: got int64[1, 2]; {SHAPE}"),
        ("a", [[], []], f"a: got float64[2, 0]; {SHAPE}"),
        ("a", np.zeros((2, 0), dtype=int), f"a: got int64[2, 0]; {SHAPE}"),
        ("b", [0, 1], f"b: got int64[2]; {SHAPE}"),
        ("b", [[0.0, 1.0]] * 2, f"b: got float64[2, 2]; {SHAPE}"),
        ("b", [[0, 1], [-2, 0]], f"b[1, 0]: got -2; {TOKEN}"),
        ("b", [[0, 1, 2], [-1, -1, 5]], f"b[1, 2]: got 5; {TOKEN}"),
        ("b", [[0, 1, 2], [4, -1, 5]], f"b[1, 2]: got 5; {TOKEN}"),
        (
            "b",
            [[0], [1]],
            "b: got texts of 1 positions; expected 2, as in a (pad the shorter with -1)",
        ),
        ("permutations", 1, "permutations: got 1; expected an integer >= 2"),
        *(("alpha", *each) for each in level("alpha")),
        *(("power", *each) for each in level("power")),
        *(("seed", *each) for each in size("seed")),
    ],
)
def test_a_refusal_of_texts_is_exact(field: str, value: Any, message: str) -> None:
    refused(mmd.mmd_test, {"a": TWO, "b": TWO, "alpha": 0.4, field: value}, message)


def test_a_refusal_of_a_plan_is_exact() -> None:
    plan = {"spectrum": SPECTRUM, "texts_a": 2, "texts_b": 2, "alpha": 0.1, "power": 0.9}
    for field, cases in {
        "texts_a": size("texts_a", 2),
        "texts_b": size("texts_b", 2),
        "alpha": level("alpha"),
        "power": level("power"),
    }.items():
        for value, message in cases:
            refused(mmd.mmd_detectable, {**plan, field: value}, message)
    flat = mmd.Spectrum(trace=0.0, spread=0.0, largest=0.0)
    refused(mmd.mmd_detectable, {**plan, "spectrum": flat},
            "spectrum.spread: got 0.0; expected a finite number > 0")  # fmt: skip
    needed = {"spectrum": SPECTRUM, "distance": 0.0, "alpha": 0.1, "power": 0.9}
    refused(mmd.mmd_texts_needed, needed, "distance: got 0.0; expected a finite number > 0")


def test_as_many_texts_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmd, "MOST_TEXTS", 4)
    assert mmd.mmd_test(TWO, TWO, alpha=0.4).texts_a == 2
    assert mmd.mmd_spectrum([*TWO, *TWO]).trace > 0
    five = {"texts": [*TWO, *TWO, [3, -1]]}
    refused(mmd.mmd_spectrum, five, "texts: got 5 texts; expected 4 to 4")
    refused(mmd.mmd_spectrum, {"texts": [*TWO, [0, 0]]}, "texts: got 3 texts; expected 4 to 4")
    refused(mmd.mmd_spectrum, {"texts": [0, 1]}, f"texts: got int64[2]; {SHAPE}")
    three = {"a": TWO, "b": [*TWO, [3, -1]], "alpha": 0.4}
    refused(mmd.mmd_test, three, "a, b: got 5 texts; expected at most 4 together")
