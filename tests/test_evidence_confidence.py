"""Confidence sequences: coverage at all looks at once, width, proofs in numbers, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evidence_cases import at_most, softmax_law, total_variation, uniform_law, worst_direction
from scipy import integrate, special

from specverify.evidence import certificate, clopper_pearson
from specverify.evidence.confidence import (
    CertificateSequence,
    mean_sequence,
    rate_sequence,
    tv_drift,
)

LOOKS = np.unique(np.geomspace(1, 2000, 25).astype(int))


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.5, 0.97])
def test_a_rate_is_covered_at_every_look(rate):
    runs, confidence, missed = 250, 0.9, 0
    draws = np.cumsum(np.random.default_rng(1).random((runs, LOOKS[-1])) < rate, axis=1)
    for row in draws:
        found = [rate_sequence(row[n - 1], n, confidence) for n in LOOKS]
        missed += any(not each.low <= rate <= each.high for each in found)
    assert missed <= at_most(1 - confidence, runs)


@pytest.mark.parametrize("law", [[0.2, 0.3, 0.1, 0.4], [0.97, 0.01, 0.01, 0.01], [0.5, 0, 0, 0.5]])
def test_a_mean_is_covered_at_every_look(law):
    runs, confidence, missed = 80, 0.9, 0
    values = np.array([1.0, 2, 3, 5])
    mean = float(values @ law)
    rng = np.random.default_rng(2)
    for _ in range(runs):
        draws = np.cumsum(rng.multinomial(1, law, size=LOOKS[-1]), axis=0)
        found = [mean_sequence(draws[n - 1], values, confidence) for n in LOOKS[::2]]
        missed += any(not each.low <= mean <= each.high for each in found)
    assert missed <= at_most(1 - confidence, runs)


def test_the_capital_of_a_rate_is_fair_by_enumeration():
    # the mixture likelihood sums to 1 over all sequences, so its ratio has mean 1
    n, x = 12, np.arange(13)
    mixture = np.exp(special.betaln(x + 0.5, n - x + 0.5) - special.betaln(0.5, 0.5))
    assert (special.comb(n, x) * mixture).sum() == pytest.approx(1)


def test_anytime_intervals_contain_fixed_ones_and_are_not_much_wider():
    for x, n in ((0, 50), (7, 50), (300, 1000), (10**5, 10**6), (50, 50)):
        low, high = clopper_pearson(x, n)
        found = rate_sequence(x, n)
        assert found.low <= low <= high <= found.high
        assert found.high - found.low < 2.2 * (high - low)
        assert (found.trials, found.estimate, found.confidence) == (n, x / n, 0.999)


def test_a_mean_of_two_values_is_about_as_good_as_a_rate():
    for x, n in ((3, 100), (700, 1000), (3 * 10**8, 10**9)):
        rate, mean = rate_sequence(x, n), mean_sequence([n - x, x], [0, 1])
        assert mean.high - mean.low < 1.4 * (rate.high - rate.low)
        assert mean.low <= x / n <= mean.high


def test_bets_adapt_to_a_small_variance():
    # lengths 1 .. 5, nearly always 5: a bound from the range alone would be 0.15 wide
    found = mean_sequence([10, 0, 0, 0, 9990], [1, 2, 3, 4, 5])
    assert found.high - found.low < 0.03
    assert found.low < found.estimate < found.high < 5


def test_no_draws_say_nothing():
    assert (rate_sequence(0, 0).low, rate_sequence(0, 0).high) == (0, 1)
    empty = mean_sequence([0, 0, 0], [1, 2, 4])
    assert (empty.low, empty.high, empty.estimate, empty.trials) == (1, 4, 2.5, 0)


def test_means_on_the_bounds():
    low = mean_sequence([500, 0], [1, 3])
    assert (low.low, low.estimate) == (1, 1)
    assert 1 < low.high < 1.1
    high = mean_sequence([0, 500], [1, 3])
    assert (high.high, high.estimate) == (3, 3)
    assert high.low == pytest.approx(4 - low.high)


def test_a_broken_acceptance_rate_is_excluded():
    # 1 - TV = 0.8 expected, a sampler that loses q accepts 0.7
    rng = np.random.default_rng(3)
    found = rate_sequence(rng.binomial(3000, 0.7), 3000)
    assert found.high < 0.8


@pytest.mark.parametrize("planned", [10, 1000, 10**6])
@pytest.mark.parametrize("confidence", [0.9, 0.999])
def test_the_drift_is_where_the_mixture_reaches_one_over_beta(planned, confidence):
    n, beta = 700, 1 - confidence
    log = -math.log(beta)
    scale = planned / 4 / (2 * log + math.log1p(2 * log))
    excess = n * tv_drift(n, confidence, planned)

    def density(rate):
        weight = 2 * math.sqrt(scale / (2 * math.pi)) * math.exp(-scale * rate**2 / 2)
        return weight * math.exp(rate * excess - rate**2 * n / 8)

    peak = excess / (n / 4 + scale)
    width = 1 / math.sqrt(n / 4 + scale)
    edges = (max(0.0, peak - 12 * width), peak + 12 * width)
    capital = integrate.quad(density, *edges, points=[peak])[0]
    assert 1 <= capital * beta < 1.1


@pytest.mark.parametrize("name", ["exact", "far"])
def test_a_certificate_is_never_wrong_at_any_look(name):
    p = softmax_law(6, 1, 1.0)
    truth = p if name == "exact" else worst_direction(p, 0.2)
    actual, runs, wrong = total_variation(p, truth), 400, 0
    rng = np.random.default_rng(4)
    for _ in range(runs):
        sequence = CertificateSequence(p, planned=500, confidence=0.9)
        bounds = [sequence.add(rng.multinomial(m, truth)).tv_upper for m in [1] * 20 + [40] * 40]
        assert bounds == sorted(bounds, reverse=True)
        wrong += bounds[-1] < actual - 1e-12
    assert wrong <= at_most(0.1, runs)


def test_drifts_against_the_fixed_bound():
    for factor, most in ((0.1, 1.26), (1, 1.09), (10, 1.14)):
        n = int(factor * 10**5)
        fixed = math.sqrt(math.log(1000) / (2 * n))
        assert fixed < tv_drift(n, 0.999, 10**5) < most * fixed


def test_a_sequence_of_certificates():
    p = uniform_law(64)
    sequence = CertificateSequence(p, planned=360_000)
    none = sequence.add(np.zeros(64, dtype=int))
    assert (none.tv_observed, none.tv_upper, none.confidence) == (0, 1, 0.999)
    counts = np.random.default_rng(5).multinomial(380_000, p)
    found = sequence.add(counts)
    fixed = certificate(counts, p)
    assert found.tv_observed == pytest.approx(fixed.tv_observed)
    assert fixed.tv_upper < found.tv_upper < 0.0105


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rate_sequence(3, 2), "successes: got 3; expected at most trials = 2"),
        (lambda: rate_sequence(-1, 2), "successes: got -1"),
        (lambda: rate_sequence(1, 2, 1.0), "confidence: got"),
        (lambda: mean_sequence([1], [1]), "values: got"),
        (lambda: mean_sequence([1, 2], [[1, 2]]), "values: got"),
        (lambda: mean_sequence([1, 2], ["a", "b"]), "values: got"),
        (lambda: mean_sequence([1, 2], [1, 1]), "values: got .* not all the same"),
        (lambda: mean_sequence([1, 2], [1, float("inf")]), "values: got .* finite"),
        (lambda: mean_sequence([1, -2], [1, 2]), r"counts\[1\]: got -2"),
        (lambda: mean_sequence([1, 2], [1, 2], 0), "confidence: got 0"),
        (lambda: tv_drift(0, 0.9, 1), "n: got 0"),
        (lambda: tv_drift(1, 0.9, 0), "planned: got 0"),
        (lambda: tv_drift(1, 9, 1), "confidence: got 9"),
        (lambda: CertificateSequence([0.5, 0.6], planned=1), "p: got a sum"),
        (lambda: CertificateSequence([0.5, 0.5], planned=0), "planned: got 0"),
        (lambda: CertificateSequence([0.5, 0.5], planned=9, confidence=2), "confidence: got 2"),
        (lambda: CertificateSequence([0.5, 0.5], planned=9).add([1, 2, 3]), "counts: got"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
