"""Host side of the chain kernel: plans the launch, owns the scratch, never synchronises.

Everything that a launch depends on is a shape, a stride, a dtype or the largest draft count, which
the caller gives; no value is read back, so a call may be captured into a CUDA graph.
"""

from __future__ import annotations

import dataclasses

import torch
import triton
from specverify.kernels.chain import LOGITS, ONE_HOT, PROBS, chain_kernel
from specverify.kernels.filters import filter_kernel

NARROW_DRAFTS = 27
"""Most drafts a request of the narrow form can have (28 bits each for passes and stops)."""

_TILE = 1024
_SMALL_TILE = 64


def _padded(tiles: int) -> int:
    """Lanes for the tiles of a row: few sizes, so that few kernels are compiled."""
    return max(128 if tiles > 8 else 8, int(triton.next_power_of_2(tiles)))


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a launch cuts the rows.

    Attributes:
        tile: tokens of one (max, sum) pair, a power of two.
        group: tiles that a program reads at once, a power of two.
        steps: groups that a program reads.
        stages: groups that are on their way at a time.
        num_warps: warps of a program.
        clean: leave the counters at zero for the next call, at the price of an atomic for every
            program; ``False`` zeroes them before the launch, for large batches.
        max_registers: a cap for the compiler, or ``None``.
        grow: how many times more steps at position 1 and from position 2 on, where few requests
            are left and a program mostly finds that it has nothing to do.
        lanes: draws that thinning tries at a time.
        wait: how often a program looks whether earlier positions are decided before it reads.
    """

    tile: int = 1024
    group: int = 4
    steps: int = 1
    stages: int = 1
    num_warps: int = 4
    clean: bool = True
    max_registers: int | None = None
    grow: tuple[int, int] = (1, 1)
    lanes: int = 8
    wait: int = 0

    @classmethod
    def of(cls, rows: int, vocab: int) -> Plan:
        """Fewer, larger programs as the batch grows (measured on an H200; see docs/kernels.md)."""
        tile = _SMALL_TILE if vocab <= _SMALL_TILE else _TILE
        tiles = triton.cdiv(vocab, tile)
        work = rows * tiles
        if tiles < 16 or work < 3_000:
            return cls(tile, min(4, triton.next_power_of_2(tiles)))
        if work < 8_000:
            return cls(tile, 8)
        if work < 32_000:
            return cls(tile, 4, 4, 3, max_registers=96)
        if work < 96_000:
            return cls(tile, 4, 4, 3, clean=False, max_registers=96)
        return cls(tile, 4, 8, 3, clean=False, max_registers=96, wait=64)


class Workspace:
    """Scratch of the chain kernel, kept between calls.

    The counters are zero between launches: every launch leaves them as it found them.  Calls that
    share a workspace must not run at the same time, so keep one for each stream or graph.

    Args:
        device: where the kernels run.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self._pairs = torch.empty(0, dtype=torch.float32, device=self.device)
        self._counters = torch.zeros(0, dtype=torch.int64, device=self.device)
        self._dirty = torch.empty(0, dtype=torch.int64, device=self.device)

    def pairs(self, size: int) -> torch.Tensor:
        """[size] float32 that hold anything."""
        if self._pairs.numel() < size:
            self._pairs = torch.empty(size, dtype=torch.float32, device=self.device)
        return self._pairs

    def counters(self, size: int, *, clean: bool = True) -> torch.Tensor:
        """[size] int64 zeros; not ``clean``: zeroed by a launch of its own, left as they end."""
        if not clean:
            if self._dirty.numel() < size:
                self._dirty = torch.empty(size, dtype=torch.int64, device=self.device)
            return self._dirty[:size].zero_()
        if self._counters.numel() < size:
            self._counters = torch.zeros(size, dtype=torch.int64, device=self.device)
        return self._counters

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return self._pairs.nbytes + self._counters.nbytes + self._dirty.nbytes


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
            return PROBS
        return ONE_HOT if self.logits is None else LOGITS

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
    plan = plan or Plan.of(rows, vocab)
    tiles = triton.cdiv(vocab, plan.tile)
    steps = (plan.steps, plan.steps * plan.grow[0], plan.steps * plan.grow[1])
    shares = tuple(triton.cdiv(tiles, plan.group * some) for some in steps)
    programs = shares[0] + (shares[1] if width > 1 else 0) + max(width - 2, 0) * shares[2]
    workspace = workspace or Workspace(device)
    q_rows = draft_token_ids.shape[0] if proposal.form == LOGITS else 0
    pairs = workspace.pairs(2 * (rows + q_rows) * tiles)
    wide = max_drafts > NARROW_DRAFTS
    clean = plan.clean or wide
    counters = workspace.counters(requests + 2 * rows, clean=clean)
    words, row_count, outcomes = counters, counters[requests:], counters[requests + rows :]
    sums, q_max = pairs[rows * tiles :], pairs[2 * rows * tiles :]
    q_sum = q_max[q_rows * tiles :]
    out = torch.empty((requests, width), dtype=torch.int64, device=device)
    emitted = torch.empty(requests, dtype=torch.int64, device=device)
    q = target_logits if proposal.rows is None else proposal.rows
    accept, final = coins or (seeds, seeds)
    seeds = seeds.view(torch.int64)
    tensors = (
        target_logits, target_logits.stride(0), target_logits.stride(1), draft_token_ids,
        q, q.stride(0), q.stride(1), cu_drafts, temperature,
        temperature if proposal.temperature is None else proposal.temperature,
        seeds, positions, accept if coins else seeds, final if coins else seeds, pairs, sums,
        q_max, q_sum,
    )  # fmt: skip
    options = {"num_warps": plan.num_warps}
    if plan.max_registers is not None:
        options["maxnreg"] = plan.max_registers
    chain_kernel[(programs * requests,)](
        *tensors, row_count, words, outcomes, out, emitted, requests, vocab, tiles, *shares,
        width, Q=proposal.form, COINS=coins is not None, WIDE=wide, CLEAN=clean,
        TILE=plan.tile, GROUP=plan.group, STEPS=steps[0], STEPS_1=steps[1],
        STEPS_2=steps[2], STAGES=plan.stages, LANES=plan.lanes, WAIT=0 if wide else plan.wait,
        TILES=_padded(tiles), WIDTH=max(32, triton.next_power_of_2(width)), **options,
    )  # fmt: skip
    return out, emitted


