"""Host side of the chain kernels: plans the launch, owns the scratch, never synchronises.

Everything that a launch depends on is a shape, a stride, a dtype or the largest draft count, which
the caller gives; no value is read back, so a call may be captured into a CUDA graph.
"""

from __future__ import annotations

import dataclasses
import functools

import torch
import triton
from specverify.kernels._direct import launch, overlaps
from specverify.kernels._launch_filtered import filter_logits
from specverify.kernels.chain import LOGITS, ONE_HOT, PROBS, chain_kernel
from specverify.kernels.chain_rounds import rounds_kernel

ROUNDS_DRAFTS = 27
"""Most drafts a request can have in the form with rounds (28 bits each for passes and stops)."""

_TILE = 1024
_SMALL_TILE = 64
_LONG = 64
"""Tiles from which leaving a row unread after a rejection pays in batches of middle size."""

__all__ = ["Plan", "Proposal", "Workspace", "filter_logits", "verify_chain"]


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a launch cuts the rows.

    Attributes:
        tile: tokens of one pair, a power of two.
        group: tiles that a program reads at once, a power of two.
        steps: groups of a share, a power of two.
        stages: groups that are on their way at a time.
        num_warps: warps of a program.
        max_registers: a cap for the compiler, or ``None``.
        lanes: draws that thinning tries at a time.
        later: groups of a share of the rows after a request's first, a power of two; such a row is
            not read if the request is known to have stopped before it.  0 reads every row.
        wait: with ``rounds``, how often a program looks whether earlier rows are decided.
        overlap: 1 starts a program while the kernel before ends, where the GPU can; 0 waits for its
            end; 2 lets the next kernel start early, too, if that is launched to overlap.
        rounds: whoever finds a row complete decides it (:mod:`.chain_rounds`); requests with more
            than 27 drafts are verified by :mod:`.chain` all the same.
    """

    tile: int = 1024
    group: int = 4
    steps: int = 1
    stages: int = 1
    num_warps: int = 4
    max_registers: int | None = None
    lanes: int = 4
    later: int = 0
    wait: int = 0
    rounds: bool = False
    overlap: int = 1

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def of(cls, rows: int, vocab: int, *, dense: bool) -> Plan:
        """Larger programs as the batch grows (measured on an H200; see docs/kernels.md)."""
        tile = _SMALL_TILE if vocab <= _SMALL_TILE else _TILE
        tiles = triton.cdiv(vocab, tile)
        work, long = rows * tiles, tiles >= _LONG
        group = min(4, triton.next_power_of_2(tiles))
        pair = min(2, group)
        if dense:
            if work < 4_000 or tiles < 16:
                return cls(tile, group)
            if work < 12_000:
                return cls(tile, 4, max_registers=128)
            if work < 40_000 and long:
                return cls(tile, 4, 4, 3, 4, 96, later=4)
            if work < 24_000:
                return cls(tile, 2, 4, 3, 2, 96)
            steps = 4 if work < 200_000 else 8
            return cls(tile, 4, steps, 3, 4, 96, later=steps, wait=64, rounds=True)
        if work < 2_000 or tiles == 1:
            return cls(tile, 1, num_warps=1)
        if work < 24_000 or tiles < 16:
            return cls(tile, pair, num_warps=1)
        if work < 50_000 and not long:
            return cls(tile, 2, 4, 3, 1)
        if work < 100_000:
            return cls(tile, 2, 4, 3, 2, 96, later=4)
        return cls(tile, 2, 4, 3, 2, 96, later=4, wait=64, rounds=True)

    @functools.cached_property
    def options(self) -> tuple[tuple[str, int], ...]:
        """What the compiler is told."""
        some = {"num_warps": self.num_warps, "maxnreg": self.max_registers}
        return tuple((name, value) for name, value in some.items() if value is not None)


def _padded(count: int, threads: int) -> int:
    """Lanes for so many words: a power of two, one thread or more for every lane."""
    return max(threads, int(triton.next_power_of_2(count)))


def constants_of(
    plan: Plan, form: int, coins: bool, uniform: bool, tiles: int, width: int, *, rounds: bool,
    overlap: int,
) -> tuple[int | bool, ...]:  # fmt: skip
    """The compile-time arguments of either chain kernel, in their order."""
    threads = 32 * plan.num_warps
    return (
        form, coins, uniform, plan.tile, plan.group, plan.steps, plan.later or plan.steps,
        plan.stages, plan.wait if rounds else int(plan.later > 0), plan.lanes,
        _padded(tiles, threads), _padded(width, threads), overlap,
    )  # fmt: skip


class Workspace:
    """Scratch of the chain kernels, kept between calls.

    Some of it is zero between launches: those leave it as they found it.  Calls that share a
    workspace must not run at the same time, so keep one for each stream or graph.  A tensor that
    has become too small is replaced, so a graph needs one that has seen its largest call.

    Args:
        device: where the kernels run.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self._pairs = {True: self._new(0), False: self._new(0)}
        self._counters = self._new(0)
        self._verdicts = self._new(0), self._new(0)

    def _new(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.int64, device=self.device)

    def pairs(self, size: int, *, zero: bool) -> torch.Tensor:
        """A word for every tile; all zero, and to be left so, or holding anything."""
        if self._pairs[zero].numel() < size:
            self._pairs[zero] = self._new(size)
        return self._pairs[zero]

    def counters(self, size: int) -> torch.Tensor:
        """A few words for every row and request, zeroed by a launch of its own."""
        if self._counters.numel() < size:
            self._counters = self._new(size)
        return self._counters[:size].zero_()

    def verdicts(self, rows: int, requests: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A word for every row, and the epochs of the requests (:mod:`._verdicts`).

        Both are made anew together: an epoch must never fall behind a verdict that it once gave.
        """
        if self._verdicts[0].numel() < rows or self._verdicts[1].numel() < requests:
            held = [one.numel() for one in self._verdicts]
            self._verdicts = self._new(max(rows, held[0])), self._new(max(requests, held[1]))
        return self._verdicts

    @property
    def clean(self) -> bool:
        """Whether what must be zero between launches is; reads it back."""
        return not bool(self._pairs[True].any())

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return sum(one.nbytes for one in (*self._pairs.values(), self._counters, *self._verdicts))


@dataclasses.dataclass(frozen=True, eq=False)
class Proposal:
    """What the drafts were drawn from.

    Attributes:
        probs: [D, V] floating probabilities, or ``None``.
        logits: [D, V] floating draft logits without temperature, or ``None``.
        temperature: [B] floating, the drafter's temperature; with ``logits`` only. 0 means that
            the draft was the argmax, which is a one-hot draft.
    """

    probs: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    temperature: torch.Tensor | None = None

    def __post_init__(self) -> None:
        if self.probs is not None and self.logits is not None:
            raise ValueError("probs: got probabilities and logits; expected one form of q")
        if (self.logits is None) != (self.temperature is None):
            raise ValueError("temperature: expected with logits, and only with them")

    @property
    def form(self) -> int:
        """The kernel's constant for this form of q."""
        if self.probs is not None:
            return int(PROBS)
        return int(ONE_HOT if self.logits is None else LOGITS)

    @property
    def rows(self) -> torch.Tensor | None:
        """The [D, V] tensor, if there is one."""
        return self.logits if self.probs is None else self.probs


def verify_chain(
    target_logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    cu_drafts: torch.Tensor,
    temperature: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    *,
    max_drafts: int,
    proposal: Proposal,
    coins: tuple[torch.Tensor, torch.Tensor] | None = None,
    workspace: Workspace | None = None,
    plan: Plan | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Verify a packed ragged batch without filters; one launch on the current stream.

    Args:
        target_logits: [R, V] float32 / bfloat16 / float16, any strides.
        draft_token_ids: [D] int64, -1 for a placeholder.
        cu_drafts: [B + 1] int64.
        temperature: [B] floating, 0 is greedy.
        seeds: [B] uint64 or int64 bits.
        positions: [B] int64.
        max_drafts: the largest draft count; larger than the truth is allowed.
        proposal: q in one of its three forms.
        coins: accept [D] and final [B], float64 in [0, 1); ``None`` draws from the seeds.
        workspace: scratch kept by the caller; ``None`` allocates for this call.
        plan: how to cut the rows; ``None`` chooses.

    Returns:
        token_ids [B, max_drafts + 1] int64 padded with -1, and num_emitted [B] int64.

    Source: Leviathan et al. 2023, Algorithm 1.
    """
    rows, vocab = target_logits.shape
    requests, width = temperature.shape[0], max_drafts + 1
    device = target_logits.device
    form = proposal.form
    plan = plan or Plan.of(rows, vocab, dense=form != ONE_HOT)
    q = target_logits if proposal.rows is None else proposal.rows
    q_rows = q.shape[0] if form == LOGITS else 0
    tiles = -(-vocab // plan.tile)
    q_at = (rows * tiles + 1) & -2  # so that draft rows start at a multiple of 16 bytes, too
    workspace = workspace or Workspace(device)
    shares = -(-tiles // (plan.group * plan.steps))
    later = -(-tiles // (plan.group * (plan.later or plan.steps)))
    rounds = plan.rounds and max_drafts <= ROUNDS_DRAFTS
    pairs = workspace.pairs(q_at + q_rows * tiles, zero=not rounds)
    marks = (workspace.counters(rows + requests),) if rounds else workspace.verdicts(rows, requests)
    out = torch.empty((requests, width), dtype=torch.int64, device=device)
    emitted = torch.empty(requests, dtype=torch.int64, device=device)
    accept, final = coins or (seeds, seeds)
    tensors = (
        target_logits, draft_token_ids, q, cu_drafts, temperature,
        temperature if proposal.temperature is None else proposal.temperature, seeds, positions,
        accept, final, pairs, *marks, out, emitted,
    )  # fmt: skip
    numbers = (*target_logits.stride(), *q.stride(), vocab)
    uniform = rows == requests * width
    overlap = plan.overlap if overlaps(device) else 0
    constants = constants_of(
        plan, form, coins is not None, uniform, tiles, width, rounds=rounds, overlap=overlap
    )
    counts = (requests, rows, q_at, tiles, shares, later, width)
    kernel = rounds_kernel if rounds else chain_kernel
    programs = requests * (shares + later * max_drafts)
    options = (*plan.options, ("launch_pdl", True)) if overlap else plan.options
    launch(kernel, programs, tensors, numbers, counts, constants, options)
    return out, emitted
