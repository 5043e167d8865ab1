"""Times the chain kernels under different plans; the choice in ``Plan.of`` comes from its output.

    python benchmarks/tune.py > docs/gpu/tune.txt
    python benchmarks/tune.py --warm    # only compiles what benchmarks/samplers.py will launch

Plans are compiled beforehand by several processes, which share Triton's cache on disk.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import multiprocessing
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from contenders import ours
from inputs import Case, build
from samplers import grid, input_sets
from specverify.kernels import Plan
from timing import graph_us, read_bandwidth

Job = tuple[Plan, str, bool, int]

PLANS = {
    "all rows, 1 warp, 1": Plan(1024, 1, num_warps=1, lanes=4),
    "all rows, 1 warp, 2": Plan(1024, 2, num_warps=1, lanes=4),
    "all rows, 1 warp, 2, 96": Plan(1024, 2, num_warps=1, max_registers=96, lanes=4),
    "all rows, 2 warps": Plan(1024, 2, num_warps=2, lanes=4),
    "all rows, 4 warps": Plan(1024, 4, lanes=4),
    "all rows, 4 warps, 128": Plan(1024, 4, lanes=4, max_registers=128),
    "all rows, stream, 1 warp": Plan(1024, 2, 4, 3, 1, lanes=4),
    "all rows, stream, 2 warps": Plan(1024, 2, 4, 3, 2, 96, lanes=4),
    "early, 1 warp": Plan(1024, 2, num_warps=1, lanes=4, later=1),
    "early, 2 warps": Plan(1024, 2, 4, 3, 2, 96, lanes=4, later=4),
    "early, 2 warps, larger": Plan(1024, 2, 8, 3, 2, 96, lanes=4, later=8),
    "early, 4 warps": Plan(1024, 4, 4, 3, 4, 96, lanes=4, later=4),
    "rounds, 2 warps": Plan(1024, 2, 4, 3, 2, 96, lanes=4, later=4, wait=64, rounds=True),
    "rounds": Plan(1024, 4, 4, 3, 4, 96, lanes=4, later=4, wait=64, rounds=True),
    "rounds, larger": Plan(1024, 4, 8, 3, 4, 96, lanes=4, later=8, wait=64, rounds=True),
}
"""Ways to cut rows, each for batches that others are too slow for."""
VOCABS = (128256, 32000)
FORMS = ("one-hot", "dense")


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


def overlaps(plan: Plan) -> list[Plan]:
    """The plan as it is, one that starts later, and one that lets the next kernel start early."""
    return [dataclasses.replace(plan, overlap=overlap) for overlap in (1, 0, 2)]


def sensible(plan: Plan, case: Case) -> bool:
    """Whether a plan is worth its time on a case."""
    work = case.rows * (case.vocab // 1024 + 1)
    simple = plan.steps == 1 and not plan.later
    return (work < 150_000) if simple else (work > 2_000)


def tune(path: Path | None) -> None:
    """Time every plan on every case of the grid that may tell them apart."""
    print(f"# read bandwidth {read_bandwidth() / 1e12:.2f} TB/s; microseconds by plan")
    print("\n".join(f"# {number:2d} {name}" for number, name in enumerate(PLANS)))
    numbers = "".join(f"  {i:3d}" for i in range(len(PLANS)))
    print(f"|   V    |  B  | K | drafts  | acc. |  now | alone trigger |{numbers}")
    found = []
    for case in grid("all"):
        if case.vocab not in VOCABS or (case.requests < 128 and case.acceptance < 0.5):
            continue
        sets = input_sets(case)
        now = Plan.of(case.rows, case.vocab, dense=case.kind == "dense")
        times = {
            name: graph_us([ours(one, plan=plan) for one in sets], replays=7)
            for name, plan in zip(("now", "alone", "trigger"), overlaps(now), strict=True)
        }
        for name, plan in PLANS.items():
            if sensible(plan, case):
                times[name] = graph_us([ours(one, plan=plan) for one in sets], replays=7)
        found.append({"case": dataclasses.asdict(case), "us": times})
        cells = "".join(
            f"{times.get(name, float('nan')):5.0f}"
            if times.get(name, 0) >= 100
            else f"{times.get(name, float('nan')):5.1f}"
            for name in PLANS
        )
        print(
            f"| {case.vocab:6d} | {case.requests:3d} | {case.drafts} | {case.kind:7s} | "
            f"{case.acceptance:4.1f} | {times['now']:4.1f} | "
            f"{times['alone']:5.1f} {times['trigger']:5.1f} |"
            f"{cells}",
            flush=True,
        )
        del sets
        torch.cuda.empty_cache()
        if path:
            path.write_text(json.dumps(found))


def main() -> None:
    """Compile, time, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--warm", action="store_true", help="compile only, and for samplers.py")
    parser.add_argument("--json", type=Path, help="write every number here")
    options = parser.parse_args()
    start = time.time()
    every = [
        (plan, kind, False, vocab) for kind in FORMS for vocab in VOCABS for plan in PLANS.values()
    ]
    every += [
        (other, kind, logits, vocab)
        for plan, kind, logits, vocab in chosen()
        if vocab in VOCABS and not logits
        for other in overlaps(plan)
    ]
    compile_all(chosen() if options.warm else every)
    print(f"# compiled in {time.time() - start:.0f} s")
    if not options.warm:
        tune(options.json)


if __name__ == "__main__":
    main()
