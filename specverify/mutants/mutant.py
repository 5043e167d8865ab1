"""What a mutant is: the reference with one clause changed, who must notice, where it is wrong."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable

from specverify.contract import Sampler


class Kind(enum.StrEnum):
    """What the harness must say of a mutant.

    LOSSY: the emitted law or an exact property is broken; some suite other than ``acceptance``
    must reject it.  SLOW: lossless, but not the rule it declares; every law must pass, and only
    ``acceptance`` may and must reject it.
    """

    LOSSY = "lossy"
    SLOW = "slow"


class Need(enum.StrEnum):
    """The property that sees a bug.

    D: marginal law.  J: joint law.  A: acceptance.  S: support.  L: layout.  G: greedy.
    C: injected coins.  R: seeds, streams, reproducibility.  B: invariance to the batch.
    Q: drafts follow the reported q.  X: token for token beside the reference, or poisoned memory.
    """

    MARGINAL = "D"
    JOINT = "J"
    ACCEPTANCE = "A"
    SUPPORT = "S"
    LAYOUT = "L"
    GREEDY = "G"
    COINS = "C"
    STREAMS = "R"
    BATCH = "B"
    DRAFTS = "Q"
    TOKENS = "X"


class Place(enum.StrEnum):
    """Where a fault lies, in the words of a diagnosis.

    The first four are the branches of a verification step.  REQUEST: what one request gets depends
    on another request, another call or another round.  LAYOUT: the emission has the wrong form.
    """

    DRAFTED = "drafted"
    ACCEPTED = "accepted"
    RECOVERED = "recovered"
    BONUS = "bonus"
    REQUEST = "request"
    LAYOUT = "layout"


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A sampler with one real bug.

    Attributes:
        name: as in ``mutant:NAME``.
        summary: what goes wrong, in one line.
        seen_at: public reference of the bug, or ``textbook``.
        needs: the properties that see it; a suite that checks one of them must catch it.
        where: every place whose decisions it makes wrong; a diagnosis must name one of them.
        kind: what the harness must say of it.
        build: makes the sampler.
        tv: deviation that a suite must be powered for to see it by its law, where it is small.
    """

    name: str
    summary: str
    seen_at: str
    needs: tuple[Need, ...]
    where: frozenset[Place]
    kind: Kind
    build: Callable[[], Sampler]
    tv: float | None = None


def mutant_of(
    sampler: Callable[[], Sampler],
    name: str,
    seen_at: str,
    needs: str,
    where: str,
    kind: Kind = Kind.LOSSY,
    *,
    tv: float | None = None,
) -> Mutant:
    """A mutant whose summary is the first line of its class's docstring.

    Args:
        sampler: makes it.
        name: as in ``mutant:NAME``.
        seen_at: public reference.
        needs: letters of :class:`Need`, with spaces between.
        where: names of :class:`Place`, likewise.
        kind: what the harness must say of it.
        tv: see :class:`Mutant`.
    """
    summary = (sampler.__doc__ or name).strip().splitlines()[0].rstrip(".")
    return Mutant(
        name=name,
        summary=summary,
        seen_at=seen_at,
        needs=tuple(map(Need, needs.split())),
        where=frozenset(map(Place, where.split())),
        kind=kind,
        build=sampler,
        tv=tv,
    )
