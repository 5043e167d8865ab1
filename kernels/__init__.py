"""Triton rejection samplers: subjects of the harness like any other."""

from specverify.kernels._launch import Plan, Proposal, Workspace, filter_logits, verify_chain
from specverify.kernels.sampler import TritonChain, triton_chain

__all__ = [
    "Plan",
    "Proposal",
    "TritonChain",
    "Workspace",
    "filter_logits",
    "triton_chain",
    "verify_chain",
]
