"""Clean emissions pass, and each way to break one is found and said in words."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specverify import layouts
from specverify.checks.structural import (
    WHOLE_BATCH,
    Violation,
    greedy_violations,
    structural_violations,
    support_violations,
)
from specverify.contract import PLACEHOLDER, Batch, Emission


def make_batch(temperature: float = 1.0) -> Batch:
    """Request 0 drafts 1, 2, 3; request 1 none; request 2 drafts 4, a placeholder, 5. V = 6.

    Row r has its maximum at token r mod 6, except row 6, where tokens 1 and 5 tie.
    """
    logits = torch.zeros(9, 6)
    logits[torch.arange(9), torch.arange(9) % 6] = 2.0
    logits[6] = torch.tensor([0.0, 3, 0, 0, -torch.inf, 3])
    return Batch(
        target_logits=logits,
        draft_token_ids=torch.tensor([1, 2, 3, 4, PLACEHOLDER, 5]),
        draft_probs=None,
        cu_drafts=torch.tensor([0, 3, 3, 6]),
        temperature=torch.full((3,), temperature),
        top_k=torch.zeros(3, dtype=torch.int64),
        top_p=torch.ones(3),
        min_p=torch.zeros(3),
        seeds=torch.arange(3).to(torch.uint64),
        positions=torch.zeros(3, dtype=torch.int64),
    )


def emit(*rows: list[int], width: int = 4, counts: list[int] | None = None) -> Emission:
    """An emission padded to the width; the counts are those of the rows unless given."""
    padded = [row + [PLACEHOLDER] * (width - len(row)) for row in rows]
    return Emission(torch.tensor(padded), torch.tensor(counts or [len(row) for row in rows]))


GOOD = ([1, 2, 5], [0], [4, 3])


def only(violations: list[Violation]) -> Violation:
    assert len(violations) == 1, [str(one) for one in violations]
    return violations[0]


@pytest.mark.parametrize(
    "rows",
    [GOOD, ([1, 2, 3, 0], [5], [0]), ([0], [0], [4, 0]), ([1, 1], [2], [5])],
    ids=["mixed", "bonus", "all rejected", "recovered equals a draft elsewhere"],
)
def test_clean_emissions_have_no_violations(rows: tuple[list[int], ...]) -> None:
    assert structural_violations(make_batch(), emit(*rows)) == []


@pytest.mark.parametrize(
    ("rows", "counts", "request_", "position", "words"),
    [
        (([1, 2, 5], [0], [4, 0, 0]), None, 2, 1, "went on past a placeholder"),
        (([1, 2, 5], [0], [4, -1, 0]), None, 2, 1, "went on past a placeholder"),
        (([1, 4, 5], [0], [4, 3]), None, 0, 1, "got token 4 where draft 2 counts as accepted"),
        (([1, 2, 6], [0], [4, 3]), None, 0, 2, "token 6 is outside of the vocabulary"),
        (([1, 2, -7], [0], [4, 3]), None, 0, 2, "token -7 is outside of the vocabulary"),
        (([1, 2], [0], [4, 3]), [3, 1, 2], 0, 2, "padding (-1) as the last emitted token"),
        (([1, 2, 3, 0], [0], [4, 3]), [3, 1, 2], 0, 3, "got 0 after the last emitted token"),
        (([1, 2, 5, -2], [0], [4, 3]), [3, 1, 2], 0, 3, "got -2 after the last emitted token"),
        (([1, 2, 5], [0, 0], [4, 3]), None, 1, None, "num_emitted is 2; expected 1 .. 1"),
        (([1, 2, 5], [0], [4, 3]), [0, 1, 2], 0, None, "num_emitted is 0; expected 1 .. 4"),
        (([1, 2, 5], [0], [4, 3]), [-3, 1, 2], 0, None, "num_emitted is -3; expected 1 .. 4"),
        (([1, 2, 5], [0], [4, 3]), [9, 1, 2], 0, None, "num_emitted is 9; expected 1 .. 4"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_fault_is_found_and_named(
    rows: tuple[list[int], ...],
    counts: list[int] | None,
    request_: int,
    position: int | None,
    words: str,
) -> None:
    found = only(structural_violations(make_batch(), emit(*rows, counts=counts)))
    assert (found.request, found.position) == (request_, position)
    assert words in found.message
    assert "expected" in found.message


def test_several_faults_are_listed_up_to_the_limit() -> None:
    broken = emit([0, 0, 9], [7], [5, 5, 5])
    every = structural_violations(make_batch(), broken, limit=50)
    assert [(one.request, one.position) for one in every] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)
    ]  # fmt: skip
    assert structural_violations(make_batch(), broken, limit=3) == every[:3]


def test_wrong_shape_is_a_fault_of_the_whole_batch() -> None:
    narrow = Emission(torch.zeros(3, 3, dtype=torch.int64), torch.ones(3, dtype=torch.int64))
    support = torch.ones(9, 6, dtype=torch.bool)
    for found in (
        structural_violations(make_batch(), narrow),
        support_violations(make_batch(), narrow, support),
        greedy_violations(make_batch(0.0), narrow),
    ):
        assert only(found).request == WHOLE_BATCH
        assert str(only(found)).startswith("the whole batch: token_ids has shape [3, 3]; expected")


def test_wrong_device_is_a_fault_of_the_whole_batch() -> None:
    away = Emission(
        *(tensor.to("meta") for tensor in (torch.zeros(3, 4).long(), torch.ones(3).long()))
    )
    assert (
        "on meta; expected torch.int64 on cpu"
        in only(structural_violations(make_batch(), away)).message
    )


def test_a_batch_without_drafts() -> None:
    batch = layouts_batch_without_drafts()
    assert structural_violations(batch, emit([1], [0], width=1)) == []
    assert only(structural_violations(batch, emit([1], [2], width=1))).request == 1
    assert greedy_violations(batch, emit([1], [0], width=1)) == []
    assert only(greedy_violations(batch, emit([0], [0], width=1))).request == 0


def layouts_batch_without_drafts() -> Batch:
    return Batch(
        target_logits=torch.tensor([[0.0, 1.0], [1.0, 0.0]]),
        draft_token_ids=torch.zeros(0, dtype=torch.int64),
        draft_probs=None,
        cu_drafts=torch.tensor([0, 0, 0]),
        temperature=torch.zeros(2),
        top_k=torch.zeros(2, dtype=torch.int64),
        top_p=torch.ones(2),
        min_p=torch.zeros(2),
        seeds=torch.zeros(2).to(torch.uint64),
        positions=torch.zeros(2, dtype=torch.int64),
    )


@pytest.mark.parametrize(
    ("row", "token", "request_", "position", "role"),
    [
        (0, 1, 0, 0, "accepted draft"),
        (2, 5, 0, 2, "recovered"),
        (4, 0, 1, 0, "bonus"),
        (6, 3, 2, 1, "recovered"),
    ],
)
def test_support_names_the_impossible_token(
    row: int, token: int, request_: int, position: int, role: str
) -> None:
    support = torch.ones(9, 6, dtype=torch.bool)
    assert support_violations(make_batch(), emit(*GOOD), support) == []
    support[row, token] = False
    found = only(support_violations(make_batch(), emit(*GOOD), support))
    assert (found.request, found.position) == (request_, position)
    assert f"{role} token {token} has target probability 0 in row {row}; expected" in found.message


def test_support_looks_at_the_row_of_the_position_and_no_other() -> None:
    support = torch.ones(9, 6, dtype=torch.bool)
    for row, token in ((1, 1), (3, 5), (3, 0), (5, 0), (7, 3), (8, 4)):
        support[row, token] = False
    assert support_violations(make_batch(), emit(*GOOD), support) == []


def test_support_says_when_the_logit_is_masked() -> None:
    support = ~torch.isneginf(make_batch().target_logits)
    found = only(support_violations(make_batch(), emit([0], [0], [4, 4]), support))
    assert "(its logit is -inf); expected one of 0, 1, 2, 3, 5" in found.message


def test_support_skips_what_is_not_readable() -> None:
    nothing = torch.zeros(9, 6, dtype=torch.bool)
    broken = emit([9, -1, 6], [-5], [4, 3], counts=[4, 1, -1])
    assert support_violations(make_batch(), broken, nothing) == []


@pytest.mark.parametrize("support", [torch.ones(9, 5).bool(), torch.ones(9, 6)])
def test_support_of_the_wrong_kind_is_refused(support: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"^support: got .* expected a bool tensor \[R, V\]"):
        support_violations(make_batch(), emit(*GOOD), support)


# Greedy: row 0 has its maximum at 0, so draft 1 of request 0 is wrong; request 1's row 4 at 4;
# request 2: row 5 at 5, so draft 4 is wrong.
GREEDY = ([0], [4], [5])


def test_greedy_emission_passes() -> None:
    assert greedy_violations(make_batch(0.0), emit(*GREEDY)) == []


def test_only_requests_at_temperature_zero_are_greedy() -> None:
    batch = make_batch(0.0).replace(temperature=torch.tensor([1.0, 0.0, 1e-5]))
    assert greedy_violations(batch, emit([2], [4], [0])) == []
    assert only(greedy_violations(batch, emit([2], [3], [0]))).request == 1
    assert greedy_violations(make_batch(1.0), emit([2], [3], [0])) == []


@pytest.mark.parametrize(
    ("rows", "request_", "words"),
    [
        (
            ([2], [4], [5]),
            0,
            "got recovered token 2 (logit 0); expected token 0, the argmax of row 0",
        ),
        (([1, 1], [4], [5]), 0, "got accepted draft token 1 (logit 0); expected token 0"),
        (([0], [3], [5]), 1, "got bonus token 3 (logit 0); expected token 4, the argmax of row 4"),
    ],
)
def test_greedy_faults_are_named(rows: tuple[list[int], ...], request_: int, words: str) -> None:
    found = only(greedy_violations(make_batch(0.0), emit(*rows)))
    assert (found.request, found.position) == (request_, 0)
    assert words in found.message


def right_drafts() -> Batch:
    """All greedy; request 0's drafts are right, the second one of request 2 is a tied maximum."""
    return make_batch(0.0).replace(draft_token_ids=torch.tensor([0, 1, 2, 5, 5, 0]))


