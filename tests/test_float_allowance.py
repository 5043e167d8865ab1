"""What a sampler's arithmetic alone may do is never held against it; a fault of that size is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from specverify import evidence
from specverify.cases import RequestSpec, make_case
from specverify.checks.experiment import Settings
from specverify.checks.judge import FORGIVEN, Question, judge_table
from specverify.checks.tables import Table, tables_of
from specverify.checks.verdict import Family, Status, Verdict
from specverify.checks.watch import TableWatch
from specverify.contract import SINGLE_PRECISION, Capabilities

BFLOAT16 = (*SINGLE_PRECISION, "bfloat16-probabilities")
CASE = make_case("float-allowance", 8, (RequestSpec(drafts=0),), dense=True)
N = 10**9


def table(arithmetic: tuple[str, ...]) -> Table:
    return tables_of(CASE, (Family.LAW,), Capabilities(arithmetic=arithmetic))[0]


def rounded(law: np.ndarray, share: float) -> np.ndarray:
    """The expected counts of a law whose cells are off by +- a share of a bfloat16 rounding."""
    bent = law * (1 + share * 2.0**-8 * np.where(np.arange(law.size) % 2, 1, -1))
    return np.rint(N * bent / bent.sum()).astype(np.int64)


def verdict(arithmetic: tuple[str, ...], share: float) -> Verdict:
    found = table(arithmetic)
    question = Question(
        suite="s", case="c", settings=Settings(alpha=1e-9), planned=N, trials=N, requested_tv=0.01
    )
    return judge_table(found, rounded(found.law(), share), question)


def test_a_declared_rounding_is_forgiven() -> None:
    assert verdict((), 0.9).status is Status.FAIL
    assert verdict(SINGLE_PRECISION, 0.9).status is Status.FAIL
    found = verdict(BFLOAT16, 0.9)
    assert found.status is Status.PASS
    assert found.reason.endswith(FORGIVEN)


def test_more_than_the_rounding_is_not() -> None:
    assert verdict(BFLOAT16, 8.0).status is Status.FAIL


def test_nothing_is_said_where_nothing_was_forgiven() -> None:
    assert FORGIVEN not in verdict(BFLOAT16, 0.0).reason


# The envelope pays about tau a draw, so only deviations beyond sqrt(2 tau) = 0.13 are seen early;
# smaller ones are left to the tolerant test at the full budget.
@pytest.mark.parametrize(("share", "alarmed"), [(0.9, False), (40.0, True)])
def test_looking_early_forgives_the_same(share: float, alarmed: bool) -> None:
    exact = TableWatch(table(()), Settings(alpha=1e-9), 1)
    exact.look(rounded(exact.law, share), last=False)
    assert exact.alarm is not None
    lenient = TableWatch(table(BFLOAT16), Settings(alpha=1e-9), 1)
    lenient.look(rounded(lenient.law, share), last=False)
    assert (lenient.alarm is not None) == alarmed


def test_impossible_tokens_are_never_forgiven() -> None:
    law = np.array([0.5, 0.5, 0.0])
    found = dataclasses.replace(
        table(BFLOAT16), shape=(3,), law=lambda: law, allowed=evidence.Allowance(relative=0.4)
    )
    watch = TableWatch(found, Settings(alpha=1e-9), 1)
    watch.look(np.array([50, 49, 1]), last=False)
    assert watch.alarm is not None
    assert watch.alarm.zero_hits == 1


def test_joint_cells_may_be_off_by_every_factor() -> None:
    case = make_case("float-allowance-joint", 4, (RequestSpec(drafts=1),), dense=True)
    single, pair = (
        next(t for t in tables_of(case, (Family.LAW,), Capabilities()) if len(t.shape) == tokens)
        for tokens in (1, 2)
    )
    assert pair.allowed.relative == pytest.approx(2 * single.allowed.relative)


def test_an_unknown_arithmetic_is_refused() -> None:
    with pytest.raises(ValueError, match="abacus"):
        table(("abacus",))
