"""One verification step as a law: what becomes of a draft drawn from q under a rule.

A rule of chain verification is a function of the rows p and q of one position. Here it is
written as the law of its branches, so that the laws of whole chains can be computed for any rule,
a wrong one included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from specverify.laws._fields import Floats
from specverify.laws.residuals import normalised


@dataclasses.dataclass(frozen=True, eq=False)
class StepLaw:
    """The branches of one step, for N prefixes at once (N = 1 if the rows are shared).

    Attributes:
        accepted: [N, V] float64, P(draft = d, accepted).
        rejected: [N, V] float64, P(draft = d, rejected).
        recovered: [N, V] float64, P(rejected, recovered token = y).
    """

    accepted: Floats
    rejected: Floats
    recovered: Floats


Step: TypeAlias = Callable[[Floats, Floats], StepLaw]
"""A rule: p [N or 1, V] and q [N or 1, V], the law drafts are drawn from, to its branches."""


def ratio_step(p: Floats, q: Floats) -> StepLaw:
    """The ratio rule: accept with min(1, p/q), recover from norm((p - q)+).

    Args:
        p: [N or 1, V] float64, target rows.
        q: [N or 1, V] float64, the law that drafts are drawn from and that the rule is shown.

    Returns:
        The law of its branches.

    Source: Leviathan et al. 2023, Algorithm 1; q min(1, p/q) = min(p, q).
    """
    rejected = np.maximum(q - p, 0.0)
    rest = normalised(np.maximum(p - q, 0.0), p)
    return StepLaw(np.minimum(p, q), rejected, rejected.sum(axis=-1, keepdims=True) * rest)


def one_hot_step(p: Floats, q: Floats) -> StepLaw:
    """The rule that does not see q: accept d with p(d), recover from p without d.

    A rejected d leaves p(y) / (1 - p(d)) for y != d; times the probability 1 - p(d) of the
    rejection this is p(y), whence the sum over d below.

    Args:
        p: [N or 1, V] float64, target rows.
        q: [N or 1, V] float64, the law that drafts are drawn from.

    Returns:
        The law of its branches.

    Source: Leviathan et al. 2023, Algorithm 1, with the row shown to the rule one-hot.
    """
    # max(): a stored row may sum to 1 + 1e-16.
    rejected = q * np.maximum(1.0 - p, 0.0)
    return StepLaw(p * q, rejected, p * np.maximum(q.sum(axis=-1, keepdims=True) - q, 0.0))
