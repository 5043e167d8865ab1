"""Drafters and their buffer: what they answer, and bad input by name."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from specverify.contract import Capabilities
from specverify.drafting import (
    Contexts,
    DraftBuffer,
    DraftingSampler,
    PromptLookupDrafter,
    Proposal,
    TableDrafter,
    TableModel,
    check_fits,
    drafter_of,
    prefix_numbers,
    with_drafter,
)
from specverify.reference import reference
from specverify.reference.chain import CAPABILITIES


def contexts(texts: list[list[int]], counts: list[int], vocab: int = 10, **more) -> Contexts:
    width, size = max(map(len, texts)), len(texts)
    return Contexts(
        tokens=torch.tensor([text + [-1] * (width - len(text)) for text in texts]),
        lengths=torch.tensor([len(text) for text in texts]),
        counts=torch.tensor(counts),
        vocab_size=vocab,
        **{
            "temperature": torch.ones(size),
            "seeds": torch.arange(size).to(torch.uint64),
            "positions": torch.full((size,), 4),
            **more,
        },
    )


def proposal(counts: list[int], vocab: int = 3, first: int = 0) -> Proposal:
    width, size = max(counts), len(counts)
    tokens = torch.full((size, width), -1)
    q = torch.zeros(size, width, vocab)
    for i, count in enumerate(counts):
        for j in range(count):
            token = (first + i + j) % vocab
            tokens[i, j], q[i, j, token] = token, 1.0
    return Proposal(tokens, q, torch.tensor(counts))


def test_prompt_lookup_proposes_what_followed() -> None:
    texts = [
        [1, 2, 3, 4, 1, 2],  # what followed 1 2
        [7, 5, 8, 5, 9, 5],  # the most recent 5 wins
        [1, 2, 3],  # nothing repeats
        [1, 5, 2, 5, 3, 1, 5],  # two tokens beat one more recent
        [4, 4],  # what follows may overlap the end
    ]
    found = PromptLookupDrafter().propose(contexts(texts, [3, 1, 3, 2, 3]))
    assert found.q is None
    assert found.counts.tolist() == [3, 1, 0, 2, 1]
    assert found.tokens.tolist() == [[3, 4, 1], [9, -1, -1], [-1] * 3, [2, 5, -1], [4, -1, -1]]


def test_table_drafter_follows_its_model_and_temperature() -> None:
    tables = [torch.tensor([[0.0, 1.0, 2.0]]), torch.randn(3, 3)]
    model = TableModel([tables], prompt_length=1)
    asked = contexts(
        [[0], [0], [0, 2]], [2, 2, 1], 3, temperature=torch.tensor([0.5, 0.0, 1.0]), model=model
    )
    found = TableDrafter().propose(asked)
    assert found.q is not None
    torch.testing.assert_close(found.q[0, 0], torch.softmax(tables[0][0] / 0.5, 0))
    assert found.q[1, 0].tolist() == [0.0, 0.0, 1.0]
    assert found.tokens[1, 0] == 2
    after = int(found.tokens[0, 0])
    torch.testing.assert_close(found.q[0, 1], torch.softmax(tables[1][after] / 0.5, 0))
    torch.testing.assert_close(found.q[2, 0], torch.softmax(tables[1][2], 0))
    assert found.counts.tolist() == [2, 2, 1]


def test_a_request_drafts_alike_in_any_batch() -> None:
    model = TableModel([[torch.randn(1, 5), torch.randn(5, 5)]], prompt_length=1)
    both = contexts([[0], [0]], [2, 2], 5, model=model)
    alone = contexts([[0]], [2], 5, model=model, seeds=torch.tensor([1]).to(torch.uint64))
    drafter = TableDrafter()
    assert torch.equal(drafter.propose(both).tokens[1:], drafter.propose(alone).tokens)


def test_prefix_numbers_put_the_first_token_first() -> None:
    tokens = torch.tensor([[1, 2, -1], [2, 0, 1]])
    assert prefix_numbers(tokens, torch.tensor([2, 3]), 3).tolist() == [5, 19]


def test_buffer_reads_views_in_order_and_gathers_otherwise() -> None:
    buffer = DraftBuffer(8, 3)
    stored = proposal([2, 0, 1])
    buffer.store(stored, torch.tensor([10, 11, 12]), step=5)
    same = buffer.read(torch.tensor([10, 11, 12]), step=5)
    assert same.draft_token_ids.tolist() == [0, 1, 2]
    assert same.cu_drafts.tolist() == [0, 2, 2, 3]
    again = buffer.read(torch.tensor([10, 11, 12]), step=5)
    assert same.draft_probs is not None
    assert again.draft_probs is not None
    assert same.draft_probs.data_ptr() == again.draft_probs.data_ptr()  # no copy
    other = buffer.read(torch.tensor([12, 99, 10]), step=5)  # 99 is new, 11 has finished
    assert other.draft_token_ids.tolist() == [2, 0, 1]
    assert other.cu_drafts.tolist() == [0, 1, 1, 3]
    assert other.draft_probs is not None
    assert other.draft_probs.argmax(dim=1).tolist() == [2, 0, 1]
    assert buffer.nbytes == 8 * 3 * 4 + 4 * 8 * 8


def test_buffer_tells_stale_and_misaligned_rows() -> None:
    buffer, requests = DraftBuffer(8, 3), torch.tensor([4, 5])
    buffer.store(proposal([1, 2]), requests, step=0)
    with pytest.raises(ValueError, match=r"slot 0 is stale \(3 of 3\)"):
        buffer.read(requests, step=1)
    counts = torch.tensor([2, 1])
    swapped = buffer.audit(requests, counts, step=0)
    assert swapped.stale == ()
    assert swapped.misaligned == (1, 2)
    assert not swapped.clean
    assert buffer.audit(requests, torch.tensor([1, 2]), step=0).clean
    shifted = buffer.audit(requests, torch.tensor([1, 2]), 0, torch.tensor([1, 2, 0]))
    assert shifted.misaligned == (1, 2, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": torch.tensor([3])}, "counts"),
        ({"tokens": torch.tensor([[0, -1]])}, "tokens"),
        ({"q": torch.full((1, 2, 3), 0.5)}, "q[0, 0]: got a row that sums to 1.5"),
        ({"q": torch.tensor([[[2.0, -1.0, 0.0], [1.0, 0.0, 0.0]]])}, "probabilities >= 0"),
        ({"tokens": torch.tensor([[0, 7]])}, "an id below V = 3"),
    ],
)
def test_a_malformed_proposal_is_named(change: dict[str, torch.Tensor], message: str) -> None:
    good = {"tokens": torch.tensor([[0, 1]]), "q": torch.full((1, 2, 3), 1 / 3),
            "counts": torch.tensor([2])}  # fmt: skip
    Proposal(**good)
    with pytest.raises(ValueError, match=re.escape(message)):
        Proposal(**{**good, **change})


def test_proposals_must_answer_their_contexts() -> None:
    asked = contexts([[0], [0]], [1, 1], 3)
    check_fits(proposal([1, 1]), asked, reports_q=True)
    for wrong, message in (
        (proposal([1]), "tokens: got"),
        (proposal([1, 2]), "counts"),
        (proposal([1, 1], vocab=4), "q: got"),
    ):
        with pytest.raises(ValueError, match=message):
            check_fits(wrong, asked, reports_q=True)
    with pytest.raises(ValueError, match="reports_q = False"):
        check_fits(proposal([1, 1]), asked, reports_q=False)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="lengths"):
        Contexts(**{**vars(contexts([[0]], [1])), "lengths": torch.tensor([2])})
    with pytest.raises(ValueError, match="shortest: got 3 with longest 2"):
        PromptLookupDrafter(2, 3)
    with pytest.raises(ValueError, match="model: got None"):
        TableDrafter().propose(contexts([[0]], [1]))
    with pytest.raises(ValueError, match=r"tables\[0\]\[1\]: got \[1, 3\]"):
        TableModel([[torch.zeros(1, 3), torch.zeros(1, 3)]])
    with pytest.raises(ValueError, match="slots: got 2 drafts; expected at most 1"):
        DraftBuffer(1, 3).store(proposal([2]), torch.tensor([0]), 0)
    with pytest.raises(ValueError, match="request_ids: got a request twice"):
        DraftBuffer(4, 3).store(proposal([1, 1]), torch.tensor([0, 0]), 0)
    with pytest.raises(ValueError, match="q: got a law"):
        DraftBuffer(4, 3, with_probs=False).store(proposal([1]), torch.tensor([0]), 0)
    with pytest.raises(ValueError, match="tokens after the prompt"):
        TableModel([[torch.zeros(1, 3)]]).index(
            torch.tensor([0]), torch.tensor([1]), torch.tensor([0])
        )


def test_a_drafter_must_be_declared() -> None:
    joined = DraftingSampler(reference, TableDrafter())
    assert drafter_of(joined) is joined.drafter
    assert drafter_of(reference) is None
    assert joined.capabilities == with_drafter(CAPABILITIES, TableDrafter())
    joined.capabilities = Capabilities()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="with_drafter"):
        drafter_of(joined)
    with pytest.raises(ValueError, match="drafter: got int"):
        DraftingSampler(reference, 3)  # type: ignore[arg-type]


def test_table_drafter_draws_are_in_the_support() -> None:
    model = TableModel([[torch.tensor([[0.0, -np.inf, 1.0]])]], prompt_length=1)
    coins = torch.tensor([[0.0], [2.0**-53], [1 - 2.0**-53]], dtype=torch.float64)
    found = TableDrafter().propose(contexts([[0]] * 3, [1] * 3, 3, model=model, coins=coins))
    assert set(found.tokens[:, 0].tolist()) == {0, 2}


def test_a_table_model_moves_as_a_whole() -> None:
    """Rows are looked up by numbers that are on the device of the texts."""
    model = TableModel([[torch.zeros(1, 3), torch.zeros(3, 3)], [torch.zeros(1, 3)]], 2)
    moved = model.to("meta")
    kept = [one for one in vars(model).values() if isinstance(one, torch.Tensor)]
    there = [one for one in vars(moved).values() if isinstance(one, torch.Tensor)]
    assert len(kept) == len(there) >= 4
    assert {one.device.type for one in there} == {"meta"}
    assert {one.device.type for one in kept} == {"cpu"}
    assert moved.vocab_size == 3
    assert moved.prompt_length == 2