def filter_logits(
    target_logits: torch.Tensor,
    cu_drafts: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    *,
    max_drafts: int,
    in_place: bool = False,
) -> torch.Tensor:
    """Logits with -inf where the filters of a row's request drop a token; one launch, no sort.

    Args:
        target_logits: [R, V] float32 / bfloat16 / float16, any strides.
        cu_drafts: [B + 1] int64.
        temperature: [B] floating, 0 is greedy: such a row is left as it is.
        top_k: [B] int64, 0 is off.
        top_p: [B] floating, 1 is off.
        min_p: [B] floating, 0 is off.
        max_drafts: the largest draft count; larger than the truth is allowed.
        in_place: write into ``target_logits`` (rows without filters are not touched) instead of
            into a new tensor of the same size.

    Returns:
        [R, V] of the dtype of the logits: what ``verify_chain`` takes.

    Source: the convention ``specverify.sampling.REFERENCE`` (joint, ties by lowest id).
    """
    requests, vocab = temperature.shape[0], target_logits.shape[1]
    out = target_logits if in_place else torch.empty_like(target_logits)
    filter_kernel[((max_drafts + 1) * requests,)](
        target_logits, *target_logits.stride(), out, *out.stride(), cu_drafts, temperature,
        top_k, top_p, min_p, requests, vocab, IN_PLACE=in_place,
        BLOCK=min(4096, max(16, int(triton.next_power_of_2(vocab)))), num_warps=8,
    )  # fmt: skip
    return out
