"""Whether the coin of the last token is fine enough: how many different tokens it can reach.

A uniform of b bits has 2**b values, so of more tokens that are equally likely it reaches 2**b at
most.  Gumbel noise of such uniforms does the same, and a running sum in half precision: edges of
neighbours fall together, or the sum stands still.  Each lost token is far too rare for a table of
frequencies; but draws among such tokens show fewer different ones than they should.

Two kinds of rows ask for it.  In a *fine* row a run of ``RUN`` tokens of 2**-(b + 1) each lies
among a few likely ones: few logits, many draws.  In a *flat* row all of thousands of tokens are
equally likely: few draws, and what goes wrong with V (tiles, a sum that stands still) shows.  The
token is drawn in every way in which a step can end: after a rejection, as a bonus, without drafts.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import torch
from numpy.typing import NDArray

from specverify.cases import Case, FloatArray, TableRequest
from specverify.checks.diagnosis import Branch
from specverify.streams import Purpose, Stream

RUN = 64
"""Equally likely tokens in a fine row."""
BEFORE, AFTER = 5, 2
"""Likely tokens before and behind the run."""
SHARE_BEFORE = 0.7
"""Their mass: the run lies in the upper half of [0, 1), where floats are coarse."""
RARE_DRAFT = 2.0**-22
"""Probability of the draft that is to be rejected; 0 would be a case that samplers single out."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the token that counts is drawn."""

    request: int
    position: int
    branch: Branch


PLACES = (
    Place(0, 0, Branch.RECOVERED),
    Place(1, 1, Branch.BONUS),
    Place(2, 0, Branch.BONUS),
)
"""After a rejection, as a bonus, and without drafts."""


@dataclasses.dataclass(frozen=True, eq=False)
class FineCase:
    """A case whose requests draw among the same equally likely tokens.

    Attributes:
        case: in each of its requests one draw counts.
        places: these draws.
        equal: [m] int64: the equally likely tokens.
        bits: of the finest coin that is sure to miss some of them, half of them.
    """

    case: Case
    places: tuple[Place, ...]
    equal: NDArray[np.int64]
    bits: int

    def law(self, place: Place, convention: str) -> FloatArray:
        """[V] float64: the law of the token that counts."""
        request = self.case.requests[place.request]
        law: FloatArray = request.target_tables(convention)[place.position][0]
        return law

    def mass(self, convention: str) -> float:
        """Probability of the equally likely tokens together, the mean over the requests."""
        masses = [self.law(place, convention)[self.equal].sum() for place in self.places]
        return min(1.0, float(np.mean(masses)))

    @property
    def reached(self) -> int:
        """Tokens of the run that a coin of ``bits`` reaches at most: every other one."""
        return self.equal.size // 2 + 1

    def bits_of(self, reached: int) -> int:
        """Bits of the finest coin that is sure to reach no more tokens of the run than these."""
        share = max(1, reached - 1) / self.equal.size
        return self.bits + 1 + math.floor(math.log2(share) + 1e-9)


@functools.lru_cache(maxsize=16)
def make_fine_case(name: str, bits: int, *, flat: bool, idle: bool, dense: bool) -> FineCase:
    """Make a case whose numbers depend on its name and on these alone.

    Args:
        name: of the case.
        bits: of the finest coin that is to be noticed.
        flat: whether all tokens of the vocabulary, but the draft, are equally likely.
        idle: whether a request without drafts is among them.
        dense: whether q is shown.
    """
    equal = np.arange(2 ** (bits + 1)) if flat else BEFORE + np.arange(RUN)
    draft = equal.size + (0 if flat else BEFORE + AFTER)
    draws = Stream.derive(0, "resolution", name).uniform_run(
        [0], range(3), BEFORE + AFTER, Purpose.LAYOUT
    )[0]
    rows = [_flat_row(draft) if flat else _fine_row(draw, bits) for draw in draws]
    certain = torch.nn.functional.one_hot(torch.tensor([draft]), draft + 1)
    sure = torch.where(certain > 0, 0.0, -torch.inf)
    requests = (
        TableRequest(target=(rows[0], sure), draft=(certain.float(),)),
        TableRequest(target=(sure, rows[1]), draft=(certain.float(),)),
        TableRequest(target=(rows[2],), draft=()),
    )
    kept = 3 if idle else 2
    case = Case(name=name, requests=requests[:kept], dense=dense)
    return FineCase(case, PLACES[:kept], equal, bits)


def _flat_row(tokens: int) -> torch.Tensor:
    """[1, tokens + 1] float32 logits; the last token is the draft."""
    logits = torch.zeros((1, tokens + 1))
    logits[0, -1] = math.log(RARE_DRAFT * tokens)
    return logits


def _fine_row(draws: FloatArray, bits: int) -> torch.Tensor:
    """[1, V] float32 logits: likely tokens, the run, likely tokens, the draft."""
    run = np.full(RUN, 2.0 ** -(bits + 1))
    before, after = 0.5 + draws[:BEFORE], 0.5 + draws[-AFTER:]
    before *= SHARE_BEFORE / before.sum()
    after *= (1 - SHARE_BEFORE - run.sum() - RARE_DRAFT) / after.sum()
    p = np.concatenate([before, run, after, [RARE_DRAFT]])
    return torch.from_numpy(np.log(p)[None]).float()
