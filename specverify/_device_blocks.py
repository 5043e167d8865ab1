"""Blocks of trials that never leave the GPU: the same numbers as on the CPU, made where they stay.

Nothing is read back before the end of a run: drafts, batch, what was emitted, its completion and
the counts are tensors on the device.  What an emission has wrong sets a flag, and the block whose
flag is set is run again on the host's path, which says what it is.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton

from specverify import _device_kernels as kernels
from specverify._blocks import Block, BlockBuilder, Categorical, Counter, IntArray, RowTables
from specverify._cells import Cells, Seen
from specverify.cases import Case, Seeding
from specverify.contract import Batch, Capabilities, Emission
from specverify.faults import SamplerFault
from specverify.streams import Stream

if TYPE_CHECKING:
    from specverify.trials import Tally

MOST_VOCAB = 256
"""Tokens of a row that one program holds."""

_NOTHING = torch.empty((0, 1), dtype=torch.float64)

_CHUNK, _SHARED_BINS = 2048, 1024
_ANY = 1 << 40  # more than any number of drafts, whatever an emission says
"""Largest table that is counted in shared memory."""


class DeviceCounter(Counter):
    """Counts of several tables, on a device until they are asked for.

    Args:
        builder: whose blocks are counted.
        cells: number of cells of each table, by name.
    """

    def __init__(self, builder: DeviceBlocks, cells: Mapping[str, int]) -> None:
        self._builder = builder
        self._sizes = dict(cells)
        self._all = torch.zeros(sum(cells.values()), dtype=torch.int64, device=builder.device)
        begins = np.cumsum([0, *cells.values()])[:-1].tolist()
        self._begins = dict(zip(cells, begins, strict=True))
        self._recipes: torch.Tensor | None = None

    def count(self, tallies: Sequence[Tally], outcomes: Any) -> None:
        """Count the block that the builder has accounted last, of which ``outcomes`` are the head.

        Tables whose index is :class:`Cells` are counted in one launch; a tally of the caller's own
        gets the outcomes on the host.
        """
        trials = outcomes.accepted.shape[0]
        if self._recipes is None:
            self._recipes = self._builder.recipes(
                [
                    (tally.index, self._begins[tally.name], tally.cells)
                    for tally in tallies
                    if isinstance(tally.index, Cells)
                ]
            )
        if self._recipes.shape[0]:
            grid = (triton.cdiv(trials, _CHUNK), self._recipes.shape[0])
            columns = self._builder.columns
            kernels.tables_kernel[grid](
                columns, self._recipes, self._all, trials, columns.stride(0),
                self._recipes.shape[1], CHUNK=_CHUNK, BINS=_SHARED_BINS,
            )  # fmt: skip
        others = [tally for tally in tallies if not isinstance(tally.index, Cells)]
        host: Any = outcomes.on_host() if others else None
        for tally in others:
            index = torch.from_numpy(tally.index(host)).to(self._all.device)
            begin = self._begins[tally.name]
            count(index, self._all[begin : begin + tally.cells])

    def result(self) -> dict[str, IntArray]:
        """The counts of each table, read back at once."""
        parts = torch.split(self._all.cpu(), list(self._sizes.values()))
        return {name: part.numpy() for name, part in zip(self._sizes, parts, strict=True)}


@dataclasses.dataclass(frozen=True, eq=False)
class _Tables:
    """What one request is drawn from: cumulative rows, and a plan of where each position starts."""

    cdf: torch.Tensor
    plan: torch.Tensor


class DeviceBlocks(BlockBuilder):
    """Builds and reads blocks on a device.

    Args:
        case, stream, device, horizon, capabilities: as for :class:`BlockBuilder`; at most
            ``MOST_VOCAB`` tokens.
    """

    def __init__(
        self, case: Case, stream: Stream, device: str, horizon: int, capabilities: Capabilities
    ) -> None:
        super().__init__(case, stream, device, horizon, capabilities)
        self._key = stream.key - (1 << 64 if stream.key >> 63 else 0)
        self._vocab = case.vocab_size
        self._lanes = max(2, int(triton.next_power_of_2(self._vocab)))
        self._block = min(256, max(1, 2048 // self._lanes))
        self._rows = np.cumsum([0, *(count + 1 for count in self.counts)]).tolist()
        self._slots = np.cumsum([0, *self.counts]).tolist()
        self._target = self._logits.table.to(device)
        self._shown = None if self._probs is None else self._probs.table.to(device)
        self._drawn = [self._draft_tables(number) for number in range(len(self.counts))]
        self._finish = [_uploaded(_row_tables(one), device) for one in self._completers]
        sizes = [limit + count + 2 for limit, count in zip(self.horizons, self.counts, strict=True)]
        self._starts = np.cumsum([0, *sizes]).tolist()
        ends = torch.tensor(self._starts[1:], device=device)
        self._ends = ends - 2, ends - 1
        self.columns = self._new(self._starts[-1], 0)
        self._first: Batch | None = None
        self._flags: list[tuple[int, int, torch.Tensor]] = []

    def _draft_tables(self, number: int) -> _Tables:
        """Plan [7, k + 1] and the drafter's rows of one request."""
        count, row, slot = self.counts[number], self._rows[number], self._slots[number]
        plan = torch.zeros((7, count + 1), dtype=torch.int64)
        drafter = _row_tables(self._drafters[number])
        _enter(plan[0:2, :count], drafter, 0)
        _enter(plan[2:4], self._logits, row)
        if self._probs is not None:
            _enter(plan[4:6, :count], self._probs, slot)
        for hole in self.case.requests[number].placeholders:
            plan[6, hole] = 1
        cdf = _NOTHING if drafter is None else drafter.table
        return _Tables(cdf.to(self.device), plan.to(self.device))

    def counter(self, cells: Mapping[str, int]) -> DeviceCounter:
        """Empty counts on the device."""
        return DeviceCounter(self, cells)

    def recipes(self, tables: list[tuple[Cells, int, int]]) -> torch.Tensor:
        """What ``tables_kernel`` takes, of tables with (index, begin, cells)."""
        terms = max((len(index.terms) for index, _, _ in tables), default=0)
        rows = torch.full((len(tables), 8 + 3 * terms), -1, dtype=torch.int64)
        for row, (index, begin, cells) in zip(rows, tables, strict=True):
            request, least = index.stopped or index.reached or (0, -_ANY)
            most = least if index.stopped else _ANY
            place = self._column(Seen.ACCEPTED, request, 0)
            row[:8] = torch.tensor(
                [len(index.terms), place, least, most, index.rest, index.pairs, begin, cells]
            )
            for number, term in enumerate(index.terms):
                column = self._column(term.seen, term.request, term.at)
                above = term.at if term.seen is Seen.PASSED else -1
                row[8 + 3 * number : 11 + 3 * number] = torch.tensor([term.weight, column, above])
        return rows.to(self.device)

    def _column(self, seen: Seen, request: int, at: int) -> int:
        """Where ``columns`` holds it: per request completed tokens, drafts, accepted, last."""
        text, drafts = self.horizons[request], self.counts[request]
        places = {Seen.TEXT: at, Seen.DRAFT: text + at, Seen.LAST: text + drafts + 1}
        return int(self._starts[request]) + places.get(seen, text + drafts)

    def forget(self) -> None:
        """Make the tensors that blocks share anew, and check the next block's values."""
        super().forget()
        self._first = None
        self._flags = []

    def build(self, first_trial: int, trials: int) -> Block:
        """Draw the drafts of ``trials`` trials and replicate the case, on the device."""
        requests, slots = len(self.counts), self._slots[-1]
        logits = self._target.new_empty((trials * self._rows[-1], self._vocab))
        ids = self._new(trials * slots)
        seeds = self._seed_rows(first_trial, trials)
        shown = self._shown
        if shown is None and self.case.dense:  # nobody drafts
            shown = torch.empty((0, self._vocab), device=self.device)
        probs = None if shown is None else shown.new_empty((trials * slots, self._vocab))
        for number, tables in enumerate(self._drawn):
            kernels.fill_kernel[self._grid(trials)](
                tables.plan, tables.cdf, self._target, self._target if shown is None else shown,
                logits, logits if probs is None else probs, ids, seeds, self._key, first_trial,
                trials, number, self._rows[number], self._slots[number], self.counts[number] + 1,
                self._rows[-1], slots, requests, self._vocab, DENSE=probs is not None,
                MIXED=self.case.seeding is Seeding.MIXED, BLOCK=self._block, LANES=self._lanes,
            )  # fmt: skip
        drafts: list[Any] = list(torch.split(ids.view(trials, slots), self.counts, dim=1))
        batch = self._like_the_first(first_trial, trials, logits, probs, ids, seeds)
        return Block(batch, drafts)

    def _new(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.int64, device=self.device)

    def _grid(self, trials: int) -> tuple[int]:
        return (triton.cdiv(trials, self._block),)

    def _seed_rows(self, first_trial: int, trials: int) -> torch.Tensor:
        """[T * B] int64 bits: the seed of every row; not yet written where seeds are MIXED."""
        requests = len(self.counts)
        if self.case.seeding is Seeding.MIXED:
            return self._new(trials * requests)
        base = int(self._seeds(0, 1)[0])  # of row 0
        rows = torch.arange(
            first_trial * requests, (first_trial + trials) * requests, device=self.device
        )
        sign = {Seeding.ASCENDING: 1, Seeding.DESCENDING: -1, Seeding.SAME: 0}[self.case.seeding]
        return rows * sign + (base - (1 << 64 if base >> 63 else 0))  # modulo 2**64

    def _like_the_first(
        self,
        first_trial: int,
        trials: int,
        logits: torch.Tensor,
        probs: torch.Tensor | None,
        ids: torch.Tensor,
        seeds: torch.Tensor,
    ) -> Batch:
        """A batch; validated if it is the first of its size, a copy with other tensors if not."""
        fields: dict[str, Any] = {
            "target_logits": logits,
            "draft_token_ids": ids,
            "draft_probs": probs,
            "seeds": seeds.view(torch.uint64),
        }
        if self.case.seeding is Seeding.SAME:
            fields["positions"] = self._positions(first_trial, trials).to(self.device)
        if self._constants is None or self._constants[0] != trials or self._first is None:
            check = self._constants is None
            shared = self._same_in_every_block(trials)
            shared["positions"] = self._positions(first_trial, trials).to(self.device)
            self._constants = trials, shared
            self._first = Batch(**{**shared, **fields}, check_values=check)
            _ = self._first.max_drafts  # read back once, here
            return self._first
        batch = copy.copy(self._first)
        vars(batch).update(fields)  # shapes and laws are those of the first: nothing to check
        return batch

    def account(
        self, emission: Emission, block: Block, first_trial: int
    ) -> tuple[Any, Any, list[Any]]:
        """Accepted lengths, last tokens [T, B] and completed tokens [T, H] each, on the device."""
        requests, slots = len(self.counts), self._slots[-1]
        tokens = emission.token_ids.to(self.device).contiguous()
        emitted = emission.num_emitted.to(self.device).contiguous()
        trials = emitted.shape[0] // requests
        self.columns = columns = self._new(self._starts[-1], trials)
        flag = torch.zeros(1, dtype=torch.int32, device=self.device)
        for number, tables in enumerate(self._finish):
            kernels.read_kernel[self._grid(trials)](
                tables.plan, tables.cdf, tokens, emitted, block.batch.draft_token_ids,
                columns[self._starts[number]], flag, self._key, first_trial, trials, number,
                self._slots[number], self.counts[number], self.horizons[number], slots, requests,
                self.width + 1, self._vocab, BLOCK=self._block, LANES=self._lanes,
            )  # fmt: skip
        self._flags.append((first_trial, trials, flag))
        texts = [
            columns[start : start + limit].T
            for start, limit in zip(self._starts, self.horizons, strict=False)
        ]
        accepted, last = (columns.index_select(0, rows).T for rows in self._ends)
        return accepted, last, texts

    def settle(self, again: Callable[[BlockBuilder, int, int], object]) -> None:
        """Look at the flags of all blocks since ``forget``; reads back once.

        Args:
            again: runs one block by a builder of the host: (builder, first trial, trials).

        Raises:
            SamplerFault: if some emission was not as the contract says.
        """
        flags, self._flags = self._flags, []
        if not flags:
            return
        wrong = torch.cat([flag for _, _, flag in flags]).nonzero()
        if wrong.numel() == 0:
            return
        first, trials, _ = flags[int(wrong[0])]
        capabilities = Capabilities(convention=self.convention)
        host = BlockBuilder(self.case, self.stream, self.device, max(self.horizons), capabilities)
        again(host, first, trials)
        raise SamplerFault(
            f"the sampler's emission was malformed in trials {first} to {first + trials - 1}, "
            "but not when it was asked for the same trials again"
        )


