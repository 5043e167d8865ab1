"""Times the chain kernels under different plans; the choice in ``Plan.of`` comes from its output.

    python benchmarks/tune.py > docs/gpu/tune.txt
    python benchmarks/tune.py --warm    # only compiles what benchmarks/samplers.py will launch

Plans are compiled beforehand by several processes, which share Triton's cache on disk.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from contenders import ours, vllm
from inputs import Case, build
from samplers import grid, input_sets
from specverify.kernels import Plan
from timing import graph_us, read_bandwidth

Job = tuple[Plan, str, bool, int]

PLANS = {
    "all rows, 1 warp": Plan(1024, 2, num_warps=1, lanes=2),
    "all rows, 4 warps": Plan(1024, 4, lanes=4, max_registers=128),
    "all rows, stream, 1 warp": Plan(1024, 2, 4, 3, 1, lanes=2),
    "early, 2 warps": Plan(1024, 2, 4, 3, 2, 96, lanes=4, later=4),
    "early, 2 warps, larger": Plan(1024, 2, 4, 3, 2, 96, lanes=4, later=8),
    "early, 4 warps": Plan(1024, 4, 4, 3, 4, 96, lanes=4, later=4),
    "rounds": Plan(1024, 4, 4, 3, 4, 96, later=4, wait=64, rounds=True),
    "rounds, larger": Plan(1024, 4, 8, 3, 4, 96, later=8, wait=64, rounds=True),
}
FORMS = (("one-hot", False), ("dense", False), ("dense", True))
SIZES = ((1, 3, 0.7), (8, 3, 0.7), (32, 3, 0.7), (32, 7, 0.2), (128, 3, 0.7), (128, 7, 0.2),
         (256, 3, 0.7), (256, 7, 0.7), (256, 7, 0.2))  # fmt: skip


def compile_one(job: Job) -> None:
    """Launch one plan once on a tiny batch, for its entry in the cache."""
    plan, kind, logits, vocab = job
    one = build(Case(1, 3, vocab, kind, 0.5), torch.Generator(device="cuda").manual_seed(1))
    ours(one, logits=logits, plan=plan)()
    torch.cuda.synchronize()


def compile_all(jobs: Iterable[Job]) -> None:
    """Fill the cache with fourteen processes."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(14, mp_context=context) as pool:
        for future, job in [(pool.submit(compile_one, job), job) for job in jobs]:
            try:
                future.result()
            except Exception as error:
                print(f"# {job}: {type(error).__name__}: {str(error)[:200]}")


def chosen() -> list[Job]:
    """What ``Plan.of`` chooses for the whole grid, the costly forms first."""
    jobs = set()
    for case in grid("all"):
        dense = case.kind == "dense"
        plan = Plan.of(case.rows, case.vocab, dense=dense)
        form = "dense" if dense else "one-hot"
        both = (False, True) if dense else (False,)
        jobs |= {(plan, form, logits, case.vocab) for logits in both}
    return sorted(jobs, key=lambda job: (job[1], not job[2]))


def tune() -> None:
    """Time every plan on every form and size."""
    bandwidth = read_bandwidth()
    print(f"# read bandwidth {bandwidth / 1e12:.2f} TB/s; microseconds, V = 128256")
    for kind, logits in FORMS:
        print(f"\n{kind}{', draft logits' if logits else ''}")
        print(f"{'plan':26s}" + "".join(f"{f'{b}x{k}@{a}':>10s}" for b, k, a in SIZES))
        sets = {size: input_sets(Case(*size[:2], 128256, kind, size[2])) for size in SIZES}
        for name, plan in PLANS.items():
            calls = [[ours(one, logits=logits, plan=plan) for one in sets[size]] for size in SIZES]
            cells = "".join(f"{graph_us(some, replays=7):10.1f}" for some in calls)
            print(f"{name:26s}{cells}", flush=True)
        cells = "".join(
            f"{graph_us([vllm(one) for one in sets[size]], replays=7):10.1f}" for size in SIZES
        )
        print(f"{'vllm':26s}{cells}", flush=True)
        del sets
        torch.cuda.empty_cache()


def main() -> None:
    """Compile, time, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--warm", action="store_true", help="compile only, and for samplers.py")
    options = parser.parse_args()
    start = time.time()
    every = [(plan, kind, logits, 128256) for kind, logits in FORMS for plan in PLANS.values()]
    compile_all(chosen() if options.warm else every)
    print(f"# compiled in {time.time() - start:.0f} s")
    if not options.warm:
        tune()


if __name__ == "__main__":
    main()
