"""Counts of trials that stay on a GPU: the tables of a case in a launch or two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from specverify import _device_kernels as kernels
from specverify import _device_sizes as sizes
from specverify._blocks import Counter, IntArray
from specverify._cells import Cells
from specverify._device_launch import launch

if TYPE_CHECKING:
    from specverify._device_blocks import DeviceBlocks
    from specverify.trials import Tally


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
        self._recipes: dict[int, torch.Tensor] | None = None
        self._rests: dict[str, int] = {}
        self._trials = 0

    def count(self, tallies: Sequence[Tally], outcomes: Any) -> None:
        """Count the block that the builder has accounted last, of which ``outcomes`` are the head.

        Tables whose index is :class:`Cells` are counted in one launch for each size in ``BINS``; a
        tally of the caller's own gets the outcomes on the host.
        """
        trials = outcomes.accepted.shape[0]
        self._trials += trials
        if self._recipes is None:
            self._recipes = self._sort(tallies)
        columns = self._builder.columns
        with self._builder.beside(columns, self._all, *self._recipes.values()):
            for bins, recipes in self._recipes.items():
                self._launch(columns, recipes, trials, bins)
        others = [tally for tally in tallies if not _countable(tally.index)]
        host: Any = outcomes.on_host() if others else None
        for tally in others:
            index = torch.from_numpy(tally.index(host)).to(self._all.device)
            begin = self._begins[tally.name]
            count(index, self._all[begin : begin + tally.cells])

    def _launch(self, columns: torch.Tensor, recipes: torch.Tensor, trials: int, bins: int) -> None:
        tables, length = recipes.shape
        chunks = sizes.parts(trials, sizes.COUNT_CHUNK)
        launch(
            kernels.tables_kernel,
            (min(chunks, sizes.parts(sizes.COUNT_PROGRAMS, tables)), tables),
            (columns, recipes, self._all),
            (trials, columns.stride(0) // 16, length),
            (sizes.COUNT_CHUNK, bins),
            sizes.COUNT_WARPS,
        )

    def _sort(self, tallies: Sequence[Tally]) -> dict[int, torch.Tensor]:
        """The recipes of the tables that kernels count, by the bins that hold them (0: none do)."""
        groups: dict[int, list[tuple[Cells, int, int]]] = {}
        for tally in tallies:
            index: Any = tally.index
            if not _countable(index):
                continue
            cells = tally.cells
            if index.stopped or index.reached:
                self._rests[tally.name] = index.rest
                # The last cell is what is left over in the end: nothing is counted there.
                cells -= index.rest == cells - 1
            bins = min((size for size in sizes.BINS if cells <= size), default=0)
            groups.setdefault(bins, []).append((index, self._begins[tally.name], cells))
        return {bins: self._builder.recipes(tables) for bins, tables in groups.items()}

    def result(self) -> dict[str, IntArray]:
        """The counts of each table, read back at once."""
        self._builder.join()
        parts = torch.split(self._all.cpu(), list(self._sizes.values()))
        counts = {name: part.numpy() for name, part in zip(self._sizes, parts, strict=True)}
        for name, rest in self._rests.items():
            counts[name][rest] += self._trials - counts[name].sum()
        return counts


def _countable(index: object) -> bool:
    """Whether ``tables_kernel`` knows this index; it pairs only trials that all belong."""
    return isinstance(index, Cells) and not (index.pairs and (index.stopped or index.reached))


def count(index: torch.Tensor, counts: torch.Tensor) -> None:
    """Add one to a cell of ``counts`` for every entry of ``index``, on the device."""
    index = index.contiguous()
    trials, cells = index.shape[0], counts.shape[0]
    kernels.count_kernel[(sizes.parts(max(1, trials), sizes.COUNT_CHUNK),)](
        index, counts, trials, cells, CHUNK=sizes.COUNT_CHUNK
    )
