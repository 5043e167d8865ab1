"""Filters clear of boundaries, views, injected coins and the description for a person."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specverify import _layout_filters, layouts
from specverify.contract import Batch, Coins, FinalCoin
from specverify.sampling import CONVENTIONS, batch_probabilities

FIXED = settings(
    max_examples=300,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def examples_of(strategy: st.SearchStrategy[Batch], number: int) -> list[Batch]:
    """The same examples in every run."""
    seen: list[Batch] = []

    @settings(FIXED, max_examples=number)
    @given(strategy)
    def collect(batch: Batch) -> None:
        seen.append(batch)

    collect()
    return seen


def kept_sets(batch: Batch, top_p: float, min_p: float) -> list[torch.Tensor]:
    moved = batch.replace(
        top_p=torch.where(
            batch.top_p < 1, (batch.top_p.double() * top_p).clamp(max=0.9999999), 1.0
        ),
        min_p=(batch.min_p.double() * min_p).clamp(max=1),
    )
    return [batch_probabilities(moved, law) > 0 for law in CONVENTIONS.values()]


def count_ambiguous(strategy: st.SearchStrategy[Batch]) -> int:
    """Batches whose filtered supports change when top-p or min-p move by 0.005 %."""
    found = 0
    for batch in examples_of(strategy, 150):
        here = kept_sets(batch, 1, 1)
        moved = [kept_sets(batch, a, b) for a in (1 - 5e-5, 1 + 5e-5) for b in (1 - 5e-5, 1 + 5e-5)]
        found += any(
            not torch.equal(one, two)
            for there in moved
            for one, two in zip(here, there, strict=True)
        )
    return found


@pytest.mark.slow
def test_filters_keep_clear_of_boundaries_in_every_convention() -> None:
    assert count_ambiguous(layouts.batches(max_requests=3)) == 0


@pytest.mark.slow
def test_boundaries_puts_filters_onto_boundaries() -> None:
    # The same count sees the ambiguity when it is there, so a zero above means something.
    assert count_ambiguous(layouts.batches(max_requests=3, vocab=(2, 20), boundaries=True)) >= 10


def test_filter_without_room_is_off() -> None:
    crowded = np.linspace(0.0, 1.0, 2_001)[1:]
    assert _layout_filters.away(0.5, crowded, 0.3) is None
    assert _layout_filters.away(0.5, crowded, 1e-4) == pytest.approx(0.5, abs=3e-4)
    assert _layout_filters.away(0.5, np.array([0.25, 1.0]), 1e-4) == 0.5
    assert _layout_filters.away(0.5, np.array([0.5, 0.9]), 1e-4) == pytest.approx(0.7)


@pytest.mark.parametrize("view", layouts.VIEWS)
def test_views_hold_the_same_values(view: str) -> None:
    matrix = torch.arange(6.0).view(2, 3)
    seen = layouts.as_view(matrix, view)
    assert torch.equal(seen, matrix)
    assert seen.is_contiguous() == (view in ("contiguous", "offset"))


def test_unknown_view_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^view: "):
        layouts.as_view(torch.zeros(2, 2), "diagonal")


@functools.cache
def some_batch() -> Batch:
    return next(b for b in examples_of(layouts.batches(), 60) if b.num_drafts >= 4)


def coins_of(final: FinalCoin) -> list[Coins]:
    seen: list[Coins] = []

    @settings(FIXED, max_examples=100)
    @given(layouts.coins_for(some_batch(), final))
    def collect(coins: Coins) -> None:
        some_batch().replace(coins=coins)
        seen.append(coins)

    collect()
    return seen


@pytest.mark.parametrize("extreme", layouts.EXTREME_COINS)
def test_extreme_coins_occur(extreme: float) -> None:
    coins = coins_of(FinalCoin.INVERSE_CDF)
    assert any(bool((one.accept == extreme).any()) for one in coins)
    assert any(one.final is not None and bool((one.final == extreme).any()) for one in coins)
    assert any(bool((one.accept * (1 - one.accept) > 1e-3).any()) for one in coins)


def test_race_noise_is_finite_positive_and_sometimes_early() -> None:
    noise = [one.noise for one in coins_of(FinalCoin.RACE)]
    assert all(
        one is not None and bool(torch.isfinite(one).all() & (one > 0).all()) for one in noise
    )
    assert any(one is not None and bool((one < 2.0**-55).any()) for one in noise)


def test_unknown_final_coin_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^final: got 'dice'; expected"):
        layouts.coins_for(some_batch(), "dice")  # type: ignore[arg-type]


def test_describe_shows_what_a_person_needs() -> None:
    batch = Batch(
        target_logits=layouts.as_view(torch.tensor([[0.0, 1, -torch.inf]] * 3), "strided"),
        draft_token_ids=torch.tensor([1]),
        draft_probs=torch.tensor([[0.25, 0.75, 0.0]]),
        cu_drafts=torch.tensor([0, 1, 1]),
        temperature=torch.tensor([0.75, 0.0]),
        top_k=torch.tensor([0, 2]),
        top_p=torch.tensor([0.9, 1.0]),
        min_p=torch.tensor([0.0, 0.0]),
        seeds=torch.tensor([7, 8]).to(torch.uint64),
        positions=torch.tensor([3, 4]),
    )
    assert layouts.describe(batch).splitlines() == [
        "2 requests, 1 draft, V = 3, logits float32 (strides 6, 2), q float32 contiguous",
        "request 0: drafts 1; T = 0.75, top-p 0.9; seed 7, stream position 3",
        "  row 0: logits [0, 1, -inf]; q [0.25, 0.75, 0]",
        "  row 1: logits [0, 1, -inf] (bonus)",
        "request 1: no drafts; greedy, top-k 2; seed 8, stream position 4",
        "  row 2: logits [0, 1, -inf] (bonus)",
    ]


def test_describe_of_any_batch_stays_short() -> None:
    for batch in examples_of(layouts.batches(), 60):
        lines = layouts.describe(batch).splitlines()
        assert len(lines) <= 2 + 8 * 6
        assert max(map(len, lines)) < 250
