"""The filtered kernels under vLLM's convention: top-p counts on what min-p and top-k left."""

from __future__ import annotations

# isort: off
from kernel_setup import DEVICE  # before triton

# isort: on
import kernel_calls
import pytest
import torch
from kernel_calls import agree, launch_on
from kernel_filtering import (
    filtered,
    in_turn,
    laws_over_layouts,
    one_row_each,
    tokens_over_layouts,
)
from specverify.kernels import (
    FilterPlan,
    Filters,
    FilterWorkspace,
    Proposal,
    TritonChain,
    filter_logits,
    triton_chain,
    triton_vllm,
    verify_filtered,
)

from specverify.contract import Batch, Coins, Emission
from specverify.reference import reference
from specverify.sampling import VLLM, batch_probabilities, filter_support

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

LARGE = TritonChain(small_vocab=0, convention="vllm")  # test_kernels_small.py has the other kernel

SETTINGS = (
    (50, 0.9, 0.0), (0, 0.9, 0.02), (20, 0.8, 0.02), (0, 0.9, 0.0), (0, 1.0, 0.0), (400, 0.5, 0.0),
)  # fmt: skip
"""Top-k, top-p and min-p of the requests in turn; the last but one are off."""


def launch(batch: Batch, **options: object) -> Emission:
    filters = Filters(batch.top_k, batch.top_p, batch.min_p, "vllm")
    return launch_on(verify_filtered, batch, filters, **options)


def drawn(number: int, vocab: int, requests: int = 6, most: int = 3, **options: object) -> Batch:
    return in_turn(kernel_calls.drawn(number, vocab, requests, most, **options), SETTINGS)


def agree_in_turn(batch: Batch, ours: Emission) -> None:
    """Token for token, on a batch in which the joint order emits something else."""
    assert not torch.equal(ours.token_ids, reference(batch).token_ids)
    agree(batch, ours, "vllm")


def kept(batch: Batch, **options: object) -> list[list[int]]:
    """The ids that the kernel keeps of each row."""
    rows = filtered(batch, **options) > float("-inf")
    return [row.nonzero()[:, 0].tolist() for row in rows]


def ids(*counts: int) -> list[list[int]]:
    return [list(range(count)) for count in counts]


# --- kept sets by hand ---------------------------------------------------------------------------

BY_HAND = {
    "top-p counts on what top-k left": ((0.5, 0.3, 0.15, 0.05), (2, 0.6, 0.0), 1, 2),
    "top-p counts on what min-p left": ((0.4, 0.3, 0.2, 0.1), (0, 0.75, 0.45), 2, 3),
    "on what both left": ((0.4, 0.3, 0.2, 0.1), (3, 0.75, 0.45), 2, 3),
    # With all ties of the third kept, the first two would have 0.55 of the mass and a third stay.
    "exactly k of a tie, and top-p on those": ((0.4, 0.15, 0.15, 0.15, 0.15), (3, 0.7, 0.0), 2, 3),
    "top-p ends inside the tie that top-k cut": ((0.1,) * 10, (8, 0.35, 0.0), 3, 4),
    "the mass meets top-p exactly": ((0.125,) * 8, (4, 0.5, 0.0), 2, 4),
    "ties of the largest under min-p": ((0.3, 0.3, 0.3, 0.1), (0, 0.63, 1.0), 2, 3),
    "k of 1": ((0.25,) * 4, (1, 0.3, 0.0), 1, 1),
    "k of all the tokens": ((0.4, 0.3, 0.2, 0.1), (4, 0.65, 0.0), 2, 2),
    "k beyond the tokens": ((0.4, 0.3, 0.2, 0.1), (99, 0.65, 0.0), 2, 2),
    "top-k alone": ((0.4, 0.2, 0.2, 0.2), (2, 1.0, 0.0), 2, 2),
    "min-p alone": ((0.4, 0.3, 0.2, 0.1), (0, 1.0, 0.45), 3, 3),
    "off": ((0.4, 0.3, 0.2, 0.1), (0, 1.0, 0.0), 10, 10),
}
"""Probabilities, filters, how many of the first ids stay under ``vllm`` and ``reference``."""


def test_kept_sets_by_hand() -> None:
    """In six of the rows the joint order keeps other sets."""
    logits = torch.full((len(BY_HAND), 10), -100.0)
    for row, (law, *_) in zip(logits, BY_HAND.values(), strict=True):
        row[: len(law)] = torch.tensor(law).log()
    batch = one_row_each(logits, [one[1] for one in BY_HAND.values()])
    assert kept(batch, convention="vllm") == ids(*(one[2] for one in BY_HAND.values()))
    joint = filter_support(
        batch.target_logits, batch.temperature, batch.top_k, batch.top_p, batch.min_p
    )
    likely = joint & (batch.target_logits > -100)
    assert likely.sum(1).tolist() == [min(one[3], len(one[0])) for one in BY_HAND.values()]


