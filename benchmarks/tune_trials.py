"""Checks the trial loop on a GPU, times ways to cut its kernels, and says how fast it is.

    python benchmarks/tune_trials.py [--skip-kernels]

First the counts of the loop must equal those of the host's path, and those of the loop with nothing
side by side.  Then each kernel is timed in CUDA graphs for several sizes, on blocks of 2**26 logits
that do not fit into the cache; the choice made of them stands in ``specverify/_device_sizes.py``.
Last the whole loop is timed with the fastest of them, for several sizes of a block
(``DEVICE_ELEMENTS`` in ``specverify/trials.py``) and numbers of programs that draw ahead, beside
the sampler alone; and, by tiny blocks, what the host takes for a block, whatever its size.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from device_trials import EVERYTHING, LOSSLESS, seconds
from specverify.kernels import triton_chain
from timing import eager_us, graph_us

from specverify import _device_sizes as sizes
from specverify import trials
from specverify._device_blocks import DeviceBlocks
from specverify.cases import Case, RequestSpec, Seeding, make_case
from specverify.checks.tables import Table, tables_of
from specverify.contract import Batch, Emission
from specverify.faults import call
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
FILL = "FILL_STEP", "FILL_WARPS"
FILLS = ((1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (2, 8))
READS = ((64, 2), (128, 2), (128, 4), (256, 4), (256, 8))
COUNTS = ((2048, 4), (4096, 4), (4096, 8), (8192, 8))
PROGRAMS = (528, 1056, 2112)
ELEMENTS = (1 << 28, 1 << 29)
AHEAD = (132, 264, 396, 528, 792)
BEST = 3
BLOCKS = 40
TINY = 1 << 14
Cut = tuple[int, ...]


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


class Reusing:
    """The sampler, if it handed out the same two tensors at every call."""

    capabilities = SUBJECT.capabilities

    def __init__(self) -> None:
        self._kept: dict[int, Emission] = {}

    def __call__(self, batch: Batch, /) -> Emission:
        """Verify a batch."""
        new = triton_chain(batch)
        kept = self._kept.setdefault(batch.num_requests, new)
        kept.token_ids.copy_(new.token_ids)
        kept.num_emitted.copy_(new.num_emitted)
        return kept


def check_overlap() -> None:
    """Exit if a count depends on what is done side by side, or on a sampler's use of memory."""
    tables = tables_of(MAIN, EVERYTHING, SUBJECT.capabilities)
    count = 12 * device_block(MAIN, "cuda")
    run = functools.partial(run_trials, case=MAIN, tallies=tables, root_seed=1, trials=count)
    with _set(("AHEAD_PROGRAMS",), (0,)):
        want = run(SUBJECT, device="cuda")
    for subject in (SUBJECT, Subject.of(Reusing(), "reusing")) * 2:
        got = run(subject, device="cuda")
        wrong = [name for name in want if not np.array_equal(want[name], got[name])]
        print(f"{count:,} trials of {subject.name}: {len(wrong)} tables differ", flush=True)
        if wrong:
            raise SystemExit(1)


def _size(elements: int) -> int:
    return elements // (MAIN.num_rows * MAIN.vocab_size) // 2 * 2


def _builder() -> DeviceBlocks:
    return DeviceBlocks(MAIN, stream_of(1, MAIN), "cuda", 5, SUBJECT.capabilities)


def _show(title: str, found: list[tuple[float, Cut]]) -> None:
    best = "  ".join(f"{'/'.join(map(str, cut))} {us:.0f}" for us, cut in sorted(found))
    print(f"{title}, us: {best}", flush=True)


def kernels() -> list[Cut]:
    """Each kernel alone, its fastest cut first.

    Returns:
        the fastest cuts of ``fill_kernel``; the module's constants are as they were.
    """
    builder, count = _builder(), _size(SIZE)
    block = builder.build(0, count)
    emission = triton_chain(block.batch)
    print(f"{count:,} trials; sampler {sampler_us(block.batch):.0f} us")
    found = _times(functools.partial(builder.build, count, count), FILLS, *FILL)
    _show(f"fill ({', '.join(FILL)})", found)
    read = functools.partial(builder.account, emission, block, 0)
    _show("read (trials, warps)", _times(read, READS, "READ_BLOCK", "READ_WARPS"))
    outcomes = run_block(SUBJECT, builder, 0, count)
    for families in (LOSSLESS, EVERYTHING):
        tables = tables_of(MAIN, families, SUBJECT.capabilities)
        counter = builder.counter({table.name: table.cells for table in tables})
        tally = functools.partial(counter.count, tables, outcomes)
        tally()  # the recipes are uploaded once
        title = f"count {len(tables)} tables"
        _show(f"{title} (chunk, warps)", _times(tally, COUNTS, "COUNT_CHUNK", "COUNT_WARPS"))
        programs = _times(tally, [(one,) for one in PROGRAMS], "COUNT_PROGRAMS")
        _show(f"{title} (programs)", programs)
    return [cut for _us, cut in sorted(found)][:BEST]


