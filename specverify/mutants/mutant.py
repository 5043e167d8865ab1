"""What a mutant is: the reference with one clause changed, and who must notice."""

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


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A sampler with one real bug.

    Attributes:
        name: as in ``mutant:NAME``.
        summary: what goes wrong, in one line.
        seen_at: public reference of the bug, or ``textbook``.
        kind: what the harness must say of it.
        build: makes the sampler.
    """

    name: str
    summary: str
    seen_at: str
    kind: Kind
    build: Callable[[], Sampler]


def mutant_of(
    sampler: Callable[[], Sampler], name: str, seen_at: str, kind: Kind = Kind.LOSSY
) -> Mutant:
    """A mutant whose summary is the first line of its class's docstring."""
    summary = (sampler.__doc__ or name).strip().splitlines()[0].rstrip(".")
    return Mutant(name, summary, seen_at, kind, sampler)
