"""Is what came out what must come out? Counts and laws in, evidence out; no sampler, no torch.

Every statistic is a triple: the test, the trials it needs, and the smallest deviation it detects.
``docs/statistics.md`` states the formulas and how well they are calibrated.
"""

from specverify.evidence.accuracies import (
    AccuracyComparison,
    compare_paired,
    compare_unpaired,
)
from specverify.evidence.accuracy_power import (
    paired_detectable,
    paired_power,
    paired_questions_needed,
    unpaired_detectable,
    unpaired_power,
    unpaired_questions_needed,
)
from specverify.evidence.binomial import (
    binomial_detectable,
    binomial_test,
    binomial_trials_needed,
    clopper_pearson,
)
from specverify.evidence.confidence import (
    CertificateSequence,
    Interval,
    mean_sequence,
    rate_sequence,
    tv_drift,
)
from specverify.evidence.contingency import (
    independence,
    independence_detectable,
)
from specverify.evidence.eprocess import (
    AnytimeEvidence,
    SequentialTest,
    dirichlet_log_e,
)
from specverify.evidence.float_budget import (
    Allowance,
    Arithmetic,
    allowance,
    envelope_cost,
    envelope_limit,
    envelope_log_e,
    float_tv,
)
from specverify.evidence.goodness_of_fit import (
    cressie_read,
    pearson,
)
from specverify.evidence.importance import (
    ExactTail,
    exact_p_value,
)
from specverify.evidence.mmd import (
    TextEvidence,
    mmd_detectable,
    mmd_test,
)
from specverify.evidence.multiplicity import (
    Culprits,
    bonferroni_share,
    bonferroni_shares,
    e_bh,
    e_closed,
    e_holm,
    global_log_e,
    holm,
)
from specverify.evidence.pooling import (
    Pooling,
    pool,
)
from specverify.evidence.power import (
    detectable_tv,
    pooled_detectable_tv,
    trials_needed,
    trials_needed_for_law,
)
from specverify.evidence.records import (
    Certificate,
    Evidence,
)
from specverify.evidence.residuals import (
    worst_cells,
)
from specverify.evidence.suspects import (
    Suspect,
    leaks,
    temperatures,
    thin_tails,
)
from specverify.evidence.tolerant import (
    TolerantEvidence,
    tolerant_detectable,
    tolerant_test,
    tolerant_trials_needed,
)
from specverify.evidence.total_variation import (
    certificate,
    expected_tv,
    tv_detectable,
    tv_test,
    tv_threshold,
    tv_trials_needed,
)
from specverify.evidence.two_sample import (
    TwoSampleEvidence,
    two_sample_detectable,
    two_sample_test,
    two_sample_trials_needed,
)
from specverify.evidence.two_sample_sequential import (
    SequentialTwoSample,
    TwoSampleAnytime,
)

__all__ = [
    "AccuracyComparison",
    "Allowance",
    "AnytimeEvidence",
    "Arithmetic",
    "Certificate",
    "CertificateSequence",
    "Culprits",
    "Evidence",
    "ExactTail",
    "Interval",
    "Pooling",
    "SequentialTest",
    "SequentialTwoSample",
    "Suspect",
    "TextEvidence",
    "TolerantEvidence",
    "TwoSampleAnytime",
    "TwoSampleEvidence",
    "allowance",
    "binomial_detectable",
    "binomial_test",
    "binomial_trials_needed",
    "bonferroni_share",
    "bonferroni_shares",
    "certificate",
    "clopper_pearson",
    "compare_paired",
    "compare_unpaired",
    "cressie_read",
    "detectable_tv",
    "dirichlet_log_e",
    "e_bh",
    "e_closed",
    "e_holm",
    "envelope_cost",
    "envelope_limit",
    "envelope_log_e",
    "exact_p_value",
    "expected_tv",
    "float_tv",
    "global_log_e",
    "holm",
    "independence",
    "independence_detectable",
    "leaks",
    "mean_sequence",
    "mmd_detectable",
    "mmd_test",
    "paired_detectable",
    "paired_power",
    "paired_questions_needed",
    "pearson",
    "pool",
    "pooled_detectable_tv",
    "rate_sequence",
    "temperatures",
    "thin_tails",
    "tolerant_detectable",
    "tolerant_test",
    "tolerant_trials_needed",
    "trials_needed",
    "trials_needed_for_law",
    "tv_detectable",
    "tv_drift",
    "tv_test",
    "tv_threshold",
    "tv_trials_needed",
    "two_sample_detectable",
    "two_sample_test",
    "two_sample_trials_needed",
    "unpaired_detectable",
    "unpaired_power",
    "unpaired_questions_needed",
    "worst_cells",
]
