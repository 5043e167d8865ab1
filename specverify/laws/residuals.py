"""The law of the recovered token: what the target has that the draft did not give.

Source: Leviathan et al. 2023 (arXiv:2211.17192), Algorithm 1, and Chen et al. 2023
(arXiv:2302.01318), Algorithm 2: norm((p - q)+), with (.)+ the positive part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from specverify.laws import _fields
from specverify.laws._fields import Floats


def residual(p: ArrayLike, q: ArrayLike) -> Floats:
    """The law of the recovered token of the ratio rule, norm((p - q)+).

    Where (p - q)+ has no mass, p itself is returned. That happens for p == q, where a draft drawn
    from q is never rejected: the branch has probability zero and any law would do there, and p
    keeps the result a distribution.

    Args:
        p: [..., V] floating, target rows.
        q: [..., V] floating, draft rows as the sampler reads them; broadcasts with p.

    Returns:
        [..., V] float64, rows that sum to 1.

    Raises:
        ValueError: if p or q is not a distribution over one vocabulary.

    Source: Leviathan et al. 2023, Algorithm 1.
    """
    target, draft = _fields.pair(p, q)
    return normalised(np.maximum(target - draft, 0.0), target)


def residual_one_hot(p: ArrayLike, draft_ids: ArrayLike) -> Floats:
    """The law of the token recovered from a one-hot draft: p without the draft, renormalised.

    Where p has all its mass on the draft, the draft is never rejected and p is returned, as in
    :func:`residual`.

    Args:
        p: [..., V] floating, target rows.
        draft_ids: [...] integer in [0, V), one rejected draft for each row of p.

    Returns:
        [..., V] float64, rows that sum to 1.

    Raises:
        ValueError: if p is no distribution, or a draft id does not fit it.

    Source: Leviathan et al. 2023, Algorithm 1, with q one-hot at the draft.
    """
    target = _fields.distribution("p", p)
    ids = _fields.token_ids("draft_ids", draft_ids, target.shape[:-1], 0, target.shape[-1])
    rest = target.copy()
    np.put_along_axis(rest, ids[..., None], 0.0, axis=-1)
    return normalised(rest, target)


def normalised(weights: Floats, otherwise: Floats) -> Floats:
    """Rows of ``weights`` [..., V] divided by their sums; ``otherwise`` where a sum is zero."""
    mass = weights.sum(axis=-1, keepdims=True)
    empty = mass == 0
    return np.where(empty, otherwise, weights / np.where(empty, 1.0, mass))
