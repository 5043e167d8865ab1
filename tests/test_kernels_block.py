"""The kernels of block verification against the float64 reference, token for token."""

from __future__ import annotations

# isort: off
from kernel_setup import DEVICE  # before triton

# isort: on
import kernel_calls
import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from kernel_block_budget import unexcused
from kernel_calls import launch_on
from specverify.kernels import Proposal
from specverify.kernels._launch_block import TritonBlock, triton_block, verify_block

from specverify.contract import AcceptanceRule, Batch, Coins, Emission, FinalCoin, Topology
from specverify.layouts import batches_for, coins_for, describe
from specverify.reference.block import reference_block

# The interpreter computes exp2(-inf), inf - inf and maxima of NaN with numpy, which warns.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def agree(batch: Batch, ours: Emission) -> None:
    theirs = reference_block(batch)
    differ = unexcused(batch, ours, theirs)
    assert not differ, f"{differ}\n{describe(batch)}\n{ours.token_ids}\n{theirs.token_ids}"


def launch(batch: Batch, **options: object) -> Emission:
    return launch_on(verify_block, batch, **options)


def drawn(number: int, vocab: int, requests: int = 5, most: int = 4, **options: object) -> Batch:
    return kernel_calls.drawn(number, vocab, requests, most, **options)


def layouts(part: int, examples: int) -> None:
    @seed(200 + part)
    @settings(
        max_examples=examples, deadline=None, derandomize=False, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def check(data: st.DataObject) -> None:
        limits = {"max_requests": 2, "max_drafts": 3, "filters": "off"}
        vocab = (2, (8, 80, 1400)[part % 3])
        batch = data.draw(batches_for(triton_block.capabilities, vocab=vocab, **limits))
        coins = data.draw(coins_for(batch, FinalCoin.INVERSE_CDF))
        batch = batch.replace(coins=coins).to(DEVICE)
        agree(batch, triton_block(batch))

    check()


@pytest.mark.parametrize("part", range(3))
def test_token_for_token_over_layouts(part: int) -> None:
    """3 x 16 layouts, the extreme ones among them."""
    layouts(part, 16)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3, 9))
def test_token_for_token_over_more_layouts(part: int) -> None:
    """120 more."""
    layouts(part, 20)


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
@pytest.mark.parametrize("vocab", [2, 3, 31, 257, 1025])
def test_token_for_token_by_vocabulary(vocab: int, dense: bool) -> None:
    dtype = (torch.float32, torch.bfloat16, torch.float16)[vocab % 3]
    batch = drawn(vocab, vocab, dense=dense, dtype=dtype, coins=vocab != 31)
    agree(batch, triton_block(batch))


def test_the_budget_is_not_blind() -> None:
    """A wrong token and a wrong length have no excuse."""
    batch = drawn(14, 31, requests=6, most=2)
    right = reference_block(batch)
    shifted = right.token_ids.clone()
    shifted[:, 0] = (shifted[:, 0] + 1) % 31
    assert unexcused(batch, Emission(shifted, right.num_emitted), right) == list(range(6))
    longer = (right.num_emitted + 1).clamp(max=batch.max_drafts + 1)
    changed = (longer != right.num_emitted) & (right.num_emitted <= batch.draft_counts)
    wrong = torch.where(changed, longer, right.num_emitted)
    found = unexcused(batch, Emission(right.token_ids, wrong), right)
    assert found == changed.nonzero()[:, 0].tolist() != []


def test_what_it_declares() -> None:
    declared = TritonBlock().capabilities
    assert declared.topology is Topology.BLOCK
    assert declared.acceptance is AcceptanceRule.UNDECLARED
    assert declared.final_coin is FinalCoin.INVERSE_CDF


def test_greedy_and_filters() -> None:
    batch = drawn(1, 40, greedy=1.0)
    agree(batch, triton_block(batch))
    batch = drawn(2, 40, requests=3, greedy=0.0)
    agree(filtered := batch.replace(top_k=torch.tensor([0, 5, 9], device=DEVICE)),
          triton_block(filtered))  # fmt: skip


def test_draft_logits_give_the_tokens_of_their_probabilities() -> None:
    batch = drawn(8, 70, requests=4, greedy=0.0, gaps=0.0)
    generator = torch.Generator(device=DEVICE).manual_seed(8)
    logits = torch.randn(batch.num_drafts, 70, device=DEVICE, generator=generator)
    temperature = torch.tensor([0.5, 1.0, 2.0, 0.0], device=DEVICE)
    scaled = logits.double() / temperature[batch.draft_request].clamp(min=1e-30)[:, None]
    q = torch.softmax(scaled, 1)
    drafts = torch.multinomial(q.float(), 1, generator=generator).squeeze(1)
    batch = batch.replace(draft_token_ids=drafts, draft_probs=q)
    agree(batch, launch(batch, proposal=Proposal(logits=logits, temperature=temperature)))


def test_strided_rows_and_a_wider_output() -> None:
    batch = drawn(9, 70, dtype=torch.bfloat16)
    assert batch.draft_probs is not None
    wide = torch.full((batch.target_logits.shape[0], 160), 1e4, device=DEVICE).bfloat16()
    wide[:, 7:147:2] = batch.target_logits
    probs = batch.draft_probs.t().clone().t()
    batch = batch.replace(target_logits=wide[:, 7:147:2], draft_probs=probs)
    ours = launch(batch, max_drafts=batch.max_drafts + 2)
    assert bool((ours.token_ids[:, batch.max_drafts + 1 :] == -1).all())
    agree(batch, Emission(ours.token_ids[:, : batch.max_drafts + 1].contiguous(), ours.num_emitted))


def test_the_last_draft_that_passes_ends_the_block() -> None:
    """Coins that fail every test but the last: a chain rule would emit one token."""
    batch = drawn(10, 6, requests=6, greedy=0.0, gaps=0.0)
    accept = torch.full((batch.num_drafts,), 1 - 2.0**-53, dtype=torch.float64, device=DEVICE)
    accept[batch.cu_drafts[1:][batch.draft_counts > 0] - 1] = 0.0
    assert batch.coins is not None
    batch = batch.replace(coins=Coins(accept=accept, final=batch.coins.final))
    ours = triton_block(batch)
    agree(batch, ours)
    assert torch.equal(ours.num_emitted, batch.draft_counts + 1)


def test_broken_rows_touch_nobody_else() -> None:
    batch = drawn(12, 90, requests=8, coins=False, gaps=0.0)
    clean = triton_block(batch)
    logits = batch.target_logits.clone()
    broken = {1: float("nan"), 3: float("-inf"), 5: float("inf")}
    for request, value in broken.items():
        logits[batch.first_row[request]] = value
    got = triton_block(batch.replace(target_logits=logits, check_values=False))
    others = [b for b in range(8) if b not in broken]
    assert torch.equal(got.token_ids[others], clean.token_ids[others])
    assert bool(((got.token_ids >= -1) & (got.token_ids < 90)).all())


def test_no_drafts_at_all() -> None:
    batch = drawn(13, 20, requests=4, most=0)
    agree(batch, triton_block(batch))