def count(index: torch.Tensor, counts: torch.Tensor) -> None:
    """Add one to a cell of ``counts`` for every entry of ``index``, on the device."""
    index = index.contiguous()
    trials, cells = index.shape[0], counts.shape[0]
    kernels.count_kernel[(triton.cdiv(max(1, trials), _CHUNK),)](
        index, counts, trials, cells, CHUNK=_CHUNK, BINS=_SHARED_BINS
    )


def _row_tables(parts: list[Categorical]) -> RowTables | None:
    return RowTables([part.cdf for part in parts]) if parts else None


def _enter(plan: torch.Tensor, tables: RowTables | None, first: int) -> None:
    """Starts and steps of consecutive tables, from number ``first`` on, into [2, positions]."""
    if tables is not None:
        last = first + plan.shape[1]
        plan[0] = torch.tensor(tables.starts[first:last])
        plan[1] = torch.tensor([int(not shared) for shared in tables.shared[first:last]])


def _uploaded(tables: RowTables | None, device: str) -> _Tables:
    """The completing rows of a request and their plan [2, limit]; empty where none are drawn."""
    plan = torch.zeros((2, 1 if tables is None else len(tables.starts)), dtype=torch.int64)
    _enter(plan, tables, 0)
    return _Tables((_NOTHING if tables is None else tables.table).to(device), plan.to(device))
