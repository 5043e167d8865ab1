"""What the ratio rule emits for given drafts: the finest law it has, exact for any vocabulary.

Given the drafts, nothing is left to chance but the coins of the rule itself, so this law needs
neither the drafter nor the prefixes that were not proposed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from specverify.laws import _fields
from specverify.laws._fields import Floats
from specverify.laws.acceptance import accept_probability
from specverify.laws.residuals import residual, residual_one_hot

_PLACEHOLDER = -1


def conditional_law(
    p_rows: ArrayLike, drafts: ArrayLike, q_rows: ArrayLike | None = None
) -> Floats:
    """Joint law of accepted length and last token, given the drafts.

    A placeholder (-1) at slot j ends verification: the last token is then drawn from ``p_rows[j]``
    itself, because nothing was proposed that a residual could make up for, and no later slot is
    reached. Its row of ``q_rows`` is not used, but has to be a distribution like the others.

    Args:
        p_rows: [k + 1, V] floating, row j is the target given the drafts before j; the last row
            is the bonus row.
        drafts: [k] integer, token ids in [0, V) or -1.
        q_rows: [k, V] floating, the draft rows as the sampler reads them; ``None`` means one-hot
            drafts.

    Returns:
        [k + 1, V] float64 that sums to 1: entry (l, y) is P(L = l, last token = y | drafts).

    Raises:
        ValueError: if a row is no distribution, or the shapes or ids do not fit together.

    Source: Leviathan et al. 2023, Algorithm 1, its branches multiplied out.
    """
    p = _fields.distribution("p_rows", p_rows, ndim=2)
    k, vocab = p.shape[0] - 1, p.shape[1]
    ids = _fields.token_ids("drafts", drafts, (k,), _PLACEHOLDER, vocab)
    q = _draft_rows(q_rows, k, vocab)
    law = np.zeros_like(p)
    reached = 1.0
    for j, draft in enumerate(ids.tolist()):
        if draft == _PLACEHOLDER:
            law[j] = reached * p[j]
            return law
        accepted = accept_probability(p[j], draft, None if q is None else q[j])
        recovered = residual_one_hot(p[j], draft) if q is None else residual(p[j], q[j])
        law[j] = reached * (1.0 - accepted) * recovered
        reached *= accepted
    law[k] = reached * p[k]
    return law


def _draft_rows(q_rows: ArrayLike | None, k: int, vocab: int) -> Floats | None:
    """Check q_rows; without drafts there is nothing to check, and an empty list will do."""
    if q_rows is None or k == 0:
        return None
    q = _fields.distribution("q_rows", q_rows, ndim=2, tolerance=_fields.STORED_MASS)
    if q.shape != (k, vocab):
        _fields.fail("q_rows", f"shape {list(q.shape)}", f"[{k}, {vocab}], a row for each draft")
    return q
