"""Blocks of trials that never leave the GPU: the same numbers as on the CPU, made where they stay.

Nothing is read back before the end of a run: drafts, batch, what was emitted, its completion and
the counts are tensors on the device.  What an emission has wrong sets a flag, and the block whose
flag is set is run again on the host's path, which says what it is.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import triton

from specverify import _device_kernels as kernels
from specverify import _device_sizes as sizes
from specverify._blocks import Block, BlockBuilder, Categorical, RowTables
from specverify._cells import Cells, Seen
from specverify._device_counts import DeviceCounter
from specverify._device_launch import launch
from specverify.cases import Case, Seeding
from specverify.contract import Batch, Capabilities, Emission
from specverify.faults import SamplerFault
from specverify.streams import Stream

_ALIGNED = 16  # entries of a column are loaded so many at a time
_FLAGS = 1024  # blocks whose flags share a tensor
_ANY = 1 << 14  # more than any number of drafts
_NOTHING = torch.empty((0, 1), dtype=torch.float64)


@dataclasses.dataclass(frozen=True, eq=False)
class _Tables:
    """What one request is drawn from: cumulative rows, and a plan of where each position starts.

    ``depth`` is the last position of which something depends on the drafts before it.
    """

    cdf: torch.Tensor
    plan: torch.Tensor
    depth: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class _Drawn:
    """The tensors of one block that are another block's no more, and when they are written."""

    logits: torch.Tensor
    probs: torch.Tensor | None
    ids: torch.Tensor
    seeds: torch.Tensor
    ready: torch.cuda.Event | None = None


