"""Small p-values by sampling, part by part: every weight, law and scale from its definition."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from evidence_cases import softmax_law, uniform_law
from evidence_records import same
from scipy import special, stats

from specverify.evidence import importance
from specverify.evidence.importance import cressie_read_values, exact_p_value

P = np.array([0.5, 0.3, 0.2])


def by_hand(n: int, p: np.ndarray, least: float) -> float:
    tables = [t for t in itertools.product(range(n + 1), repeat=len(p)) if sum(t) == n]
    values = stats.power_divergence(tables, n * p, axis=1, lambda_="cressie-read").statistic
    return float(stats.multinomial.pmf(tables, n, p)[values >= least - 1e-9].sum())


def test_an_enumerated_p_value() -> None:
    value = float(stats.power_divergence([0, 4, 3], 7 * P, lambda_="cressie-read").statistic)
    same(
        exact_p_value([0, 4, 3], P),
        value=value,
        p_value=by_hand(7, P, value),
        standard_error=0.0,
        method="enumeration",
        tables=36,
        effective=math.inf,
    )
    excluded = {"value": math.inf, "p_value": 0.0, "method": "excluded cell", "tables": 1}
    empty = {"value": 0.0, "p_value": 1.0, "method": "enumeration", "tables": 1}
    common = {"standard_error": 0.0, "effective": math.inf}
    same(exact_p_value([0, 3, 1], [0.5, 0.5, 0.0]), **excluded, **common)
    same(exact_p_value([0, 0, 0], [0.5, 0.5, 0.0]), **empty, **common)


def test_values_alike_to_ten_digits_are_as_extreme_as_the_observed_one() -> None:
    def p_value(observed: float, others: float) -> float:
        def statistic(tables: np.ndarray, _expected: np.ndarray) -> np.ndarray:
            return np.where(tables[:, 0] == 0, observed, others)

        return exact_p_value([0, 3], [0.5, 0.5], statistic).p_value

    for observed, tie in ((0.0, 1e-10), (1e6, 9e-5), (-1e6, 9e-5)):
        assert p_value(observed, observed - tie) == pytest.approx(1.0)
        assert p_value(observed, observed - 1.5 * tie) == pytest.approx(0.125)


def test_a_statistic_is_given_whole_numbers_and_the_seed_is_zero() -> None:
    kinds = set()

    def statistic(tables: np.ndarray, expected: np.ndarray) -> np.ndarray:
        kinds.add(tables.dtype)
        return cressie_read_values(tables, expected)

    counts, p = [9, 1, 5, 20, 25], [0.2] * 5
    found = exact_p_value(counts, p, statistic, draws=200)
    assert (found.method, kinds) == ("importance sampling", {np.dtype(np.int64)})
    assert found == exact_p_value(counts, p, draws=200, seed=0)
    assert found != exact_p_value(counts, p, draws=200, seed=1)
    assert exact_p_value(counts, p).tables == 20_000


def test_the_least_extreme_table_has_the_p_value_one_at_most() -> None:
    found = [exact_p_value([n // 2, n - n // 2], [0.5, 0.5]).p_value for n in range(1, 60)]
    assert found == pytest.approx([1.0] * 59, rel=1e-12)
    assert max(found) <= 1


def test_up_to_the_limit_all_tables_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importance, "ENUMERATE", 36)
    assert exact_p_value([0, 4, 3], P).method == "enumeration"
    monkeypatch.setattr(importance, "ENUMERATE", 35)
    found = exact_p_value([0, 4, 3], P, draws=60)
    assert (found.method, found.tables) == ("importance sampling", 60)
    assert 0 <= exact_p_value([0, 4, 3], P, draws=2).p_value <= 1
    monkeypatch.setattr(importance, "MAX_CELLS", 3)
    assert exact_p_value([1, 1, 1, 0], [*P, 0.0]).tables == 10
    monkeypatch.setattr(importance, "MAX_CELLS", 2)
    with pytest.raises(ValueError, match="live cells") as caught:
        exact_p_value([1, 1, 1], P)
    assert str(caught.value) == "p: got 3 live cells; expected at most 2, pooled"


def test_what_a_verdict_uses() -> None:
    tail = importance.ExactTail(
        value=9.0, p_value=0.01, standard_error=0.002, method="", tables=9, effective=25.0
    )
    assert (tail.reliable, tail.p_upper) == (True, pytest.approx(0.016))
    less = dataclasses.replace(tail, effective=math.nextafter(25.0, 0))
    assert (less.reliable, less.p_upper) == (False, 1.0)
    assert dataclasses.replace(tail, standard_error=0.5).p_upper == 1.0


@pytest.mark.parametrize(("n", "cells"), [(3, 3), (5, 2), (4, 1), (1, 4)])
def test_compositions_are_all_the_tables(n: int, cells: int) -> None:
    expected = {t for t in itertools.product(range(n + 1), repeat=cells) if sum(t) == n}
    found = importance._compositions(n, cells)
    assert found.shape == (len(expected), cells)
    assert set(map(tuple, found.tolist())) == expected


def test_scales_around_the_one_that_fits() -> None:
    def scales(cells: int, observed: np.ndarray, factor: float) -> None:
        n, df = float(observed.sum()), cells - 1
        expected = np.full(cells, n / cells)
        chi2 = float(stats.chisquare(observed, expected).statistic)
        fitting = df * (n - 1) / (chi2 - df) - 1
        assert 0.25 < fitting < 16 * n
        steps = [fitting * factor**i for i in (-2, -1, 0, 1, 2)]
        found = importance._scales(observed, expected)
        np.testing.assert_allclose(found, [*steps, 64 * n], rtol=1e-12)

    for cells, factor in ((3, 4.0), (10, 4.0), (11, 2.0), (100, 2.0), (101, 1.3)):
        scales(cells, np.r_[[100], np.full(cells - 2, 9), [2]], factor)
    scales(3, np.array([14, 9, 7]), 4.0)  # X2 = 2.6, hardly more than k - 1
    powers = 4.0 ** np.arange(-2, 3)
    even = importance._scales(np.array([4, 4, 4]), np.array([4.0, 4.0, 4.0]))
    np.testing.assert_allclose(even, [*(16 * 12 * powers), 64 * 12], rtol=1e-12)
    typical = importance._scales(np.array([3, 1]), np.array([2.0, 2.0]))  # X2 = 1 = k - 1
    np.testing.assert_allclose(typical, [*(16 * 4 * powers), 64 * 4], rtol=1e-12)
    single = importance._scales(np.array([9, 0, 0]), np.array([3.0, 3.0, 3.0]))
    np.testing.assert_allclose(single, [*(0.25 * powers), 64 * 9], rtol=1e-12)


def dirichlet_multinomial(table: np.ndarray, alpha: np.ndarray) -> float:
    return float(stats.dirichlet_multinomial.logpmf(table, alpha, int(table.sum())))


def test_the_weights_of_the_dirichlet_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    scales = np.array([0.5, 3.0, 40.0])
    monkeypatch.setattr(importance, "_BLOCK_BYTES", 8 * 3 * 3 * 4)
    rng = np.random.default_rng(1)
    blocks = list(importance.mixture_tables(P, 9, scales, 10, rng))
    assert [tables.shape for tables, _ in blocks] == [(4, 3), (4, 3), (2, 3)]
    monkeypatch.setattr(importance, "_BLOCK_BYTES", 1)
    singles = importance.mixture_tables(P, 9, scales, 3, np.random.default_rng(1))
    assert [tables.shape for tables, _ in singles] == [(1, 3)] * 3
    for tables, logs in blocks:
        for table, log in zip(tables, logs, strict=True):
            parts = [dirichlet_multinomial(table, c * P) for c in scales]
            ratio = special.logsumexp(parts) - math.log(3) - stats.multinomial.logpmf(table, 9, P)
            assert log == pytest.approx(-ratio, abs=1e-9)
    monkeypatch.undo()
    # every scale is used, and as it should be: the variance of a count under the mixture
    tables = np.concatenate([t for t, _ in importance.mixture_tables(P, 9, scales, 40_000, rng)])
    variance = 9 * 0.25 * np.mean((9 + scales) / (1 + scales))
    assert tables[:, 0].mean() == pytest.approx(4.5, abs=0.08)
    assert tables[:, 0].var() == pytest.approx(variance, rel=0.04)


def test_groups_of_cells() -> None:
    t, f = True, False
    assert importance._groups(P).tolist() == [[t, f, f], [f, t, f], [t, t, f]]
    assert importance._groups(uniform_law(8)).shape == (127, 8)
    np.testing.assert_array_equal(importance._groups(uniform_law(9)), np.eye(9, dtype=bool))
    np.testing.assert_array_equal(importance._groups(uniform_law(100)), np.eye(100, dtype=bool))
    law = softmax_law(300)
    order = np.argsort(law)
    wanted = np.sort(np.r_[order[:64], order[-64:]])
    found = importance._groups(law)
    np.testing.assert_array_equal(np.argmax(found, axis=1), wanted)
    assert (found.sum(axis=1) == 1).all()
    # of cells alike the first ones count as the rarest, the last ones as the likeliest
    tied = importance._groups(np.tile([1.0, 2.0], 300) / 900)
    found = np.argmax(tied, axis=1).tolist()
    assert found == sorted([*range(0, 128, 2), *range(473, 600, 2)])


def test_draws_as_expected() -> None:
    found = importance._as_expected(np.array([0.1, 0.25, 0.15]), np.array([0, 7, 10]))
    assert found.tolist() == [[0, 0, 0], [1, 4, 2], [2, 5, 3]]


def test_the_first_count_that_is_extreme() -> None:
    """Against all counts from the expected one on, for every group, end and threshold."""
    p, n = np.array([0.45, 0.3, 0.2, 0.05]), 60
    expected = n * p
    for least in (0.0, 0.5, 1.0, 2.0, 5.0, 9.0, 40.0, 1e9):

        def extreme(tables: np.ndarray, least: float = least) -> np.ndarray:
            return np.asarray(cressie_read_values(tables, expected) >= least)

        for group in importance._groups(p):
            start = round(n * float(p[group].sum()))
            for end in (0, n):
                hits = np.arange(start, end + 1) if end > start else np.arange(start, end - 1, -1)
                tables = np.empty((len(hits), 4), dtype=np.int64)
                tables[:, group] = importance._as_expected(p[group], hits)
                tables[:, ~group] = importance._as_expected(p[~group], n - hits)
                reached = np.flatnonzero(extreme(tables))
                wanted = int(hits[reached[0]]) if extreme(tables[-1:])[0] else None
                assert importance._first_extreme(p, n, group, end, extreme) == wanted


@pytest.mark.parametrize("least", [30.0, 19.0, 11.0])  # 19 takes no draw in a group, 11 takes all
def test_laws_in_which_a_group_of_cells_is_moved(least: float) -> None:
    n, expected = 40, 40 * P

    def extreme(tables: np.ndarray) -> np.ndarray:
        return np.asarray(cressie_read_values(tables, expected) >= least)

    moved = importance._moved(P, n, extreme)
    assert moved is not None
    rates, shares = [], []
    groups = importance._groups(P)
    for group, end in itertools.product(groups, (0, n)):
        count = importance._first_extreme(P, n, group, end, extreme)
        if count is not None:
            after, before = min(max(count, 0.25), n - 0.25) / n, float(P[group].sum())
            law = np.where(group, P * after / before, P * (1 - after) / (1 - before))
            cost = after * math.log(after / before)
            cost += (1 - after) * math.log((1 - after) / (1 - before))
            rates.append((before, after, *group.astype(int), *law))
            shares.append(math.exp(-n * cost))
    used = np.array(shares) / sum(shares) > 1e-9
    assert 2 <= used.sum() <= len(used)
    wanted = np.array(rates)[used]
    np.testing.assert_allclose(moved.before, wanted[:, 0], rtol=1e-12)
    np.testing.assert_allclose(moved.after, wanted[:, 1], rtol=1e-12)
    np.testing.assert_array_equal(moved.groups.toarray(), wanted[:, 2:5])
    np.testing.assert_allclose(moved.laws, wanted[:, 5:], rtol=1e-12)
    np.testing.assert_allclose(moved.share, np.array(shares)[used] / np.array(shares)[used].sum(),
                               rtol=1e-9)  # fmt: skip
    tables = moved.draw(n, 50, np.random.default_rng(1))
    assert (tables.shape, set(tables.sum(axis=1).tolist())) == ((50, 3), {40})
    likely = np.array([stats.multinomial.logpmf(tables, n, law) for law in moved.laws])
    ratio = special.logsumexp(likely, b=moved.share[:, None], axis=0)
    ratio -= stats.multinomial.logpmf(tables, n, P)
    np.testing.assert_allclose(moved.log_ratio(tables), ratio, rtol=1e-9)
    assert importance._moved(P, n, lambda tables: np.zeros(len(tables), dtype=bool)) is None


class Fixed:
    """Stands in for the moved laws: one table, and a ratio that its first cell decides."""

    def draw(self, n: int, size: int, _rng: np.random.Generator) -> np.ndarray:
        return np.tile([n, 0], (size, 1))

    def log_ratio(self, tables: np.ndarray) -> np.ndarray:
        return 0.25 * tables[:, 0]


def test_an_estimate_from_known_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    n, p, scales = 4, np.array([0.5, 0.5]), np.array([2.0])
    blocks = [np.array([[4, 0], [2, 2], [3, 1]]), np.array([[0, 4], [1, 3]])]
    asked = []

    def dirichlet(tables: np.ndarray) -> np.ndarray:
        return np.array([dirichlet_multinomial(t, 2.0 * p) for t in tables]) - (
            stats.multinomial.logpmf(tables, n, p)
        )

    def mixture(_p, _n, _scales, draws, _rng):
        asked.append(draws)
        yield from ((tables, -dirichlet(tables)) for tables in blocks)

    def extreme(tables: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(tables[:, 0] - tables[:, 1]) >= 2)

    monkeypatch.setattr(importance, "mixture_tables", mixture)
    for moved in (None, Fixed()):
        monkeypatch.setattr(importance, "_moved", lambda *_, moved=moved: moved)
        every = np.concatenate(blocks)
        ratio = dirichlet(every)
        if moved:
            every = np.concatenate([every, moved.draw(n, 5, np.random.default_rng())])
            ratio = np.log(0.5 * np.exp(dirichlet(every)) + 0.5 * np.exp(moved.log_ratio(every)))
        weight = np.exp(-ratio) * extreme(every)
        found = importance._sampled(n, p, scales, extreme, 10, 0)
        error = np.std(weight, ddof=1) / math.sqrt(len(weight))
        effective = weight.sum() ** 2 / (weight**2).sum()
        assert found == pytest.approx((min(1.0, weight.mean()), error, effective), rel=1e-9)
    assert asked == [10, 5]
    blocks[:] = [np.array([[2, 2], [2, 2]])]  # six sixteenths, drawn with one fifth
    monkeypatch.setattr(importance, "_moved", lambda *_: None)
    every = importance._sampled(n, p, scales, lambda t: np.ones(len(t), dtype=bool), 10, 0)
    assert every == (1.0, 0.0, pytest.approx(2.0))
    never = importance._sampled(n, p, scales, lambda t: np.zeros(len(t), dtype=bool), 10, 0)
    assert never == (0.0, 0.0, 0.0)
