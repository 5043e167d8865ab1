"""The chain kernel against the float64 reference, token for token, in Triton's interpreter."""

from __future__ import annotations

# isort: off
from kernel_setup import DEVICE  # before triton

# isort: on
import itertools

import kernel_calls
import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from kernel_batches import random_batch
from kernel_budget import disagreements
from kernel_calls import agree, launch_on
from scipy.stats import binom
from specverify.kernels import Plan, Proposal, TritonChain, Workspace, verify_chain

from specverify.contract import Batch, Coins, Emission, FinalCoin
from specverify.layouts import batches_for, coins_for
from specverify.reference import reference
from specverify.sampling import batch_probabilities

# The interpreter computes exp2(-inf), inf - inf and maxima of NaN with numpy, which warns.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SAMPLER = TritonChain(small_vocab=0)  # test_kernels_small.py has the other kernel
VOCABS = (2, 3, 31, 257, 1025, 4099)


def launch(batch: Batch, **options: object) -> Emission:
    return launch_on(verify_chain, batch, **options)


def drawn(number: int, vocab: int, requests: int = 5, most: int = 3, **options: object) -> Batch:
    return kernel_calls.drawn(number, vocab, requests, most, **options)


@pytest.mark.parametrize("part", [pytest.param(0, marks=pytest.mark.slow), *range(1, 20)])
def test_token_for_token_over_layouts(part: int) -> None:
    """20 x 16 layouts with injected coins, extremes too; 16 with filters (slow), 304 without."""

    @seed(part)
    @settings(
        max_examples=16, deadline=None, derandomize=False, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def check(data: st.DataObject) -> None:
        limits = {
            "max_requests": 3,
            "max_drafts": 3,
            "vocab": (2, (80, 300, 1400)[part % 3]),
            "filters": "any" if part == 0 else "off",  # those go to another kernel
        }
        batch = data.draw(batches_for(SAMPLER.capabilities, **limits))
        coins = data.draw(coins_for(batch, FinalCoin.INVERSE_CDF))
        batch = batch.replace(coins=coins).to(DEVICE)
        agree(batch, SAMPLER(batch))

    check()


def by_vocabulary() -> list[object]:
    """Every vocabulary with either form of q in one dtype in turn; the other dtypes are slow."""
    cases = []
    for turn, (vocab, dense) in enumerate(itertools.product(VOCABS, (True, False))):
        for number in range(3):
            marks = () if number == (turn + turn // 3) % 3 else pytest.mark.slow
            case = (vocab, dense, number)
            cases.append(pytest.param(*case, id="-".join(map(str, case)), marks=marks))
    return cases


@pytest.mark.parametrize(("vocab", "dense", "number"), by_vocabulary())
def test_token_for_token_by_vocabulary(vocab: int, dense: bool, number: int) -> None:
    dtype = (torch.float32, torch.bfloat16, torch.float16)[number]
    batch = drawn(number, vocab, dense=dense, dtype=dtype)
    agree(batch, SAMPLER(batch))


def test_greedy_is_exact_with_ties() -> None:
    batch = drawn(3, 1500, requests=8, greedy=1.0, dense=False)
    logits = (batch.target_logits * 2).round() / 2  # many ties, the largest logit among them
    batch = batch.replace(target_logits=logits)
    ours, theirs = SAMPLER(batch), reference(batch)
    assert torch.equal(ours.token_ids, theirs.token_ids)
    assert torch.equal(ours.num_emitted, theirs.num_emitted)


PLANS = (
    Plan(128, 2, num_warps=1, lanes=2),
    Plan(256, 2, 2, 2),
    Plan(256, 1, 2, 3, 2, 96, later=4),
    Plan(256, 1, 2, 2, later=2, wait=4, rounds=True),
    Plan(256, 2, 2, 3, rounds=True),
)


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_every_plan_in_a_used_workspace(plan: Plan, dense: bool) -> None:
    """The second call finds what the first one left; what may hold anything is poisoned."""
    batch = drawn(5, 1100, requests=4, dense=dense, dtype=torch.bfloat16)
    workspace = Workspace(DEVICE)
    workspace.pairs(1 << 12, zero=False).fill_(-1)
    workspace.counters(1 << 8).fill_(-1)
    first = launch(batch, plan=plan, workspace=workspace)
    assert workspace.clean
    agree(batch, first)
    if not dense:
        second = launch(batch, plan=plan, workspace=workspace)
        assert torch.equal(first.token_ids, second.token_ids)
        assert workspace.clean


def over_layouts(plans: list[Plan], number: int, examples: int, limits: dict[str, object]) -> None:
    """Layouts with injected coins, the extreme ones among them, under plans in turn."""

    @seed(number)
    @settings(
        max_examples=examples, deadline=None, derandomize=False, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def check(data: st.DataObject) -> None:
        batch = data.draw(batches_for(SAMPLER.capabilities, **limits))
        coins = data.draw(coins_for(batch, FinalCoin.INVERSE_CDF))
        batch = batch.replace(coins=coins).to(DEVICE)
        for plan in plans:
            workspace = Workspace(DEVICE)
            agree(batch, launch(batch, plan=plan, workspace=workspace))
            assert workspace.clean

    check()


@pytest.mark.parametrize("part", range(2))
def test_the_forms_for_large_batches_over_layouts(part: int) -> None:
    """2 x 6 layouts under both: rows past a stop are left unread, rows decided in any order."""
    limits = {"max_requests": 3, "max_drafts": 4, "vocab": (2, (80, 500)[part]), "filters": "off"}
    over_layouts(list(PLANS[2:4]), part, 6, limits)


@pytest.mark.parametrize("plan", PLANS[1:4], ids=["all", "early", "rounds"])
def test_rows_past_a_stop_do_not_reach_the_output(plan: Plan) -> None:
    batch = drawn(16, 600, requests=5, most=4, dense=False, greedy=0.0, gaps=0.0)
    right = reference(batch)
    logits = batch.target_logits.clone()
    for b in range(5):
        first, last = int(batch.first_row[b]), int(batch.first_row[b] + batch.draft_counts[b] + 1)
        logits[first + int(right.num_emitted[b]) : last] = float("nan")
    broken = batch.replace(target_logits=logits, check_values=False)
    out = launch(broken, plan=plan)
    assert torch.equal(out.token_ids, right.token_ids)


def test_a_full_batch_needs_no_offsets() -> None:
    """Where every request has the most drafts, nothing reads ``cu_drafts``."""
    batch = drawn(17, 300, requests=4, most=0, dense=False)
    poisoned = torch.full_like(batch.cu_drafts, 1 << 40)
    options = {"proposal": Proposal(), "coins": (batch.coins.accept, batch.coins.final)}
    fields = (batch.temperature, batch.seeds, batch.positions)
    out = verify_chain(
        batch.target_logits, batch.draft_token_ids, poisoned, *fields, max_drafts=0, **options
    )
    assert torch.equal(out[0], reference(batch).token_ids)


@pytest.mark.parametrize("far", [40.0, 200.0])
def test_a_peak_far_above_the_anchor_is_read_again(far: float) -> None:
    """The anchor of a share is the largest of its first logits; a later peak overflows."""
    batch = drawn(6, 4099, requests=3, dense=False)
    logits = batch.target_logits.clone()
    logits[:, 2500] += far
    logits[:, 2501] += far - 1
    batch = batch.replace(target_logits=logits)
    agree(batch, launch(batch, plan=Plan(1024, 1, 4, 2)))
    agree(batch, launch(batch, plan=Plan(1024, 1, 4, 2, rounds=True)))


@pytest.mark.parametrize("most", [27, 28, 40])
def test_many_drafts(most: int) -> None:
    """27 drafts are the last that fit into the word of a request with rounds."""
    batch = drawn(7, 64, requests=3, most=most, spread=0.05, gaps=0.0, greedy=0.0)
    # Wider than the batch needs, so that the form is certain.
    ours = launch(batch, max_drafts=most, plan=Plan(64, 1, 1, 2, rounds=True))
    width = batch.max_drafts + 1
    assert bool((ours.token_ids[:, width:] == -1).all())
    agree(batch, Emission(ours.token_ids[:, :width].contiguous(), ours.num_emitted))


@pytest.mark.parametrize("plan", [None, *PLANS[1:4]], ids=["chosen", "all", "early", "rounds"])
def test_draft_logits_give_the_tokens_of_their_probabilities(plan: Plan | None) -> None:
    vocab = 1500 if plan is None else 700
    batch = drawn(8, vocab, requests=4, greedy=0.0, gaps=0.0)
    logits = torch.randn(batch.num_drafts, vocab, device=DEVICE, generator=_generator(8))
    temperature = torch.tensor([0.5, 1.0, 2.0, 0.0], device=DEVICE)
    scaled = logits.double() / temperature[batch.draft_request].clamp(min=1e-30)[:, None]
    q = torch.softmax(scaled, 1)
    drafts = torch.multinomial(q.float(), 1, generator=_generator(9)).squeeze(1)
    batch = batch.replace(draft_token_ids=drafts, draft_probs=q)
    proposal = Proposal(logits=logits, temperature=temperature)
    agree(batch, launch(batch, proposal=proposal, plan=plan))


def test_strided_rows_and_columns() -> None:
    batch = drawn(9, 700, dtype=torch.bfloat16)
    wide = torch.full((batch.target_logits.shape[0], 1600), 1e4, device=DEVICE).bfloat16()
    wide[:, 7:1407:2] = batch.target_logits
    batch = batch.replace(
        target_logits=wide[:, 7:1407:2], draft_probs=batch.draft_probs.t().clone().t()
    )
    assert batch.target_logits.stride(1) == 2
    agree(batch, SAMPLER(batch))


def _generator(number: int) -> torch.Generator:
    return torch.Generator(device=DEVICE).manual_seed(number)


def test_own_coins_are_the_reference_streams() -> None:
    """All tokens of one-hot drafts; with a full q the lengths, since the residual is thinned."""
    for dense in (True, False):
        batch = drawn(10, 300, requests=12, dense=dense, coins=False)
        ours, theirs = SAMPLER(batch), reference(batch)
        assert torch.equal(ours.num_emitted, theirs.num_emitted)
        if not dense:
            assert torch.equal(ours.token_ids, theirs.token_ids)


def test_a_request_does_not_depend_on_its_batch() -> None:
    batch = drawn(11, 300, requests=6, coins=False)
    whole = SAMPLER(batch)
    for b in range(6):
        first, last = int(batch.cu_drafts[b]), int(batch.cu_drafts[b + 1])
        row = int(batch.first_row[b])
        fields = ("temperature", "top_k", "top_p", "min_p", "seeds", "positions")
        alone = SAMPLER(
            batch.replace(
                target_logits=batch.target_logits[row : row + last - first + 1],
                draft_token_ids=batch.draft_token_ids[first:last],
                draft_probs=batch.draft_probs[first:last],
                cu_drafts=torch.tensor([0, last - first], device=DEVICE),
                **{name: getattr(batch, name)[b : b + 1] for name in fields},
            )
        )
        width = alone.token_ids.shape[1]
        assert torch.equal(whole.token_ids[b, :width], alone.token_ids[0])


@pytest.mark.parametrize(
    "plan",
    [Plan(256, 2), Plan(256, 1, 4, 2), Plan(256, 1, 2, 2, later=2, rounds=True)],
    ids=["exact", "anchored", "rounds"],
)
def test_broken_rows_touch_nobody_else(plan: Plan) -> None:
    batch = drawn(12, 900, requests=8, coins=False, gaps=0.0)
    clean = launch(batch, plan=plan)
    logits = batch.target_logits.clone()
    broken = {1: float("nan"), 3: float("-inf"), 5: float("inf")}
    for request, value in broken.items():
        logits[int(batch.first_row[request])] = value
    out = launch(batch.replace(target_logits=logits, check_values=False), plan=plan)
    for b in range(8):
        if b not in broken:
            assert torch.equal(out.token_ids[b], clean.token_ids[b])
    assert bool(((out.token_ids >= -1) & (out.token_ids < 900)).all())
    for request in broken:
        assert int(out.token_ids[request, 0]) == 0  # rejected; the lowest id of the largest logit


def test_recovered_tokens_come_from_the_residual() -> None:
    """Thinning: (p - q)+ lives on tokens 0 and 1, in the ratio 2 to 1.

    A sampler that recovers from p hits another token with probability 0.2 a rejection; some 70
    rejections miss that with probability 1e-7. The ratio: binomial, alpha 1e-6 on either side.
    """
    requests = 120
    p = torch.tensor([0.5, 0.3, 0.1, 0.1])
    q = torch.tensor([0.1, 0.1, 0.4, 0.4])
    ids = torch.multinomial(q, requests, replacement=True, generator=_cpu_generator(1))
    batch = Batch(
        target_logits=p.log().expand(2 * requests, 4).contiguous(), draft_token_ids=ids,
        draft_probs=q.expand(requests, 4), cu_drafts=torch.arange(requests + 1),
        temperature=torch.ones(requests), top_k=torch.zeros(requests, dtype=torch.int64),
        top_p=torch.ones(requests), min_p=torch.zeros(requests),
        seeds=torch.arange(requests).view(torch.uint64), positions=torch.arange(requests) % 5,
    ).to(DEVICE)  # fmt: skip
    out = SAMPLER(batch)
    recovered = out.token_ids[:, 0][out.num_emitted == 1].cpu()
    assert len(recovered) >= 60
    assert int(recovered.max()) <= 1
    low, high = binom.interval(1 - 2e-6, len(recovered), 2 / 3)
    assert low <= int((recovered == 0).sum()) <= high


def _cpu_generator(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def test_what_it_does_not_do_raises() -> None:
    batch = drawn(13, 31, requests=2, coins=False)
    noise = Coins(accept=torch.rand(batch.num_drafts, device=DEVICE),
                  noise=torch.ones(2, 31, device=DEVICE))  # fmt: skip
    with pytest.raises(ValueError, match=r"coins\.noise: got a race"):
        SAMPLER(batch.replace(coins=noise))
    with pytest.raises(ValueError, match="expected one form of q"):
        Proposal(probs=noise.accept, logits=noise.accept)
    with pytest.raises(ValueError, match="temperature: expected with logits"):
        Proposal(logits=noise.accept)


def test_the_budget_is_not_blind() -> None:
    """A wrong token and one outside the vocabulary have no excuse, whatever the lengths."""
    batch = drawn(14, 31, requests=6, most=2, dense=False)
    right = reference(batch)
    shifted = right.token_ids.clone()
    shifted[:, 0] = (shifted[:, 0] + 1) % 31
    found = disagreements(batch, Emission(shifted, right.num_emitted), right)
    assert len(found) == 6
    assert sum(one.lawful for one in found) == 0
    for stray in (31, 1064630770, -1, -(2**40)):
        shifted[:, 0] = stray
        found = disagreements(batch, Emission(shifted, right.num_emitted), right)
        assert len(found) == 6
        assert not any(one.lawful for one in found)
    # Not even where the length differs by a coin that is near: the token is looked at first.
    found = disagreements(batch, Emission(shifted, right.num_emitted.clamp(max=1)), right)
    assert not any(one.lawful for one in found)
    assert float(batch_probabilities(batch).max()) <= 1


def test_the_scratch_is_the_declared_plan() -> None:
    generator = torch.Generator(device=DEVICE).manual_seed(15)
    batch = random_batch(generator, 4099, 3, 2, torch.bfloat16, dense=True, coins=True)
    workspace = Workspace(DEVICE)
    launch(batch, workspace=workspace)
    rows, tiles = batch.target_logits.shape[0], 5
    assert workspace.nbytes == 8 * (rows * tiles + rows % 2 * tiles % 2 + rows + 3)


@pytest.mark.parametrize("num_warps", [1, 4])
def test_thinned_draws_do_not_depend_on_the_tile(num_warps: int) -> None:
    """Tiles of 64 are searched in two parts of 32, which are summed and not scanned."""
    batch = drawn(7, 50, 12, 3, coins=False, greedy=0.0)
    small = launch(batch, plan=Plan(64, 1, num_warps=num_warps, lanes=8))
    large = launch(batch, plan=Plan(1024, 1, lanes=4))
    assert torch.equal(small.token_ids, large.token_ids)
    assert (small.num_emitted <= batch.cu_drafts.diff()).any()  # something was recovered


def test_verdicts_of_other_launches_and_requests_are_none() -> None:
    """One workspace for batches whose rows fall on the words of other requests before."""
    shared = Workspace(DEVICE)
    shared.verdicts(64, 8)
    for turn, (requests, most) in enumerate([(4, 3), (1, 6), (5, 1), (2, 4)]):
        batch = drawn(20 + turn, 40, requests, most, dense=turn % 2 == 0)
        for plan in (Plan(64, 1, num_warps=1), Plan(64, 1, num_warps=1, later=1)):
            agree(batch, launch(batch, plan=plan, workspace=shared))
    assert shared.clean
    words, epochs = shared.verdicts(1, 1)
    assert int(words.count_nonzero()) > 0  # nothing was cleared
    assert int(epochs.max()) == 8
    wider, _ = shared.verdicts(1 << 10, 1)
    assert not wider.any()  # made anew with the epochs
    assert not shared.verdicts(1, 1)[1].any()