class DeviceBlocks(BlockBuilder):
    """Builds and reads blocks on a device.

    Args:
        case, stream, device, horizon, capabilities: as for :class:`BlockBuilder`; at most
            :data:`~specverify.trials.DEVICE_VOCAB` tokens.
    """

    def __init__(
        self, case: Case, stream: Stream, device: str, horizon: int, capabilities: Capabilities
    ) -> None:
        super().__init__(case, stream, device, horizon, capabilities)
        self._key = stream.key - (1 << 64 if stream.key >> 63 else 0)
        self._vocab = case.vocab_size
        self._lanes = max(2, int(triton.next_power_of_2(self._vocab)))
        self._rows = np.cumsum([0, *(count + 1 for count in self.counts)]).tolist()
        self._slots = np.cumsum([0, *self.counts]).tolist()
        self._target = self._logits.table.to(device)
        self._shown = None if self._probs is None else self._probs.table.to(device)
        self._drawn = [self._draft_tables(number) for number in range(len(self.counts))]
        self._finish = [_uploaded(_row_tables(one), device) for one in self._completers]
        held = [limit + count for limit, count in zip(self.horizons, self.counts, strict=True)]
        self._starts = np.cumsum([0, *held]).tolist()
        base = int(self._seeds(0, 1)[0])  # of row 0
        sign = {Seeding.ASCENDING: 1, Seeding.DESCENDING: -1}.get(case.seeding, 0)
        self._seed_law = base - (1 << 64 if base >> 63 else 0), sign
        self.columns = torch.empty((0, 0), dtype=torch.int16, device=device)
        self._first: Batch | None = None
        self._ahead: dict[tuple[int, int], _Drawn] = {}
        self._side: torch.cuda.Stream | None = None
        self._read: list[tuple[int, int]] = []
        self._flags: list[torch.Tensor] = []

    def _draft_tables(self, number: int) -> _Tables:
        """Plan [8, k + 1] and the drafter's rows of one request."""
        count, row, slot = self.counts[number], self._rows[number], self._slots[number]
        plan = torch.zeros((8, count + 1), dtype=torch.int32)
        drafter = _row_tables(self._drafters[number])
        _enter(plan[0:2, :count], drafter, 0)
        _enter(plan[2:4], self._logits, row)
        if self._probs is not None:
            _enter(plan[4:6, :count], self._probs, slot)
        for hole in self.case.requests[number].placeholders:
            plan[6, hole] = 1
        depth = int(plan[1:6:2].any(dim=0).nonzero().max()) if plan[1:6:2].any() else 0
        for j in range(count + 1):
            digits = max(0, depth - j)
            shift = digits * (self._lanes.bit_length() - 1)
            plan[7, j] = shift if self._vocab == self._lanes else self._vocab**digits
        cdf = _NOTHING if drafter is None else drafter.table
        return _Tables(cdf.to(self.device), plan.to(self.device), depth)

    def counter(self, cells: Mapping[str, int]) -> DeviceCounter:
        """Empty counts on the device."""
        return DeviceCounter(self, cells)

    def recipes(self, tables: list[tuple[Cells, int, int]]) -> torch.Tensor:
        """What ``tables_kernel`` takes, of tables with (index, begin, cells)."""
        terms = max((len(index.terms) for index, _, _ in tables), default=0)
        rows = []
        for index, begin, cells in tables:
            request, least = index.stopped or index.reached or (0, 0)
            most = least if index.stopped else _ANY
            bounded = index.stopped is not None or index.reached is not None
            place = self._column(Seen.ACCEPTED, request, 0)
            row = [len(index.terms), place, least, most, int(bounded), index.pairs, begin, cells]
            for term in index.terms:
                column = self._column(term.seen, term.request, term.at)
                above = term.at if term.seen is Seen.PASSED else -1
                row += [term.weight, column, above]
            rows.append(row + [-1] * (8 + 3 * terms - len(row)))
        return torch.tensor(rows, dtype=torch.int64).to(self.device)

    def _column(self, seen: Seen, request: int, at: int) -> int:
        """Where ``columns`` holds it.

        For each request its completed tokens and its drafts; then the accepted drafts of all
        requests, then the last token of all.
        """
        ends, requests = self._starts[-1], len(self.counts)
        begin = self._starts[request]
        places = {
            Seen.TEXT: begin + at,
            Seen.DRAFT: begin + self.horizons[request] + at,
            Seen.LAST: ends + requests + request,
        }
        return int(places.get(seen, ends + request))

    def forget(self) -> None:
        """Make the tensors that blocks share anew, and check the next block's values."""
        super().forget()
        self._first = None
        self._ahead = {}
        self._read, self._flags = [], []

    def ahead(self, first_trial: int, trials: int) -> None:
        """Draw a block beside what the sampler does with the one before it.

        Few programs on a stream of their own.  That stream waits for all that the current one has
        been given, so whatever read the memory that a new block is given has read it by then.
        """
        if not sizes.AHEAD_PROGRAMS:
            return
        # The first block of a run is small: there is little beside it.
        programs = trials if self._constants is None else sizes.AHEAD_PROGRAMS
        with self._on_the_side():
            drawn = self._draw(first_trial, trials, programs)
        ready = None if self._side is None else self._side.record_event()
        self._ahead[first_trial, trials] = dataclasses.replace(drawn, ready=ready)

    def beside(self, *used: torch.Tensor) -> contextlib.AbstractContextManager[object]:
        """Where to do what the next call of the sampler need not wait for.

        Beside it, if the next block is drawn already; else in line.

        Args:
            used: tensors of the current stream that are worked on.
        """
        if not self._ahead:
            return contextlib.nullcontext()
        aside = self._on_the_side()
        for tensor in used:
            if self._side is not None:
                tensor.record_stream(self._side)
        return aside

    def join(self) -> None:
        """Let the current stream wait for all that is done beside it."""
        if self._side is not None:
            torch.cuda.current_stream(self._target.device).wait_stream(self._side)

    def _on_the_side(self) -> contextlib.AbstractContextManager[object]:
        """The other stream, where there are any, after all that the current one has been given."""
        home = self._target.device
        if home.type != "cuda":
            return contextlib.nullcontext()
        if self._side is None:
            self._side = torch.cuda.Stream(home)  # type: ignore[no-untyped-call]
        self._side.wait_stream(torch.cuda.current_stream(home))
        return torch.cuda.stream(self._side)

    def build(self, first_trial: int, trials: int) -> Block:
        """Draw the drafts of ``trials`` trials and replicate the case, on the device."""
        drawn = self._ahead.pop((first_trial, trials), None)
        if drawn is None:
            drawn = self._draw(first_trial, trials, trials)
        elif drawn.ready is not None:
            torch.cuda.current_stream(self._target.device).wait_event(drawn.ready)
        ids = drawn.ids.view(trials, self._slots[-1])
        drafts: list[Any] = list(torch.split(ids, self.counts, dim=1))
        return Block(self._like_the_first(first_trial, trials, drawn), drafts)

    def _draw(self, first_trial: int, trials: int, programs: int) -> _Drawn:
        """What differs from block to block, by at most so many programs of each request."""
        requests, slots = len(self.counts), self._slots[-1]
        logits = self._target.new_empty((trials * self._rows[-1], self._vocab))
        ids, seeds = self._new(trials * slots), self._new(trials * requests)
        shown = self._shown
        if shown is None and self.case.dense:  # nobody drafts
            shown = torch.empty((0, self._vocab), device=self.device)
        probs = None if shown is None else shown.new_empty((trials * slots, self._vocab))
        block, mixed = sizes.fill_block(self._lanes), self.case.seeding is Seeding.MIXED
        for number, tables in enumerate(self._drawn):
            launch(
                kernels.fill_kernel,
                (min(programs, sizes.parts(trials, block)), 1),
                (tables.plan, tables.cdf, self._target, self._target if shown is None else shown,
                 logits, logits if probs is None else probs, ids, seeds),
                (self._key, *self._seed_law, first_trial, trials, number, self._rows[number],
                 self._slots[number], self.counts[number] + 1, tables.depth, self._rows[-1], slots,
                 requests),
                (probs is not None, mixed, self._vocab, block, self._lanes,
                 sizes.FILL_STEP),
                sizes.FILL_WARPS,
            )  # fmt: skip
        return _Drawn(logits, probs, ids, seeds)

    def _new(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.int64, device=self.device)

    def _positions(self, first_trial: int, trials: int) -> torch.Tensor:
        """[T * B] where each row stands in its stream, made on the device."""
        requests = len(self.counts)
        if self.case.seeding is not Seeding.SAME:
            return (torch.arange(requests, device=self.device) * 6 + 12).repeat(trials)
        rows = torch.arange(
            first_trial * requests, (first_trial + trials) * requests, device=self.device
        )
        return rows * (self.width + 1)

    def _same_in_every_block(self, trials: int) -> dict[str, Any]:
        """The fields that only depend on the number of trials; a head of them serves fewer."""
        one = super()._same_in_every_block(1)
        begins = one.pop("cu_drafts")[:-1]
        copies = torch.arange(trials + 1, device=self.device)[:, None] * self._slots[-1]
        fields = {name: value.repeat(trials) for name, value in one.items()}
        fields["cu_drafts"] = (copies + begins).view(-1)
        fields["positions"] = self._positions(0, trials)
        return fields

    def _like_the_first(self, first_trial: int, trials: int, drawn: _Drawn) -> Batch:
        """A batch; validated if it is the first of a run, laid out like that if not."""
        fields: dict[str, Any] = {
            "target_logits": drawn.logits,
            "draft_token_ids": drawn.ids,
            "draft_probs": drawn.probs,
            "seeds": drawn.seeds.view(torch.uint64),
        }
        if self.case.seeding is Seeding.SAME:
            fields["positions"] = self._positions(first_trial, trials)
        fresh = self._constants is None
        if self._constants is None or self._constants[0] < trials:
            self._constants = trials, self._same_in_every_block(trials)
        rows = trials * len(self.counts)
        if self._first is None or self._first.num_requests != rows:
            shared = {
                name: value[: rows + 1 if name == "cu_drafts" else rows]
                for name, value in self._constants[1].items()
            }
            fields = {**shared, **fields}
            first = Batch(**fields) if fresh else object.__new__(Batch)
            vars(first).update(fields, coins=None, max_drafts=self.width)  # never read back
            self._first = first
            return first
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
        trials, ends = emitted.shape[0] // requests, self._starts[-1]
        sixteens = sizes.parts(trials, _ALIGNED)
        shape = ends + 2 * requests, sixteens * _ALIGNED
        # A token of at most 256 fits; what does not was flagged.
        columns = torch.empty(shape, dtype=torch.int16, device=self.device)
        flag = self._next_flag(first_trial, trials)
        for number, tables in enumerate(self._finish):
            launch(
                kernels.read_kernel,
                (sizes.parts(shape[1], sizes.READ_BLOCK), 1),
                (tables.plan, tables.cdf, tokens, emitted, block.batch.draft_token_ids, columns,
                 flag),
                (self._key, first_trial, trials, sixteens, number, self._slots[number],
                 self.counts[number], self.horizons[number], self._starts[number], ends + number,
                 slots, requests, self.width + 1),
                (self._vocab, sizes.READ_BLOCK, self._lanes),
                sizes.READ_WARPS,
            )  # fmt: skip
        self.columns = columns
        texts = [
            columns[start : start + limit, :trials].T
            for start, limit in zip(self._starts, self.horizons, strict=False)
        ]
        accepted, last = columns[ends : ends + requests], columns[ends + requests :]
        return accepted[:, :trials].T, last[:, :trials].T, texts

    def _next_flag(self, first_trial: int, trials: int) -> torch.Tensor:
        """[4] int32 zeros, of which the first counts, for a block to remember until ``settle``.

        16 bytes, so that to the compiler all flags are aligned alike.
        """
        number = len(self._read) % _FLAGS
        if number == 0:
            self._flags.append(torch.zeros((_FLAGS, 4), dtype=torch.int32, device=self.device))
        self._read.append((first_trial, trials))
        return self._flags[-1][number]

    def settle(self, again: Callable[[BlockBuilder, int, int], object]) -> None:
        """Look at the flags of all blocks since ``forget``; reads back once.

        Args:
            again: runs one block by a builder of the host: (builder, first trial, trials).

        Raises:
            SamplerFault: if some emission was not as the contract says.
        """
        self.join()
        read, flags = self._read, self._flags
        self._read, self._flags = [], []
        if not flags:
            return
        wrong = torch.cat(flags)[:, 0].nonzero()
        if wrong.numel() == 0:
            return
        first, trials = read[int(wrong[0])]
        capabilities = Capabilities(convention=self.convention)
        host = BlockBuilder(self.case, self.stream, self.device, max(self.horizons), capabilities)
        again(host, first, trials)
        raise SamplerFault(
            f"the sampler's emission was malformed in trials {first} to {first + trials - 1}, "
            "but not when it was asked for the same trials again"
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
    plan = torch.zeros((2, 1 if tables is None else len(tables.starts)), dtype=torch.int32)
    _enter(plan, tables, 0)
    return _Tables((_NOTHING if tables is None else tables.table).to(device), plan.to(device))
