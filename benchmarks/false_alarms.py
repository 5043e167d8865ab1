"""How often a whole gate run accuses a correct sampler, at an alpha that can be measured.

    python benchmarks/false_alarms.py [--runs 2000] [--alpha 0.05] [--workers 2] [--seed 0]

Every run is what the gate does: all tests of a few cases, alpha split over them before anything
runs, the verdict FAIL if one of them rejects.  Only alpha differs: at the gate's 1e-6 nobody could
wait for a false alarm, so it is set to 0.05 here and the promise is the same: at most alpha of the
runs may fail, whatever the number of tests.  Seeds are fixed, so the answer is too; interrupted, it
answers for the runs that are done.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import functools
import multiprocessing
import sys
import time

import torch
from specverify.suites.declare import COUPLING, case, r

from specverify import evidence
from specverify.checks.experiment import Settings
from specverify.checks.statistical import StatisticalExperiment
from specverify.checks.verdict import Status
from specverify.gate import split
from specverify.registry import resolve
from specverify.subjects import Subject

SUITE = "false-alarms"
CONFIDENCE = 0.99


def experiments() -> tuple[StatisticalExperiment, ...]:
    """A few cheap cases of every family: dense and one-hot, ragged, filtered, a placeholder."""
    return (
        case(SUITE, "dense", 4, r(drafts=2), r(drafts=1, temperature=0.75)),
        case(SUITE, "one-hot", 3, r(drafts=2), dense=False),
        case(SUITE, "filtered", 5, r(drafts=1, top_k=3), r(drafts=0, top_p=0.8)),
        case(SUITE, "placeholder", 3, r(drafts=2, placeholders=frozenset({1}))),
        case(SUITE, "rule", 4, r(drafts=2), families=COUPLING),
    )


def count_tests(subject: Subject) -> int:
    """The statistical tests of one run, as the gate counts them at collection."""
    return sum(one.plan(subject.capabilities).tests for one in experiments())


def run_once(run: int, *, sampler: str, seed: int, alpha: float, trials: int) -> tuple[str, ...]:
    """The families whose checks rejected in one run; empty if the run passes."""
    torch.set_num_threads(1)
    subject = resolve(sampler)
    settings = Settings(
        root_seed=seed * 1_000_003 + run, alpha=split(alpha, count_tests(subject)), trials=trials
    )
    verdicts = [v for one in experiments() for v in one.run(subject, settings)]
    assert sum(v.alpha for v in verdicts) <= alpha * (1 + 1e-9)
    return tuple(v.family.value for v in verdicts if v.status is Status.FAIL)


@dataclasses.dataclass(frozen=True)
class Answer:
    """How many runs failed, and whether that can be reconciled with alpha."""

    runs: int
    failed: int
    alpha: float

    @property
    def interval(self) -> tuple[float, float]:
        """Exact confidence interval of the share of failing runs (Clopper & Pearson 1934)."""
        return evidence.clopper_pearson(self.failed, self.runs, CONFIDENCE)

    @property
    def compatible(self) -> bool:
        """Whether a share of at most alpha lies in the interval."""
        return self.interval[0] <= self.alpha

    def __str__(self) -> str:
        low, high = self.interval
        word = "compatible" if self.compatible else "NOT compatible"
        return (
            f"{self.failed} of {self.runs} runs failed: {self.failed / self.runs:.4f}, "
            f"{CONFIDENCE:.0%} interval [{low:.4f}, {high:.4f}]: {word} with <= {self.alpha:g}"
        )


def main() -> int:
    """Print the answer; exit code 1 if it breaks the promise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--sampler", default="reference", help="a mutant must fail every run")
    options = parser.parse_args()
    once = functools.partial(
        run_once,
        sampler=options.sampler,
        seed=options.seed,
        alpha=options.alpha,
        trials=options.trials,
    )
    started = time.perf_counter()
    spawn = multiprocessing.get_context("spawn")
    outcomes: list[tuple[str, ...]] = []
    with concurrent.futures.ProcessPoolExecutor(options.workers, mp_context=spawn) as pool:
        try:
            # In order, so that those done when it is interrupted are the first runs, not the quick.
            for failed in pool.map(once, range(options.runs), chunksize=10):
                outcomes.append(failed)
                if len(outcomes) % 100 == 0:
                    said = f"{sum(map(bool, outcomes))} of {len(outcomes)} runs failed so far"
                    print(said, file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
    if not outcomes:
        return 1
    seconds = time.perf_counter() - started
    families = collections.Counter(family for failed in outcomes for family in failed)
    answer = Answer(len(outcomes), sum(map(bool, outcomes)), options.alpha)
    tests = count_tests(resolve(options.sampler))
    print(f"{options.sampler}: {tests} tests a run, {options.trials} trials each case, "
          f"seed {options.seed}, {seconds:.0f} s")  # fmt: skip
    print(answer)
    print("rejections by family:", dict(sorted(families.items())) or "none")
    return 0 if answer.compatible else 1


if __name__ == "__main__":
    raise SystemExit(main())
