"""Checks the trial loop on a GPU, times ways to cut its kernels, and says how fast it is.

    python benchmarks/tune_trials.py [--skip-kernels]

First the counts of the loop must equal those of the host's path.  Then each kernel is timed in
CUDA graphs for several sizes, on blocks of 2**26 logits that do not fit into the cache; the choice
made of them stands in ``specverify/_device_sizes.py``.  Last the whole loop is timed
for several sizes of a block (``DEVICE_ELEMENTS`` in ``specverify/trials.py``), beside the sampler
alone and beside what the host takes for a block, whatever its size.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from device_trials import EVERYTHING, LOSSLESS, seconds
from specverify.kernels import triton_chain
from timing import graph_us

from specverify import _device_sizes as sizes
from specverify import trials
from specverify._device_blocks import DeviceBlocks
from specverify.cases import Case, RequestSpec, Seeding, make_case
from specverify.checks.tables import Table, tables_of
from specverify.contract import Batch
from specverify.subjects import Subject
from specverify.trials import IntArray, device_block, run_block, run_trials, stream_of

SUBJECT = Subject.of(triton_chain, "triton")
MAIN = make_case("random/dense-V16-K4", 16, (RequestSpec(drafts=4),), True)
RAGGED = (RequestSpec(drafts=2), RequestSpec(drafts=0), RequestSpec(drafts=3, temperature=0.0))
HOLES = (RequestSpec(drafts=3, temperature=0.7, placeholders=frozenset({1})), RequestSpec(drafts=1))
CHECKED = (
    MAIN,
    make_case("tune/ragged", 5, RAGGED, True, "bfloat16", seeding=Seeding.SAME),
    make_case("tune/holes", 16, HOLES, True, seeding=Seeding.DESCENDING),
    make_case("tune/one-hot", 64, (RequestSpec(drafts=2),), False, seeding=Seeding.ASCENDING),
    make_case("tune/wide", 256, (RequestSpec(drafts=1),), True),
)
CHECKED_TRIALS = 60_000
SIZE = 1 << 26
FILLS = ((1024, 2), (1024, 4), (2048, 2), (2048, 4), (2048, 8), (4096, 4), (4096, 8))
READS = ((64, 2), (128, 2), (128, 4), (256, 4), (256, 8), (512, 8))
COUNTS = ((1024, 2), (1024, 4), (2048, 4), (4096, 4), (4096, 8), (8192, 8))
PROGRAMS = (528, 1056, 2112, 4224)
ELEMENTS = (1 << 26, 1 << 27, 1 << 28, 1 << 29)
AHEAD = (0, 132, 264, 528, 1056)
BLOCKS = 24
TINY = 1 << 14


def _counts(case: Case, resident: bool) -> dict[str, IntArray]:
    """By the host's path or on the GPU, there in blocks as small as the host's."""
    kept = trials.stays_on, trials.DEVICE_ELEMENTS
    trials._builder.cache_clear()
    trials.stays_on, trials.DEVICE_ELEMENTS = (lambda _device, _case: resident), 1
    try:
        tables = tables_of(case, EVERYTHING, SUBJECT.capabilities)
        return run_trials(
            SUBJECT, case, tables, root_seed=5, trials=CHECKED_TRIALS, device="cuda"
        )  # fmt: skip
    finally:
        trials.stays_on, trials.DEVICE_ELEMENTS = kept
        trials._builder.cache_clear()


def check() -> None:
    """Exit if a count differs from that of the host's path."""
    for case in CHECKED:
        host, device = _counts(case, False), _counts(case, True)
        wrong = [name for name in host if not np.array_equal(host[name], device[name])]
        verdict = f"DIFFER: {', '.join(wrong)}" if wrong else "equal"
        print(f"{case.name}: counts of {len(host)} tables {verdict}", flush=True)
        if wrong:
            raise SystemExit(1)


def _size(elements: int) -> int:
    return elements // (MAIN.num_rows * MAIN.vocab_size) // 2 * 2


def _builder() -> DeviceBlocks:
    return DeviceBlocks(MAIN, stream_of(1, MAIN), "cuda", 5, SUBJECT.capabilities)


def _show(title: str, found: list[tuple[float, tuple[int, ...]]]) -> None:
    best = "  ".join(f"{'/'.join(map(str, cut))} {us:.0f}" for us, cut in sorted(found))
    print(f"{title}, us: {best}", flush=True)


