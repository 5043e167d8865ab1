from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specverify.contract import Batch
from specverify.sampling import (
    CONVENTIONS,
    FLASHINFER,
    REFERENCE,
    SGLANG,
    SGLANG_TORCH,
    TRANSFORMERS,
    VLLM,
    FilterConvention,
    Order,
    Ties,
    TopPBoundary,
    batch_probabilities,
    filter_support,
    target_probabilities,
)

INF = math.inf
fixed = settings(derandomize=True, deadline=None)


def every_convention() -> list[FilterConvention]:
    """The named ones and every other combination that is allowed."""
    found = list(CONVENTIONS.values())
    for k, p, edge, order, first in itertools.product(
        Ties, Ties, TopPBoundary, Order, (False, True)
    ):
        if {k, p} != {Ties.LOWEST_ID, Ties.HIGHEST_ID}:
            found.append(
                FilterConvention(
                    name=f"{k}/{p}/{edge}/{order}/{first}", top_k_ties=k, top_p_ties=p,
                    top_p_boundary=edge, order=order, min_p_first=first, source="test",
                )
            )  # fmt: skip
    return found


EVERY = every_convention()


def law(
    logits: list[float] | torch.Tensor,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    convention: FilterConvention = REFERENCE,
) -> torch.Tensor:
    rows = torch.as_tensor(logits, dtype=torch.float64).reshape(1, -1)
    return target_probabilities(
        rows,
        torch.tensor([temperature], dtype=torch.float64),
        torch.tensor([top_k]),
        torch.tensor([top_p], dtype=torch.float64),
        torch.tensor([min_p], dtype=torch.float64),
        convention,
    )[0]


def kept(probabilities: list[float], **filters: Any) -> set[int]:
    """The tokens that survive, for a law given by its probabilities."""
    logits = [math.log(p) if p > 0 else -INF for p in probabilities]
    return set(law(logits, **filters).nonzero().squeeze(1).tolist())


# --- an independent implementation: loops, sorted(), one row at a time --------------------------


def slow_law(
    logits: list[float],
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    convention: FilterConvention,
) -> list[float]:
    size = len(logits)
    best = max(logits)
    if temperature == 0:
        winner = logits.index(best)
        return [1.0 if token == winner else 0.0 for token in range(size)]
    weight = [math.exp((x - best) / temperature) for x in logits]
    p = [w / math.fsum(weight) for w in weight]

    def ranked(ties: Ties) -> list[int]:
        sign = -1 if ties is Ties.HIGHEST_ID else 1
        return sorted(range(size), key=lambda token: (-logits[token], sign * token))

    alive_k = set(range(size))
    if 0 < top_k < size:
        order = ranked(convention.top_k_ties)
        alive_k = set(order[:top_k])
        if convention.top_k_ties is Ties.KEEP_ALL:
            alive_k = {t for t in range(size) if logits[t] >= logits[order[top_k - 1]]}
    alive_min = {t for t in range(size) if min_p == 0 or p[t] >= min_p * max(p)}

    alive_p = set(range(size))
    if top_p < 1:
        counted = list(range(size))
        if convention.order is Order.TOP_K_FIRST:
            counted = [t for t in counted if t in alive_k]
        if convention.min_p_first:
            counted = [t for t in counted if t in alive_min]
        total = math.fsum(p[t] for t in counted)
        order = ranked(convention.top_p_ties)
        groups = [[t] for t in order]
        if convention.top_p_ties is Ties.KEEP_ALL:
            groups = [list(g) for _, g in itertools.groupby(order, key=lambda t: logits[t])]
        alive_p = set()
        before = 0.0
        for number, group in enumerate(groups):
            upto = before + math.fsum(p[t] for t in group if t in counted) / total
            keep = {
                TopPBoundary.INCLUSIVE_CROSSING: before < top_p,
                TopPBoundary.BEFORE_AT_MOST: before <= top_p,
                TopPBoundary.AT_MOST: upto <= top_p or number == 0,
            }[convention.top_p_boundary]
            if keep:
                alive_p |= set(group)
            before = upto
    alive = alive_k & alive_min & alive_p
    mass = math.fsum(p[t] for t in alive)
    return [p[t] / mass if t in alive else 0.0 for t in range(size)]


