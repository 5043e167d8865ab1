"""Lists of culprits: known answers, brute force, error rates, bad input."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from evidence_cases import at_most
from hypothesis import given
from hypothesis import strategies as st

from specverify.evidence.multiplicity import (
    bonferroni_share,
    bonferroni_shares,
    e_bh,
    e_closed,
    e_holm,
    global_log_e,
    holm,
)

logs = st.lists(st.floats(-50, 50), min_size=1, max_size=7)


def test_bonferroni():
    assert bonferroni_share(1e-6, 1000) == pytest.approx(1e-9)
    shares = bonferroni_shares(0.06, [1, 2, 3])
    assert shares == pytest.approx((0.01, 0.02, 0.03))


def test_holm_on_a_textbook_family():
    found = holm([0.01, 0.04, 0.03, 0.005], 0.05)
    assert found.adjusted == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert (found.culprits, found.tests, found.rejected) == ((3, 0), 4, True)
    assert holm([0.5, 0.9], 0.05).culprits == ()
    assert not holm([0.5, 0.9], 0.05).rejected


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(1e-3, 0.5))
def test_holm_by_its_definition(p_values, alpha):
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    named = set()
    for rank, i in enumerate(order):
        if p_values[i] * (len(order) - rank) > alpha:
            break
        named.add(i)
    assert set(holm(p_values, alpha).culprits) == named


@given(logs)
def test_closed_testing_by_all_subsets(log_e):
    m = len(log_e)
    adjusted = [math.inf] * m
    for size in range(1, m + 1):
        for subset in itertools.combinations(range(m), size):
            mean = global_log_e([log_e[i] for i in subset])
            for i in subset:
                adjusted[i] = min(adjusted[i], mean)
    assert e_closed(log_e, 0.05).adjusted == pytest.approx(adjusted, abs=1e-9)


@given(logs, st.floats(1e-6, 0.5))
def test_closed_testing_names_no_fewer_than_e_holm(log_e, alpha):
    assert set(e_holm(log_e, alpha).culprits) <= set(e_closed(log_e, alpha).culprits)


@given(logs, st.floats(1e-3, 0.5))
def test_e_bh_by_its_definition(log_e, alpha):
    m, order = len(log_e), sorted(range(len(log_e)), key=lambda i: -log_e[i])
    # away from exact ties, where rounding decides
    good = [k for k in range(1, m + 1) if log_e[order[k - 1]] >= math.log(m / (k * alpha)) - 1e-9]
    bad = [k for k in range(1, m + 1) if log_e[order[k - 1]] >= math.log(m / (k * alpha)) + 1e-9]
    number = len(e_bh(log_e, alpha).culprits)
    assert max(bad, default=0) <= number <= max(good, default=0)


def test_e_holm_on_a_small_family():
    found = e_holm(np.log([1000, 70, 30, 0.5]), 0.05)
    assert found.culprits == (0, 1)
    assert np.exp(found.adjusted) == pytest.approx([250, 70 / 3, 15, 0.5])
    # the two others save the third: (30 + 0.5) / 2 is short of 20, so not here
    assert e_closed(np.log([1000, 70, 30, 0.5]), 0.05).culprits == (0, 1)
    assert e_closed(np.log([1000, 70, 30, 15]), 0.05).culprits == (0, 1, 2)
    assert e_holm(np.log([1000, 70, 30, 15]), 0.05).culprits == (0, 1)


def test_huge_and_infinite_evidence():
    found = e_closed([1e6, -math.inf, 3.0, math.inf], 1e-9)
    assert found.culprits == (3, 0)
    assert global_log_e([1e6, 2e6]) == pytest.approx(2e6 - math.log(2))
    assert global_log_e([math.inf, 0.0]) == math.inf
    assert global_log_e([-math.inf]) == -math.inf
    assert e_bh([math.inf, 1e5, 0], 1e-6).culprits == (0, 1)
    assert e_holm([math.inf, 1e5, 0], 1e-6).culprits == (0, 1)


@pytest.mark.parametrize("rule", [e_holm, e_closed])
def test_true_hypotheses_are_named_rarely(rule):
    # likelihood ratios of a shift by 4: half of the family has it, half has not
    runs, alpha, false, true = 2000, 0.1, 0, 0
    rng = np.random.default_rng(1)
    for _ in range(runs):
        log_e = 4 * (rng.normal(size=20) + 4 * (np.arange(20) < 10)) - 8
        named = np.array(rule(log_e, alpha).culprits, dtype=int)
        false += bool((named >= 10).any())
        true += int((named < 10).sum())
    assert false <= at_most(alpha, runs)
    # ln E >= ln(20 / 0.1) for a normal deviate above -0.67: three of four are found at least
    assert true > 7.4 * runs


def test_holm_and_e_bh_keep_their_rates():
    runs, alpha, false, share = 2000, 0.1, 0, 0.0
    rng = np.random.default_rng(2)
    for _ in range(runs):
        p = rng.uniform(size=20)
        p[:10] *= 1e-4
        named = holm(p, alpha).culprits
        false += any(i >= 10 for i in named)
        assert sum(i < 10 for i in named) >= 9
        log_e = 3 * (rng.normal(size=20) + 3 * (np.arange(20) < 10)) - 4.5
        named = e_bh(log_e, alpha).culprits
        share += sum(i >= 10 for i in named) / max(1, len(named))
    assert false <= at_most(alpha, runs)
    assert 0 < share / runs <= alpha


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bonferroni_share(0.1, 0), "tests: got 0"),
        (lambda: bonferroni_share(1.5, 3), r"alpha: got 1\.5"),
        (lambda: bonferroni_shares(0.1, []), "weights: got none"),
        (lambda: bonferroni_shares(0.1, [1, 0]), r"weights\[1\]: got 0"),
        (lambda: holm([0.1, 1.1], 0.1), r"p_values\[1\]: got 1\.1"),
        (lambda: holm([0.1, float("nan")], 0.1), r"p_values\[1\]: got nan"),
        (lambda: holm([], 0.1), "p_values: got"),
        (lambda: holm([[0.1]], 0.1), "p_values: got"),
        (lambda: holm(["a"], 0.1), "p_values: got"),
        (lambda: holm([0.1], 0), "alpha: got 0"),
        (lambda: e_holm([float("nan")], 0.1), r"log_e\[0\]: got nan"),
        (lambda: e_bh([1.0], 1), "alpha: got 1"),
        (lambda: e_closed([1.0], 1), "alpha: got 1"),
        (lambda: global_log_e([]), "log_e: got"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