def few_programs(cuts: Sequence[Cut]) -> None:
    """How long a block takes to fill, alone, by as many programs as draw ahead."""
    builder, count = _builder(), _size(SIZE)
    for cut in cuts:
        with _set(FILL, cut):
            found = [
                (graph_us([functools.partial(builder._draw, 0, count, programs)]), (programs,))
                for programs in AHEAD
            ]
        _show(f"fill {cut} by programs", found)


def host() -> None:
    """What the host takes for a block, and the parts of it; of a tiny block, to be that alone."""
    tables = tables_of(MAIN, LOSSLESS, SUBJECT.capabilities)
    tiny = _size(TINY)
    one = (_run_us(tables, 101 * tiny, tiny) - _run_us(tables, tiny, tiny)) / 100
    builder = _builder()
    block = builder.build(0, tiny)
    emission = triton_chain(block.batch)
    outcomes = run_block(SUBJECT, builder, 0, tiny)
    counter = builder.counter({table.name: table.cells for table in tables})
    calls = {
        "build": functools.partial(builder.build, 0, tiny),
        "ahead": functools.partial(builder.ahead, tiny, tiny),
        "sampler": functools.partial(triton_chain, block.batch),
        "sampler, called as a subject": functools.partial(call, SUBJECT, block.batch, 1),
        "account": functools.partial(builder.account, emission, block, 0),
        "count": functools.partial(counter.count, tables, outcomes),
    }
    parts = ", ".join(f"{name} {eager_us([part] * 50):.0f}" for name, part in calls.items())
    print(f"host: {one:.0f} us a block (one more of {tiny} trials); {parts}", flush=True)


def sampler_us(batch: Batch) -> float:
    """Microseconds of the sampler by wall time: it reads a flag back, so that no graph holds it."""
    return seconds(lambda: triton_chain(batch)) * 1e6


@contextlib.contextmanager
def _set(names: Sequence[str], cut: Cut) -> Iterator[None]:
    """Constants of ``_device_sizes`` for a while."""
    kept = [getattr(sizes, name) for name in names]
    for name, value in zip(names, cut, strict=True):
        setattr(sizes, name, value)
    try:
        yield
    finally:
        for name, value in zip(names, kept, strict=True):
            setattr(sizes, name, value)


def _times(
    call: functools.partial[object], cuts: Sequence[Cut], *names: str
) -> list[tuple[float, Cut]]:
    """Microseconds of a call for several values of constants of ``_device_sizes``."""
    found: list[tuple[float, Cut]] = []
    for cut in cuts:
        with _set(names, cut):
            found.append((graph_us([call, call], replays=7), cut))
    return found


def _run_us(tables: Sequence[Table], number: int, block: int | None = None) -> float:
    """Microseconds of ``run_trials``, median of 3."""
    run = functools.partial(
        run_trials, SUBJECT, MAIN, tables, root_seed=1, trials=number, device="cuda", block=block
    )
    return seconds(run, 3) * 1e6


def loop(fills: Sequence[Cut]) -> None:
    """Rates of the sampler alone and of the loop, for several sizes of a block."""
    tables = tables_of(MAIN, LOSSLESS, SUBJECT.capabilities)
    kept = trials.DEVICE_ELEMENTS
    for elements in ELEMENTS:
        trials.DEVICE_ELEMENTS = elements
        count = device_block(MAIN, "cuda")
        batches = [_builder().build(start, count).batch for start in (0, count)]
        alone = seconds(lambda those=batches: [triton_chain(one) for one in those * 5]) / 10 * 1e6
        del batches
        print(
            f"2**{elements.bit_length() - 1} logits, {count:,} trials a block: sampler "
            f"{alone:.0f} us, {count / alone * 1e6:.3g}/s; run_trials by {FILL}, programs ahead:",
            flush=True,
        )
        for fill in fills:
            for programs in AHEAD:
                _report(tables, (*fill, programs), count, alone)
        _report(tables, (*fills[0], 0), count, alone)
    trials.DEVICE_ELEMENTS = kept


def _report(tables: Sequence[Table], cut: Cut, count: int, alone: float) -> None:
    """One line: what one more block costs, and the rate of a whole run."""
    with _set((*FILL, "AHEAD_PROGRAMS"), cut):
        few, many = (_run_us(tables, number * count) for number in (4, BLOCKS))
    block, rate = (many - few) / (BLOCKS - 4), BLOCKS * count / many
    print(
        f"  {'/'.join(map(str, cut)):>24}: {block:.0f} us a block (share {alone / block:.0%}), "
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
    check_overlap()
    host()
    fills = [tuple(getattr(sizes, name) for name in FILL)]
    if not options.skip_kernels:
        fills = kernels()
        few_programs(fills)
    loop(fills)
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
