"""Total variation: exact null mean, proved threshold, power, certificate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evidence_cases import (
    LAWS,
    at_least,
    at_most,
    softmax_law,
    total_variation,
    uniform_law,
    worst_direction,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from specverify.evidence import (
    certificate,
    expected_tv,
    tv_detectable,
    tv_test,
    tv_threshold,
    tv_trials_needed,
)


@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("p", [[0.5, 0.5], [0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [1.0, 0.0], [1.0]])
def test_null_mean_by_enumeration(p, n):
    x = np.arange(n + 1)
    exact = sum(0.5 * np.sum(stats.binom.pmf(x, n, r) * np.abs(x / n - r)) for r in p)
    assert expected_tv(p, n) == pytest.approx(exact, abs=1e-13)


def test_null_mean_at_a_thousand_million_draws():
    # E|N - np| -> sqrt(2 n p q / pi) (1 - 1/12n p q ...): relative error below 1e-8 here
    p, n = uniform_law(64), 10**9
    assert expected_tv(p, n) == pytest.approx(
        0.5 * np.sum(np.sqrt(2 * p * (1 - p) / (math.pi * n))), rel=1e-7
    )
    assert expected_tv(softmax_law(152_064), n) < 0.002


def test_de_moivre_by_log_gammas():
    p, n = softmax_law(300), 5000
    m = np.floor(n * p) + 1
    logs = special.gammaln(n + 1) - special.gammaln(m + 1) - special.gammaln(n - m + 1)
    terms = m * np.exp(logs + m * np.log(p) + (n - m + 1) * np.log1p(-p))
    assert expected_tv(p, n) == pytest.approx(terms.sum() / n, rel=1e-9)


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_null_mean_and_detectable_deviation_decrease(n, more):
    p = LAWS["zipf-100"]
    assert expected_tv(p, n + more) <= expected_tv(p, n) * (1 + 1e-12)
    assert tv_detectable(p, n + more, 1e-6, 0.9) <= tv_detectable(p, n, 1e-6, 0.9)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("n", [50, 5000])
def test_the_threshold_is_not_exceeded_more_often_than_alpha(name, n):
    p, runs = LAWS[name], 4000
    tables = np.random.default_rng(2).multinomial(n, p, size=runs)
    distances = 0.5 * np.abs(tables / n - p).sum(axis=1)
    assert distances.mean() == pytest.approx(expected_tv(p, n), rel=0.03)
    for alpha in (0.3, 0.1, 0.01):
        assert np.sum(distances >= tv_threshold(p, n, alpha)) <= at_most(alpha, runs)


def test_p_value_and_threshold_agree():
    p, n, alpha = LAWS["uniform-64"], 1000, 1e-3
    for seed in range(20):
        q = worst_direction(p, 0.1 + 0.01 * seed)
        counts = np.random.default_rng(seed).multinomial(n, q)
        found = tv_test(counts, p, alpha=alpha)
        assert found.value == pytest.approx(total_variation(counts / n, p))
        assert found.rejected == (found.value >= tv_threshold(p, n, alpha))
        assert (found.statistic, found.cells, found.trials) == ("total-variation", 64, n)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("tv", [0.3, 0.1, 0.02])
def test_trials_and_deviation_invert(name, tv):
    p = LAWS[name]
    n = tv_trials_needed(p, tv, 1e-9, 0.999)
    assert tv_detectable(p, n, 1e-9, 0.999) <= tv < tv_detectable(p, n - 1, 1e-9, 0.999)


@given(st.floats(0.05, 0.9), st.floats(1e-9, 0.5), st.floats(0.5, 0.999))
@settings(max_examples=40, deadline=None)
def test_harder_questions_need_more_trials(tv, alpha, power):
    p = LAWS["zipf-100"]
    n = tv_trials_needed(p, tv, alpha, power)
    assert tv_trials_needed(p, tv / 2, alpha, power) >= n
    assert tv_trials_needed(p, tv, alpha / 2, power) >= n
    assert tv_trials_needed(p, tv, alpha, (1 + power) / 2) >= n


@pytest.mark.parametrize("name", ["uniform-4", "softmax-256", "two-cells"])
def test_the_promised_power_is_kept(name):
    p, tv, power, runs = LAWS[name], 0.06, 0.9, 1000
    n = tv_trials_needed(p, tv, 1e-6, power)
    tables = np.random.default_rng(4).multinomial(n, worst_direction(p, tv), size=runs)
    hits = sum(tv_test(table, p, alpha=1e-6, power=power).rejected for table in tables)
    assert hits >= at_least(power, runs)


def test_an_impossible_draw_is_a_proof():
    found = tv_test([500, 499, 1], [0.5, 0.5, 0.0], alpha=1e-9)
    assert (found.p_value, found.zero_hits, found.rejected, found.cells) == (0.0, 1, True, 2)


def test_no_trials_promise_nothing():
    empty = tv_test([0, 0], [0.5, 0.5], alpha=0.1)
    assert (empty.value, empty.p_value, empty.detectable_tv) == (0.0, 1.0, 1.0)
    none = certificate([0, 0], [0.5, 0.5])
    assert (none.tv_observed, none.tv_upper, none.confidence) == (0.0, 1.0, 0.999)
    assert tv_detectable([0.5, 0.5], 1, 1e-9, 0.999) == 1.0


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("tv", [0.0, 0.05, 0.2])
def test_certificates_cover(name, tv):
    p, runs, n = LAWS[name], 1000, 400
    truth = worst_direction(p, tv) if name != "two-cells" else np.array([0.93 - tv, 0.07 + tv])
    tables = np.random.default_rng(6).multinomial(n, truth, size=runs)
    actual = total_variation(truth, p)
    failures = sum(certificate(table, p, 0.9).tv_upper < actual for table in tables)
    assert failures <= at_most(0.1, runs)


def test_certificates_shrink_to_the_truth():
    p = uniform_law(16)
    counts = np.random.default_rng(8).multinomial(10**8, worst_direction(p, 0.03))
    found = certificate(counts, p)
    assert found.tv_observed == pytest.approx(0.03, abs=2e-4)
    assert 0.03 < found.tv_upper < 0.0305
    assert found.tv_upper - found.tv_observed == pytest.approx(math.sqrt(math.log(1000) / 2e8))
