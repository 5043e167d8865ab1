"""Ranks at scale: filters that keep thousands of tokens really keep them all.

Engines look at the best 64, 1,024 or 4,096 tokens and filter among these.  Whatever they emit is
inside the support, and one by one the lost tokens are too rare to be missed; but together, sorted
by rank, they are a large share of the text.  The target here is nearly flat, top-k and top-p keep
most of it, and the cells are stretches of ranks of about the same mass.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from specverify import evidence
from specverify.cases import Case, FloatArray, TableRequest
from specverify.checks.counted import capped
from specverify.checks.experiment import Plan, Settings
from specverify.checks.tables import Table
from specverify.checks.tail import TailExperiment, as_is, cell_of
from specverify.checks.verdict import Family
from specverify.checks.watch import LOOKING_SHARE
from specverify.contract import Capabilities
from specverify.streams import Purpose, Stream

BUCKETS = 6
"""Stretches of ranks."""
SPREAD = 0.5
"""Between the largest and the smallest logit."""
NOTICED = {"quick": 0.25, "gate": 0.1, "nightly": 0.05}
"""Total variation between the stretches that is noticed, by profile."""


@dataclasses.dataclass(frozen=True, eq=False)
class RankCase:
    """A case of requests without drafts, with the cell of every token.

    Attributes:
        case: its requests have one row each.
        cells: for each request, [V] int64: the stretch of ranks.  The last one goes down to the
            least likely token, so that a cut that falls one token off is no cell of its own.
    """

    case: Case
    cells: tuple[NDArray[np.int64], ...]

    def law(self, request: int, convention: str) -> FloatArray:
        """[BUCKETS] float64: the law of the cells of a request."""
        row = self.case.requests[request].target_tables(convention)[0][0]
        law = np.zeros(BUCKETS)
        np.add.at(law, self.cells[request], row)
        return law


@functools.lru_cache(maxsize=4)
def make_rank_case(name: str, vocab: int, filters: tuple[tuple[int, float], ...]) -> RankCase:
    """Make a case whose numbers depend on its name alone.

    Args:
        name: of the case.
        vocab: V.
        filters: top-k and top-p of each request.
    """
    draws = Stream.derive(0, "ranks", name).uniform_run(
        [0], range(len(filters)), vocab, Purpose.LAYOUT
    )[0]
    rows = torch.from_numpy(SPREAD * draws).float()
    requests = tuple(
        TableRequest(target=(row[None],), draft=(), top_k=top_k, top_p=top_p)
        for row, (top_k, top_p) in zip(rows, filters, strict=True)
    )
    case = Case(name=name, requests=requests, dense=False)
    return RankCase(case, tuple(_stretches(request) for request in requests))


def _stretches(request: TableRequest) -> NDArray[np.int64]:
    """[V] int64: which of ``BUCKETS`` stretches of about the same mass each token is in."""
    row = request.target_tables("reference")[0][0]
    order = np.argsort(-row, kind="stable")
    before = np.cumsum(row[order]) - row[order]
    cells = np.empty(row.size, dtype=np.int64)
    cells[order] = np.minimum((before * BUCKETS).astype(np.int64), BUCKETS - 1)
    return cells


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankExperiment(TailExperiment):
    """Trials of a rank case: every stretch of ranks has its mass.

    Attributes:
        suite, case: where it belongs.
        make: makes the rank case.
    """

    make: Callable[[], RankCase]  # type: ignore[assignment]

    def plan(self, capabilities: Capabilities) -> Plan:
        """One test for each request; or why this subject cannot be asked."""
        reason = self.unsupported(capabilities)
        return Plan(0, reason) if reason else Plan(len(self.make().cells))

    def tables(self, convention: str) -> list[Table]:
        """The stretches of every request."""
        found = self.make()
        return [
            Table(
                name=f"ranks of request {request}",
                family=Family.LAW,
                shape=(BUCKETS,),
                index=functools.partial(cell_of, cells=cells, at=0, request=request),
                law=functools.partial(as_is, found.law(request, convention)),
                axes=("stretch of ranks",),
                horizon=1,
                request=request,
                position=0,
            )
            for request, cells in enumerate(found.cells)
        ]

    def budget(self, convention: str, settings: Settings) -> tuple[int, int]:  # noqa: ARG002
        """Trials that are needed, and trials that will be run."""
        noticed = NOTICED.get(settings.profile.name, 0.1)
        alpha = settings.alpha * (1 - LOOKING_SHARE)
        needed = evidence.trials_needed(BUCKETS, noticed, alpha, settings.power)
        return capped(needed, settings)