def kernels() -> None:
    """Each kernel alone, its fastest cut first; leaves the module's constants as they were."""
    builder, count = _builder(), _size(SIZE)
    block = builder.build(0, count)
    emission = triton_chain(block.batch)
    print(f"{count:,} trials; sampler {sampler_us(block.batch):.0f} us")
    fill = functools.partial(builder.build, count, count)
    _show("fill (logits / warps)", _times(fill, FILLS, "FILL_LOGITS", "FILL_WARPS"))
    read = functools.partial(builder.account, emission, block, 0)
    _show("read (trials / warps)", _times(read, READS, "READ_BLOCK", "READ_WARPS"))
    outcomes = run_block(SUBJECT, builder, 0, count)
    for families in (LOSSLESS, EVERYTHING):
        tables = tables_of(MAIN, families, SUBJECT.capabilities)
        counter = builder.counter({table.name: table.cells for table in tables})
        tally = functools.partial(counter.count, tables, outcomes)
        tally()  # the recipes are uploaded once
        title = f"count {len(tables)} tables"
        _show(f"{title} (chunk / warps)", _times(tally, COUNTS, "COUNT_CHUNK", "COUNT_WARPS"))
        programs = _times(tally, [(one,) for one in PROGRAMS], "COUNT_PROGRAMS")
        _show(f"{title} (programs)", programs)


def sampler_us(batch: Batch) -> float:
    """Microseconds of the sampler by wall time: it reads a flag back, so that no graph holds it."""
    return seconds(lambda: triton_chain(batch)) * 1e6


def _times(
    call: functools.partial[object], cuts: Sequence[tuple[int, ...]], *names: str
) -> list[tuple[float, tuple[int, ...]]]:
    """Microseconds of a call for several values of constants of ``_device_sizes``."""
    kept = [getattr(sizes, name) for name in names]
    found = []
    for cut in cuts:
        for name, value in zip(names, cut, strict=True):
            setattr(sizes, name, value)
        found.append((graph_us([call, call], replays=7), cut))
    for name, value in zip(names, kept, strict=True):
        setattr(sizes, name, value)
    return found


def _run_us(tables: Sequence[Table], number: int, block: int | None = None) -> float:
    """Microseconds of ``run_trials``, median of 3."""
    run = functools.partial(
        run_trials, SUBJECT, MAIN, tables, root_seed=1, trials=number, device="cuda", block=block
    )
    return seconds(run, 3) * 1e6


def loop() -> None:
    """Rates of the sampler alone and of the loop, for several sizes of a block."""
    tables = tables_of(MAIN, LOSSLESS, SUBJECT.capabilities)
    tiny = _size(TINY)
    host = (_run_us(tables, 101 * tiny, tiny) - _run_us(tables, tiny, tiny)) / 100
    print(f"host: {host:.0f} us a block (what one more block of {tiny} trials takes)", flush=True)
    kept = trials.DEVICE_ELEMENTS, sizes.AHEAD_PROGRAMS
    for elements in ELEMENTS:
        trials.DEVICE_ELEMENTS = elements
        count = device_block(MAIN, "cuda")
        batches = [_builder().build(start, count).batch for start in (0, count)]
        alone = seconds(lambda those=batches: [triton_chain(one) for one in those]) / 2 * 1e6
        del batches
        print(
            f"2**{elements.bit_length() - 1} logits, {count:,} trials a block: sampler "
            f"{alone:.0f} us, {count / alone * 1e6:.3g}/s; run_trials by programs ahead:",
            flush=True,
        )
        for programs in AHEAD:
            sizes.AHEAD_PROGRAMS = programs
            _report(tables, programs, count, alone)
    trials.DEVICE_ELEMENTS, sizes.AHEAD_PROGRAMS = kept


def _report(tables: Sequence[Table], programs: int, count: int, alone: float) -> None:
    """One line: what one more block costs, and the rate of a whole run."""
    few, many = (_run_us(tables, number * count) for number in (4, BLOCKS))
    block, rate = (many - few) / (BLOCKS - 4), BLOCKS * count / many
    print(
        f"  {programs:>5}: {block:.0f} us a block (share {alone / block:.0%}), "
        f"{rate * 1e6:.3g}/s in all (share {rate * alone / count:.0%})",
        flush=True,
    )


def main() -> None:
    """Check, time the kernels, time the loop."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skip-kernels", action="store_true", help="only the check and the loop")
    options = parser.parse_args()
    start = time.monotonic()
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    check()
    if not options.skip_kernels:
        kernels()
    loop()
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
