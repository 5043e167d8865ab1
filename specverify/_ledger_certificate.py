"""What all runs of an account certify together, valid however often one looks.

A certificate for a number of trials fixed beforehand must not be read every night until it pleases.
This one holds at every number of trials at once, and so at whatever night one stops.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specverify.evidence import Certificate, validate
from specverify.evidence.confidence import tv_drift

CERTIFIED_AT = (30_000, 300_000, 3_000_000, 30_000_000)
"""Trials where one of the bounds is tightest: a night of a slow sampler to months of a fast one.
The same for every account and fixed before any of them was opened, as
:func:`~specverify.evidence.confidence.tv_drift` demands."""


def account_certificate(
    counts: npt.ArrayLike, law: npt.ArrayLike, confidence: float
) -> Certificate:
    """Bound the total variation between the true law and the one in the ledger.

    The drift of :func:`~specverify.evidence.confidence.tv_drift` on top of the plug-in total
    variation: the least of four such bounds, each of which may be wrong with a quarter of
    ``1 - confidence`` (Bonferroni), so all hold together with ``confidence``.

    Args:
        counts: [cells] integers >= 0, the sum over all shards.
        law: [cells] probabilities.
        confidence: in (0, 1), over all looks together.

    Returns:
        The certificate; its bound is 1 if nothing was counted.

    Raises:
        ValueError: naming the field that is wrong.
    """
    expected = validate.law("law", law)
    table = validate.table("counts", counts, expected.shape[0])
    total = int(table.sum())
    observed = 0.5 * float(np.abs(table / total - expected).sum()) if total else 0.0
    each = 1 - (1 - validate.inside("confidence", confidence)) / len(CERTIFIED_AT)
    drift = min(tv_drift(max(total, 1), each, planned) for planned in CERTIFIED_AT)
    upper = min(1.0, observed + drift) if total else 1.0
    return Certificate(tv_observed=observed, tv_upper=upper, confidence=confidence)
