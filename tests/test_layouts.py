"""The strategies reach every layout they advertise, respect what a sampler declares, and shrink."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from specverify import layouts
from specverify.checks.layout_search import layouts_of_the_seed_alone
from specverify.contract import Batch, Capabilities, Topology
from specverify.sampling import batch_probabilities

FIXED = settings(
    max_examples=300,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
SEARCH = settings(FIXED, max_examples=3000)


def examples_of(strategy: st.SearchStrategy[Batch], number: int) -> list[Batch]:
    """The same examples in every run, whatever constants other files hold."""
    seen: list[Batch] = []

    @settings(FIXED, max_examples=number)
    @given(strategy)
    def collect(batch: Batch) -> None:
        seen.append(batch)

    with layouts_of_the_seed_alone():
        collect()
    return seen


@functools.cache
def everything() -> list[Batch]:
    return examples_of(layouts.batches(), 600)


def smallest(
    condition: Callable[[Batch], bool], strategy: st.SearchStrategy[Batch] | None = None
) -> Batch:
    return find(layouts.batches() if strategy is None else strategy, condition, settings=SEARCH)


def proposed(batch: Batch) -> torch.Tensor:
    return batch.draft_token_ids >= 0


def draft_rows(batch: Batch) -> torch.Tensor:
    """The target row of each draft."""
    return torch.arange(batch.num_drafts) + batch.draft_request


def q_at_draft(batch: Batch) -> torch.Tensor:
    assert batch.draft_probs is not None
    at = proposed(batch).nonzero().squeeze(1)
    return batch.draft_probs[at, batch.draft_token_ids[at]]


def has_equal_rows(batch: Batch) -> bool:
    """Some q equals p in more than one token (a single token is equal too easily)."""
    if batch.draft_probs is None:
        return False
    p = batch_probabilities(batch)[draft_rows(batch)]
    close = ((p - batch.draft_probs).abs() < 1e-6).all(dim=1)
    return bool((close & ((p > 0).sum(dim=1) > 1)).any())


def has_disjoint_rows(batch: Batch) -> bool:
    if batch.draft_probs is None or not batch.num_drafts:
        return False
    masked = torch.isneginf(batch.target_logits[draft_rows(batch)])
    return bool((masked | (batch.draft_probs == 0)).all(dim=1).any())


def has_impossible_one_hot(batch: Batch) -> bool:
    if batch.draft_probs is not None:
        return False
    at = proposed(batch).nonzero().squeeze(1)
    logits = batch.target_logits[draft_rows(batch)[at], batch.draft_token_ids[at]]
    return bool(torch.isneginf(logits).any())


def has_partial_ties(batch: Batch) -> bool:
    logits = batch.target_logits
    tied = (logits == logits.amax(dim=1, keepdim=True)).sum(dim=1)
    return bool(((tied > 1) & (tied < batch.vocab_size)).any())


def lively_after_placeholder(batch: Batch) -> bool:
    same = batch.draft_request[1:] == batch.draft_request[:-1]
    ids = batch.draft_token_ids
    return bool((same & (ids[:-1] < 0) & (ids[1:] >= 0)).any())


def has_q(batch: Batch, condition: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    return batch.draft_probs is not None and bool(condition(batch.draft_probs).any())


def memory(matrix: torch.Tensor | None) -> str:
    if matrix is None or min(matrix.shape) < 2:
        return "too small to tell"
    rows, columns = matrix.shape
    if matrix.storage_offset():
        return "offset"
    if matrix.stride() == (1, rows):
        return "transposed"
    if matrix.stride(1) == 2:
        return "strided"
    return "contiguous" if matrix.stride(0) == columns else "padded"


FEATURES: dict[str, Callable[[Batch], bool]] = {
    "one request": lambda b: b.num_requests == 1,
    "many requests": lambda b: b.num_requests == 8,
    "no drafts at all": lambda b: b.num_drafts == 0,
    "zero drafts beside others": lambda b: b.max_drafts > 0 and not bool(b.draft_counts.all()),
    "most drafts": lambda b: b.max_drafts == 4,
    "placeholder": lambda b: bool((b.draft_token_ids < 0).any()),
    "draft after a placeholder": lively_after_placeholder,
    "greedy": lambda b: bool((b.temperature == 0).any()),
    "greedy beside random": lambda b: len(set((b.temperature == 0).tolist())) == 2,
    "tiny temperature": lambda b: bool(((b.temperature > 0) & (b.temperature < 0.01)).any()),
    "hot": lambda b: bool((b.temperature == 2).any()),
    "top-k": lambda b: bool((b.top_k > 0).any()),
    "top-k past V": lambda b: bool((b.top_k > b.vocab_size).any()),
    "top-p": lambda b: bool((b.top_p < 1).any()),
    "min-p": lambda b: bool((b.min_p > 0).any()),
    "joint": lambda b: bool(((b.top_k > 0) & (b.top_p < 1) & (b.min_p > 0)).any()),
    "filter beside none": lambda b: bool((b.top_p < 1).any() and (b.top_p == 1).any()),
    "dense": lambda b: b.draft_probs is not None,
    "one-hot": lambda b: b.draft_probs is None,
    "float32": lambda b: b.target_logits.dtype == torch.float32,
    "bfloat16": lambda b: b.target_logits.dtype == torch.bfloat16,
    "float16": lambda b: b.target_logits.dtype == torch.float16,
    "equal seeds": lambda b: len(set(b.seeds.tolist())) < b.num_requests,
    "different seeds": lambda b: len(set(b.seeds.tolist())) > 1,
    "small vocabulary": lambda b: b.vocab_size <= 4,
    "large vocabulary": lambda b: b.vocab_size > 256,
    "flat row": lambda b: bool((b.target_logits == 0).all(dim=1).any()),
    "ties for the maximum": has_partial_ties,
    "masked logits": lambda b: bool(torch.isneginf(b.target_logits).any()),
    "large logits": lambda b: bool((b.target_logits > 50).any()),
    "p = q": has_equal_rows,
    "disjoint": has_disjoint_rows,
    "impossible one-hot draft": has_impossible_one_hot,
    "q exactly 0": lambda b: has_q(b, lambda q: q == 0),
    "q rare at its draft": lambda b: has_q(b, lambda _: q_at_draft(b) < 0.01),
    **{
        f"logits {view}": lambda b, view=view: memory(b.target_logits) == view  # type: ignore[misc]
        for view in layouts.VIEWS
    },
    **{
        f"q {view}": lambda b, view=view: memory(b.draft_probs) == view  # type: ignore[misc]
        for view in layouts.VIEWS
    },
}  # fmt: skip


@pytest.mark.parametrize("feature", FEATURES)
def test_every_advertised_feature_occurs(feature: str) -> None:
    assert sum(FEATURES[feature](batch) for batch in everything()) >= 5


def test_drafts_could_have_come_from_their_law() -> None:
    for batch in everything():
        if batch.draft_probs is not None:
            assert bool((q_at_draft(batch) >= 2.0**-24).all())
            mass = batch.draft_probs.double().sum(dim=1)
            assert bool(((mass - 1).abs() < 1e-6).all())


def test_finite_logits_tie_exactly_or_differ_clearly() -> None:
    for batch in everything():
        scaled = batch.target_logits.double() * 4096
        finite = scaled[torch.isfinite(scaled)]
        assert bool((finite == finite.round()).all())


def test_rows_differ_between_positions() -> None:
    batch = smallest(lambda b: b.max_drafts >= 2)
    assert batch.draft_counts.tolist() == [2]
    wide = next(b for b in everything() if b.max_drafts == 4 and not has_partial_ties(b))
    rows = {tuple(row) for row in wide.target_logits.tolist() if len(set(row)) > 2}
    lively = [row for row in wide.target_logits.tolist() if len(set(row)) > 2]
    assert len(rows) == len(lively)


@pytest.mark.parametrize(
    ("condition", "counts", "vocab"),
    [
        (lambda b: b.max_drafts >= 2, [2], 2),
        (lambda b: b.vocab_size >= 20, [0], 20),
        (lambda b: bool((b.temperature == 0.3).any()), [0], 2),
        (lambda b: bool((b.draft_token_ids < 0).any()), [1], 2),
        (lambda b: b.draft_probs is not None and b.num_drafts >= 3, [3], 2),
        (lambda b: b.num_requests >= 2 and not b.target_logits.is_contiguous(), [0, 0], 2),
    ],
    ids=["two drafts", "V >= 20", "T = 0.3", "placeholder", "dense", "strided"],
)
def test_failures_shrink_to_something_readable(
    condition: Callable[[Batch], bool], counts: list[int], vocab: int
) -> None:
    batch = smallest(condition)
    assert batch.draft_counts.tolist() == counts
    assert batch.vocab_size == vocab
    assert bool((batch.target_logits == 0).all())
    assert batch.target_logits.dtype == torch.float32
    assert not bool(((batch.top_k > 0) | (batch.top_p < 1) | (batch.min_p > 0)).any())
    assert not bool(batch.seeds.any() | batch.positions.any())


def test_a_request_that_plays_no_part_is_dropped_wherever_it_stands() -> None:
    batch = smallest(lambda b: b.num_requests >= 3 and int(b.draft_counts[-1]) >= 2)
    assert batch.draft_counts.tolist() == [0, 0, 2]


def test_rejected_draft_shrinks_to_one_request() -> None:
    def may_reject_second(batch: Batch) -> bool:
        p = batch_probabilities(batch)
        for request in range(batch.num_requests):
            first, count = int(batch.cu_drafts[request]), int(batch.draft_counts[request])
            if batch.draft_probs is None or count < 2 or int(batch.draft_token_ids[first + 1]) < 0:
                continue
            token = int(batch.draft_token_ids[first + 1])
            if p[int(batch.first_row[request]) + 1, token] < batch.draft_probs[first + 1, token]:
                return True
        return False

    batch = smallest(may_reject_second, layouts.batches(max_requests=3, filters="off"))
    assert batch.draft_counts.tolist() == [2]
    assert batch.vocab_size <= 3


CAPABILITIES = {
    "dense only": Capabilities(one_hot=False),
    "one-hot only": Capabilities(dense=False),
    "no greedy": Capabilities(greedy=False),
    "drafts everywhere": Capabilities(zero_drafts=False),
    "placeholders": Capabilities(placeholders=True),
    "filtering": Capabilities(filtering=True),
    "exclusion": Capabilities(exclusion=True),
    "both policies": Capabilities(filtering=True, exclusion=True),
    "bfloat16": Capabilities(dtypes=("bfloat16",)),
}


@pytest.mark.parametrize("name", CAPABILITIES)
def test_batches_for_respects_capabilities(name: str) -> None:
    able = CAPABILITIES[name]
    for batch in examples_of(layouts.batches_for(able), 60):
        assert able.dense or batch.draft_probs is None
        assert able.one_hot or batch.draft_probs is not None
        assert able.greedy or bool((batch.temperature > 0).all())
        assert able.zero_drafts or bool((batch.draft_counts > 0).all())
        assert able.placeholders or bool((batch.draft_token_ids >= 0).all())
        assert str(batch.target_logits.dtype).removeprefix("torch.") in able.dtypes
        filtered = (batch.top_k > 0) | (batch.top_p < 1) | (batch.min_p > 0)
        assert able.filtering or not bool((filtered & (batch.draft_counts > 0)).any())
        assert able.exclusion or not bool((filtered & (batch.draft_counts == 0)).any())


@pytest.mark.parametrize("name", ["filtering", "exclusion", "both policies", "placeholders"])
def test_batches_for_uses_what_a_sampler_can_do(name: str) -> None:
    able = CAPABILITIES[name]
    batches = examples_of(layouts.batches_for(able), 60)
    filtered = [(b.top_k > 0) | (b.top_p < 1) | (b.min_p > 0) for b in batches]
    pairs = list(zip(batches, filtered, strict=True))
    assert able.filtering == any(bool((on & (b.draft_counts > 0)).any()) for b, on in pairs)
    assert able.exclusion == any(bool((on & (b.draft_counts == 0)).any()) for b, on in pairs)
    assert able.placeholders == any(bool((b.draft_token_ids < 0).any()) for b in batches)


def test_overrides_replace_what_capabilities_imply() -> None:
    strategy = layouts.batches_for(Capabilities(), greedy_only=True, max_requests=2, vocab=(5, 5))
    for batch in examples_of(strategy, 20):
        assert batch.num_requests <= 2
        assert batch.vocab_size == 5
        assert not bool(batch.temperature.any())


def test_rows_of_the_kinds_that_were_asked_for() -> None:
    values = {
        value
        for batch in examples_of(layouts.batches(targets=("flat", "ties")), 60)
        for value in batch.target_logits.unique().tolist()
        if value > float("-inf")
    }
    assert values == {0.0, 1.0, 2.0}


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("max_requests", 0),
        ("max_requests", True),
        ("max_drafts", -1),
        ("vocab", (1, 8)),
        ("vocab", (8, 4)),
        ("vocab", 8),
        ("temperatures", ()),
        ("temperatures", (-1.0,)),
        ("temperatures", (float("nan"),)),
        ("filters", "sometimes"),
        ("drafts", "soft"),
        ("dtypes", ("float64",)),
        ("dtypes", ()),
        ("targets", ("even",)),
        ("targets", ()),
    ],
)
def test_bad_parameter_is_named_before_anything_is_drawn(parameter: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{parameter}: got .*; expected"):
        layouts.batches(**{parameter: value})  # type: ignore[arg-type]


def test_drafts_everywhere_needs_a_draft() -> None:
    with pytest.raises(ValueError, match="max_drafts: got 0; expected an integer >= 1"):
        layouts.batches(zero_drafts=False, max_drafts=0)


@pytest.mark.parametrize(
    ("capabilities", "field"),
    [
        (Capabilities(topology=Topology.TREE), "capabilities.topology"),
        (Capabilities(dense=False, one_hot=False), "capabilities"),
        (Capabilities(dtypes=("float64",)), "dtypes"),
    ],
)
def test_capabilities_that_allow_no_batch_are_refused(
    capabilities: Capabilities, field: str
) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        layouts.batches_for(capabilities)


def test_unknown_override_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^overrides: got .'vocabulary'.; expected"):
        layouts.batches_for(Capabilities(), vocabulary=(2, 4))