def long_rows(generator: torch.Generator) -> tuple[torch.Tensor, list[tuple[int, float, float]]]:
    """Rows of 1,500 tokens, one or more for every way in which the search can end."""
    random = torch.randn(1500, generator=generator) * 2
    steps = torch.zeros(1500)
    steps[torch.randperm(1500, generator=generator)[:300]] = 1.0
    few = torch.zeros(1500)
    few[torch.randperm(1500, generator=generator)[:100]] = 1.0
    cases = [
        (random, (50, 0.9, 0.0)),  # the list of the first turn holds all
        (random, (700, 0.9995, 0.0)),  # it holds the end of what is left; the cut lies in it
        (random, (700, 0.3, 0.0)),  # the cut lies above it
        (random, (0, 0.91, 1e-4)),  # more is left than a list takes
        (random, (1400, 0.9, 1e-3)),  # top-k beyond what min-p keeps
        (random, (700, 0.9999999, 0.0)),  # all that top-k left
        (random, (0, 0.9, 0.0)),  # nothing before top-p: one turn
        (torch.zeros(1500), (700, 0.61, 0.0)),  # both cuts in one tie of more than a list
        (steps, (900, 0.95, 0.0)),  # the same, below 300 others
        (steps, (900, 0.3, 0.0)),  # another such tie
        (few, (900, 0.1, 0.0)),  # a shorter one
    ]
    return torch.stack([row for row, _ in cases]), [filters for _, filters in cases]


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)],
    ids=str,
)
def test_every_end_of_the_search(dtype: torch.dtype) -> None:
    """Kept sets equal those of the float64 law, at a temperature too, in scratch that was used."""
    logits, wanted = long_rows(torch.Generator().manual_seed(7))
    space = FilterWorkspace(DEVICE)
    batch = one_row_each(logits.to(dtype), wanted, temperature=0.8)
    ours = filtered(batch, convention="vllm", workspace=space) > float("-inf")
    law, joint = batch_probabilities(batch, VLLM), batch_probabilities(batch)
    assert ((law > 0) != (joint > 0)).any(1).sum() >= 7
    assert ours.sum(1).tolist() == (law > 0).sum(1).tolist()
    assert torch.equal(ours, law > 0)


@pytest.mark.parametrize("part", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2, 3))])
def test_the_law_over_layouts(part: int) -> None:
    """10 layouts, and 3 x 40 more."""
    laws_over_layouts(20 + part, 40 if part else 10, "vllm")


# --- tokens --------------------------------------------------------------------------------------


def test_tokens_where_the_orders_differ() -> None:
    """Top-k 2 and top-p 0.6 of (0.5, 0.3, 0.15, 0.05) keep token 0 alone; jointly 0 and 1."""
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().expand(3, 4).contiguous()
    rows = one_row_each(logits[:2], [(2, 0.6, 0.0)] * 2)
    batch = rows.replace(
        target_logits=logits.to(DEVICE), draft_token_ids=torch.tensor([1], device=DEVICE),
        cu_drafts=torch.tensor([0, 0, 1], device=DEVICE),
        coins=Coins(
            accept=torch.zeros(1, dtype=torch.float64, device=DEVICE),
            final=torch.full((2,), 0.99, dtype=torch.float64, device=DEVICE),
        ),
    )  # fmt: skip
    sequential, joint = triton_vllm(batch), triton_chain(batch)
    assert sequential.token_ids.tolist() == [[0, -1], [0, -1]]
    assert joint.token_ids.tolist() == [[1, -1], [1, 1]]
    agree(batch, sequential, "vllm")
    for ours, convention in ((joint, "vllm"), (sequential, "reference")):
        with pytest.raises(AssertionError, match=r"impossible token|acceptance"):
            agree(batch, ours, convention)


def test_some_layouts() -> None:
    tokens_over_layouts(LARGE, 30, 4)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_token_for_token_over_layouts(part: int) -> None:
    """6 x 20 layouts."""
    tokens_over_layouts(LARGE, 31 + part, 20)


@pytest.mark.parametrize(
    ("dtype", "dense"),
    [
        (torch.float32, True), (torch.bfloat16, False),
        pytest.param(torch.float16, True, marks=pytest.mark.slow),
    ],
    ids=["fp32 dense", "bf16", "fp16 dense"],
)  # fmt: skip
def test_mixed_batches(dtype: torch.dtype, dense: bool) -> None:
    """V = 1,300: lists and whole rows, greedy and unfiltered requests, placeholders."""
    batch = drawn(0, 1300, most=2, dense=dense, dtype=dtype)
    agree_in_turn(batch, launch(batch))


def test_in_rounds() -> None:
    """Positions in rounds, as in large batches."""
    batch = drawn(6, 60, requests=2, most=4, greedy=0.0, spread=0.2, gaps=0.0)
    agree_in_turn(batch, launch(batch, plan=FilterPlan(rounds=True)))


def test_draft_logits() -> None:
    """The same q as draft logits at the drafter's own temperature."""
    batch = drawn(4, 150, requests=4, most=2, greedy=0.0)
    assert batch.draft_probs is not None
    own = torch.tensor([0.5, 1.0, 2.0, 1.5], device=DEVICE)
    logits = batch.draft_probs.double().log() * own[batch.draft_request][:, None].double()
    proposal = Proposal(logits=logits.float(), temperature=own)
    agree_in_turn(batch, launch(batch, proposal=proposal))


# --- the parameter -------------------------------------------------------------------------------


def test_the_sampler_declares_its_convention() -> None:
    assert triton_vllm.capabilities.convention == VLLM.name == "vllm"
    assert triton_chain.capabilities.convention == "reference"


@pytest.mark.parametrize("name", ["flashinfer", "VLLM", ""])
def test_other_conventions_are_refused(name: str) -> None:
    said = rf"convention: got '{name}'; expected one of \['reference', 'vllm'\]"
    batch = one_row_each(torch.zeros(1, 4), [(2, 1.0, 0.0)])
    fields = (batch.top_k, batch.top_p, batch.min_p)
    with pytest.raises(ValueError, match=said):
        Filters(*fields, convention=name)
    with pytest.raises(ValueError, match=said):
        TritonChain(convention=name)
    with pytest.raises(ValueError, match=said):
        filter_logits(
            batch.target_logits, batch.cu_drafts, batch.temperature, *fields, max_drafts=0,
            convention=name,
        )  # fmt: skip
