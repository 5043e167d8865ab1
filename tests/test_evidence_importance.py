"""Exact small p-values: enumeration, importance sampling, their agreement, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from evidence_cases import softmax_law, uniform_law, worst_direction
from scipy import special, stats

from specverify.evidence import cressie_read, importance
from specverify.evidence.importance import cressie_read_values, exact_p_value


def pearson(tables, expected):
    return np.sum((tables - expected) ** 2 / expected, axis=1)


def total_variation(tables, expected):
    return np.abs(tables - expected).sum(axis=1)


def test_two_cells_by_the_binomial_law():
    found = exact_p_value([18, 2], [0.5, 0.5], pearson)
    assert found.p_value == pytest.approx(2 * stats.binom.cdf(2, 20, 0.5), rel=1e-12)
    assert (found.method, found.standard_error, found.tables) == ("enumeration", 0.0, 21)
    assert found.p_upper == found.p_value


def test_the_statistic_is_the_usual_one():
    counts = np.array([[12, 20, 8], [20, 20, 0]])
    expected = np.array([16.0, 16, 8])
    values = cressie_read_values(counts, expected)
    usual = stats.power_divergence(counts, expected, axis=1, lambda_="cressie-read").statistic
    assert values == pytest.approx(usual)


@pytest.mark.parametrize("statistic", [cressie_read_values, pearson, total_variation])
@pytest.mark.parametrize("counts", [[14, 4, 2, 0], [19, 1, 0, 0], [6, 5, 4, 5]])
def test_sampling_agrees_with_enumeration(monkeypatch, statistic, counts):
    p = [0.4, 0.3, 0.2, 0.1]
    exact = exact_p_value(counts, p, statistic)
    monkeypatch.setattr(importance, "ENUMERATE", 0)
    sampled = exact_p_value(counts, p, statistic, seed=1)
    assert sampled.method == "importance sampling"
    assert 0 < sampled.standard_error < 0.15 * exact.p_value
    assert abs(sampled.p_value - exact.p_value) < 4 * sampled.standard_error


def test_errors_are_as_large_as_stated():
    counts, p = [44, 17, 15, 15, 15, 14], uniform_law(6)  # p-value about 1e-6
    found = [exact_p_value(counts, p, draws=2000, seed=s) for s in range(120)]
    values = np.array([each.p_value for each in found])
    stated = np.mean([each.standard_error for each in found])
    assert values.std() == pytest.approx(stated, rel=0.35)
    assert np.mean(np.abs(values - values.mean()) < 2 * stated) > 0.85
    covered = np.mean([each.p_upper >= values.mean() for each in found])
    assert covered > 0.95


def test_one_in_a_thousand_million():
    # the chi-square tail of a pooled table is within a factor of 1.5 there, and so is this
    p, n = uniform_law(64), 1280
    rng = np.random.default_rng(2)
    counts = rng.multinomial(n, worst_direction(p, 0.15))
    found = exact_p_value(counts, p, draws=12_000)
    tail = cressie_read(counts, p, alpha=1e-9)
    nominal = float(special.chdtrc(63, tail.value))
    assert 1e-11 < nominal < 1e-8
    assert found.standard_error < 0.15 * found.p_value
    assert nominal / 1.5 < found.p_value < 1.5 * nominal
    assert found.value == pytest.approx(tail.value)


def test_a_rare_cell_is_as_exact_as_the_others(monkeypatch):
    """Twelve draws in a cell that expects a tenth: the Dirichlet mixture alone errs by 30 %."""
    counts, p = [90, 6, 2, 2], [0.9, 0.09, 0.009, 0.001]
    monkeypatch.setattr(importance, "ENUMERATE", 10**6)
    for table in (counts, [82, 10, 2, 6], [70, 9, 9, 12]):
        exact = exact_p_value(table, p)
        assert exact.method == "enumeration"
        monkeypatch.setattr(importance, "ENUMERATE", 0)
        found = [exact_p_value(table, p, seed=s) for s in range(4)]
        monkeypatch.setattr(importance, "ENUMERATE", 10**6)
        for each in found:
            assert each.reliable
            assert each.standard_error < 0.2 * exact.p_value
            assert abs(each.p_value - exact.p_value) < 5 * each.standard_error


def test_an_estimate_on_few_tables_is_not_relied_on():
    """Total variation over many cells: no law of the mixture fits, and the record says so."""
    p, n = softmax_law(40, 1, 1.0), 400
    counts = np.random.default_rng(1).multinomial(n, worst_direction(p, 0.4))
    found = exact_p_value(counts, p, total_variation, draws=2000)
    assert 0 < found.effective < importance.RELIABLE
    assert not found.reliable
    assert found.p_upper == 1


def test_no_extreme_table_sampled_is_no_proof(monkeypatch):
    """Nothing extreme was drawn: the estimate is 0, and the upper bound is 1."""
    monkeypatch.setattr(importance, "ENUMERATE", 0)
    counts, p = [25, 25, 25, 25], uniform_law(4)

    def too_even(tables, expected):
        return -np.abs(tables - expected).sum(axis=1) - 1e9 * (tables.max(axis=1) > 25)

    found = exact_p_value(counts, p, too_even, draws=10, seed=0)
    assert (found.p_value, found.effective, found.p_upper) == (0, 0, 1)


def test_null_p_values_are_valid_and_a_fault_is_rejected():
    p = softmax_law(4, 2, 1.0)
    tables = np.random.default_rng(3).multinomial(40, p, size=400)
    distinct, times = np.unique(tables, axis=0, return_counts=True)
    values = np.repeat([exact_p_value(t, p).p_value for t in distinct], times)
    for level in (0.5, 0.1, 0.01):
        assert np.sum(values <= level) <= stats.binom.isf(1e-6, 400, level)
    wrong = np.random.default_rng(4).multinomial(40, p[::-1])
    assert exact_p_value(wrong, p).p_value < 1e-9


def test_excluded_cells_and_empty_tables():
    found = exact_p_value([3, 2, 1], [0.5, 0.5, 0.0])
    assert (found.p_value, found.method, found.value) == (0.0, "excluded cell", np.inf)
    assert exact_p_value([3, 2, 0], [0.5, 0.5, 0.0]).p_value == pytest.approx(1)
    empty = exact_p_value([0, 0], [0.5, 0.5])
    assert (empty.p_value, empty.value) == (1.0, 0.0)
    assert exact_p_value([7], [1.0]).p_value == 1.0


def test_the_same_seed_gives_the_same_answer():
    counts, p = [30, 10, 10, 10, 10, 10, 10], uniform_law(7)
    first = exact_p_value(counts, p, draws=500, seed=5)
    assert first == exact_p_value(counts, p, draws=500, seed=5)
    assert first != exact_p_value(counts, p, draws=500, seed=6)
    # every table is as extreme as this one: an estimate may exceed 1, a p-value may not
    assert exact_p_value([10] * 6 + [9], p, draws=500).p_value <= 1


def test_bad_input_is_refused_by_name():
    for arguments, message in (
        (([1, -1], [0.5, 0.5]), r"counts\[1\]: got -1"),
        (([1, 1], [0.5, 0.6]), "p: got a sum"),
        (([0] * 5000, np.full(5000, 1 / 5000)), "p: got 5000 live cells; expected at most 4096"),
    ):
        with pytest.raises(ValueError, match=message):
            exact_p_value(*arguments)
    with pytest.raises(ValueError, match="draws: got 1"):
        exact_p_value([1, 1], [0.5, 0.5], draws=1)
    with pytest.raises(ValueError, match="seed: got -1"):
        exact_p_value([1, 1], [0.5, 0.5], seed=-1)