# Laws in eighths over a few tokens, so that ties are common; thresholds are kept away from every
# sum of eighths over any filtered total by being odd multiples of 1/997, so that the rounding of
# two different summation orders cannot decide a case.
logit_rows = st.lists(
    st.sampled_from([-INF, 0.0, math.log(2), math.log(4), 0.5, -1.25]), min_size=1, max_size=7
).filter(lambda row: max(row) > -INF)
row_cases = st.tuples(
    logit_rows,
    st.sampled_from([0.0, 1.0, 1.0, 0.5, 0.7, 2.0]),
    st.integers(0, 8),
    st.one_of(st.just(1.0), st.integers(1, 996).map(lambda n: n / 997)),
    st.one_of(st.just(0.0), st.integers(1, 996).map(lambda n: n / 997)),
)


@given(row_cases, st.sampled_from(EVERY))
@settings(fixed, max_examples=400)
def test_equals_the_slow_implementation(
    case: tuple[list[float], float, int, float, float], convention: FilterConvention
) -> None:
    logits, temperature, top_k, top_p, min_p = case
    got = law(
        logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
        convention=convention,
    )  # fmt: skip
    expected = torch.tensor(slow_law(logits, temperature, top_k, top_p, min_p, convention),
                            dtype=torch.float64)  # fmt: skip
    assert torch.equal(got > 0, expected > 0)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)


@given(st.lists(row_cases, min_size=1, max_size=6), st.sampled_from(EVERY))
@settings(fixed)
def test_rows_do_not_know_each_other(
    cases: list[tuple[list[float], float, int, float, float]], convention: FilterConvention
) -> None:
    width = max(len(case[0]) for case in cases)
    rows = [case[0] + [-INF] * (width - len(case[0])) for case in cases]
    columns = [torch.tensor([case[i] for case in cases]) for i in range(1, 5)]
    together = target_probabilities(torch.tensor(rows), *columns, convention)
    torch.testing.assert_close(
        together.sum(dim=1), torch.ones(len(cases), dtype=torch.float64), rtol=1e-12, atol=0
    )
    for number in range(len(cases)):
        alone = target_probabilities(
            torch.tensor(rows[number : number + 1]),
            *(column[number : number + 1] for column in columns),
            convention,
        )
        assert torch.equal(alone[0], together[number])


@given(row_cases, st.sampled_from(EVERY), st.integers(1, 3))
@settings(fixed)
def test_padding_the_vocabulary_with_minus_infinity_changes_nothing(
    case: tuple[list[float], float, int, float, float], convention: FilterConvention, pad: int
) -> None:
    logits, temperature, top_k, top_p, min_p = case
    top_k = min(top_k, len(logits) - 1)
    filters: dict[str, Any] = {
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
        "convention": convention,
    }  # fmt: skip
    padded = law(logits + [-INF] * pad, **filters)
    assert torch.all(padded[len(logits) :] == 0)
    torch.testing.assert_close(padded[: len(logits)], law(logits, **filters), rtol=1e-14, atol=0)


@given(row_cases, st.sampled_from(EVERY), st.sampled_from([-8.0, -0.5, 4.0, 64.0]))
@settings(fixed)
def test_adding_a_constant_to_the_logits_changes_nothing(
    case: tuple[list[float], float, int, float, float], convention: FilterConvention, shift: float
) -> None:
    logits, temperature, top_k, top_p, min_p = case
    exact = [round(x * 1024) / 1024 if x > -INF else x for x in logits]
    filters: dict[str, Any] = {
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
        "convention": convention,
    }  # fmt: skip
    assert torch.equal(law([x + shift for x in exact], **filters), law(exact, **filters))


@given(row_cases, st.sampled_from(EVERY))
@settings(fixed)
def test_a_tighter_filter_never_adds_a_token(
    case: tuple[list[float], float, int, float, float], convention: FilterConvention
) -> None:
    logits, temperature, top_k, top_p, min_p = case
    loose: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p,
                             "min_p": min_p, "convention": convention}  # fmt: skip
    support = law(logits, **loose) > 0
    tighter: list[dict[str, Any]] = [
        {"top_p": top_p * 0.6},
        {"min_p": 1 - (1 - min_p) * 0.6},
        {"top_k": max(1, (top_k or len(logits)) - 1)},
    ]
    for change in tighter:
        assert not bool(((law(logits, **{**loose, **change}) > 0) & ~support).any())


# --- the conventions differ: one hand-made example each -----------------------------------------

