"""Exact distributions of what a sampler must emit, computed from p and q.

Two families live here. The *completed* laws hold for every lossless method, whatever its rule.
The *outcome* laws (conditional, chain, acceptance) belong to one rule, the ratio rule of Leviathan
et al. 2023 (Algorithm 1) and its one-hot form. Everything is pure numpy in
float64, exact up to rounding, and knows no sampler.
"""

from specverify.laws.acceptance import (
    accept_probability,
    acceptance_greedy,
    acceptance_one_hot,
    acceptance_ratio,
    expected_accepted,
    static_ensemble_law,
    total_variation,
)
from specverify.laws.chain import ChainOutcomeLaw, chain_outcome_law
from specverify.laws.completed import (
    completed_law,
    completed_law_of_rule,
    completed_marginal,
    completed_pair,
)
from specverify.laws.conditional import conditional_law
from specverify.laws.prefixes import draft_path_law
from specverify.laws.residuals import residual, residual_one_hot
from specverify.laws.steps import StepLaw, one_hot_step, ratio_step

__all__ = [
    "ChainOutcomeLaw",
    "StepLaw",
    "accept_probability",
    "acceptance_greedy",
    "acceptance_one_hot",
    "acceptance_ratio",
    "chain_outcome_law",
    "completed_law",
    "completed_law_of_rule",
    "completed_marginal",
    "completed_pair",
    "conditional_law",
    "draft_path_law",
    "expected_accepted",
    "one_hot_step",
    "ratio_step",
    "residual",
    "residual_one_hot",
    "static_ensemble_law",
    "total_variation",
]
