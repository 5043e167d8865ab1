"""Strategies of injected randomness: ordinary coins and the extreme ones that break samplers."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st

from specverify.contract import Batch, Coins, FinalCoin
from specverify.streams import Purpose, Stream

EXTREME_COINS = (0.0, 2.0**-53, 1 - 2.0**-24, 1 - 2.0**-53)
"""The ends of the grids of 53-bit and 24-bit uniforms, where a rounded coin reaches 0 or 1."""

_EARLY = 2.0**-60


def coins_for(batch: Batch, final: FinalCoin) -> st.SearchStrategy[Coins]:
    """Injected randomness for a batch, the extreme coins among it.

    Args:
        batch: whose D, B and V the coins must fit.
        final: the form of the last draw. For a race, [B, V] float64 unit exponentials; in some
            rows one token has noise so small that it wins unless its weight is exactly 0.

    Returns:
        Strategy of float64 coins on the grid of 2**-53.

    Raises:
        ValueError: if ``final`` is not a :class:`~specverify.contract.FinalCoin`.
    """
    if not isinstance(final, FinalCoin):
        raise ValueError(f"final: got {final!r}; expected one of {[str(one) for one in FinalCoin]}")
    coin = st.sampled_from((0.5, *EXTREME_COINS)) | st.integers(0, 2**53 - 1).map(_grid_coin)
    accept = st.lists(coin, min_size=batch.num_drafts, max_size=batch.num_drafts)
    if final is FinalCoin.INVERSE_CDF:
        last = st.lists(coin, min_size=batch.num_requests, max_size=batch.num_requests)
        return st.builds(_inverse_cdf_coins, accept, last)
    early = st.lists(st.booleans(), min_size=batch.num_requests, max_size=batch.num_requests)
    return st.builds(
        _race_coins, accept, early, st.integers(0, 2**16 - 1), st.just(batch.vocab_size)
    )


def _grid_coin(bits: int) -> float:
    return bits * 2.0**-53


def _doubles(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _inverse_cdf_coins(accept: list[float], final: list[float]) -> Coins:
    return Coins(accept=_doubles(accept), final=_doubles(final))


def _race_coins(accept: list[float], early: list[bool], entropy: int, vocab: int) -> Coins:
    drawn = Stream.derive(entropy, "layout race").uniform_run(
        [0], range(len(early)), vocab + 1, Purpose.LAYOUT
    )[0]
    # -log(1 - u) of the middle of each cell of the grid is never 0 and never infinite.
    noise = -np.log1p(-(drawn[:, :vocab] + 2.0**-54))
    rows = np.flatnonzero(early)
    noise[rows, (drawn[rows, vocab] * vocab).astype(np.int64)] = _EARLY
    return Coins(accept=_doubles(accept), noise=torch.from_numpy(noise))
