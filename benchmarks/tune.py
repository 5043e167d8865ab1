"""Times the chain kernel under different plans; the choice in ``Plan.of`` comes from its output.

    python benchmarks/tune.py > docs/gpu/tune.txt

Plans are compiled beforehand by several processes, which share Triton's cache on disk.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import multiprocessing
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from contenders import ours
from inputs import Case, build
from samplers import input_sets
from specverify.kernels import Plan
from timing import graph_us, read_bandwidth

PLANS = [
    Plan(1024, 4),
    Plan(1024, 8),
    Plan(1024, 8, lanes=4),
    Plan(1024, 4, 4, 3, 4, True, 96),
    Plan(1024, 4, 2, 2, 4, True, 96),
    Plan(1024, 4, 4, 3, 4, False, 96),
    Plan(1024, 4, 4, 3, 4, False, 96, wait=64),
    Plan(1024, 4, 4, 3, 4, False, 80, wait=64),
    Plan(1024, 4, 2, 2, 4, False, 96, wait=64),
    Plan(1024, 4, 8, 3, 4, False, 96, wait=64),
    Plan(1024, 4, 4, 4, 4, False, 96, wait=64),
    Plan(2048, 2, 4, 3, 4, False, 96, wait=64),
]
FORMS = (("one-hot", False), ("dense", False), ("dense", True), ("greedy", False))
SIZES = ((1, 3, 0.7), (8, 3, 0.7), (32, 3, 0.7), (32, 7, 0.7), (128, 3, 0.7), (256, 3, 0.7),
         (256, 7, 0.7), (256, 7, 0.2))  # fmt: skip


def compile_one(job: tuple[Plan, str, bool, int]) -> str:
    """Launch one plan once on a tiny batch, for its entry in the cache."""
    plan, kind, logits, vocab = job
    one = build(Case(1, 3, vocab, kind, 0.5), torch.Generator(device="cuda").manual_seed(1))
    ours(one, logits=logits, plan=plan)()
    torch.cuda.synchronize()
    return f"{plan}"


def compile_all(plans: list[Plan], vocab: int) -> None:
    """Fill the cache with twelve processes."""
    jobs = [(p, kind, logits, vocab) for p, (kind, logits) in itertools.product(plans, FORMS)]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(12, mp_context=context) as pool:
        for future in [pool.submit(compile_one, job) for job in jobs]:
            try:
                future.result()
            except Exception as error:
                print(f"# {type(error).__name__}: {str(error)[:200]}")


def main() -> None:
    """Compile, time, print."""
    start = time.time()
    plans = PLANS
    compile_all(plans, 128256)
    bandwidth = read_bandwidth()
    print(f"# compiled in {time.time() - start:.0f} s; read bandwidth {bandwidth / 1e12:.2f} TB/s")
    for kind, logits in FORMS:
        print(f"\n{kind}{', draft logits' if logits else ''}: microseconds, V = 128256")
        print(
            "plan (tile, group, steps, stages, warps, clean, registers, grow, lanes, wait) | "
            + " | ".join(f"{b}x{k}@{a}" for b, k, a in SIZES)
        )
        sets = {size: input_sets(Case(*size[:2], 128256, kind, size[2])) for size in SIZES}
        for plan in plans:
            cells = []
            for size in SIZES:
                try:
                    calls = [ours(one, logits=logits, plan=plan) for one in sets[size]]
                    cells.append(f"{graph_us(calls, replays=7):7.1f}")
                except Exception as error:
                    cells.append(type(error).__name__[:7])
            label = " ".join(str(value) for value in dataclasses.astuple(plan))
            print(f"{label:50s} | " + " | ".join(cells), flush=True)
        del sets
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
