"""The last draw of a step: one token from a row of unnormalised weights.

Both forms are exact in float64 up to the rounding of one cumulative sum or one division, and both
twins of the reference (per row and vectorised) call them, so that equal coins give equal tokens.
"""

from __future__ import annotations

import torch


def by_inverse_cdf(weights: torch.Tensor, coins: torch.Tensor) -> torch.Tensor:
    """Draw by inverse CDF in token order.

    The token is the first whose cumulative weight exceeds ``coin * total``.  A token of weight zero
    never is: not at coin 0, and not when ``coin * total`` rounds up to the total.

    Args:
        weights: [N, V] float64, >= 0, not all zero in a row.
        coins: [N] float64 in [0, 1).

    Returns:
        [N] int64.
    """
    cdf = weights.cumsum(dim=-1)
    total = cdf[:, -1:]
    # An interior point of [0, total): below the total even where the product rounds up to it.
    point = torch.minimum(coins[:, None].to(cdf.dtype) * total, _just_below(total))
    return torch.searchsorted(cdf, point, right=True).squeeze(-1)


def _just_below(total: torch.Tensor) -> torch.Tensor:
    return torch.nextafter(total, torch.zeros_like(total))


def by_race(weights: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Draw by an exponential race: the token of the smallest ``noise / weight`` wins.

    Args:
        weights: [N, V] float64, >= 0, not all zero in a row.
        noise: [N, V] unit exponentials, > 0.

    Returns:
        [N] int64; a token of weight zero arrives at infinity and never wins.
    """
    arrival = noise.to(weights.dtype) / weights
    return arrival.argmin(dim=-1)
