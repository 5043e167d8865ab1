"""Triton rejection samplers: subjects of the harness like any other."""

from specverify.kernels._interpreter import patch_once
from specverify.kernels._launch import Plan, Proposal, Workspace, filter_logits, verify_chain
from specverify.kernels._launch_block import TritonBlock, triton_block, verify_block
from specverify.kernels._launch_filtered import (
    FilterPlan,
    Filters,
    FilterWorkspace,
    verify_filtered,
)
from specverify.kernels._launch_small import verify_small
from specverify.kernels.sampler import TritonChain, interpreted, triton_chain, triton_vllm

__all__ = [
    "FilterPlan",
    "FilterWorkspace",
    "Filters",
    "Plan",
    "Proposal",
    "TritonBlock",
    "TritonChain",
    "Workspace",
    "filter_logits",
    "triton_block",
    "triton_chain",
    "triton_vllm",
    "verify_block",
    "verify_chain",
    "verify_filtered",
    "verify_small",
]

if interpreted():
    patch_once()
