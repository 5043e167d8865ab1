"""Cases: every row different, numbers a function of the name, filters clear of their boundaries."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specverify import cases
from specverify.cases import BOUNDARY_MARGIN, Case, RequestSpec, TableRequest, make_case
from specverify.contract import Capabilities
from specverify.sampling import CONVENTIONS

EVERYTHING = Capabilities(placeholders=True, filtering=True, exclusion=True)
r = RequestSpec


def specs() -> st.SearchStrategy[tuple[RequestSpec, ...]]:
    one = st.builds(
        RequestSpec,
        drafts=st.integers(0, 3),
        temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
        top_k=st.sampled_from([0, 1, 3, 100]),
        top_p=st.sampled_from([1.0, 0.5, 0.9]),
        min_p=st.sampled_from([0.0, 0.1, 0.5]),
        drafting=st.sampled_from(["sampled", "greedy"]),
    )
    return st.lists(one, min_size=1, max_size=3).map(tuple)


@settings(max_examples=40)
@given(specs=specs(), vocab=st.integers(2, 6), dense=st.booleans())
def test_tables_are_laws_of_the_right_shape(
    specs: tuple[RequestSpec, ...], vocab: int, dense: bool
) -> None:
    case = make_case("shapes", vocab, specs, dense)
    assert case.vocab_size == vocab
    assert case.num_rows == sum(spec.drafts + 1 for spec in specs)
    for request, spec in zip(case.requests, specs, strict=True):
        assert request.num_drafts == spec.drafts
        assert [table.shape for table in request.target] == [
            (vocab**j, vocab) for j in range(spec.drafts + 1)
        ]
        assert [table.shape for table in request.draft] == [
            (vocab**j, vocab) for j in range(spec.drafts)
        ]
        for convention in CONVENTIONS:
            for table in request.target_tables(convention):
                assert np.allclose(table.sum(axis=1), 1.0, rtol=0, atol=1e-12)
        for table in request.draft_tables():
            assert np.allclose(table.sum(axis=1), 1.0, rtol=0, atol=1e-15)


def test_no_two_rows_are_alike() -> None:
    """With one shared row a sampler that reads the wrong row would be invisible."""
    case = make_case("rows", 4, (r(drafts=2), r(drafts=2), r(drafts=1)), True)
    rows = torch.cat([table for request in case.requests for table in request.target])
    apart = torch.cdist(rows, rows) + torch.eye(rows.shape[0]) * 9
    assert float(apart.min()) > 0.05
    law = [request.target_tables("reference") for request in case.requests]
    between = [0.5 * np.abs(law[i][0][0] - law[j][0][0]).sum() for i in range(3) for j in range(i)]
    assert min(between) > 0.02  # total variation between first rows of neighbours


def test_numbers_depend_on_the_name_alone() -> None:
    make_case.cache_clear()
    one = make_case("a", 4, (r(drafts=1),), True)
    make_case.cache_clear()
    again = make_case("a", 4, (r(drafts=1),), True)
    other = make_case("b", 4, (r(drafts=1),), True)
    assert again is not one
    assert torch.equal(one.requests[0].target[1], again.requests[0].target[1])
    assert not torch.equal(one.requests[0].target[1], other.requests[0].target[1])


def test_numbers_do_not_depend_on_the_process() -> None:
    text = (
        "from specverify.cases import *; c = make_case('a', 4, (RequestSpec(drafts=1),), True);"
        "print(c.requests[0].target[1].double().sum().item().hex())"
    )
    there = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=120
    ).stdout.strip()
    here = make_case("a", 4, (r(drafts=1),), True).requests[0].target[1].double().sum()
    assert there == float(here).hex()


def test_a_case_does_not_touch_global_random_state() -> None:
    torch_state, numpy_state = (
        torch.get_rng_state(),
        np.random.get_state(legacy=False)["state"]["key"].copy(),
    )
    make_case.cache_clear()
    make_case("state", 4, (r(drafts=2),), True)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state(legacy=False)["state"]["key"], numpy_state)


@pytest.mark.parametrize(
    "spec",
    [
        r(drafts=1, top_p=0.8),
        r(drafts=1, top_k=4, top_p=0.9),
        r(drafts=1, min_p=0.15),
        r(drafts=1, temperature=0.3, top_p=0.5),
    ],
)
def test_filters_keep_clear_of_their_boundaries(spec: RequestSpec) -> None:
    """Right samplers of another precision keep the same tokens: the masks are stable."""
    case = make_case("boundaries", 7, (spec,), True)
    request = case.requests[0]
    support = [table > 0 for table in request.target_tables("reference")]
    for change in (-0.9, 0.9):
        nudged = dataclasses.replace(
            request,
            top_p=request.top_p + change * BOUNDARY_MARGIN if spec.top_p < 1 else 1.0,
            min_p=request.min_p + change * BOUNDARY_MARGIN if spec.min_p > 0 else 0.0,
        )
        for before, after in zip(support, nudged.target_tables("reference"), strict=True):
            assert np.array_equal(before, after > 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_law_is_that_of_the_stored_logits(dtype: str) -> None:
    case = make_case("stored", 6, (r(drafts=1, temperature=0.75),), True, dtype=dtype)
    logits = case.requests[0].target[1]
    assert str(case.dtype) == f"torch.{dtype}"
    # No ties, which a low precision would make likely: argmax and top-k are unambiguous.
    assert all(row.unique().shape[0] == 6 for row in logits)
    raised = np.exp((logits.double() / 0.75).numpy())
    want = raised / raised.sum(axis=1, keepdims=True)
    assert np.allclose(case.requests[0].target_tables("reference")[1], want, rtol=1e-12)


def test_greedy_drafting_is_one_hot_and_sampled_is_not() -> None:
    case = make_case("drafting", 5, (r(drafts=1, drafting="greedy"), r(drafts=1)), True)
    greedy, soft = case.requests
    assert set(greedy.draft[0].unique().tolist()) == {0.0, 1.0}
    assert float(soft.draft[0].min()) > 0


def test_acceptance_is_neither_rare_nor_certain() -> None:
    """Both branches need trials; a case that always accepts tests no residual."""
    for name in ("x", "y", "z"):
        request = make_case(name, 8, (r(drafts=2),), True).requests[0]
        p, q = request.target_tables("reference")[0], request.draft_tables()[0]
        assert 0.3 < float(np.minimum(p, q).sum()) < 0.97


def test_filtered() -> None:
    request = make_case("filtered", 4, (r(drafts=0),), True).requests[0]
    assert not request.filtered
    for change in ({"top_k": 1}, {"top_p": 0.9}, {"min_p": 0.1}):
        assert dataclasses.replace(request, **change).filtered


@pytest.mark.parametrize(
    ("specs", "dense", "missing"),
    [
        ((r(drafts=1),), True, "dense"),
        ((r(drafts=1),), False, "one_hot"),
        ((r(drafts=1), r(drafts=0)), True, "zero_drafts"),
        ((r(drafts=1, temperature=0.0),), True, "greedy"),
        ((r(drafts=1, placeholders=frozenset({0})),), True, "placeholders"),
        ((r(drafts=1, top_k=2),), True, "filtering"),
        ((r(drafts=1), r(drafts=0, min_p=0.2)), True, "exclusion"),
    ],
)
def test_what_a_case_needs(specs: tuple[RequestSpec, ...], dense: bool, missing: str) -> None:
    case = make_case("needs", 4, specs, dense)
    assert case.unsupported(EVERYTHING) is None
    without = dataclasses.replace(EVERYTHING, **{missing: False})  # type: ignore[arg-type]
    assert case.unsupported(without) == f"the sampler does not declare {missing}"


def test_a_case_asks_only_for_what_it_holds() -> None:
    idle = make_case("idle", 4, (r(drafts=0),), True)
    bare = Capabilities(one_hot=False, dense=False, greedy=False)
    assert idle.unsupported(bare) is None
    half = make_case("half", 4, (r(drafts=1),), True, dtype="float16")
    only_full = dataclasses.replace(EVERYTHING, dtypes=("float32",))
    assert half.unsupported(only_full) == "the sampler does not read float16 logits"


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="specs: got no request; expected at least one"):
        make_case("none", 4, (), True)
    with pytest.raises(ValueError, match="dtype: got 'float64'; expected one of float32"):
        make_case("dtype", 4, (r(drafts=1),), True, dtype="float64")


def test_draft_tables_are_normalised_from_the_stored_values() -> None:
    request = TableRequest(
        target=(torch.zeros(1, 2), torch.zeros(2, 2)),
        draft=(torch.tensor([[0.3, 0.70001]]),),
    )
    assert request.draft_tables()[0].sum() == pytest.approx(1.0, abs=1e-15)
    assert Case(name="c", requests=(request,), dense=True).dtype == torch.float32


def test_ambiguous_rows_are_seen() -> None:
    """What the redrawing relies on: a tie, a mass at top-p, a ratio at min-p."""
    table = torch.tensor([[0.6, 0.3, 0.1], [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]]).log()
    assert cases.ambiguous_rows(table, r(drafts=0)).tolist() == [False, False, True]
    assert cases.ambiguous_rows(table, r(drafts=0, top_p=0.6)).tolist() == [True, False, True]
    assert cases.ambiguous_rows(table, r(drafts=0, min_p=0.4)).tolist() == [False, True, True]
    assert cases.ambiguous_rows(table, r(drafts=0, top_k=2, top_p=0.625)).tolist()[1] is True
