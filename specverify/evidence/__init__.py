"""Is what came out what must come out? Counts and laws in, evidence out; no sampler, no torch.

Every statistic is a triple: the test, the trials it needs, and the smallest deviation it detects.
``docs/statistics.md`` states the formulas and how well they are calibrated.

A name is loaded from its module when it is first used: scipy takes a second to import, and most
who import this package (the command's help, a gate, a ledger) want a small part of it or none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specverify.evidence.accuracies import AccuracyComparison as AccuracyComparison
    from specverify.evidence.accuracies import compare_paired as compare_paired
    from specverify.evidence.accuracies import compare_unpaired as compare_unpaired
    from specverify.evidence.accuracy_power import paired_detectable as paired_detectable
    from specverify.evidence.accuracy_power import paired_power as paired_power
    from specverify.evidence.accuracy_power import (
        paired_questions_needed as paired_questions_needed,
    )
    from specverify.evidence.accuracy_power import unpaired_detectable as unpaired_detectable
    from specverify.evidence.accuracy_power import unpaired_power as unpaired_power
    from specverify.evidence.accuracy_power import (
        unpaired_questions_needed as unpaired_questions_needed,
    )
    from specverify.evidence.binomial import binomial_detectable as binomial_detectable
    from specverify.evidence.binomial import binomial_test as binomial_test
    from specverify.evidence.binomial import binomial_trials_needed as binomial_trials_needed
    from specverify.evidence.binomial import clopper_pearson as clopper_pearson
    from specverify.evidence.confidence import CertificateSequence as CertificateSequence
    from specverify.evidence.confidence import Interval as Interval
    from specverify.evidence.confidence import mean_sequence as mean_sequence
    from specverify.evidence.confidence import rate_sequence as rate_sequence
    from specverify.evidence.confidence import tv_drift as tv_drift
    from specverify.evidence.contingency import independence as independence
    from specverify.evidence.contingency import independence_detectable as independence_detectable
    from specverify.evidence.eprocess import AnytimeEvidence as AnytimeEvidence
    from specverify.evidence.eprocess import SequentialTest as SequentialTest
    from specverify.evidence.eprocess import dirichlet_log_e as dirichlet_log_e
    from specverify.evidence.float_budget import Allowance as Allowance
    from specverify.evidence.float_budget import Arithmetic as Arithmetic
    from specverify.evidence.float_budget import allowance as allowance
    from specverify.evidence.float_budget import envelope_cost as envelope_cost
    from specverify.evidence.float_budget import envelope_limit as envelope_limit
    from specverify.evidence.float_budget import envelope_log_e as envelope_log_e
    from specverify.evidence.float_budget import float_tv as float_tv
    from specverify.evidence.goodness_of_fit import cressie_read as cressie_read
    from specverify.evidence.goodness_of_fit import pearson as pearson
    from specverify.evidence.importance import ExactTail as ExactTail
    from specverify.evidence.importance import exact_p_value as exact_p_value
    from specverify.evidence.mmd import Spectrum as Spectrum
    from specverify.evidence.mmd import TextEvidence as TextEvidence
    from specverify.evidence.mmd import mmd_detectable as mmd_detectable
    from specverify.evidence.mmd import mmd_spectrum as mmd_spectrum
    from specverify.evidence.mmd import mmd_test as mmd_test
    from specverify.evidence.mmd import mmd_texts_needed as mmd_texts_needed
    from specverify.evidence.multiplicity import Culprits as Culprits
    from specverify.evidence.multiplicity import bonferroni_share as bonferroni_share
    from specverify.evidence.multiplicity import bonferroni_shares as bonferroni_shares
    from specverify.evidence.multiplicity import e_bh as e_bh
    from specverify.evidence.multiplicity import e_closed as e_closed
    from specverify.evidence.multiplicity import e_holm as e_holm
    from specverify.evidence.multiplicity import global_log_e as global_log_e
    from specverify.evidence.multiplicity import holm as holm
    from specverify.evidence.occupancy import distinct_detectable as distinct_detectable
    from specverify.evidence.occupancy import distinct_draws_needed as distinct_draws_needed
    from specverify.evidence.occupancy import distinct_law as distinct_law
    from specverify.evidence.occupancy import distinct_test as distinct_test
    from specverify.evidence.pooling import Pooling as Pooling
    from specverify.evidence.pooling import pool as pool
    from specverify.evidence.power import detectable_tv as detectable_tv
    from specverify.evidence.power import pooled_detectable_tv as pooled_detectable_tv
    from specverify.evidence.power import trials_needed as trials_needed
    from specverify.evidence.power import trials_needed_for_law as trials_needed_for_law
    from specverify.evidence.records import Certificate as Certificate
    from specverify.evidence.records import Evidence as Evidence
    from specverify.evidence.residuals import worst_cells as worst_cells
    from specverify.evidence.suspects import Suspect as Suspect
    from specverify.evidence.suspects import leaks as leaks
    from specverify.evidence.suspects import temperatures as temperatures
    from specverify.evidence.suspects import thin_tails as thin_tails
    from specverify.evidence.tolerant import TolerantEvidence as TolerantEvidence
    from specverify.evidence.tolerant import tolerant_detectable as tolerant_detectable
    from specverify.evidence.tolerant import tolerant_test as tolerant_test
    from specverify.evidence.tolerant import tolerant_trials_needed as tolerant_trials_needed
    from specverify.evidence.total_variation import certificate as certificate
    from specverify.evidence.total_variation import expected_tv as expected_tv
    from specverify.evidence.total_variation import tv_detectable as tv_detectable
    from specverify.evidence.total_variation import tv_test as tv_test
    from specverify.evidence.total_variation import tv_threshold as tv_threshold
    from specverify.evidence.total_variation import tv_trials_needed as tv_trials_needed
    from specverify.evidence.two_sample import TwoSampleEvidence as TwoSampleEvidence
    from specverify.evidence.two_sample import two_sample_detectable as two_sample_detectable
    from specverify.evidence.two_sample import two_sample_test as two_sample_test
    from specverify.evidence.two_sample import two_sample_trials_needed as two_sample_trials_needed
    from specverify.evidence.two_sample_sequential import SequentialTwoSample as SequentialTwoSample
    from specverify.evidence.two_sample_sequential import TwoSampleAnytime as TwoSampleAnytime

_MODULES = {
    "accuracies": "AccuracyComparison compare_paired compare_unpaired",
    "accuracy_power": (
        "paired_detectable paired_power paired_questions_needed unpaired_detectable "
        "unpaired_power unpaired_questions_needed"
    ),
    "binomial": "binomial_detectable binomial_test binomial_trials_needed clopper_pearson",
    "confidence": "CertificateSequence Interval mean_sequence rate_sequence tv_drift",
    "contingency": "independence independence_detectable",
    "eprocess": "AnytimeEvidence SequentialTest dirichlet_log_e",
    "float_budget": (
        "Allowance Arithmetic allowance envelope_cost envelope_limit envelope_log_e float_tv"
    ),
    "goodness_of_fit": "cressie_read pearson",
    "importance": "ExactTail exact_p_value",
    "mmd": "Spectrum TextEvidence mmd_detectable mmd_spectrum mmd_test mmd_texts_needed",
    "multiplicity": (
        "Culprits bonferroni_share bonferroni_shares e_bh e_closed e_holm global_log_e holm"
    ),
    "occupancy": "distinct_detectable distinct_draws_needed distinct_law distinct_test",
    "pooling": "Pooling pool",
    "power": "detectable_tv pooled_detectable_tv trials_needed trials_needed_for_law",
    "records": "Certificate Evidence",
    "residuals": "worst_cells",
    "suspects": "Suspect leaks temperatures thin_tails",
    "tolerant": "TolerantEvidence tolerant_detectable tolerant_test tolerant_trials_needed",
    "total_variation": (
        "certificate expected_tv tv_detectable tv_test tv_threshold tv_trials_needed"
    ),
    "two_sample": (
        "TwoSampleEvidence two_sample_detectable two_sample_test two_sample_trials_needed"
    ),
    "two_sample_sequential": "SequentialTwoSample TwoSampleAnytime",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
"""The module of every public name."""

__all__ = sorted(_HOMES)

if not TYPE_CHECKING:  # pragma: no branch - a checker knows the names from the imports above

    def __getattr__(name: str) -> object:
        """Load a public name.

        Raises:
            AttributeError: if there is none of that name.
        """
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return [*__all__, "validate"]