FOUR = [0.4, 0.2, 0.2, 0.2]


def test_top_k_ties() -> None:
    assert kept(FOUR, top_k=2, convention=REFERENCE) == {0, 1}
    assert kept(FOUR, top_k=2, convention=VLLM) == {0, 1}
    assert kept(FOUR, top_k=2, convention=TRANSFORMERS) == {0, 1, 2, 3}
    assert kept(FOUR, top_k=2, convention=FLASHINFER) == {0, 1, 2, 3}
    assert kept(FOUR, top_k=2, convention=SGLANG) == {0, 1, 2, 3}
    assert kept(FOUR, top_k=2, convention=SGLANG_TORCH) == {0, 1}


def test_top_p_ties() -> None:
    assert kept(FOUR, top_p=0.5, convention=REFERENCE) == {0, 1}
    assert kept(FOUR, top_p=0.5, convention=VLLM) == {0, 1}
    assert kept(FOUR, top_p=0.5, convention=TRANSFORMERS) == {0, 3}
    assert kept(FOUR, top_p=0.5, convention=FLASHINFER) == {0, 1, 2, 3}
    assert kept(FOUR, top_p=0.5, convention=SGLANG) == {0, 1, 2, 3}
    assert kept(FOUR, top_p=0.5, convention=SGLANG_TORCH) == {0, 1}


def with_boundary(boundary: TopPBoundary) -> FilterConvention:
    return FilterConvention(
        name="test", top_k_ties=Ties.LOWEST_ID, top_p_ties=Ties.LOWEST_ID,
        top_p_boundary=boundary, order=Order.JOINT, min_p_first=False, source="test",
    )  # fmt: skip


# Powers of two with logits in base 2, so that every sum is exact and the boundary is hit exactly.
HALVES = [0.0, -1.0, -2.0, -2.0]
BASE_TWO = 1 / math.log(2)


@pytest.mark.parametrize(
    ("top_p", "crossing", "before_at_most", "at_most"),
    [
        (0.4, 1, 1, 1),
        (0.5, 1, 2, 1),
        (0.6, 2, 2, 1),
        (0.75, 2, 3, 2),
        (0.8, 3, 3, 2),
        (0.875, 3, 4, 3),
        (0.9, 4, 4, 3),
        (1.0, 4, 4, 4),
    ],
)
def test_top_p_boundaries(top_p: float, crossing: int, before_at_most: int, at_most: int) -> None:
    exact = law(HALVES, temperature=BASE_TWO)
    if exact.tolist() != [0.5, 0.25, 0.125, 0.125]:
        # exp is not correctly rounded everywhere; the boundary then lies an ulp off the example.
        pytest.skip("exp(-ln 2) is not exactly 1/2 on this machine")
    for boundary, count in (
        (TopPBoundary.INCLUSIVE_CROSSING, crossing),
        (TopPBoundary.BEFORE_AT_MOST, before_at_most),
        (TopPBoundary.AT_MOST, at_most),
    ):
        got = law(HALVES, temperature=BASE_TWO, top_p=top_p, convention=with_boundary(boundary))
        assert int((got > 0).sum()) == count


def test_top_p_boundary_of_the_named_conventions() -> None:
    """Two equal tokens, top_p 1/2: exact in any arithmetic; SGLang's PyTorch path keeps both."""
    counts = {
        name: int((law([0.0, 0.0], top_p=0.5, convention=c) > 0).sum())
        for name, c in CONVENTIONS.items()
        if c.top_p_ties is not Ties.KEEP_ALL
    }
    assert counts == {"reference": 1, "vllm": 1, "transformers": 1, "sglang-torch": 2}


def test_top_p_of_one_is_off_where_the_mass_rounds_to_one_early() -> None:
    for convention in EVERY:
        got = law([0.0, -40.0, -41.0], top_k=2, top_p=1.0, convention=convention)
        assert (got > 0).tolist() == [True, True, False]


def test_order_of_top_k_and_top_p() -> None:
    """The example of sglang #36173: 0.82 of all mass needs four tokens, of the top four three."""
    spread = [0.35, 0.25, 0.20, 0.05, *[0.03] * 5]
    for joint in (REFERENCE, SGLANG, SGLANG_TORCH):
        assert kept(spread, top_k=4, top_p=0.82, convention=joint) == {0, 1, 2, 3}
    for sequential in (VLLM, TRANSFORMERS, FLASHINFER):
        assert kept(spread, top_k=4, top_p=0.82, convention=sequential) == {0, 1, 2}


