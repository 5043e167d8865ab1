"""Is what came out what must come out? Counts and laws in, evidence out; no sampler, no torch.

Every statistic is a triple: the test, the trials it needs, and the smallest deviation it detects.
``docs/statistics.md`` states the formulas and how well they are calibrated.
"""

from specverify.evidence.binomial import (
    binomial_detectable,
    binomial_test,
    binomial_trials_needed,
    clopper_pearson,
)
from specverify.evidence.contingency import independence, independence_detectable
from specverify.evidence.eprocess import AnytimeEvidence, SequentialTest
from specverify.evidence.goodness_of_fit import cressie_read, pearson
from specverify.evidence.pooling import Pooling, pool
from specverify.evidence.power import (
    detectable_tv,
    pooled_detectable_tv,
    trials_needed,
    trials_needed_for_law,
)
from specverify.evidence.records import Certificate, Evidence
from specverify.evidence.residuals import worst_cells
from specverify.evidence.suspects import Suspect, leaks, temperatures, thin_tails
from specverify.evidence.total_variation import (
    certificate,
    expected_tv,
    tv_detectable,
    tv_test,
    tv_threshold,
    tv_trials_needed,
)

__all__ = [
    "AnytimeEvidence",
    "Certificate",
    "Evidence",
    "Pooling",
    "SequentialTest",
    "Suspect",
    "binomial_detectable",
    "binomial_test",
    "binomial_trials_needed",
    "certificate",
    "clopper_pearson",
    "cressie_read",
    "detectable_tv",
    "expected_tv",
    "independence",
    "independence_detectable",
    "leaks",
    "pearson",
    "pool",
    "pooled_detectable_tv",
    "temperatures",
    "thin_tails",
    "trials_needed",
    "trials_needed_for_law",
    "tv_detectable",
    "tv_test",
    "tv_threshold",
    "tv_trials_needed",
    "worst_cells",
]
