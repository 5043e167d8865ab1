"""Strategies of injected randomness: ordinary coins and the extreme ones that break samplers."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray

from specverify.contract import Batch, Coins, FinalCoin
from specverify.streams import Purpose, Stream

F64 = NDArray[np.float64]

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
    return st.integers(0, 2**16 - 1).map(lambda entropy: coins_from(batch, final, entropy))


def coins_from(batch: Batch, final: FinalCoin, entropy: int) -> Coins:
    """Coins that follow from the entropy and from each request by itself.

    A request keeps its coins whoever is in the batch besides; with entropy 0 all of them are
    ordinary.
    """
    home = zip(batch.seeds.tolist(), batch.positions.tolist(), strict=True)
    streams = [Stream.derive(entropy, "layout coins", *place) for place in home]
    counts = batch.draft_counts.tolist()
    drawn = [_grid_coins(s, k + 1, entropy) for s, k in zip(streams, counts, strict=True)]
    accept = torch.from_numpy(np.concatenate([coins[:-1] for coins in drawn]))
    if final is FinalCoin.INVERSE_CDF:
        return Coins(accept=accept, final=torch.from_numpy(np.array([c[-1] for c in drawn])))
    noise = np.stack([_race_noise(stream, batch.vocab_size, entropy) for stream in streams])
    return Coins(accept=accept, noise=torch.from_numpy(noise))


def _grid_coins(stream: Stream, count: int, entropy: int) -> F64:
    """[count] coins: half of them uniform, the others 0.5 or extreme."""
    value, choice = stream.uniform_run(range(2), [0], count, Purpose.LAYOUT)[:, 0]
    if entropy == 0:
        return np.full(count, 0.5)
    named = np.array((0.5, *EXTREME_COINS))
    picked = named[(choice * 2 * named.size).astype(np.int64) % named.size]
    return np.asarray(np.where(choice < 0.5, picked, value))


def _race_noise(stream: Stream, vocab: int, entropy: int) -> F64:
    """[V] unit exponentials; in half of the rows one token is early."""
    drawn = stream.uniform_run([2], [0], vocab + 2, Purpose.LAYOUT)[0, 0]
    # -log(1 - u) of the middle of each cell of the grid is never 0 and never infinite.
    noise = -np.log1p(-(drawn[:vocab] + 2.0**-54))
    if entropy and drawn[vocab + 1] < 0.5:
        noise[int(drawn[vocab] * vocab)] = _EARLY
    return np.asarray(noise)
