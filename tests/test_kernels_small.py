"""The kernel of small vocabularies against the reference, token for token, in the interpreter."""

from __future__ import annotations

# isort: off
from kernel_setup import DEVICE  # before triton

# isort: on
import kernel_calls
import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from kernel_calls import agree, launch_on
from kernel_filtering import in_turn, one_row_each
from specverify.kernels import Proposal, TritonChain
from specverify.kernels._launch_small import SMALL_VOCAB, verify_small

from specverify.contract import Batch, Coins, Emission, FinalCoin
from specverify.layouts import batches_for, coins_for
from specverify.reference import reference
from specverify.sampling import CONVENTIONS, batch_probabilities

# The interpreter computes exp2(-inf), inf - inf and maxima of NaN with numpy, which warns.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CAPABILITIES = TritonChain().capabilities


def launch(batch: Batch, **options: object) -> Emission:
    return launch_on(verify_small, batch, **options)


def drawn(number: int, vocab: int, requests: int = 60, most: int = 4, **options: object) -> Batch:
    return kernel_calls.drawn(number, vocab, requests, most, **options)


@pytest.mark.parametrize("part", range(5))
def test_token_for_token_over_layouts(part: int) -> None:
    """5 x 24 layouts with injected coins, the extreme ones among them."""

    @seed(100 + part)
    @settings(
        max_examples=24, deadline=None, derandomize=False, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def check(data: st.DataObject) -> None:
        limits = {"max_requests": 6, "max_drafts": 4, "filters": "off"}
        vocab = (2, (8, 64, SMALL_VOCAB)[part % 3])
        batch = data.draw(batches_for(CAPABILITIES, vocab=vocab, **limits))
        coins = data.draw(coins_for(batch, FinalCoin.INVERSE_CDF))
        batch = batch.replace(coins=coins).to(DEVICE)
        agree(batch, launch(batch))

    check()


@pytest.mark.parametrize("convention", ["reference", "vllm"])
@pytest.mark.parametrize("part", range(3))
def test_filtered_over_layouts(part: int, convention: str) -> None:
    """2 x 56 layouts in which requests filter, with injected coins."""
    sampler = TritonChain(convention=convention)

    @seed(200 + part)
    @settings(
        max_examples=(24, 24, 8)[part], deadline=None, derandomize=False, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def check(data: st.DataObject) -> None:
        limits = {"max_requests": 6, "max_drafts": 4, "filters": "any"}
        vocab = (2, (8, 64, SMALL_VOCAB)[part])
        batch = data.draw(batches_for(sampler.capabilities, vocab=vocab, **limits))
        coins = data.draw(coins_for(batch, FinalCoin.INVERSE_CDF))
        batch = batch.replace(coins=coins).to(DEVICE)
        agree(batch, sampler(batch), convention)

    check()


SETTINGS = (
    (3, 1.0, 0.0),
    (0, 0.5, 0.0),
    (2, 0.9, 0.01),
    (0, 1.0, 0.2),
    (1, 1.0, 0.0),
    (0, 1.0, 0.0),
)
"""Top-k, top-p and min-p of the requests in turn; the last are off."""


@pytest.mark.parametrize("convention", ["reference", "vllm"])
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
@pytest.mark.parametrize("vocab", [2, 7, 64, pytest.param(200, marks=pytest.mark.slow)])
def test_filters_by_vocabulary(vocab: int, dense: bool, convention: str) -> None:
    for number, dtype in enumerate((torch.float32, torch.bfloat16, torch.float16)):
        batch = in_turn(drawn(number, vocab, dense=dense, dtype=dtype), SETTINGS)
        agree(batch, TritonChain(convention=convention)(batch), convention)


def test_filtered_own_coins_give_the_tokens_of_the_reference() -> None:
    batch = in_turn(drawn(4, 31, requests=300, coins=False), SETTINGS)
    ours, theirs = TritonChain()(batch), reference(batch)
    assert torch.equal(ours.token_ids, theirs.token_ids)


def test_cuts_through_ties_keep_the_lowest_ids() -> None:
    """Equal logits, where top-k and top-p end inside a tie; every coin hits what is kept."""
    row = torch.tensor([[1.0, 2.0, 2.0, 1.0, 2.0, 2.0, 0.0, 1.0]])
    wanted = [(2, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.25, 0.0), (0, 1.0, 0.5), (3, 0.5, 0.0)]
    batch = one_row_each(row.expand(len(wanted), -1).contiguous(), wanted)
    many = torch.arange(0, 1, 2**-6, dtype=torch.float64)
    for convention in ("reference", "vllm"):
        law = batch_probabilities(batch, CONVENTIONS[convention])
        for coin in many.tolist():
            coins = Coins(accept=torch.zeros(0, dtype=torch.float64),
                          final=torch.full((len(wanted),), coin, dtype=torch.float64))  # fmt: skip
            one = batch.replace(coins=coins.to(DEVICE) if DEVICE != "cpu" else coins)
            ours = TritonChain(convention=convention)(one)
            agree(one, ours, convention)
            drawn_from = law.gather(1, ours.token_ids[:, :1].to(law.device))
            assert bool((drawn_from > 0).all())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")], ids=str)
def test_a_broken_row_stays_broken_with_filters(value: float) -> None:
    """The lowest argmax, as without filters; nobody else is touched."""
    batch = in_turn(drawn(9, 20, requests=12, most=0, coins=False, greedy=0.0), SETTINGS[:4])
    clean = TritonChain()(batch)
    logits = batch.target_logits.clone()
    logits[5, 3 if value != float("-inf") else slice(None)] = value
    broken = batch.replace(target_logits=logits, check_values=False)
    ours = TritonChain()(broken)
    others = torch.arange(12, device=DEVICE) != 5
    assert torch.equal(ours.token_ids[others], clean.token_ids[others])
    off = broken.replace(top_k=torch.zeros_like(batch.top_k), top_p=torch.ones_like(batch.top_p),
                         min_p=torch.zeros_like(batch.min_p), check_values=False)  # fmt: skip
    assert torch.equal(ours.token_ids[5], TritonChain()(off).token_ids[5])


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
@pytest.mark.parametrize("vocab", [2, 3, 16, 31, 64, 256])
def test_token_for_token_by_vocabulary(vocab: int, dense: bool) -> None:
    for number, dtype in enumerate((torch.float32, torch.bfloat16, torch.float16)):
        batch = drawn(number, vocab, dense=dense, dtype=dtype)
        agree(batch, launch(batch))


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
def test_own_coins_give_the_tokens_of_the_reference(dense: bool) -> None:
    """All tokens, with a full q as well: the residual is drawn by inverse CDF."""
    batch = drawn(4, 31, requests=300, dense=dense, coins=False)
    ours, theirs = launch(batch), reference(batch)
    assert torch.equal(ours.num_emitted, theirs.num_emitted)
    assert torch.equal(ours.token_ids, theirs.token_ids)


def test_draft_logits_give_the_tokens_of_their_probabilities() -> None:
    """Temperatures of their own, one of them 0, which is a one-hot draft."""
    batch = drawn(5, 40, greedy=0.1, gaps=0.05)
    generator = torch.Generator(device=DEVICE).manual_seed(6)
    logits = torch.randn(batch.num_drafts, 40, device=DEVICE, generator=generator)
    temperature = torch.tensor([0.5, 1.0, 2.0, 0.0], device=DEVICE).repeat(15)
    scaled = logits.double() / temperature[batch.draft_request].clamp(min=1e-30)[:, None]
    q = torch.softmax(scaled, 1)
    drafts = torch.multinomial(q.float(), 1, generator=generator).squeeze(1)
    drafts = torch.where(batch.draft_token_ids < 0, -1, drafts)
    batch = batch.replace(draft_token_ids=drafts, draft_probs=q)
    agree(batch, launch(batch, proposal=Proposal(logits=logits, temperature=temperature)))


def test_requests_share_programs_and_depend_on_themselves_alone() -> None:
    """Programs of 1, 4 and all requests; the same request alone."""
    batch = drawn(7, 16, requests=21, coins=False)
    whole = launch(batch)
    for tile in (16, 64):
        again = launch(batch, tile=tile)
        assert torch.equal(again.token_ids, whole.token_ids)
        assert torch.equal(again.num_emitted, whole.num_emitted)
    first, last = int(batch.cu_drafts[20]), int(batch.cu_drafts[21])
    row = int(batch.first_row[20])
    fields = ("temperature", "top_k", "top_p", "min_p", "seeds", "positions")
    assert batch.draft_probs is not None
    alone = launch(
        batch.replace(
            target_logits=batch.target_logits[row : row + last - first + 1],
            draft_token_ids=batch.draft_token_ids[first:last],
            draft_probs=batch.draft_probs[first:last],
            cu_drafts=torch.tensor([0, last - first], device=DEVICE),
            **{name: getattr(batch, name)[20:21] for name in fields},
        )
    )
    assert torch.equal(whole.token_ids[20, : alone.token_ids.shape[1]], alone.token_ids[0])


def test_strided_rows_and_columns_and_double_probabilities() -> None:
    batch = drawn(8, 50, dtype=torch.bfloat16)
    assert batch.draft_probs is not None
    wide = torch.full((batch.target_logits.shape[0], 200), 1e4, device=DEVICE).bfloat16()
    wide[:, 7:107:2] = batch.target_logits
    probs = batch.draft_probs.double().t().clone().t()
    agree(batch, launch(batch.replace(target_logits=wide[:, 7:107:2], draft_probs=probs)))


def test_greedy_is_exact_with_ties() -> None:
    batch = drawn(9, 60, greedy=1.0, dense=False)
    batch = batch.replace(target_logits=(batch.target_logits / 3).round())
    ours, theirs = launch(batch), reference(batch)
    assert torch.equal(ours.token_ids, theirs.token_ids)
    assert torch.equal(ours.num_emitted, theirs.num_emitted)


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
def test_broken_rows_touch_nobody_else(dense: bool) -> None:
    batch = drawn(10, 30, coins=False, gaps=0.0, dense=dense)
    clean = launch(batch)
    logits = batch.target_logits.clone()
    broken = {3: float("nan"), 17: float("-inf"), 40: float("inf")}
    for request, value in broken.items():
        logits[batch.first_row[request]] = value
    logits[batch.first_row[50], 7] = float("nan")
    got = launch(batch.replace(target_logits=logits, check_values=False))
    others = [b for b in range(60) if b not in (*broken, 50)]
    assert torch.equal(got.token_ids[others], clean.token_ids[others])
    assert [int(got.num_emitted[b]) for b in (3, 17, 40)] == [1, 1, 1]
    assert [int(got.token_ids[b, 0]) for b in (3, 17, 40)] == [0, 0, 0]
    assert bool(((got.token_ids >= -1) & (got.token_ids < 30)).all())


@pytest.mark.parametrize("most", [28, 70])
def test_many_drafts_and_a_wider_output(most: int) -> None:
    batch = drawn(11, 8, requests=5, most=most, spread=0.02, gaps=0.0, greedy=0.0)
    ours = launch(batch, max_drafts=most + 3)
    width = batch.max_drafts + 1
    assert bool((ours.token_ids[:, width:] == -1).all())
    agree(batch, Emission(ours.token_ids[:, :width].contiguous(), ours.num_emitted))


def test_coins_at_the_ends() -> None:
    """Coins 0 and 1 - 2**-53: never a token of weight zero."""
    batch = drawn(12, 10, requests=40, greedy=0.0, gaps=0.0)
    logits = batch.target_logits.clone()
    logits[:, [0, 9]] = float("-inf")
    for edge in (0.0, 1 - 2.0**-53):
        coins = Coins(
            accept=torch.full((batch.num_drafts,), 1 - 2.0**-53, dtype=torch.float64),
            final=torch.full((40,), edge, dtype=torch.float64),
        ).to(DEVICE)
        drafts = batch.draft_token_ids.clamp(1, 8)
        edged = batch.replace(
            target_logits=logits, coins=coins, draft_token_ids=drafts, check_values=False
        )
        ours = launch(edged)
        agree(edged, ours)
        last = ours.token_ids.gather(1, ours.num_emitted[:, None] - 1)
        assert bool(((last >= 1) & (last <= 8)).all())


def test_larger_vocabularies_are_refused() -> None:
    with pytest.raises(ValueError, match=r"target_logits: got 257 tokens; expected at most 256"):
        launch(drawn(13, 257, requests=2))
