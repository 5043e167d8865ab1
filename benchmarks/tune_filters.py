"""Times ways to cut the rows of the filtered kernels, beside the plain kernel on the same inputs.

    python benchmarks/tune_filters.py [--seconds 60]

What ``FilterPlan.of`` chooses was read from such a table.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import math
import multiprocessing
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

import contenders
from filter_tables import fields
from inputs import Case, Inputs, build
from specverify.kernels import FilterPlan, Filters, FilterWorkspace, Proposal, verify_filtered
from timing import Call, graph_us

PLANS = {
    "1 w4": FilterPlan(1024, 1, 1, 4),
    "1 w8": FilterPlan(1024, 1, 1, 8),
    "1 w8 o32": FilterPlan(1024, 1, 1, 8, at_once=32),
    "1 w16 o32": FilterPlan(1024, 1, 1, 16, at_once=32),
    "8 w4 rounds": FilterPlan(1024, 8, 3, 4, rounds=True),
    "8 w8 rounds": FilterPlan(1024, 8, 3, 8, rounds=True),
    "8 w4 o32 rounds": FilterPlan(1024, 8, 3, 4, rounds=True, at_once=32),
    "8 w8 o32 rounds": FilterPlan(1024, 8, 3, 8, rounds=True, at_once=32),
}
"""Steps of the reading kernel; warps and parts at once (o) of the deciding one."""

CASES = (Case(1, 3, 128256, "one-hot", 0.7), Case(256, 3, 128256, "one-hot", 0.7),
         Case(32, 3, 128256, "one-hot", 0.7), Case(256, 7, 128256, "one-hot", 0.2))  # fmt: skip


def call(inputs: Inputs, setting: str, plan: FilterPlan, space: FilterWorkspace) -> Call:
    """One verification with a given plan."""
    filters = Filters(*fields(inputs.case.requests, setting))
    proposal = Proposal(probs=inputs.draft_probs)
    return lambda: verify_filtered(
        inputs.target, inputs.drafts, inputs.cu, inputs.temperature, inputs.seeds, inputs.positions,
        filters, max_drafts=inputs.case.drafts, proposal=proposal, workspace=space, plan=plan,
    )  # fmt: skip


def compile_one(name: str) -> None:
    """Fill Triton's cache in a process of its own."""
    inputs = build(Case(2, 3, 128256, "one-hot", 0.7), torch.Generator(device="cuda"))
    call(inputs, "k 50, p 0.9", PLANS[name], FilterWorkspace("cuda"))()
    torch.cuda.synchronize()


def main() -> None:
    """Compile side by side, then time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after as many")
    parser.add_argument("--settings", nargs="*", default=["k 50, p 0.9"])
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing was timed")
        return
    start = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(12, mp_context=context) as pool:
        list(pool.map(compile_one, PLANS))
    print("settings:", ", ".join(options.settings))
    print(f"compiled in {time.monotonic() - start:.0f} s", flush=True)
    for case in CASES:
        if time.monotonic() - start > options.seconds:
            break
        generator = torch.Generator(device="cuda").manual_seed(1)
        count = max(2, min(24, math.ceil(200e6 / (case.rows * case.vocab * 2))))
        sets = [build(case, generator) for _ in range(count)]
        plain = graph_us([contenders.ours(one) for one in sets], replays=7)
        print(f"B={case.requests} K={case.drafts} acceptance {case.acceptance}: plain {plain:.1f}")
        for name, plan in PLANS.items():
            if ("rounds" in name) != (case.requests == 256):
                continue
            space = FilterWorkspace("cuda")
            cells = [
                graph_us([call(one, setting, plan, space) for one in sets], replays=5)
                for setting in options.settings
            ]
            print(f"  {name:20s}" + "".join(f"{us:9.1f}" for us in cells), flush=True)
        del sets
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
