"""Tail and support at scale: tokens so rare that no table of cells can count them one by one.

Noise with a floor, uniforms on a coarse grid and probabilities in half precision lose the tokens
of the smallest probabilities first.  Each of them is drawn less than once in a million steps, but
thousands of them together are not: the target here has a few likely tokens, thousands of 1e-6 to
1e-9 each, and some of probability 0.  The tail as a whole is one cell of an exact binomial test,
the likely tokens are cells of their own, and tokens of probability 0 are counted over all trials.

Trials are planned from the mass of the tail.  A token is lost to noise with a floor of 2**-24 only
where its probability is below that, so to see it by counting takes 40 / 2**-26 = 2.7e9 logits,
whatever V is; a quick run reads a tenth of that, and sees a tail that is lost up to 1e-6.  The
floor itself shows in the differential layer.
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
from specverify.checks.counted import CountedExperiment, capped
from specverify.checks.experiment import Plan, Settings
from specverify.checks.tables import Table
from specverify.checks.verdict import Family
from specverify.checks.watch import LOOKING_SHARE
from specverify.contract import Capabilities
from specverify.evidence import Suspect
from specverify.streams import Purpose, Stream
from specverify.trials import IntArray, Outcomes

HEAD = 8
"""Likely tokens."""
NEVER = 32
"""Tokens of probability 0: half of them masked, half with a logit that underflows in float64."""
LARGEST, SMALLEST = 1e-6, 1e-9
"""Probabilities of the likeliest and of the rarest token of the tail."""
UNDERFLOW = -1000.0

NOTICED = {"quick": 2.0, "gate": 0.3, "nightly": 0.1}
"""Deviation of the tail's mass that is noticed, relative to it, by profile.  At the trials that
this takes, a tail that is lost entirely is noticed in every profile."""


@dataclasses.dataclass(frozen=True, eq=False)
class TailCase:
    """A case with the cell of every token.

    Attributes:
        case: one request; its rows do not depend on the prefix.
        cells: for each position, [V] int64: 0 .. HEAD - 1 for the likely tokens, then the tail,
            then the tokens that are never drawn.
    """

    case: Case
    cells: tuple[NDArray[np.int64], ...]

    def law(self, position: int, convention: str) -> FloatArray:
        """[HEAD + 2] float64: the law of the cells of a position."""
        row = self.case.requests[0].target_tables(convention)[position][0]
        law = np.zeros(HEAD + 2)
        np.add.at(law, self.cells[position], row)
        return law


@functools.lru_cache(maxsize=8)
def make_tail_case(
    name: str, vocab: int, drafts: int, dense: bool, largest: float = LARGEST
) -> TailCase:
    """Make a case whose numbers depend on its name alone.

    The drafter proposes likely tokens, and sometimes one that the target never emits; it never
    proposes a token of the tail, so that every one of these is recovered, or the bonus.

    Args:
        name: of the case.
        vocab: V, at least 1,024.
        drafts: k, 0 or 1.
        dense: whether q is shown.
        largest: probability of the likeliest token of the tail.

    Raises:
        ValueError: if ``vocab`` or ``drafts`` is out of range.
    """
    if vocab < 1024 or drafts not in (0, 1):
        raise ValueError(
            f"vocab, drafts: got {vocab}, {drafts}; expected V >= 1024 and 0 or 1 drafts"
        )
    draws = Stream.derive(0, "tail", name).uniform_run(
        range(4), range(drafts + 1), vocab, Purpose.LAYOUT
    )
    rows = [_target_row(largest, *(draws[use, j] for use in range(3))) for j in range(drafts + 1)]
    request = TableRequest(
        target=tuple(logits for logits, _ in rows),
        draft=tuple(_draft_row(rows[j][1], draws[3, j]) for j in range(drafts)),
    )
    case = Case(name=name, requests=(request,), dense=dense)
    return TailCase(case, tuple(cells for _, cells in rows))


def _target_row(
    largest: float, order: FloatArray, sizes: FloatArray, heads: FloatArray
) -> tuple[torch.Tensor, NDArray[np.int64]]:
    """[1, V] float32 logits, and the cell of every token; kinds lie scattered over the ids."""
    vocab = order.shape[0]
    # The first and the last token are likely: a tile or an id type that ends early loses one.
    place = np.argsort(np.concatenate([[-1.0], order[1:-1], [-1.0]]), kind="stable")
    cells = np.full(vocab, HEAD, dtype=np.int64)
    cells[place[:HEAD]] = np.arange(HEAD)
    cells[place[-NEVER:]] = HEAD + 1
    # Most near the largest, some down to the smallest: a cube of a uniform, on a logarithmic scale.
    p = largest * (SMALLEST / LARGEST) ** (sizes**3)
    p[place[:HEAD]] = (0.2 + heads[:HEAD]) * (1 - p[place[HEAD:-NEVER]].sum())
    p[place[:HEAD]] /= (0.2 + heads[:HEAD]).sum()
    logits = np.log(p)
    logits[place[-NEVER:]] = -np.inf
    logits[place[-NEVER // 2 :]] = UNDERFLOW
    return torch.from_numpy(logits[None]).float(), cells


def _draft_row(cells: NDArray[np.int64], sizes: FloatArray) -> torch.Tensor:
    """[1, V] float32: likely tokens, and a fiftieth on tokens that are never emitted."""
    weights = np.where(cells < HEAD, 0.2 + sizes, 0.0)
    weights *= 0.98 / weights.sum()
    weights[cells == HEAD + 1] = 0.02 / NEVER
    return torch.from_numpy(weights[None]).float()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TailExperiment(CountedExperiment):
    """Trials of a tail case: the mass of the tail, the likely tokens, and no other token ever.

    Attributes:
        suite, case: where it belongs.
        make: makes the tail case; called when it is needed, so that declaring is free.
    """

    make: Callable[[], TailCase]

    def plan(self, capabilities: Capabilities) -> Plan:
        """Two tests for each position; or why this subject cannot be asked."""
        reason = self.unsupported(capabilities)
        return Plan(0, reason) if reason else Plan(2 * len(self.make().cells))

    def tables(self, convention: str) -> list[Table]:
        """What is counted."""
        return tail_tables(self.make(), convention)

    def budget(self, convention: str, settings: Settings) -> tuple[int, int]:
        """Trials that are needed, and trials that will be run."""
        return tail_budget(self.make(), convention, settings)

    def asked_of(self, capabilities: Capabilities) -> tuple[Case, list[Table]]:
        """What is run, and what is counted."""
        return self.make().case, self.tables(capabilities.convention)

    def budget_of(self, capabilities: Capabilities, settings: Settings) -> tuple[int, int]:
        """Trials that are needed, and trials that will be run."""
        return self.budget(capabilities.convention, settings)

    def promised(self, law: FloatArray, planned: int, settings: Settings) -> float:
        """The deviation that the planned trials catch in a table."""
        if law.shape[0] == 2:
            return float(law[1]) * noticed(settings)
        return super().promised(law, planned, settings)


def tail_tables(found: TailCase, convention: str) -> list[Table]:
    """For every position the tail against everything else, and the likely tokens one by one."""
    tables = []
    for position, cells in enumerate(found.cells):
        law = found.law(position, convention)
        pair = np.array([law.sum() - law[HEAD], law[HEAD]])
        tables += [
            Table(
                name=f"tail of token {position}",
                family=Family.LAW,
                shape=(2,),
                index=functools.partial(
                    cell_of, cells=(cells == HEAD).astype(np.int64), at=position
                ),
                law=functools.partial(as_is, pair),
                axes=("in the tail",),
                horizon=position + 1,
                suspects=_thinned,
                request=0,
                position=position,
            ),
            Table(
                name=f"likely and impossible values of token {position}",
                family=Family.LAW,
                shape=(HEAD + 2,),
                index=functools.partial(cell_of, cells=cells, at=position),
                law=functools.partial(as_is, law),
                axes=(f"cell (0-{HEAD - 1} likely, {HEAD} tail, {HEAD + 1} never)",),
                horizon=position + 1,
                request=0,
                position=position,
            ),
        ]
    return tables


def tail_budget(found: TailCase, convention: str, settings: Settings) -> tuple[int, int]:
    """Trials that the profile's share of the tail needs, and trials that will be run."""
    tail = min(float(found.law(position, convention)[HEAD]) for position in range(len(found.cells)))
    needed = evidence.binomial_trials_needed(
        tail,
        tail * noticed(settings) * (1 - 1e-6),
        settings.alpha * (1 - LOOKING_SHARE),
        settings.power,
    )
    return capped(needed, settings)


def noticed(settings: Settings) -> float:
    """The relative deviation of the tail's mass that a run promises to notice."""
    return NOTICED.get(settings.profile.name, 0.3)


def cell_of(outcomes: Outcomes, *, cells: NDArray[np.int64], at: int, request: int = 0) -> IntArray:
    """The cell of the token at a position of a request, by its id."""
    return cells[outcomes.completed[request][:, at]]


def as_is(law: FloatArray) -> FloatArray:
    """A law that is known already, as tables ask for it."""
    return law


def _thinned(law: FloatArray) -> list[Suspect]:
    """The bets: most of the tail is lost, or half of it."""
    return [
        Suspect(f"{share:.0%} of the tail is lost", np.array([1 - kept, kept]))
        for share in (0.99, 0.5)
        for kept in [float(law[1]) * (1 - share)]
    ]
