"""How often a draft is accepted: one number from p and q for each rule.

These numbers belong to a rule, not to losslessness: a sampler that loses q stays lossless and
accepts less. ``acceptance_ratio`` is the most that any lossless rule can reach with one draft
(it is the value of a maximal coupling of p and q: SpecTr, Sun et al. 2023, arXiv:2310.15141).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from specverify.laws import _fields
from specverify.laws._fields import Floats


def total_variation(p: ArrayLike, q: ArrayLike) -> Floats:
    """Total variation distance, half the L1 distance.

    Args:
        p: [..., V] floating, rows of probabilities.
        q: [..., V] floating; broadcasts with p.

    Returns:
        [...] float64 in [0, 1].

    Raises:
        ValueError: if p or q is not a distribution over one vocabulary.

    Source: TV(p, q) = 1/2 sum |p - q|.
    """
    target, draft = _fields.pair(p, q)
    return np.asarray(0.5 * np.abs(target - draft).sum(axis=-1))


def acceptance_ratio(p: ArrayLike, q: ArrayLike) -> Floats:
    """Acceptance rate of the ratio rule for a draft drawn from q: sum min(p, q) = 1 - TV(p, q).

    Args:
        p: [..., V] floating, target rows.
        q: [..., V] floating, draft rows; broadcasts with p.

    Returns:
        [...] float64 in [0, 1].

    Raises:
        ValueError: if p or q is not a distribution over one vocabulary.

    Source: Leviathan et al. 2023, Theorem 3.5.
    """
    target, draft = _fields.pair(p, q)
    return np.asarray(np.minimum(target, draft).sum(axis=-1))


def acceptance_one_hot(p: ArrayLike, q: ArrayLike) -> Floats:
    """Acceptance rate when the rule does not see q, the law the draft was drawn from: sum p q.

    It holds for one-hot verification (accept with p) and for accept-iff-equal to a target draw.

    Args:
        p: [..., V] floating, target rows.
        q: [..., V] floating, draft rows; broadcasts with p.

    Returns:
        [...] float64 in [0, 1].

    Raises:
        ValueError: if p or q is not a distribution over one vocabulary.

    Source: sum over d of q(d) P(accept | d) with P(accept | d) = p(d).
    """
    target, draft = _fields.pair(p, q)
    return np.asarray((target * draft).sum(axis=-1))


def acceptance_greedy(p: ArrayLike, q: ArrayLike) -> Floats:
    """Acceptance rate of a greedy draft, q's most likely token (lowest id on ties): p[argmax q].

    Args:
        p: [..., V] floating, target rows.
        q: [..., V] floating, draft rows; broadcasts with p.

    Returns:
        [...] float64 in [0, 1].

    Raises:
        ValueError: if p or q is not a distribution over one vocabulary.

    Source: :func:`acceptance_one_hot` with q one-hot at its mode.
    """
    target, draft = np.broadcast_arrays(*_fields.pair(p, q))
    modes = draft.argmax(axis=-1)
    return np.asarray(np.take_along_axis(target, modes[..., None], axis=-1)[..., 0])


def accept_probability(p_row: ArrayLike, draft: int, q_row: ArrayLike | None = None) -> float:
    """Probability that the ratio rule accepts one given draft.

    Args:
        p_row: [V] floating, the target row.
        draft: token id in [0, V).
        q_row: [V] floating, the draft row as the sampler reads it; ``None`` is a one-hot draft.

    Returns:
        min(1, p(draft) / q(draft)), or p(draft) for a one-hot draft. A draft that q cannot draw
        has an infinite ratio: 1 if p(draft) > 0, else 0, because a token outside the target must
        never be emitted.

    Raises:
        ValueError: if a row is no distribution over one vocabulary, or the draft is outside it.

    Source: Leviathan et al. 2023, Algorithm 1.
    """
    p = _fields.distribution("p_row", p_row, ndim=1)
    draft = _fields.index("draft", draft, p.size)
    if q_row is None:
        return min(1.0, float(p[draft]))
    q = _fields.distribution("q_row", q_row, ndim=1, tolerance=_fields.STORED_MASS)
    if q.size != p.size:
        _fields.fail("q_row", f"shape {list(q.shape)}", f"p_row's {list(p.shape)}")
    # Comparing before dividing covers q = 0, and a q so small that the ratio overflows.
    if p[draft] >= q[draft]:
        return 1.0 if p[draft] > 0 else 0.0
    return float(p[draft] / q[draft])


def expected_accepted(length_law: ArrayLike) -> float:
    """Expected number of accepted drafts; one more token than that is emitted.

    Args:
        length_law: [k + 1] floating, P(accepted length = l).

    Returns:
        E[L] = sum l P(L = l), in [0, k].

    Raises:
        ValueError: if ``length_law`` is no distribution.

    Source: Leviathan et al. 2023, equation (1): E[L] + 1 = (1 - a^(k+1)) / (1 - a) when every
    draft is accepted at the same rate a.
    """
    law = _fields.distribution("length_law", length_law, ndim=1)
    return float(np.arange(law.size) @ law)


def static_ensemble_law(p: ArrayLike, q: ArrayLike, w: float) -> Floats:
    """The law of the lossy rule that verifies against a fixed mixture of target and draft.

    Args:
        p: [..., V] floating, target rows.
        q: [..., V] floating, draft rows; broadcasts with p.
        w: weight of the target in [0, 1]; 1 is the lossless rule.

    Returns:
        [..., V] float64, w p + (1 - w) q. Its acceptance rate is 1 - w TV(p, q).

    Raises:
        ValueError: if p or q is not a distribution, or w is outside [0, 1].

    Source: arXiv:2604.07622; ``assistant_ensemble_weight`` of transformers.
    """
    target, draft = _fields.pair(p, q)
    weight = _fields.share("w", w)
    return weight * target + (1.0 - weight) * draft
