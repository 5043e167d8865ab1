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
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
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
DEVICE_ELEMENTS = 1 << 26
"""Logits in one call where trials stay on a GPU: what it costs to launch one must vanish, too."""
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
            drafts=[to_host(drafts) for drafts in self.drafts],
            accepted=to_host(self.accepted),
            last=to_host(self.last),
            completed=[to_host(tokens) for tokens in self.completed],
        )


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
    size = _checked_block(subject, case, block, trials, first_trial, stays_on(device, case))
    horizon = max((tally.horizon for tally in tallies), default=0)
    builder = _builder(case, root_seed, device, horizon, subject.capabilities.convention)
    builder.forget()  # nothing that a sampler has had in its hands is handed out again
    counter = builder.counter({tally.name: tally.cells for tally in tallies})
    for start in range(first_trial, first_trial + trials, size):
        length = min(size, first_trial + trials - start)
        # A shorter last block still runs whole for subjects that are seeded per block.
        whole = length if subject.capabilities.per_request_seeds else size
        outcomes = run_block(subject, builder, start, whole, watch=start == first_trial)
        counter.count(tallies, outcomes.head(length))
        if progress is not None:
            progress(start + length - first_trial, trials)
    builder.settle(functools.partial(run_block, subject))
    return counter.result()


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
        and importlib.util.find_spec("triton") is not None
    )


def stream_of(root_seed: int, case: Case) -> Stream:
    """The stream that drafts, seeds and completions of a case come from."""
    return Stream.derive(root_seed, "trials", case.name)


def run_block(
    subject: Subject, builder: BlockBuilder, first_trial: int, trials: int, *, watch: bool = False
) -> Outcomes:
    """One call of the subject: build the batch, call, validate, complete.

    Raises:
        SamplerFault: as :func:`run_trials`.
    """
    block = builder.build(first_trial, trials)
    seed = builder.stream.bits64(first_trial, 0, 1, Purpose.SEED)
    emission = call(subject, block.batch, int(seed), watch_input=watch)
    accepted, last, completed = builder.account(emission, block, first_trial)
    return Outcomes(
        first_trial=first_trial,
        drafts=block.drafts,
        accepted=accepted,
        last=last,
        completed=completed,
    )


def merge(parts: Sequence[Mapping[str, IntArray]]) -> dict[str, IntArray]:
    """Add the counts of shards."""
    names = parts[0].keys() if parts else ()
    return {name: np.sum([part[name] for part in parts], axis=0, dtype=np.int64) for name in names}


def _checked_block(
    subject: Subject, case: Case, block: int | None, trials: int, first_trial: int, stays: bool
) -> int:
    size = block_size(case)
    if trials < 1:
        raise ValueError(f"trials: got {trials}; expected at least 1")
    if first_trial < 0 or first_trial % 2:
        raise ValueError(f"first_trial: got {first_trial}; expected an even integer >= 0")
    if subject.capabilities.per_request_seeds:
        if block is not None and (block < 2 or block % 2):
            raise ValueError(f"block: got {block}; expected an even number >= 2")
        if stays and block is None:
            size = max(size, DEVICE_ELEMENTS // (case.num_rows * case.vocab_size) // 2 * 2)
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
    "merge",
    "run_block",
    "run_trials",
    "stream_of",
]
