"""Trials a second of one core, through everything a verified trial goes through.

    python benchmarks/trials.py [--trials 40000] [--repeats 5]
    python benchmarks/trials.py --gpu        # only what a GPU does: samplers alone, and the loop

One trial draws its drafts, builds its rows, calls the sampler, validates what comes back, completes
the emission and counts it in every table of the law and independence families.  The case is that of
the suite ``random`` with V = 16 and 4 drafts; one thread; the median of several repeats.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import torch

from specverify._blocks import BlockBuilder
from specverify.cases import Case, RequestSpec, make_case
from specverify.checks.tables import Table, tables_of
from specverify.checks.verdict import Family
from specverify.registry import resolve
from specverify.subjects import Subject
from specverify.trials import block_size, run_trials, stream_of

SAMPLERS = ("reference", "reference-match", "flashspec", "transformers")
UNBATCHED_SHARE = 20
"""A sampler of one request a call gets this many times fewer trials."""


def seconds_of(subject: Subject, case: Case, tables: Sequence[Table], trials: int) -> float:
    """Wall time of one run."""
    start = time.perf_counter()
    run_trials(subject, case, tables, root_seed=1, trials=trials)
    return time.perf_counter() - start


def sampler_share(subject: Subject, case: Case, repeats: int) -> float:
    """Median seconds that the sampler alone takes for one trial of a whole block."""
    size = block_size(case)
    size = size if subject.capabilities.batched else size // UNBATCHED_SHARE
    builder = BlockBuilder(case, stream_of(1, case), "cpu", 5, subject.capabilities)
    batch = builder.build(0, size).batch
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subject.sampler(batch)
        times.append(time.perf_counter() - start)
    return statistics.median(times) / size


def line(name: str, case: Case, trials: int, repeats: int) -> str:
    """One line of the table, or why there is none."""
    try:
        subject = resolve(name)
    except ValueError as error:
        return f"{name:<16} {error}"
    reason = case.unsupported(subject.capabilities)
    if reason is not None:
        return f"{name:<16} {reason}"
    # Whole blocks: a subject that is seeded per block runs every block it begins.
    blocks = max(1, (trials if subject.capabilities.batched else trials // UNBATCHED_SHARE)
                 // block_size(case))  # fmt: skip
    count = blocks * block_size(case)
    tables = tables_of(case, (Family.INDEPENDENCE, Family.LAW), subject.capabilities)
    seconds_of(subject, case, tables, count)  # warm
    times = sorted(seconds_of(subject, case, tables, count) for _ in range(repeats))
    alone = sampler_share(subject, case, repeats) * count / statistics.median(times)
    rates = [count / seconds for seconds in times]
    return (
        f"{name:<16} {statistics.median(rates):>10,.0f}   "
        f"{min(rates):>10,.0f} - {max(rates):<10,.0f}  {alone:>5.0%}   {count:,}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=40_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gpu", action="store_true", help="leave the table of one core out")
    options = parser.parse_args()
    case = make_case("random/dense-V16-K4", 16, (RequestSpec(drafts=4),), True)
    if not options.gpu:
        table(case, options.trials, options.repeats)
    if torch.cuda.is_available():
        from device_trials import main as on_the_gpu

        on_the_gpu(case)
    elif options.gpu:
        print("no GPU here")


def table(case: Case, trials: int, repeats: int) -> None:
    """Print the table of one core."""
    torch.set_num_threads(1)
    print(
        f"V = 16, 4 drafts, dense q, torch {torch.__version__}, 1 thread, block {block_size(case)}"
    )
    print(f"{'sampler':<16} {'trials/s':>10}   {'slowest - fastest':^23}  sampler alone   trials")
    for name in SAMPLERS:
        print(line(name, case, trials, repeats), flush=True)


if __name__ == "__main__":
    main()
