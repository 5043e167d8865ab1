"""The law given the drafts, against enumeration."""

from __future__ import annotations

import laws_oracle as oracle
import numpy as np
import pytest

from specverify import laws


def rows_along(tables: oracle.Tables, path: tuple[int, ...], count: int) -> np.ndarray:
    rows = [oracle.row(tables, path[:j]) for j in range(count)]
    return np.array([[float(x) for x in row] for row in rows])


@pytest.mark.parametrize("one_hot", [False, True], ids=["dense", "one-hot"])
@pytest.mark.parametrize("kind", oracle.KINDS)
@pytest.mark.parametrize(("vocab", "k"), [(2, 1), (3, 2), (3, 3), (4, 2)])
def test_conditional_law_equals_enumeration(kind: str, vocab: int, k: int, one_hot: bool) -> None:
    targets, drafts = oracle.case(kind, vocab, k)
    joint = oracle.outcomes(targets, drafts, one_hot)
    for path, weight in oracle.paths(drafts, k, vocab):
        if weight == 0:
            continue
        expected = np.zeros((k + 1, vocab))
        for length in range(k + 1):
            for y in range(vocab):
                expected[length, y] = float(joint.get((path, length, y), 0) / weight)
        q_rows = None if one_hot else rows_along(drafts, path, k)
        got = laws.conditional_law(rows_along(targets, path, k + 1), path, q_rows)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-15)
        assert got.sum() == pytest.approx(1, abs=1e-15)


P_ROWS = np.array([[0.5, 0.3, 0.2], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]])
Q_ROWS = np.array([[0.8, 0.1, 0.1], [0.2, 0.6, 0.2]])


def test_a_worked_example() -> None:
    law = laws.conditional_law(P_ROWS, [0, 1], Q_ROWS)
    accepted = 0.5 / 0.8
    np.testing.assert_allclose(law[0], (1 - accepted) * np.array([0, 2, 1]) / 3, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(law[1], np.zeros(3))  # p == q: never rejected
    np.testing.assert_allclose(law[2], accepted * P_ROWS[2], rtol=0, atol=1e-15)


@pytest.mark.parametrize("q_rows", [None, Q_ROWS], ids=["one-hot", "dense"])
def test_a_placeholder_draws_the_target_itself(q_rows: np.ndarray | None) -> None:
    first = laws.conditional_law(P_ROWS, [-1, 1], q_rows)
    np.testing.assert_array_equal(first, [P_ROWS[0], np.zeros(3), np.zeros(3)])
    second = laws.conditional_law(P_ROWS, [0, -1], q_rows)
    whole = laws.conditional_law(P_ROWS, [0, 1], q_rows)
    np.testing.assert_array_equal(second[0], whole[0])
    accepted = laws.accept_probability(P_ROWS[0], 0, None if q_rows is None else q_rows[0])
    np.testing.assert_array_equal(second[1], accepted * P_ROWS[1])
    assert not second[2].any()


def test_no_drafts_leave_the_bonus_row() -> None:
    for q_rows in (None, [], np.zeros((0, 3))):
        np.testing.assert_array_equal(laws.conditional_law(P_ROWS[:1], [], q_rows), P_ROWS[:1])


def test_a_draft_that_q_cannot_draw_follows_the_target() -> None:
    q = np.array([[0.0, 1.0, 0.0]])
    p = np.array([[0.4, 0.6, 0.0], [0.2, 0.3, 0.5]])
    np.testing.assert_array_equal(laws.conditional_law(p, [0], q)[1], p[1])  # p / 0 accepts
    rejected = laws.conditional_law(p, [2], q)  # 0 / 0 rejects
    np.testing.assert_array_equal(rejected, [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


def test_q_stored_in_16_bits_is_taken_as_it_is() -> None:
    q = np.array([[0.8046875, 0.1005859375, 0.1005859375]])
    law = laws.conditional_law(P_ROWS[:2], [0], q)
    assert law[1].sum() == pytest.approx(0.5 / 0.8046875, abs=1e-15)
    assert law.sum() == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize(
    ("p_rows", "drafts", "q_rows", "message"),
    [
        (P_ROWS[0], [], None, r"^p_rows: got shape \[3\]"),
        (P_ROWS * 2, [0, 1], None, r"^p_rows: got a row that sums to 2"),
        (P_ROWS, [0], None, r"^drafts: got \[1\]"),
        (P_ROWS, [0, 3], None, r"^drafts: got the id 3"),
        (P_ROWS, [0, -2], None, r"^drafts: got the id -2"),
        (P_ROWS, [0.0, 1.0], None, r"^drafts: .*float64"),
        (P_ROWS, [0, 1], Q_ROWS[:1], r"^q_rows: got shape \[1, 3\]"),
        (P_ROWS, [0, 1], Q_ROWS - 0.1, r"^q_rows: got a row that sums"),
        (P_ROWS, [0, 1], Q_ROWS * np.nan, r"^q_rows: got the entry nan"),
    ],
)
def test_bad_input_is_named(
    p_rows: np.ndarray, drafts: list[int], q_rows: np.ndarray | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        laws.conditional_law(p_rows, drafts, q_rows)