@pytest.mark.parametrize("last", [[5, 1], [5, 5, 1]], ids=["other maximum", "accepted"])
def test_tied_draft_may_be_accepted_or_replaced(last: list[int]) -> None:
    assert greedy_violations(right_drafts(), emit([0, 1, 2, 3], [4], last)) == []


def test_stopping_at_a_right_draft_is_a_fault() -> None:
    found = only(greedy_violations(right_drafts(), emit([0, 1], [4], [5, 1])))
    assert (found.request, found.position) == (0, 1)
    assert "draft 1 is the argmax of row 1, yet verification stopped" in found.message


def test_stopping_at_a_tied_draft_with_that_draft_is_a_fault() -> None:
    found = only(greedy_violations(right_drafts(), emit([0, 1, 2, 3], [4], [5, 5])))
    assert (found.request, found.position) == (2, 1)


def test_tied_maxima_are_listed() -> None:
    found = only(greedy_violations(right_drafts(), emit([0, 1, 2, 3], [4], [5, 0])))
    assert "expected one of 1, 5, tied of row 6 (logit 3)" in found.message


def greedy_reference(batch: Batch) -> Emission:
    """Plain greedy verification, the lowest id among ties."""
    best = batch.target_logits.double().argmax(dim=1).tolist()
    rows = []
    for request, count in enumerate(batch.draft_counts.tolist()):
        first = int(batch.cu_drafts[request])
        drafts = batch.draft_token_ids[first : first + count].tolist()
        wanted = best[first + request : first + request + count + 1]
        wrong = [j for j in range(count) if drafts[j] != wanted[j]]
        rows.append(wanted[: (wrong[0] if wrong else count) + 1])
    return emit(*rows, width=batch.max_drafts + 1)


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(layouts.batches(greedy_only=True), st.data())
def test_greedy_verification_passes_and_one_changed_token_does_not(
    batch: Batch, data: st.DataObject
) -> None:
    emission = greedy_reference(batch)
    support = ~torch.isneginf(batch.target_logits)
    assert structural_violations(batch, emission) == []
    assert support_violations(batch, emission, support) == []
    assert greedy_violations(batch, emission) == []

    request = data.draw(st.integers(0, batch.num_requests - 1))
    position = int(emission.num_emitted[request]) - 1
    row = batch.target_logits[int(batch.first_row[request]) + position]
    wrong = torch.nonzero(row != row.max()).flatten().tolist()
    if not wrong:
        return
    emission.token_ids[request, position] = data.draw(st.sampled_from(wrong))
    found = only(greedy_violations(batch, emission))
    assert (found.request, found.position) == (request, position)


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(layouts.batches(), st.data())
def test_any_tensors_are_judged_without_an_exception(batch: Batch, data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 1000))
    generator = torch.Generator().manual_seed(seed)
    shape = (batch.num_requests, batch.max_drafts + 1)
    tokens = torch.randint(-2, batch.vocab_size + 2, shape, generator=generator)
    counts = torch.randint(-1, batch.max_drafts + 4, shape[:1], generator=generator)
    emission = Emission(tokens, counts)
    support = torch.isfinite(batch.target_logits)
    found = structural_violations(batch, emission)
    found += support_violations(batch, emission, support) + greedy_violations(batch, emission)
    assert all(0 <= one.request < batch.num_requests for one in found)
    assert all(str(one).startswith(f"request {one.request}") for one in found)
