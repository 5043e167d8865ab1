"""How far apart two correct samplers may be at a threshold, so that no format is called a fault.

Given the same coins, a sampler in float32 and the float64 reference decide alike except where a
coin lies next to a threshold: ``u q`` next to ``p`` in the accept test, ``u`` next to an edge of
the cumulative distribution in the last draw, two arrivals next to each other in a race.  This
module says how near is near enough.  The bounds are proved from the standard model of rounding
(Higham 2002, chapters 2 and 4): each operation is off by a relative ``u``, 2**-24 in float32.

*A probability of a row.*  Logits are read exactly (bfloat16 and float16 are subsets of float32).
With A = max |z| / T, a sampler that scales before it subtracts the maximum computes the argument
of the exponential to 8 u A (three roundings of each of two scaled logits, one of their
difference), and an error of the argument is a relative error of the exponential.  The exponential
itself is good to 4 u (hardware exp2), a sum of V positive terms to V u in whatever order, the
division to u; filters add a second sum and division.  Together ``e = u (8 A + 2 V + 16)`` of p.

*Accept.*  A coin cast to float32, its product with q and a quotient add 4 u, so a sampler decides
as the reference does unless ``|u q - p| <= (e + 4 u) p``.

*Inverse CDF.*  Weights are off by e p each, hence every edge by e of the mass of the whole row (not
of the residual: where p and q nearly agree, the residual is float noise in any sampler), the total
likewise, the running sum by V u and the coin by u: ``2 e + (2 V + 4) u``, absolute.

*Race.*  The token t of noise n_t wins against r unless ``n_t (w_r - e p_r) > n_r (w_t + e p_t)``,
up to the rounding of the quotient, or of two logarithms and their sum in a Gumbel-max.

Everything below the smallest normal float32 may be flushed to zero.
"""

from __future__ import annotations

import math

import torch

from specverify.contract import Batch

TINY = 2.0**-126
"""The smallest normal float32; devices flush what is below."""

UNITS = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
"""Unit roundoff of the arithmetic that a correct sampler may use, whatever its logits are."""

FLOAT32 = UNITS[torch.float32]


def row_error(
    vocab: int, largest_logit: float, temperature: float, arithmetic: torch.dtype = torch.float32
) -> float:
    """Relative error of every probability of a row.

    Args:
        vocab: V.
        largest_logit: max |z| over the finite logits of the row, as stored.
        temperature: of the request; 0 is greedy, where nothing is rounded.
        arithmetic: float32 or float64.

    Returns:
        The bound, at most 1: beyond it nothing is known of a probability but its support.

    Raises:
        ValueError: if ``arithmetic`` is neither.
    """
    if arithmetic not in UNITS:
        names = " or ".join(str(dtype).removeprefix("torch.") for dtype in UNITS)
        raise ValueError(f"arithmetic: got {arithmetic}; expected {names}")
    if temperature == 0:
        return 0.0
    unit = UNITS[arithmetic]
    return min(1.0, unit * (8 * largest_logit / temperature + 2 * vocab + 16))


def batch_errors(batch: Batch) -> torch.Tensor:
    """[R] float64: :func:`row_error` in float32 of every row of a batch."""
    logits = batch.target_logits.double()
    largest = torch.where(torch.isfinite(logits), logits.abs(), 0.0).amax(dim=1)
    temperature = batch.temperature.double()[batch.row_request]
    scaled = largest / torch.where(temperature > 0, temperature, 1.0)
    error = FLOAT32 * (8 * scaled + 2 * batch.vocab_size + 16)
    return torch.where(temperature > 0, error.clamp(max=1.0), 0.0)


def accept_allowance(p: float, error: float) -> float:
    """Largest lawful |u q - p| at which two correct samplers may decide differently.

    Args:
        p: target probability of the draft.
        error: of its row.
    """
    return p * (error + 4 * FLOAT32) + TINY


def cdf_allowance(vocab: int, error: float) -> float:
    """Largest lawful distance of ``u W`` from the interval of an emitted token, W being the mass.

    Args:
        vocab: V.
        error: of the row.
    """
    return 2 * error + (2 * vocab + 4) * FLOAT32


def race_allowance(*values: float) -> float:
    """Relative error of one comparison of two arrivals.

    Args:
        values: the noises and weights that take part; a Gumbel-max takes their logarithms.
    """
    size = sum(abs(math.log(max(value, TINY))) for value in values)
    return FLOAT32 * (8 + 2 * size)


def expected_differences(batch: Batch, extra: float = 0.0) -> float:
    """How many requests of two runs may differ by rounding alone, in the mean over fresh coins.

    Every accept coin falls into the allowed strip with probability at most twice its relative
    width, and every edge of the last draw moves by at most its allowance, so the sum over
    decisions bounds the mean (union bound), however the two runs round.

    Args:
        batch: what was verified in two ways that are equal in exact arithmetic.
        extra: relative change of the inputs that the comparison itself made.
    """
    error = batch_errors(batch) + extra
    vocab = batch.vocab_size
    accept = 2 * (error + 4 * FLOAT32)
    draw = vocab * (2 * error + (2 * vocab + 4) * FLOAT32)
    random = batch.temperature[batch.row_request] > 0
    return float(torch.where(random, accept + draw, 0.0).clamp(max=1.0).sum())
