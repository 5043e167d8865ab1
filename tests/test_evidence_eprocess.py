"""The e-process: a martingale exactly, valid under optional stopping, early on real faults."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from evidence_cases import (
    at_most,
    draft_leak,
    lost_tail,
    softmax_law,
    temperature,
    uniform_law,
    worst_direction,
    zipf_law,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specverify.evidence import trials_needed_for_law
from specverify.evidence.eprocess import SequentialTest, dirichlet_log_e, rising
from specverify.evidence.suspects import Suspect, leaks, temperatures, thin_tails


def direct(m: int, a: float) -> float:
    return math.fsum(math.log1p(j / a) for j in range(m))


@given(st.integers(0, 3000), st.floats(-12, 12).map(lambda x: 10**x))
def test_rising_is_the_sum(m, a):
    assert float(rising(m, a)) == pytest.approx(direct(m, a), rel=1e-11, abs=1e-10)


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.floats(-9, 9.6).map(lambda x: 10**x))
def test_rising_adds_up_at_any_size(m, more, a):
    left = float(rising(m + more, a))
    right = float(rising(m, a)) + float(rising(more, a + m)) + more * math.log1p(m / a)
    assert left == pytest.approx(right, rel=1e-12, abs=1e-6)


def tables(cells: int, n: int) -> list[tuple[int, ...]]:
    return [t for t in itertools.product(range(n + 1), repeat=cells) if sum(t) == n]


LAWS = [[0.5, 0.5], [0.2, 0.3, 0.5], [0.9, 0.09, 0.01], [0.4, 0.0, 0.6], [1.0]]


@pytest.mark.parametrize("p", LAWS)
@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_mean_is_one_by_enumeration(p, n):
    all_tables = tables(len(p), n)
    mass = stats.multinomial.pmf(all_tables, n, p) if len(p) > 1 else np.ones(1)
    logs = np.array([dirichlet_log_e(t, p) for t in all_tables])
    possible = mass > 0
    assert np.sum(mass[possible] * np.exp(logs[possible])) == pytest.approx(1, abs=1e-10)


def composite(p, suspects):
    return SequentialTest(p, alpha=0.1, suspects=suspects, pool_at=(30, 50))


@pytest.mark.parametrize("p", [[0.1, 0.2, 0.3, 0.4], [0.05, 0.15, 0.0, 0.8]])
def test_composite_is_a_martingale_step_by_step(p):
    """One more draw changes E by nothing in the mean, from every table of up to 5 draws."""
    p = np.array(p)
    suspects = temperatures(p, (0.5, 2.0)) + leaks(p, p[::-1] * (p > 0) / p[::-1][p > 0].sum(), "x")
    suspects += thin_tails(p, (0.4,))
    for n in range(5):
        for table in tables(4, n):
            if np.any(np.array(table)[p == 0]):
                continue
            before = composite(p, suspects).add(table)
            steps = [composite(p, suspects) for _ in p]
            after = [
                p[i] * math.exp(steps[i].add(np.array(table) + np.eye(4, dtype=int)[i]).log_e)
                for i in np.flatnonzero(p)
            ]
            assert sum(after) == pytest.approx(math.exp(before.log_e), rel=1e-10)
            assert before.log_pooled is not None


@pytest.mark.parametrize("p", [uniform_law(2), uniform_law(30), zipf_law(50), softmax_law(200)])
def test_false_alarms_under_optional_stopping(p):
    runs, alarms = 300, 0
    suspects = temperatures(p) + thin_tails(p) + leaks(p, p[::-1], "reversed")
    rng = np.random.default_rng(31)
    for _ in range(runs):
        test = SequentialTest(p, alpha=0.1, suspects=suspects, pool_at=(1000,))
        batches = (1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
        looks = (test.add(rng.multinomial(size, p)) for size in batches)
        alarms += any(look.rejected for look in looks)
    assert alarms <= at_most(0.1, runs)


def alarm_times(p, faulty, suspects, step, runs, limit):
    rng = np.random.default_rng(32)
    times = []
    for _ in range(runs):
        test = SequentialTest(p, alpha=1e-9, suspects=suspects)
        found = test.add(rng.multinomial(step, faulty))
        while not found.rejected and found.trials < limit:
            found = test.add(rng.multinomial(step, faulty))
        assert found.rejected
        times.append(found.trials)
    return np.mean(times)


@pytest.mark.parametrize(("cells", "share"), [(4, 0.75), (32, 0.8), (256, 0.9)])
def test_alarms_before_the_fixed_test_in_the_worst_direction(cells, share):
    p = uniform_law(cells)
    fixed = trials_needed_for_law(p, 0.1, 1e-9, 0.999)
    mean = alarm_times(p, worst_direction(p, 0.1), (), fixed // 40, 40, 2 * fixed)
    assert mean < share * fixed


@pytest.mark.parametrize(
    "fault",
    [
        lambda p: draft_leak(p, 0.05),
        lambda p: lost_tail(p, 0.02),
        lambda p: temperature(p, 1.05),
        lambda p: temperature(p, 0.97),
    ],
)
def test_directed_bets_halve_the_time_on_faults_they_know(fault):
    p = softmax_law(1024)
    faulty = fault(p)
    tv = 0.5 * np.abs(faulty - p).sum()
    fixed = trials_needed_for_law(p, tv, 1e-9, 0.999)
    suspects = leaks(p, softmax_law(1024, 1), "draft leak") + temperatures(p) + thin_tails(p)
    mean = alarm_times(p, faulty, suspects, fixed // 40, 15, 2 * fixed)
    assert mean < 0.5 * fixed


def test_the_best_suspect_is_named():
    p = softmax_law(300)
    suspects = temperatures(p) + thin_tails(p)
    test = SequentialTest(p, alpha=1e-9, suspects=suspects)
    counts = np.random.default_rng(33).multinomial(10**5, temperature(p, 1.05))
    found = test.add(counts)
    assert found.suspect == "temperature x 1.05"
    assert found.rejected
    assert found.p_value < 1e-9
    assert found.log_directed > found.log_full


def test_an_impossible_draw_is_infinite_evidence():
    p = np.array([0.5, 0.3, 0.2, 0.0])
    assert dirichlet_log_e([1, 0, 0, 1], p) == math.inf
    test = SequentialTest(p, alpha=1e-9, suspects=temperatures(p), pool_at=(50,))
    assert not test.add([3, 1, 1, 0]).rejected
    found = test.add([0, 0, 0, 1])
    assert (found.log_e, found.zero_hits, found.p_value) == (math.inf, 1, 0.0)
    assert found.rejected
    assert test.add([1, 0, 0, 0]).rejected  # once rejected, always rejected
    assert SequentialTest(p, alpha=0.1, pool_at=()).add([0, 0, 0, 1]).rejected


def test_a_lost_bet_costs_its_own_stake_only():
    p = np.array([0.5, 0.5])
    wrong = [Suspect("never the second", np.array([1.0, 0.0])), Suspect("fair", p)]
    found = SequentialTest(p, alpha=0.1, suspects=wrong).add([3, 1])
    assert found.log_directed == pytest.approx(math.log(0.5))
    assert found.suspect == "fair"
    only = SequentialTest(p, alpha=0.1, suspects=wrong[:1]).add([3, 1])
    assert only.log_directed == -math.inf
    assert only.log_e == pytest.approx(dirichlet_log_e([3, 1], p) - math.log(2))


def test_without_draws_nothing_is_known():
    found = SequentialTest([0.2, 0.8], alpha=0.1).add([0, 0])
    assert (found.log_e, found.p_value, found.trials, found.rejected) == (0.0, 1.0, 0, False)
    assert (found.log_pooled, found.log_directed, found.suspect) == (None, None, None)


@pytest.mark.parametrize("cells", [2, 1000, 152_064])
def test_a_thousand_million_draws_from_the_law(cells):
    p = softmax_law(cells)
    counts = np.random.default_rng(34).multinomial(10**9, p)
    found = SequentialTest(p, alpha=1e-9, suspects=temperatures(p)).add(counts)
    assert math.isfinite(found.log_e)
    assert not found.rejected
    assert found.log_directed < -1000
    tilted = np.random.default_rng(35).multinomial(10**9, temperature(p, 1.01))
    assert SequentialTest(p, alpha=1e-9).add(tilted).rejected


def test_suspects_are_laws():
    p = np.array([0.7, 0.2, 0.1, 0.0])
    other = np.array([0.1, 0.2, 0.3, 0.4])
    for suspect in leaks(p, other, "leak") + temperatures(p) + thin_tails(p):
        assert suspect.law.sum() == pytest.approx(1)
        assert (suspect.law >= 0).all()
    assert thin_tails(np.array([0.5, 0.5]), (0.3,)) == []
    assert [s.name for s in leaks(p, other, "leak", (0.01, 0.5))] == ["leak 0.01", "leak 0.5"]
    assert temperatures(p, (2.0,))[0].law[3] == 0


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="other: got 2 cells; expected 3"):
        leaks([0.2, 0.3, 0.5], [0.5, 0.5], "leak")
    with pytest.raises(ValueError, match="shares: got 1"):
        leaks([0.5, 0.5], [0.5, 0.5], "leak", (1.0,))
    with pytest.raises(ValueError, match="factors: got 0"):
        temperatures([0.5, 0.5], (0.0,))
    with pytest.raises(ValueError, match="masses: got 2"):
        thin_tails([0.5, 0.5], (2.0,))
    with pytest.raises(ValueError, match=r"suspects\[odd\]: got 3 cells; expected 2"):
        SequentialTest([0.5, 0.5], alpha=0.1, suspects=[Suspect("odd", uniform_law(3))])
    with pytest.raises(ValueError, match="alpha: got 0"):
        SequentialTest([0.5, 0.5], alpha=0.0)
    with pytest.raises(ValueError, match=r"counts\[0\]: got -1"):
        SequentialTest([0.5, 0.5], alpha=0.1).add([-1, 2])
    with pytest.raises(ValueError, match="p: got a sum"):
        dirichlet_log_e([1, 1], [0.5, 0.6])