def test_min_p_before_or_after_top_p() -> None:
    """0.6 of what min-p leaves (0.5 and 0.3, so 0.8 in all) needs one token, of everything two."""
    assert kept([0.5, 0.3, 0.1, 0.1], min_p=0.5, top_p=0.6, convention=VLLM) == {0}
    for other in (REFERENCE, TRANSFORMERS, FLASHINFER, SGLANG, SGLANG_TORCH):
        assert kept([0.5, 0.3, 0.1, 0.1], min_p=0.5, top_p=0.6, convention=other) == {0, 1}


def test_min_p_keeps_the_tokens_at_its_threshold() -> None:
    for convention in EVERY:
        assert kept([0.25] * 4, min_p=1.0, convention=convention) == {0, 1, 2, 3}


def test_transformers_convention_equals_its_warpers() -> None:
    """The library itself, on laws with ties, the boundaries a little off every sum."""
    process = pytest.importorskip("transformers.generation.logits_process")
    grid = torch.tensor([0.0, math.log(2), math.log(4), -1.25, 0.5], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for number in range(300):
        logits = grid[torch.randint(5, (1, 7), generator=generator)]
        top_k, top_p, min_p = number % 6 + 1, (1 + 37 * number % 996) / 997, number % 5 / 9.7
        scores = process.TemperatureLogitsWarper(0.7)(None, logits)
        scores = process.TopKLogitsWarper(top_k)(None, scores)
        scores = process.TopPLogitsWarper(top_p)(None, scores)
        scores = process.MinPLogitsWarper(min_p)(None, scores)
        got = law(logits, temperature=0.7, top_k=top_k, top_p=top_p, min_p=min_p,
                  convention=TRANSFORMERS)  # fmt: skip
        torch.testing.assert_close(got, scores.softmax(-1)[0], rtol=1e-12, atol=0)


# --- temperature, -inf, dtypes ------------------------------------------------------------------


def test_greedy_takes_the_lowest_id_whatever_the_filters() -> None:
    for convention in EVERY:
        got = law(
            [1.0, 3.0, 3.0, -INF], temperature=0.0, top_k=1, top_p=0.1, min_p=0.9,
            convention=convention,
        )  # fmt: skip
        assert got.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_tiny_temperatures_do_not_overflow() -> None:
    for temperature in (1e-5, 1e-45, 5e-324):
        assert law([3e38, -3e38, 2.9e38], temperature=temperature).tolist() == [1.0, 0.0, 0.0]
        assert law([7.0, 7.0, 6.0], temperature=temperature).tolist() == [0.5, 0.5, 0.0]


def test_masked_tokens_have_probability_zero_exactly() -> None:
    for temperature, top_k in ((1.0, 0), (0.3, 0), (1.0, 3), (1e30, 0)):
        for convention in EVERY:
            got = law([0.0, -INF, 1.0, -INF], temperature=temperature, top_k=top_k,
                      convention=convention)  # fmt: skip
            assert got[[1, 3]].tolist() == [0.0, 0.0]
            assert float(got.sum()) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_stored_bits_are_the_truth(dtype: torch.dtype) -> None:
    logits = torch.linspace(-3, 3, 40).reshape(2, 20).to(dtype)
    before = logits.clone()
    ones, zeros = torch.ones(2), torch.zeros(2)
    got = target_probabilities(logits, ones, zeros.long(), ones, zeros)
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, torch.softmax(logits.double(), 1), rtol=1e-14, atol=0)
    assert torch.equal(logits, before)


def test_float64_input_is_not_changed() -> None:
    logits = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    target_probabilities(
        logits, torch.tensor([0.0, 1.0, 0.5]), torch.tensor([0, 2, 3]),
        torch.tensor([1.0, 0.9, 0.5]), torch.tensor([0.0, 0.1, 0.2]),
    )  # fmt: skip
    assert torch.equal(logits, before)


def test_support() -> None:
    logits = torch.tensor([[0.0, 1.0, 1.0, -INF], [5.0, 5.0, 0.0, 0.0]])
    got = filter_support(
        logits, torch.tensor([1.0, 0.0]), torch.tensor([1, 0]), torch.ones(2), torch.zeros(2),
        FLASHINFER,
    )  # fmt: skip
    assert got.dtype == torch.bool
    assert got.tolist() == [[False, True, True, False], [True, False, False, False]]


