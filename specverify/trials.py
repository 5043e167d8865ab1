"""Runs a subject over many seeded trials of one case and returns counts.

Trial ``t`` of request ``i`` takes its drafts, its seed and its completion from counter-based
streams keyed by (root seed, case) and counted by (t, i), so counts do not depend on how trials are
cut into calls, shards or workers, and merging is adding.  A subject whose randomness belongs to the
whole call (no ``per_request_seeds``) is seeded once per block, and a block is always the same
trials: for it, the block is the unit that shards are made of.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from specverify._blocks import BlockBuilder
from specverify._cells import to_host
from specverify.cases import Case
from specverify.contract import Capabilities
from specverify.faults import SamplerFault, call
from specverify.streams import Purpose, Stream
from specverify.subjects import Subject

IntArray = NDArray[np.int64]

BLOCK_ELEMENTS = 1 << 21
"""Logits in one call: large enough that per-call overhead vanishes, small enough for the cache."""
MAX_BLOCK = 8192
DEVICE_ELEMENTS = 1 << 28
"""Logits in one call where trials stay on a GPU: what it costs to launch one must vanish, too.

``benchmarks/tune_trials.py`` measures the choice.
"""
DEVICE_BYTES = 256
"""Free memory that every one of these logits needs: its q, its share of what is kept of a trial,
and double precision of all of them, several times, in a sampler."""
DEVICE_ROW = 16
"""Logits that a row of fewer counts for: what a trial needs beside them."""
DEVICE_VOCAB = 256
"""Largest vocabulary of a case whose trials stay on a GPU."""


@dataclasses.dataclass(frozen=True, eq=False)
class Outcomes:
    """What happened in a run of consecutive trials; T trials, B requests.

    Where trials stay on a GPU the arrays are tensors there, and a tally that is not made of
    :class:`~specverify._cells.Cells` is given ``on_host()``.

    Attributes:
        first_trial: number of the first trial.
        drafts: for each request, [T, k_i] the drafts (placeholder slots hold -1).
        accepted: [T, B] accepted drafts.
        last: [T, B] the recovered or bonus token.
        completed: for each request, [T, H_i] the emission completed by the target's own draws.
    """

    first_trial: int
    drafts: list[IntArray]
    accepted: IntArray
    last: IntArray
    completed: list[IntArray]

    def head(self, trials: int) -> Outcomes:
        """The first trials alone."""
        if trials == self.accepted.shape[0]:
            return self
        return Outcomes(
            first_trial=self.first_trial,
            drafts=[drafts[:trials] for drafts in self.drafts],
            accepted=self.accepted[:trials],
            last=self.last[:trials],
            completed=[tokens[:trials] for tokens in self.completed],
        )

    def on_host(self) -> Outcomes:
        """The same as numpy arrays."""
        if isinstance(self.accepted, np.ndarray):
            return self
        return Outcomes(
            first_trial=self.first_trial,
            drafts=[_whole(drafts) for drafts in self.drafts],
            accepted=_whole(self.accepted),
            last=_whole(self.last),
            completed=[_whole(tokens) for tokens in self.completed],
        )


def _whole(values: object) -> IntArray:
    """As int64 on the host: on a GPU tokens are kept in fewer bits than indices need."""
    return np.asarray(to_host(values), dtype=np.int64)


class Tally(Protocol):
    """Sorts trials into cells."""

    @property
    def name(self) -> str:
        """Unique among the tallies of a run."""
        ...

    @property
    def cells(self) -> int:
        """Number of cells."""
        ...

    @property
    def horizon(self) -> int:
        """How many completed tokens of a request it looks at (0: none)."""
        ...

    def index(self, outcomes: Outcomes) -> IntArray:
        """The cell of every trial (or of every pair of trials t, t + 1 with t even)."""
        ...


def block_size(case: Case) -> int:
    """Trials in one block of a case: a function of the case alone, never of the machine."""
    # Even, so that pairs of trials (t, t + 1) never fall into different calls.
    return max(2, min(MAX_BLOCK, BLOCK_ELEMENTS // (case.num_rows * case.vocab_size)) // 2 * 2)


def run_trials(
    subject: Subject,
    case: Case,
    tallies: Sequence[Tally],
    *,
    root_seed: int,
    trials: int,
    first_trial: int = 0,
    device: str = "cpu",
    block: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, IntArray]:
    """Run trials ``first_trial .. first_trial + trials - 1`` and count.

    Args:
        subject: the sampler under test.
        case: what it is given.
        tallies: what is counted.
        root_seed: of the run.
        trials: how many.
        first_trial: where to begin; even, and a multiple of the block for subjects without
            per-request seeds.
        device: torch device type.
        block: trials in one call, even; only subjects with per-request seeds may be given another
            than :func:`block_size`.
        progress: called with (done, planned) after each block.

    Returns:
        counts [cells] for each tally, by name.

    Raises:
        ValueError: if ``trials``, ``first_trial`` or ``block`` do not fit.
        SamplerFault: if the subject raises, returns something malformed, or changes its input.
    """
    size = _checked_block(subject, case, block, trials, first_trial)
    first = size  # trials of the block that is watched and validated
    if block is None and subject.capabilities.per_request_seeds and stays_on(device, case):
        size = device_block(case, device)
    horizon = max((tally.horizon for tally in tallies), default=0)
    builder = _builder(case, root_seed, device, horizon, subject.capabilities.convention)
    builder.forget()  # nothing that a sampler has had in its hands is handed out again
    counter = builder.counter({tally.name: tally.cells for tally in tallies})
    # A shorter last block still runs whole for subjects that are seeded per block.
    least = 1 if subject.capabilities.per_request_seeds else size
    cuts = list(_cuts(first_trial, first_trial + trials, first, size))
    seeds = _seeds(builder, [start for start, _length in cuts])
    for number, (start, length) in enumerate(cuts):
        for after, many in cuts[number + 1 : number + 2]:
            builder.ahead(after, max(many, least))
        whole = max(length, least)
        outcomes = run_block(
            subject, builder, start, whole, watch=start == first_trial, seed=seeds[number]
        )
        counter.count(tallies, outcomes.head(length))
        if progress is not None:
            progress(start + length - first_trial, trials)
    builder.settle(functools.partial(run_block, subject))
    return counter.result()


def _cuts(start: int, end: int, first: int, size: int) -> Iterator[tuple[int, int]]:
    """First trial and trials of each block: one of ``first`` trials, then blocks of ``size``."""
    while start < end:
        length = min(first, end - start)
        yield start, length
        start, first = start + length, size


@functools.lru_cache(maxsize=2)
def _builder(
    case: Case, root_seed: int, device: str, horizon: int, convention: str
) -> BlockBuilder:
    """The tables of a case, kept from one look to the next: they cost as much as many trials."""
    kind = BlockBuilder
    if stays_on(device, case):
        from specverify import _device_blocks  # needs triton

        kind = _device_blocks.DeviceBlocks
    stream = stream_of(root_seed, case)
    return kind(case, stream, device, horizon, Capabilities(convention=convention))


def stays_on(device: str, case: Case) -> bool:
    """Whether trials of a case are made, read and counted on the device that they run on."""
    return (
        device.partition(":")[0] == "cuda"
        and case.vocab_size <= DEVICE_VOCAB
        and sum(table.numel() for one in case.requests for table in one.target) < 2**31
        and importlib.util.find_spec("triton") is not None
    )


def device_block(case: Case, device: str) -> int:
    """Trials in one block of a case whose trials stay on a GPU, at most a share of its free memory.

    Only for subjects with per-request seeds: for them no count depends on it.
    """
    elements = DEVICE_ELEMENTS
    if torch.cuda.is_available():
        free = torch.cuda.mem_get_info(device)[0]
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        elements = min(elements, (free + kept) // DEVICE_BYTES)
    row = max(case.vocab_size, DEVICE_ROW)
    return max(block_size(case), elements // (case.num_rows * row) // 2 * 2)


def stream_of(root_seed: int, case: Case) -> Stream:
    """The stream that drafts, seeds and completions of a case come from."""
    return Stream.derive(root_seed, "trials", case.name)


def run_block(
    subject: Subject,
    builder: BlockBuilder,
    first_trial: int,
    trials: int,
    *,
    watch: bool = False,
    seed: int | None = None,
) -> Outcomes:
    """One call of the subject: build the batch, call, validate, complete.

    Args:
        subject: the sampler under test.
        builder: of the case.
        first_trial: the block's first trial.
        trials: how many.
        watch: whether a change of the input is looked for.
        seed: of the global generators, if it is known already.

    Raises:
        SamplerFault: as :func:`run_trials`.
    """
    block = builder.build(first_trial, trials)
    if seed is None:
        [seed] = _seeds(builder, [first_trial])
    emission = call(subject, block.batch, seed, watch_input=watch)
    accepted, last, completed = builder.account(emission, block, first_trial)
    return Outcomes(
        first_trial=first_trial,
        drafts=block.drafts,
        accepted=accepted,
        last=last,
        completed=completed,
    )


def _seeds(builder: BlockBuilder, starts: list[int]) -> list[int]:
    """What the global generators are seeded with before each block, all drawn at once."""
    seeds: list[int] = builder.stream.bits64(np.array(starts), 0, 1, Purpose.SEED).tolist()
    return seeds


def merge(parts: Sequence[Mapping[str, IntArray]]) -> dict[str, IntArray]:
    """Add the counts of shards."""
    names = parts[0].keys() if parts else ()
    return {name: np.sum([part[name] for part in parts], axis=0, dtype=np.int64) for name in names}


def _checked_block(
    subject: Subject, case: Case, block: int | None, trials: int, first_trial: int
) -> int:
    size = block_size(case)
    if trials < 1:
        raise ValueError(f"trials: got {trials}; expected at least 1")
    if first_trial < 0 or first_trial % 2:
        raise ValueError(f"first_trial: got {first_trial}; expected an even integer >= 0")
    if subject.capabilities.per_request_seeds:
        if block is not None and (block < 2 or block % 2):
            raise ValueError(f"block: got {block}; expected an even number >= 2")
        return block or size
    if block not in (None, size):
        raise ValueError(
            f"block: got {block}; expected {size}: a sampler without per-request seeds is seeded "
            "once per block"
        )
    if first_trial % size:
        raise ValueError(f"first_trial: got {first_trial}; expected a multiple of the block {size}")
    return size


__all__ = [
    "IntArray",
    "Outcomes",
    "SamplerFault",
    "Tally",
    "block_size",
    "device_block",
    "merge",
    "run_block",
    "run_trials",
    "stream_of",
]
