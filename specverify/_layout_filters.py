"""Filter values that every correct sampler reads alike, whatever its precision.

A top-p that falls on a cumulative probability, or a min-p on a ratio p / p_max, keeps one token
more in fp32 than in float64, and neither is wrong.  Random layouts must not accuse anybody of
that, so a wanted value is moved to the nearest one with room around it; or onto a boundary, where
that is what is being explored.

The conventions differ in what top-p accumulates: the whole distribution, or what top-k and min-p
have left, renormalised, with ties at the k-th place kept or cut.  Each of these sets is a prefix
of the tokens in descending order, so the boundaries of all conventions together are the
cumulative sums of a few prefixes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]

RELATIVE_MARGIN = 1e-4
"""Room around a filter value, relative to it, at temperature 1."""


def softmax(logits: F64, temperature: float) -> F64:
    """[..., V] float64 probabilities at a temperature; 0 counts as 1, as filters have no effect."""
    scaled = logits / (temperature or 1.0)
    weights = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def margin(logits: F64, temperature: float) -> float:
    """Relative room that the filters of a request need.

    A probability whose logit was divided by T in fp32 is off by |z| / T * 2**-24 relative; the
    room is four times that on top of ``RELATIVE_MARGIN``.
    """
    largest = float(np.abs(logits[np.isfinite(logits)]).max())
    return RELATIVE_MARGIN + largest / (temperature or 1.0) * 2.0**-22


def top_p_boundaries(probabilities: F64, top_k: int, min_p: float) -> F64:
    """All cumulative sums at which some convention changes its set, sorted, in (0, 1].

    Args:
        probabilities: [rows, V] of one request, after temperature.
        top_k: 0 is off.
        min_p: 0 is off.
    """
    found = []
    for row in -np.sort(-probabilities, axis=-1):
        cumulative = np.cumsum(row)
        kept = {row.size, int((row >= min_p * row[0]).sum())}
        if top_k:
            k = min(top_k, row.size)
            with_ties = int((row >= row[k - 1]).sum())
            kept |= {min(cut, size) for cut in (k, with_ties) for size in tuple(kept)}
        found += [cumulative[:size] / cumulative[size - 1] for size in kept]
    return np.unique(np.concatenate(found))


def min_p_boundaries(probabilities: F64) -> F64:
    """All ratios p / p_max of the rows of one request, sorted, in (0, 1]."""
    ratios = np.unique(probabilities / probabilities.max(axis=-1, keepdims=True))
    return ratios[ratios > 0]


def away(wanted: float, boundaries: F64, room: float) -> float | None:
    """The value nearest to ``wanted`` with ``room`` (relative) to every boundary, else ``None``."""
    near = np.abs(boundaries - wanted) <= room * np.maximum(boundaries, wanted)
    if not near.any():
        return wanted
    edges = np.concatenate([[0.0], boundaries, [1.0]])
    low, high = edges[:-1], edges[1:]
    middle = (low + high) / 2
    # Twice the room in the gap leaves the rounding of the stored value to fp32 harmless.
    wide = high - low > 4 * room * high
    if not wide.any():
        return None
    candidates = middle[wide]
    return float(candidates[np.argmin(np.abs(candidates - wanted))])


def onto(wanted: float, boundaries: F64) -> float:
    """The boundary nearest to ``wanted``."""
    return float(boundaries[np.argmin(np.abs(boundaries - wanted))])


def settle(
    logits: F64,
    temperature: float,
    filters: tuple[int, float, float],
    on_boundary: bool,
) -> tuple[int, float, float]:
    """Move top-p and min-p of one request off the boundaries, or onto one.

    Args:
        logits: [rows, V] float64, the target rows of the request as stored.
        temperature: of the request.
        filters: wanted top-k, top-p, min-p.
        on_boundary: move onto the nearest boundary instead of away from all of them.

    Returns:
        Top-k unchanged, top-p and min-p moved; a filter without room is off.
    """
    top_k, top_p, min_p = filters
    probabilities = softmax(logits, temperature)
    room = margin(logits, temperature)
    if 0 < min_p < 1:  # at 1 the maxima alone are left, and they are equal in every precision
        ratios = min_p_boundaries(probabilities)
        min_p = onto(min_p, ratios) if on_boundary else away(min_p, ratios, room) or 0.0
    if top_p < 1:
        sums = top_p_boundaries(probabilities, top_k, min_p)
        top_p = onto(top_p, sums) if on_boundary else away(top_p, sums, room) or 1.0
    return top_k, min(top_p, 1.0), min(min_p, 1.0)
