"""Coins at the thresholds: the values at which a careless comparison, cast or clamp shows.

For every slot the ends of the grid (0, the smallest positive number, 2**-53, 1 - 2**-24,
1 - 2**-53), the exact ratio p / q with its two neighbours and with a step just beyond the float
budget on either side, and ordinary uniforms.  For the last draw the same ends, the edges of the
cumulative weights, and in a race a token that arrives before all others unless its weight is 0.
"""

from __future__ import annotations

import torch

from specverify.checks.float_budget import FLOAT32, batch_errors, cdf_allowance
from specverify.contract import Batch, Capabilities, Coins, FinalCoin
from specverify.reference import ChainSampler, MatchSampler, Step

ENDS = (0.0, 5e-324, 2.0**-53, 1 - 2.0**-24, 1 - 2.0**-53)
"""The ends of [0, 1) in float64 and on the grids of 53-bit and 24-bit uniforms."""

EARLY = 2.0**-60
"""Noise that wins a race unless the weight is 0; below the floor of 24-bit and 53-bit noise."""

_BELOW_ONE = 1 - 2.0**-53


def with_threshold_coins(
    batch: Batch, reference: ChainSampler, capabilities: Capabilities, generator: torch.Generator
) -> Batch:
    """The batch with coins at its own thresholds.

    Args:
        batch: on the CPU, without coins.
        reference: as :func:`~specverify.checks.oracle.reference_for`.
        capabilities: of the subject; ``final_coin`` says which form it takes.
        generator: where the choices come from.
    """
    count, vocab = batch.num_requests, batch.vocab_size
    blank = Coins(
        accept=torch.zeros(batch.num_drafts, dtype=torch.float64),
        final=torch.zeros(count, dtype=torch.float64),
    )
    step = reference.begin(batch.replace(coins=blank, check_values=False))
    accept = accept_coins(step, reference, generator)
    if capabilities.final_coin is FinalCoin.RACE:
        coins = Coins(accept=accept, noise=race_noise(count, vocab, generator))
        return batch.replace(coins=coins, check_values=False)
    step.coins = Coins(accept=accept, final=blank.final)
    step.accepted = reference.accepted_lengths(step, reference.accepts(step))
    weights = reference.final_weights(step)
    error = batch_errors(batch)[reference.final_rows(step)]
    final = final_coins(weights, error, generator).final
    return batch.replace(coins=Coins(accept=accept, final=final), check_values=False)


def accept_coins(step: Step, reference: ChainSampler, generator: torch.Generator) -> torch.Tensor:
    """[D] float64: half ordinary, half at a threshold.

    Args:
        step: of the reference, begun; its own coins are not looked at.
        reference: with the subject's rule.
        generator: where the choices come from.
    """
    count = step.drafts.shape[0]
    if count == 0:
        return torch.zeros(0, dtype=torch.float64)
    uniform = torch.rand(count, dtype=torch.float64, generator=generator)
    low, high = _accept_thresholds(step, reference)
    error = batch_errors(step.batch)[step.draft_rows] + 4 * FLOAT32
    if isinstance(reference, MatchSampler):
        error = error + cdf_allowance(step.batch.vocab_size, 0.0)
        inside = low + uniform * (high - low)
    else:
        inside = uniform * high
    choices = [
        *(torch.full_like(uniform, end) for end in ENDS),
        *_around(low, 2 * error),
        *_around(high, 2 * error),
        *([inside] * 6),  # passes: deeper positions must be reached
        *([uniform] * 9),
    ]
    return _pick(choices, generator)


def final_coins(weights: torch.Tensor, error: torch.Tensor, generator: torch.Generator) -> Coins:
    """[B] float64 coins for an inverse CDF, many of them at an edge of the cumulative weights.

    Args:
        weights: [B, V] float64 of the last draw.
        error: [B] of the rows, as :func:`~specverify.checks.float_budget.batch_errors`.
        generator: where the choices come from.

    Returns:
        coins without accept coins.
    """
    count, vocab = weights.shape
    uniform = torch.rand(count, dtype=torch.float64, generator=generator)
    cdf = weights.cumsum(dim=1)
    likely = torch.multinomial(weights, 1, generator=generator)
    edge = (cdf.gather(1, likely) / cdf[:, -1:]).squeeze(1)
    step = (2 * error + cdf_allowance(vocab, 0.0)) / cdf[:, -1]
    choices = [
        *(torch.full_like(uniform, end) for end in ENDS),
        *_around(edge, 2 * step),
        *([uniform] * 5),
    ]
    return Coins(accept=torch.zeros(0, dtype=torch.float64), final=_pick(choices, generator))


def race_noise(count: int, vocab: int, generator: torch.Generator) -> torch.Tensor:
    """[count, V] float64 unit exponentials; in half of the rows one token arrives before all."""
    noise = torch.empty(count, vocab, dtype=torch.float64)
    noise = noise.exponential_(generator=generator).clamp_(min=EARLY)
    early = torch.rand(count, generator=generator) < 0.5
    token = torch.randint(vocab, (count,), generator=generator)
    rows = early.nonzero().squeeze(1)
    noise[rows, token[rows]] = EARLY
    return noise


def _accept_thresholds(step: Step, reference: ChainSampler) -> tuple[torch.Tensor, torch.Tensor]:
    """The interval of accept coins that let a draft pass, [D] each."""
    if isinstance(reference, MatchSampler):
        cdf = step.target[step.draft_rows].cumsum(dim=1)
        high = cdf.gather(1, step.drafts[:, None]).squeeze(1)
        return high - reference.target_at_drafts(step), high
    ratio = reference.target_at_drafts(step) / reference.draft_at_drafts(step)
    ratio = torch.nan_to_num(ratio, nan=0.0, posinf=1.0).clamp(max=1.0)
    return ratio, ratio


def _around(value: torch.Tensor, step: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A threshold, its two neighbours, and a step beyond the float budget on both sides."""
    zero, two = torch.zeros_like(value), torch.full_like(value, 2.0)
    return (
        torch.nextafter(value, zero),
        value,
        torch.nextafter(value, two),
        value - step,
        value + step,
    )


def _pick(choices: list[torch.Tensor], generator: torch.Generator) -> torch.Tensor:
    """One of the choices for every entry, kept in [0, 1)."""
    table = torch.stack(choices)
    index = torch.randint(len(choices), table.shape[1:], generator=generator)
    return table.gather(0, index[None]).squeeze(0).clamp(0.0, _BELOW_ONE)
