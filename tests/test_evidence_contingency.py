"""Independence of pairs: calibrated under the null, powerful at its promise, blind to margins."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from specverify import evidence

ROWS = np.array([0.4, 0.3, 0.2, 0.08, 0.02])
COLUMNS = np.array([0.5, 0.25, 0.15, 0.1])


def draw(rng: np.random.Generator, law: np.ndarray, n: int) -> np.ndarray:
    return rng.multinomial(n, law.reshape(-1)).reshape(law.shape)


def coupled(tv: float) -> np.ndarray:
    """The product law with mass moved along a checkerboard; both margins stay what they were."""
    product = np.outer(ROWS, COLUMNS)
    move = np.zeros_like(product)
    move[:2, :2] = [[1, -1], [-1, 1]]
    return product + move * tv / 2


def test_null_p_values_have_the_nominal_tail() -> None:
    rng = np.random.default_rng(1)
    runs = 2_000
    p = np.array(
        [
            evidence.independence(
                draw(rng, np.outer(ROWS, COLUMNS), 5_000), ROWS, COLUMNS, alpha=1e-9
            ).p_value
            for _ in range(runs)
        ]
    )
    for level in (0.1, 0.01):
        hits = int((p <= level).sum())
        # Both ends at 1e-6: a sound test leaves this band once in half a million runs.
        low, high = stats.binom.ppf([5e-7, 1 - 5e-7], runs, level)
        assert low <= hits <= high


def test_a_wrong_margin_is_not_called_dependence() -> None:
    rng = np.random.default_rng(2)
    other = np.outer(ROWS[::-1], COLUMNS)
    found = evidence.independence(draw(rng, other, 100_000), ROWS, COLUMNS, alpha=1e-6)
    assert not found.rejected


def test_dependence_is_caught_at_the_promised_deviation() -> None:
    rng = np.random.default_rng(3)
    n = 20_000
    promised = evidence.independence_detectable(ROWS, COLUMNS, n, alpha=1e-6, power=0.999)
    law = coupled(promised)
    assert 0.5 * np.abs(law - np.outer(ROWS, COLUMNS)).sum() == pytest.approx(promised)
    missed = sum(
        not evidence.independence(draw(rng, law, n), ROWS, COLUMNS, alpha=1e-6).rejected
        for _ in range(500)
    )
    assert missed <= stats.binom.ppf(1 - 1e-6, 500, 1e-3)


def test_the_same_token_twice_is_caught() -> None:
    rng = np.random.default_rng(4)
    table = np.diag(rng.multinomial(2_000, ROWS))
    assert evidence.independence(table, ROWS, ROWS, alpha=1e-9).rejected


def test_a_single_row_has_nothing_to_depend_on() -> None:
    found = evidence.independence([[60, 40]], [1.0], [0.6, 0.4], alpha=1e-6)
    assert found.p_value == 1
    assert found.cells == 1
    assert evidence.independence_detectable([1.0], [0.6, 0.4], 0, alpha=1e-6, power=0.999) == 1


def test_excluded_tokens_are_left_to_the_margin() -> None:
    found = evidence.independence(
        [[500, 500, 7], [500, 500, 0]], [0.5, 0.5], [0.5, 0.5, 0.0], alpha=1e-6
    )
    assert not found.rejected


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("counts", {"counts": [[1, 2, 3]]}),
        ("counts", {"counts": [[1, -2], [3, 4]]}),
        ("row_law", {"row_law": [0.5, 0.6]}),
        ("column_law", {"column_law": [np.nan, 1.0]}),
        ("alpha", {"alpha": 0.0}),
        ("power", {"power": 1.0}),
    ],
)
def test_bad_input_names_the_field(field: str, changes: dict[str, object]) -> None:
    good: dict[str, object] = {
        "counts": [[1, 2], [3, 4]],
        "row_law": [0.5, 0.5],
        "column_law": [0.5, 0.5],
        "alpha": 1e-6,
        "power": 0.9,
    }
    with pytest.raises(ValueError, match=field):
        evidence.independence(**{**good, **changes})  # type: ignore[arg-type]
