"""Verification with filters against the float64 reference, token for token, in the interpreter."""

from __future__ import annotations

# isort: off
from kernel_setup import DEVICE  # before triton

# isort: on
import kernel_calls
import pytest
import torch
from kernel_calls import agree, launch_on
from kernel_filtering import in_turn, tokens_over_layouts
from specverify.kernels import (
    FilterPlan,
    Filters,
    FilterWorkspace,
    Proposal,
    TritonChain,
    verify_filtered,
)

from specverify.contract import Batch, Emission
from specverify.reference import reference

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SAMPLER = TritonChain(small_vocab=0)
SETTINGS = ((50, 1.0, 0.0), (0, 0.9, 0.0), (20, 0.8, 0.02), (0, 1.0, 0.05), (0, 1.0, 0.0))
"""Top-k, top-p and min-p of the requests in turn; the last are off."""


def launch(batch: Batch, **options: object) -> Emission:
    return launch_on(
        verify_filtered, batch, Filters(batch.top_k, batch.top_p, batch.min_p), **options
    )


def drawn(number: int, vocab: int, requests: int = 5, most: int = 3, **options: object) -> Batch:
    """A random batch whose requests have the ``SETTINGS`` in turn."""
    return in_turn(kernel_calls.drawn(number, vocab, requests, most, **options), SETTINGS)


def test_some_layouts() -> None:
    tokens_over_layouts(SAMPLER, 0, 4)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_token_for_token_over_layouts(part: int) -> None:
    """6 x 20 layouts."""
    tokens_over_layouts(SAMPLER, 1 + part, 20)


@pytest.mark.parametrize(
    ("dtype", "dense"),
    [(torch.float32, True), (torch.bfloat16, False), (torch.float16, False)],
    ids=["fp32 dense", "bf16", "fp16"],
)
def test_several_programs_a_row(dtype: torch.dtype, dense: bool) -> None:
    """V = 5,001: two reads of four tiles, the second not full."""
    batch = drawn(1, 5001, most=0, dense=dense, dtype=dtype)
    agree(batch, SAMPLER(batch))


def test_rounds_in_a_used_workspace() -> None:
    """Positions in rounds; scratch that holds anything; one round then finds its words at zero."""
    batch = drawn(2, 60, requests=2, most=4, greedy=0.0, spread=0.2, gaps=0.0)
    space = FilterWorkspace(DEVICE)
    agree(batch, launch(batch, workspace=space))
    space.get("pairs", 1, torch.float32).fill_(float("nan"))
    space.get("keys", 1, torch.int16).fill_(-1)
    space.get("found", 1, torch.int32).fill_(1 << 30)
    space.get("dirty", 64, torch.int64).fill_(-1)
    agree(batch, launch(batch, workspace=space, plan=FilterPlan(rounds=True)))
    assert not space.get("words", 1, torch.int64).any()
    agree(batch, launch(batch, workspace=space))


def test_more_drafts_than_a_word_holds() -> None:
    batch = drawn(3, 12, requests=1, most=28, greedy=0.0, gaps=0.0, spread=0.05)
    agree(batch, launch(batch, max_drafts=28))


def test_draft_logits() -> None:
    """The same q as draft logits at the drafter's own temperature; placeholders among them."""
    batch = drawn(4, 150, requests=4, greedy=0.0)
    assert batch.draft_probs is not None
    own = torch.tensor([0.5, 1.0, 2.0, 1.5], device=DEVICE)
    logits = batch.draft_probs.double().log() * own[batch.draft_request][:, None].double()
    proposal = Proposal(logits=logits.float(), temperature=own)
    agree(batch, launch(batch, proposal=proposal))


def test_broken_rows_touch_nobody_else() -> None:
    batch = drawn(5, 100, requests=4, coins=False, greedy=0.0)
    clean = launch(batch)
    logits = batch.target_logits.clone()
    first = batch.first_row.tolist()
    for request, value in ((0, float("nan")), (1, float("-inf")), (2, float("inf"))):
        logits[first[request]] = value
    broken = launch(batch.replace(target_logits=logits, check_values=False))
    assert torch.equal(broken.token_ids[3], clean.token_ids[3])
    assert bool((broken.num_emitted >= 1).all())
    assert bool(((broken.token_ids >= -1) & (broken.token_ids < 100)).all())


def test_own_streams_and_strided_rows() -> None:
    """One-hot drafts: the tokens of the reference also under the requests' own streams."""
    batch = drawn(6, 200, dense=False, coins=False)
    wide = torch.full((batch.target_logits.shape[0], 401), float("nan"), device=DEVICE)
    wide[:, 1::2] = batch.target_logits
    strided = batch.replace(target_logits=wide[:, 1::2], check_values=False)
    ours, theirs = launch(strided), reference(batch)
    assert torch.equal(ours.token_ids, theirs.token_ids)


@pytest.mark.parametrize("most", [0, 2])
def test_a_bonus_row_reads_no_row_of_q(most: int) -> None:
    """Where more than a list is kept: after the last draft there is no row of q, or none at all.

    The memory checker (``kernel_memory``) sees a lane that reads it; the tokens do not show it.
    """
    batch = in_turn(
        kernel_calls.drawn(5, 700, 3, most, coins=False, spread=0.01, greedy=0.0, gaps=0.0),
        ((0, 0.9999, 0.0),),
    )
    out = launch(batch)
    last = torch.arange(3, device=DEVICE), out.num_emitted - 1
    assert ((out.token_ids[last] >= 0) & (out.token_ids[last] < 700)).all()
    counts = batch.cu_drafts.diff()
    assert (out.num_emitted == counts + 1).any()  # some request came to its bonus row
