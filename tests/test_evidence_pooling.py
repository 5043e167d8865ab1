"""Pooling depends on the law and n only, reaches its floor, and keeps what it can."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from evidence_cases import LAWS, softmax_law, uniform_law
from hypothesis import given
from hypothesis import strategies as st

from specverify.evidence import cressie_read, pool
from specverify.evidence.pooling import group_ends, sorted_law

weights = st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1.0)), min_size=1, max_size=40).filter(
    any
)


def law_of(values):
    p = np.array(values)
    return p / p.sum()


@given(weights, st.integers(0, 10**6), st.floats(0.5, 100))
def test_every_group_reaches_the_floor_and_mass_is_kept(values, n, floor):
    p = law_of(values)
    pooling = pool(p, n, floor)
    assert ((pooling.index == -1) == (p == 0)).all()
    live = pooling.index >= 0
    mass = np.bincount(pooling.index[live], weights=p[live])
    assert mass == pytest.approx(pooling.p, abs=1e-12)
    assert pooling.p.sum() == pytest.approx(1)
    assert pooling.cells >= min(2, int(live.sum()))
    if pooling.cells > 2:
        assert (n * pooling.p >= floor * (1 - 1e-5)).all()
    # groups are runs of the sorted cells: none of a rarer group is larger than one of the next
    order = np.argsort(p, kind="stable")
    ids = pooling.index[order]
    assert (np.diff(ids) >= 0).all()


@given(weights, st.integers(1, 10**5), st.integers(0, 10**5))
def test_cells_never_decrease_with_n(values, n, more):
    _, cumulative = sorted_law(law_of(values))
    assert len(group_ends(cumulative, n)) <= len(group_ends(cumulative, n + more))


def test_it_never_sees_counts():
    assert list(inspect.signature(pool).parameters) == ["p", "n", "floor"]


def test_known_numbers_of_cells():
    # flat laws: groups of ceil(20 k / n)
    assert pool(uniform_law(1024), 20480).cells == 1024
    assert pool(uniform_law(1024), 20479).cells == 512
    assert pool(uniform_law(1024), 20000).cells == 512
    assert pool(uniform_law(1000), 100).cells == 5
    assert pool(uniform_law(152_064), 10**4).cells == 498
    # the figures of docs/statistics.md
    p = softmax_law(1024)
    assert [pool(p, 10**4, floor).cells for floor in (5, 20, 50)] == [224, 112, 67]
    assert pool(p, 10**6).cells == 608


def test_ties_go_by_cell_id():
    pooling = pool([0.125] * 8, 80)
    assert pooling.index.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_tail_below_the_floor_joins_the_next_smallest():
    pooling = pool([0.5, 0.0, 0.499, 0.001], 1000)
    assert pooling.index.tolist() == [1, -1, 0, 0]
    assert pooling.has_zeros
    # three cells of which the last group is short
    assert pool([0.2] * 5, 200).cells == 5
    assert pool([0.2] * 5, (199.0).__int__()).cells == 5
    assert pool([0.2] * 5, 60).index.tolist() == [0, 0, 1, 1, 1]


def test_two_cells_are_kept_where_the_floor_would_leave_one():
    assert pool([1 - 1e-7, 1e-7], 10**5).index.tolist() == [1, 0]
    assert pool([0.3, 0.3, 0.4], 10).index.tolist() == [0, 0, 1]
    assert pool(uniform_law(4), 0).cells == 2
    assert pool([0.0, 1.0], 10**5).index.tolist() == [-1, 0]
    assert pool([1.0], 5).cells == 1


@pytest.mark.parametrize("name", LAWS)
def test_tables_are_pooled_without_loss(name):
    p = LAWS[name]
    counts = np.random.default_rng(7).multinomial(5000, p)
    pooled, zero_hits = pool(p, 5000).table(counts)
    assert pooled.sum() == 5000
    assert zero_hits == 0
    assert pooled.dtype == np.int64
    big = np.array([2**52 + 1, 3, 4])
    pooled, zero_hits = pool([0.5, 0.0, 0.5], 10**6).table(big)
    assert (pooled.tolist(), zero_hits) == ([2**52 + 1, 4], 3)


def test_merged_mass_is_what_the_promise_leaves_out():
    assert pool([0.25] * 4, 1000).merged_mass == 0
    assert pool([0.5, 0.0, 0.499, 0.001], 1000).merged_mass == pytest.approx(0.5)
    p, n = uniform_law(64), 700  # pairs; a shift inside each pair cannot be seen
    shifted = p * (1 + 0.5 * (-1) ** np.arange(64))
    pooling = pool(p, n)
    assert pooling.merged_mass == pytest.approx(1)
    assert np.bincount(pooling.index, weights=shifted) == pytest.approx(pooling.p)
    found = cressie_read(np.random.default_rng(5).multinomial(n, shifted), p, alpha=1e-3)
    assert found.merged_mass == pytest.approx(1)
    assert not found.rejected
