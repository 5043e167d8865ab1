"""The reference is right: its two twins agree token for token, and its law is the exact one.

The exact law is checked without chance: every coin runs over a grid of midpoints, and the share of
grid points with an outcome must be its probability within the resolution of the grid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specverify import laws
from specverify.checks.structural import structural_violations
from specverify.contract import (
    PLACEHOLDER,
    AcceptanceRule,
    Batch,
    Capabilities,
    Coins,
    Emission,
    FinalCoin,
    Sampler,
    capabilities_of,
)
from specverify.layouts import batches, coins_for
from specverify.reference import reference, reference_match, reference_rowwise
from specverify.reference.coins import coins_of
from specverify.reference.draw import by_inverse_cdf, by_race
from specverify.sampling import batch_probabilities

LAST_COIN = 1 - 2.0**-53
SMALL: dict[str, Any] = {"max_requests": 5, "vocab": (2, 40)}


def same(left: Emission, right: Emission) -> bool:
    return torch.equal(left.token_ids, right.token_ids) and torch.equal(
        left.num_emitted, right.num_emitted
    )


def make(
    logits: torch.Tensor,
    drafts: list[list[int]],
    probs: torch.Tensor | None = None,
    coins: Coins | None = None,
    temperature: float = 1.0,
) -> Batch:
    """A batch from rows and the drafts of each request."""
    requests = len(drafts)
    counts = torch.tensor([0, *(len(one) for one in drafts)])
    return Batch(
        target_logits=logits,
        draft_token_ids=torch.tensor([t for one in drafts for t in one], dtype=torch.int64),
        draft_probs=probs,
        cu_drafts=counts.cumsum(0),
        temperature=torch.full((requests,), temperature),
        top_k=torch.zeros(requests, dtype=torch.int64),
        top_p=torch.ones(requests),
        min_p=torch.zeros(requests),
        seeds=torch.arange(requests).to(torch.uint64),
        positions=torch.zeros(requests, dtype=torch.int64),
        coins=coins,
        check_values=False,
    )


# --- the two twins ---------------------------------------------------------------------------


@settings(max_examples=250)
@given(data=st.data(), batch=batches(**SMALL))
def test_twins_agree_under_injected_coins(data: st.DataObject, batch: Batch) -> None:
    coins = data.draw(coins_for(batch, FinalCoin.INVERSE_CDF))
    with_coins = batch.replace(coins=coins, check_values=False)
    assert same(reference(with_coins), reference_rowwise(with_coins))


@settings(max_examples=120)
@given(data=st.data(), batch=batches(**SMALL))
def test_twins_agree_in_a_race(data: st.DataObject, batch: Batch) -> None:
    coins = data.draw(coins_for(batch, FinalCoin.RACE))
    with_coins = batch.replace(coins=coins, check_values=False)
    emission = reference(with_coins)
    assert same(emission, reference_rowwise(with_coins))
    assert structural_violations(batch, emission) == []


@settings(max_examples=250)
@given(batch=batches(**SMALL))
def test_twins_agree_under_own_seeds(batch: Batch) -> None:
    emission = reference(batch)
    assert same(emission, reference_rowwise(batch))
    assert structural_violations(batch, emission) == []


@settings(max_examples=60)
@given(batch=batches(**SMALL), key=st.integers(0, 2**32))
@pytest.mark.parametrize("subject", [reference, reference_match], ids=["ratio", "match"])
def test_tokens_do_not_depend_on_the_batch_around(subject: Sampler, batch: Batch, key: int) -> None:
    """Each request alone, and all of them in another order, emit the same tokens."""
    together = subject(batch)
    order = np.random.default_rng(key).permutation(batch.num_requests).tolist()
    shuffled = subject(join([only(batch, i) for i in order]))
    for place, number in enumerate(order):
        count = int(together.num_emitted[number])
        alone = subject(only(batch, number))
        assert int(alone.num_emitted[0]) == int(shuffled.num_emitted[place]) == count
        want = together.token_ids[number, :count]
        assert torch.equal(alone.token_ids[0, :count], want)
        assert torch.equal(shuffled.token_ids[place, :count], want)


def only(batch: Batch, number: int) -> Batch:
    """One request of a batch by itself."""
    first, last = int(batch.cu_drafts[number]), int(batch.cu_drafts[number + 1])
    one = slice(number, number + 1)
    return Batch(
        target_logits=batch.target_logits[first + number : last + number + 1],
        draft_token_ids=batch.draft_token_ids[first:last],
        draft_probs=None if batch.draft_probs is None else batch.draft_probs[first:last],
        cu_drafts=torch.tensor([0, last - first]),
        temperature=batch.temperature[one],
        top_k=batch.top_k[one],
        top_p=batch.top_p[one],
        min_p=batch.min_p[one],
        seeds=batch.seeds[one],
        positions=batch.positions[one],
        check_values=False,
    )


def join(parts: list[Batch]) -> Batch:
    """One batch of many."""
    names = ("target_logits", "draft_token_ids", "temperature", "top_k", "top_p", "min_p", "seeds",
             "positions")  # fmt: skip
    dense = parts[0].draft_probs is not None
    counts = torch.cat([torch.zeros(1, dtype=torch.int64), *(one.draft_counts for one in parts)])
    joined: dict[str, Any] = {
        name: torch.cat([getattr(one, name) for one in parts]) for name in names
    }
    return Batch(
        **joined,
        draft_probs=torch.cat([one.draft_probs for one in parts if one.draft_probs is not None])
        if dense
        else None,
        cu_drafts=counts.cumsum(0),
        check_values=False,
    )


# --- the exact law, by quadrature --------------------------------------------------------------

GRID = 48
"""Midpoints a coin takes.  A threshold inside a cell moves at most one cell of the grid."""

LOGITS = torch.tensor([[0.9, -0.4, 0.2], [-1.0, 0.6, 0.1], [0.3, 0.2, -0.8]])
PROBS = torch.tensor([[0.2, 0.5, 0.3], [0.45, 0.25, 0.3]], dtype=torch.float64)


def outcome_shares(
    subject: Sampler, drafts: list[int], probs: torch.Tensor | None, grid: int = GRID
) -> np.ndarray:
    """[k + 1, V]: the share of all grid points of (accept coins, final coin) with each outcome."""
    k, vocab = len(drafts), LOGITS.shape[1]
    line = (torch.arange(grid, dtype=torch.float64) + 0.5) / grid
    points = torch.cartesian_prod(*[line] * (k + 1)).reshape(-1, k + 1)
    copies = points.shape[0]
    coins = Coins(accept=points[:, :k].reshape(-1), final=points[:, k].contiguous())
    batch = make(
        LOGITS[: k + 1].repeat(copies, 1),
        [drafts] * copies,
        None if probs is None else probs[:k].repeat(copies, 1),
        coins,
    )
    emission = subject(batch)
    last = emission.token_ids.gather(1, emission.num_emitted[:, None] - 1).squeeze(1)
    cell = (emission.num_emitted - 1) * vocab + last
    return np.bincount(cell.numpy(), minlength=(k + 1) * vocab).reshape(k + 1, vocab) / copies


def conditional(drafts: list[int], probs: torch.Tensor | None) -> np.ndarray:
    k = len(drafts)
    p = batch_probabilities(make(LOGITS[: k + 1], [drafts])).numpy()
    return laws.conditional_law(p, drafts, None if probs is None else probs[:k].numpy())


DRAFTS = [[a, b] for a in range(3) for b in range(3)]
WITH_PLACEHOLDERS = [[PLACEHOLDER, 1], [2, PLACEHOLDER], [0], [PLACEHOLDER], []]


@pytest.mark.parametrize("drafts", DRAFTS + WITH_PLACEHOLDERS, ids=str)
@pytest.mark.parametrize("probs", [PROBS, None], ids=["dense", "one-hot"])
def test_conditional_law_is_exact(drafts: list[int], probs: torch.Tensor | None) -> None:
    """Each threshold (k + 1 of them, two ends for a token) may be off by one half cell."""
    error = np.abs(outcome_shares(reference, drafts, probs) - conditional(drafts, probs))
    assert error.max() <= (len(drafts) + 2) * 0.5 / GRID


def recover_from_target(batch: Batch) -> Emission:
    """A real bug, for the power of the check above: the recovered token comes from p."""
    from specverify.mutants import MUTANTS

    return MUTANTS["recover-from-target"].build()(batch)


def test_quadrature_would_see_a_wrong_residual() -> None:
    wrong = np.abs(outcome_shares(recover_from_target, [1, 0], PROBS) - conditional([1, 0], PROBS))
    assert wrong.max() > 2 * (2 + 2) * 0.5 / GRID


@pytest.mark.parametrize("subject", [reference, reference_match], ids=["ratio", "match"])
def test_first_token_is_lossless(subject: Sampler) -> None:
    """Over drafts drawn from q, the first token follows p: sum_d q(d) P(first = y | d) = p(y)."""
    p = batch_probabilities(make(LOGITS[:2], [[0]])).numpy()
    q, got = PROBS[0].numpy(), np.zeros(3)
    for draft in range(3):
        shares = outcome_shares(subject, [draft], PROBS)
        first = shares[0].copy()
        first[draft] += shares[1].sum()
        got += q[draft] * first
    assert np.abs(got - p[0]).max() <= 1.5 / GRID


@pytest.mark.parametrize("drafts", [[0, 1], [2, 0], [1, 1], [PLACEHOLDER, 0]], ids=str)
def test_match_follows_the_one_hot_law(drafts: list[int]) -> None:
    """Drawing from p and accepting iff equal is the one-hot rule, whatever q is shown."""
    error = np.abs(outcome_shares(reference_match, drafts, PROBS) - conditional(drafts, None))
    assert error.max() <= (len(drafts) + 2) * 0.5 / GRID
    assert capabilities_of(reference_match).acceptance is AcceptanceRule.MATCH


@settings(max_examples=60)
@given(data=st.data(), batch=batches(**SMALL))
def test_match_keeps_the_layout(data: st.DataObject, batch: Batch) -> None:
    coins = data.draw(coins_for(batch, FinalCoin.INVERSE_CDF))
    emission = reference_match(batch.replace(coins=coins, check_values=False))
    assert structural_violations(batch, emission) == []


# --- the ends of the line ----------------------------------------------------------------------


def test_coin_zero_accepts_whatever_has_mass() -> None:
    zero = Coins(
        accept=torch.zeros(2, dtype=torch.float64), final=torch.zeros(1, dtype=torch.float64)
    )
    assert reference(make(LOGITS, [[0, 2]], PROBS, zero)).num_emitted.tolist() == [3]
    masked = LOGITS.clone()
    masked[0, 0] = -torch.inf
    emission = reference(make(masked, [[0, 2]], PROBS, zero))
    assert emission.token_ids.tolist() == [[2, -1, -1]]  # 0 is masked, 1 has p < q: recovers 2


def test_last_coin_accepts_only_where_the_ratio_is_one() -> None:
    last = Coins(
        accept=torch.full((2,), LAST_COIN, dtype=torch.float64),
        final=torch.full((1,), LAST_COIN, dtype=torch.float64),
    )
    p = batch_probabilities(make(LOGITS[:1], [[]]))[0]
    assert p[0] > PROBS[0, 0]
    assert p[1] < PROBS[0, 1]
    assert int(reference(make(LOGITS, [[0, 0]], PROBS, last)).num_emitted) == 2
    assert int(reference(make(LOGITS, [[1, 0]], PROBS, last)).num_emitted) == 1


@pytest.mark.parametrize("coin", [0.0, 2.0**-53, 0.5, LAST_COIN])
@pytest.mark.parametrize("hole", [0, 1, 3])
def test_no_coin_draws_a_token_without_mass(coin: float, hole: int) -> None:
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64).repeat(2, 1) * 1e-3
    weights[:, hole] = 0.0
    weights[1] = 0.0
    weights[1, (hole + 2) % 4] = 5e-324  # the smallest number there is
    drawn = by_inverse_cdf(weights, torch.full((2,), coin, dtype=torch.float64))
    assert bool((weights.gather(1, drawn[:, None]) > 0).all())
    raced = by_race(weights, torch.full((2, 4), 1e-30, dtype=torch.float64))
    assert int(raced[0]) != hole


def test_inverse_cdf_cuts_where_the_law_says() -> None:
    weights = torch.tensor([[1.0, 0.0, 1.0, 2.0]], dtype=torch.float64)
    below = 0.25 - 2.0**-54
    for coin, token in ((0.0, 0), (below, 0), (0.25, 2), (0.5, 3), (LAST_COIN, 3)):
        assert int(by_inverse_cdf(weights, torch.tensor([coin], dtype=torch.float64))) == token


def test_race_is_won_by_the_smallest_ratio() -> None:
    weights = torch.tensor([[0.5, 0.25, 0.0, 0.25]], dtype=torch.float64)
    noise = torch.tensor([[1.0, 0.4, 1e-9, 0.6]], dtype=torch.float64)
    assert int(by_race(weights, noise)) == 1


def test_draft_without_mass_in_q_is_accepted_by_p() -> None:
    """Nobody draws such a draft, but a sampler must not divide by it."""
    probs = torch.tensor([[0.0, 0.5, 0.5]])
    half = Coins(
        accept=torch.tensor([0.5], dtype=torch.float64),
        final=torch.tensor([0.5], dtype=torch.float64),
    )
    batch = make(LOGITS[:2], [[0]], probs, half)
    assert reference(batch).num_emitted.tolist() == [2]
    assert same(reference(batch), reference_rowwise(batch))


def test_rejection_by_rounding_alone_draws_from_the_target() -> None:
    """With p = q nothing is left of the residual; the target stands in for it."""
    p = batch_probabilities(make(LOGITS[:1], [[]]))
    step = make(LOGITS[:2], [[1]], p * (1 + 2.0**-40))
    coins = Coins(
        accept=torch.tensor([LAST_COIN], dtype=torch.float64),
        final=torch.tensor([LAST_COIN], dtype=torch.float64),
    )
    batch = step.replace(coins=coins)
    assert reference(batch).token_ids.tolist() == [[2, -1]]
    assert same(reference(batch), reference_rowwise(batch))


def test_greedy_is_one_hot_at_the_lowest_argmax() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0], [1.0, 0.0, 1.0], [0.0, 0.0, 3.0]])
    for drafts, tokens in (
        ([1, 0], [1, 0, 2]),
        ([2, 0], [1, -1, -1]),
        ([1, 2], [1, 0, -1]),
    ):
        batch = make(logits, [drafts], temperature=0.0)
        assert reference(batch).token_ids.tolist() == [tokens]
        assert reference_match(batch).token_ids.tolist() == [tokens]


# --- the coins of a step -----------------------------------------------------------------------


def test_own_coins_are_uniform_and_never_shared() -> None:
    requests = 4000
    batch = make(torch.zeros(3 * requests, 2), [[0, 1]] * requests)
    coins = coins_of(batch)
    assert coins.final is not None
    everything = torch.cat([coins.accept, coins.final])
    assert everything.unique().shape[0] == everything.shape[0]
    cells = np.bincount((everything.numpy() * 16).astype(int), minlength=16)
    expected = everything.shape[0] / 16
    # Chi-square with 15 degrees of freedom exceeds 62.3 with probability 1e-7.
    assert ((cells - expected) ** 2 / expected).sum() < 62.3


def test_next_step_meets_fresh_deciding_coins() -> None:
    """A step at position p + emitted shares no deciding coin with the step at p."""
    batch = make(torch.zeros(4, 2), [[0, 1, 0]])
    first = coins_of(batch)
    for emitted in (1, 2, 3, 4):
        after = coins_of(batch.replace(positions=torch.tensor([emitted])))
        used = set(first.accept[:emitted].tolist()) | set(first.final.tolist())  # type: ignore[union-attr]
        fresh = set(after.accept.tolist()) | set(after.final.tolist())  # type: ignore[union-attr]
        assert not used & fresh


def test_input_is_not_changed() -> None:
    for subject in (reference, reference_match, reference_rowwise):
        batch = make(LOGITS.clone(), [[0, PLACEHOLDER]], PROBS.clone())
        subject(batch)
        assert torch.equal(batch.target_logits, LOGITS)
        assert batch.draft_token_ids.tolist() == [0, PLACEHOLDER]
        assert batch.draft_probs is not None
        assert torch.equal(batch.draft_probs, PROBS)


def test_row_of_a_placeholder_may_hold_anything() -> None:
    rubbish = PROBS.clone()
    rubbish[1] = torch.nan
    for subject in (reference, reference_match, reference_rowwise):
        clean = subject(make(LOGITS, [[0, PLACEHOLDER]], PROBS))
        assert same(subject(make(LOGITS, [[0, PLACEHOLDER]], rubbish)), clean)


@pytest.mark.parametrize(
    "subject", [reference, reference_match, reference_rowwise], ids=["chain", "match", "rowwise"]
)
def test_declarations(subject: Callable[[Batch], Emission]) -> None:
    declared = capabilities_of(subject)
    assert isinstance(declared, Capabilities)
    assert declared.per_request_seeds
    assert declared.placeholders
    assert declared.filtering
    assert declared.exclusion
    assert declared.batched is (subject is not reference_rowwise)
