"""Every refusal of the laws, word for word: the field, what it got and what was expected."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from specverify import laws
from specverify.laws import _fields

HALF = [0.5, 0.5]
SHARED = [HALF]
BY_PREFIX = [HALF, HALF]
WIDE = np.full((1, 20_000), 1 / 20_000)


def chain(
    targets: list[object], drafts: list[object], holes: tuple[int, ...] = ()
) -> laws.ChainOutcomeLaw:
    return laws.chain_outcome_law(targets, drafts, one_hot=True, placeholders=holes)


def one_draft() -> laws.ChainOutcomeLaw:
    return chain([SHARED, SHARED], [SHARED])


def large() -> laws.ChainOutcomeLaw:
    return chain([WIDE, WIDE], [WIDE])


REFUSALS: list[tuple[Callable[[], object], str]] = [
    # distributions
    (
        lambda: laws.residual("p", HALF),
        "p: got str; expected an array of probabilities",
    ),
    (
        lambda: laws.residual([[0.5, 0.5], [1.0]], HALF),
        "p: got list; expected an array of probabilities",
    ),
    (
        lambda: laws.total_variation(1.0, HALF),
        "p: got shape []; expected an array [..., V] with V >= 1",
    ),
    (
        lambda: laws.total_variation(HALF, np.zeros((2, 0))),
        "q: got shape [2, 0]; expected an array [..., V] with V >= 1",
    ),
    (
        lambda: laws.residual([1.5, -0.5], HALF),
        "p: got the entry -0.5; expected probabilities >= 0, no NaN",
    ),
    (
        lambda: laws.residual([[0.5, 0.5], [0.5, 0.25]], HALF),
        "p: got a row that sums to 0.75; expected a sum of 1 within 1e-06",
    ),
    (
        lambda: laws.residual(HALF, [0.5, 0.45]),
        "q: got a row that sums to 0.95; expected a sum of 1 within 0.02",
    ),
    (
        lambda: laws.acceptance_ratio(HALF, [1.0]),
        "q: got shape [1]; expected one that broadcasts to p's [2]",
    ),
    (
        lambda: laws.acceptance_ratio(np.full((2, 2), 0.5), np.full((3, 2), 0.5)),
        "q: got shape [3, 2]; expected one that broadcasts to p's [2, 2]",
    ),
    # single values
    (
        lambda: laws.static_ensemble_law(HALF, HALF, 1.5),
        "w: got 1.5; expected a number in [0, 1]",
    ),
    (
        lambda: laws.accept_probability(BY_PREFIX, 0),
        "p_row: got shape [2, 2]; expected an array of 1 axes, the last of length V with V >= 1",
    ),
    (
        lambda: laws.accept_probability(HALF, 2),
        "draft: got 2; expected an integer in [0, 2)",
    ),
    (
        lambda: laws.accept_probability(HALF, 0.0),  # type: ignore[arg-type]
        "draft: got float; expected an integer in [0, 2)",
    ),
    (
        lambda: laws.accept_probability(HALF, 0, SHARED),
        "q_row: got shape [1, 2]; expected an array of 1 axes, the last of length V with V >= 1",
    ),
    (
        lambda: laws.accept_probability(HALF, 0, [1.0]),
        "q_row: got shape [1]; expected p_row's [2]",
    ),
    (
        lambda: laws.accept_probability(HALF, 0, [0.5, 0.45]),
        "q_row: got a row that sums to 0.95; expected a sum of 1 within 0.02",
    ),
    (
        lambda: laws.expected_accepted(SHARED),
        "length_law: got shape [1, 2]; expected an array of 1 axes, the last of length V "
        "with V >= 1",
    ),
    # token ids
    (
        lambda: laws.residual_one_hot(HALF, 2),
        "draft_ids: got the id 2; expected ids in [0, 2)",
    ),
    (
        lambda: laws.residual_one_hot(HALF, [0]),
        "draft_ids: got [1] int64; expected integers of shape []",
    ),
    (
        lambda: laws.conditional_law(BY_PREFIX, [0.0]),
        "drafts: got [1] float64; expected integers of shape [1]",
    ),
    (
        lambda: laws.conditional_law(BY_PREFIX, [-2]),
        "drafts: got the id -2; expected ids in [-1, 2)",
    ),
    (
        lambda: laws.conditional_law(HALF, []),
        "p_rows: got shape [2]; expected an array of 2 axes, the last of length V with V >= 1",
    ),
    (
        lambda: laws.conditional_law(BY_PREFIX, [0], HALF),
        "q_rows: got shape [2]; expected an array of 2 axes, the last of length V with V >= 1",
    ),
    (
        lambda: laws.conditional_law(BY_PREFIX, [0], BY_PREFIX),
        "q_rows: got shape [2, 2]; expected [1, 2], a row for each draft",
    ),
    # tables
    (
        lambda: laws.completed_law([]),
        "target_tables: got no table; expected k + 1 tables, one more than there are drafts",
    ),
    (
        lambda: laws.completed_law([HALF]),
        "target_tables[0]: got shape [2]; expected an array of 2 axes, the last of length V "
        "with V >= 1",
    ),
    (
        lambda: laws.completed_law([SHARED, [HALF] * 3]),
        "target_tables[1]: got shape [3, 2]; expected [2, 2] (a row for every prefix) or [1, 2]",
    ),
    (
        lambda: laws.draft_path_law([SHARED, [[1.0]]]),
        "draft_tables[1]: got shape [1, 1]; expected [2, 2] (a row for every prefix) or [1, 2]",
    ),
    (
        lambda: chain([SHARED, SHARED], []),
        "draft_tables: got 0 tables; expected 1, one fewer than targets",
    ),
    (
        lambda: chain([SHARED, SHARED], [[[1.0]]]),
        "draft_tables[0]: got shape [1, 1]; expected [1, 2] (a row for every prefix) or [1, 2]",
    ),
    (
        lambda: chain([SHARED, SHARED], [SHARED], (1,)),
        "placeholders: got 1; expected an integer in [0, 1)",
    ),
    (
        lambda: laws.completed_law_of_rule(
            [SHARED, SHARED], [SHARED], one_hot=True, placeholders=(-1,)
        ),
        "placeholders: got -1; expected an integer in [0, 1)",
    ),
    # positions
    (
        lambda: laws.completed_marginal([SHARED], 1),
        "j: got 1; expected an integer in [0, 1)",
    ),
    (
        lambda: laws.completed_pair([SHARED, SHARED], 1),
        "j: got 1; expected an integer in [0, 1)",
    ),
    (
        lambda: one_draft().last_token_law(2),
        "j: got 2; expected an integer in [0, 2)",
    ),
    (
        lambda: one_draft().accept_by_draft(1),
        "j: got 1; expected an integer in [0, 1)",
    ),
    (
        lambda: one_draft().stopped_law(1),
        "j: got 1; expected an integer in [0, 1)",
    ),
    # memory
    (
        lambda: laws.completed_law([WIDE, WIDE]),
        "target_tables: got a joint law of 400000000 cells; "
        "expected at most 134217728; ask for a marginal instead",
    ),
    (
        lambda: laws.completed_law_of_rule([WIDE, WIDE], [WIDE], one_hot=True),
        "target_tables: got a joint law of 400000000 cells; "
        "expected at most 134217728; ask for a marginal instead",
    ),
    (
        lambda: laws.completed_pair([WIDE, WIDE], 0),
        "completed_pair: got a joint law of 400000000 cells; "
        "expected at most 134217728; ask for a marginal instead",
    ),
    (
        lambda: laws.draft_path_law([WIDE, WIDE]),
        "draft_tables: got a joint law of 400000000 cells; "
        "expected at most 134217728; ask for a marginal instead",
    ),
    (
        lambda: large().stopped_law(0),
        "stopped_law: got a joint law of 400000000 cells; "
        "expected at most 134217728; ask for a marginal instead",
    ),
    (
        lambda: large().joint(),
        "joint: got a joint law of 800000000 cells; "
        "expected at most 134217728; ask for a marginal instead",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSALS, ids=[text for _, text in REFUSALS])
def test_a_refusal_names_the_field_what_it_got_and_what_was_expected(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(ValueError, match=r"got .*; expected ") as caught:
        call()
    assert str(caught.value) == message


def test_the_limits_themselves_are_allowed() -> None:
    _fields.affordable("joint", 2**27)
    with pytest.raises(ValueError, match="joint: got a joint law of 134217729 cells"):
        _fields.affordable("joint", 2**27 + 1)
    edge = _fields.distribution("p", [0.5, 0.75], tolerance=0.25)  # exact in binary
    np.testing.assert_array_equal(edge, [0.5, 0.75])
    assert _fields.share("w", 0) == 0
    assert _fields.share("w", 1) == 1
    np.testing.assert_array_equal(_fields.distribution("p", [0, 1]), [0.0, 1.0])


def test_a_marginal_counts_the_prefixes_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [SHARED, BY_PREFIX, [HALF] * 4]
    monkeypatch.setattr(_fields, "MAX_CELLS", 3)
    text = (
        "target_tables: got a joint law of 4 cells; expected at most 3; ask for a marginal instead"
    )
    with pytest.raises(ValueError, match="got a joint law") as caught:
        laws.completed_marginal(tables, 2)
    assert str(caught.value) == text
    np.testing.assert_array_equal(laws.completed_marginal(tables, 1), HALF)