def test_no_rows() -> None:
    empty = torch.zeros(0)
    got = target_probabilities(torch.zeros(0, 4), empty, empty.long(), empty, empty)
    assert got.shape == (0, 4)


def test_batches_take_the_fields_of_each_rows_request() -> None:
    generator = torch.Generator().manual_seed(1)
    counts = torch.tensor([0, 2, 2, 5])
    batch = Batch(
        target_logits=torch.randn(8, 6, generator=generator),
        draft_token_ids=torch.tensor([0, 1, 2, 3, 4]),
        draft_probs=None,
        cu_drafts=counts,
        temperature=torch.tensor([0.0, 1.0, 0.5]),
        top_k=torch.tensor([0, 2, 0]),
        top_p=torch.tensor([1.0, 1.0, 0.8]),
        min_p=torch.tensor([0.0, 0.0, 0.1]),
        seeds=torch.zeros(3, dtype=torch.uint64),
        positions=torch.zeros(3, dtype=torch.int64),
    )
    got = batch_probabilities(batch, VLLM)
    for row, request in enumerate([0, 0, 0, 1, 2, 2, 2, 2]):
        alone = law(
            batch.target_logits[row],
            temperature=float(batch.temperature[request]),
            top_k=int(batch.top_k[request]),
            top_p=float(batch.top_p[request]),
            min_p=float(batch.min_p[request]),
            convention=VLLM,
        )
        assert torch.equal(got[row], alone)


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("logits", torch.zeros(3), r"^logits: got \[3\]"),
        ("logits", torch.zeros(2, 3, dtype=torch.int64), r"^logits: got \[2, 3\] torch.int64"),
        ("logits", torch.tensor([[0.0], [-INF]]), r"^logits\[1\]: got a row whose .* -inf"),
        ("logits", torch.tensor([[0.0, math.nan], [0.0, 0.0]]), r"^logits\[0\]: .* nan"),
        ("logits", torch.tensor([[0.0, 1.0], [INF, 0.0]]), r"^logits\[1\]: .* inf"),
        ("temperature", torch.ones(3), r"^temperature: got \[3\]"),
        ("temperature", torch.tensor([1.0, -0.5]), r"^temperature\[1\]: got -0.5"),
        ("temperature", torch.tensor([INF, 1.0]), r"^temperature\[0\]: got inf"),
        ("top_k", torch.tensor([0.0, 1.0]), r"^top_k: got \[2\] torch.float32"),
        ("top_k", torch.tensor([0, -1]), r"^top_k\[1\]: got -1"),
        ("top_p", torch.tensor([0.0, 1.0]), r"^top_p\[0\]: got 0.0"),
        ("top_p", torch.tensor([1.0, 1.5]), r"^top_p\[1\]: got 1.5"),
        ("min_p", torch.tensor([0.0, math.nan]), r"^min_p\[1\]: got nan"),
    ],
)
def test_bad_input_is_named(field: str, value: torch.Tensor, text: str) -> None:
    fields = {
        "logits": torch.zeros(2, 3),
        "temperature": torch.ones(2),
        "top_k": torch.zeros(2, dtype=torch.int64),
        "top_p": torch.ones(2),
        "min_p": torch.zeros(2),
    }
    with pytest.raises(ValueError, match=text):
        target_probabilities(**{**fields, field: value})


def test_conventions_are_named_and_checked() -> None:
    assert {name: c.name for name, c in CONVENTIONS.items()} == {n: n for n in CONVENTIONS}
    assert all(c.source for c in CONVENTIONS.values())
    spelled: dict[str, Any] = {
        "name": "test", "top_k_ties": "keep-all", "top_p_ties": "lowest-id",
        "top_p_boundary": "at-most", "order": "joint", "min_p_first": False, "source": "test",
    }  # fmt: skip
    assert FilterConvention(**spelled).top_k_ties is Ties.KEEP_ALL
    with pytest.raises(ValueError, match=r"^order: got 'sideways'; expected one of \['joint'"):
        FilterConvention(**{**spelled, "order": "sideways"})
    with pytest.raises(ValueError, match=r"^top_p_ties: got lowest-id beside top_k_ties highest"):
        FilterConvention(**{**spelled, "top_k_ties": "highest-id"})
