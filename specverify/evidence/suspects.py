"""Laws that a faulty sampler would have: the bets of the directed e-process.

A suspect need not be right to be useful: betting on a leak of 0.03 wins, only slower, when the
true leak is 0.05. What matters for validity is that the list is fixed before the first draw.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specverify.evidence import validate

SHARES = (0.003, 0.01, 0.03, 0.1, 0.3)
FACTORS = (0.95, 0.98, 0.99, 1.01, 1.02, 1.05)
MASSES = (0.01, 0.03, 0.1, 0.3)


@dataclasses.dataclass(frozen=True, eq=False)
class Suspect:
    """One law that would betray one fault.

    Attributes:
        name: of the fault, for the report.
        law: [k] float64, what the faulty sampler would emit.
    """

    name: str
    law: npt.NDArray[np.float64]


def leaks(
    p: npt.ArrayLike, other: npt.ArrayLike, name: str, shares: Sequence[float] = SHARES
) -> list[Suspect]:
    """Another law shines through: the draft's, or a neighbour's row of the batch.

    Args:
        p: [k] law.
        other: [k] law that is emitted in a share of the trials.
        name: of the fault, for example "draft leak" or "neighbour row".
        shares: in (0, 1).

    Returns:
        One suspect (1 - share) p + share other for each share.

    Raises:
        ValueError: naming the field that is wrong.
    """
    law, wrong = validate.law("p", p), validate.law("other", other)
    if wrong.shape != law.shape:
        raise ValueError(f"other: got {wrong.shape[0]} cells; expected {law.shape[0]}, those of p")
    return [
        Suspect(f"{name} {share:g}", law + validate.inside("shares", share) * (wrong - law))
        for share in shares
    ]


def temperatures(p: npt.ArrayLike, factors: Sequence[float] = FACTORS) -> list[Suspect]:
    """The temperature is off by a factor.

    Args:
        p: [k] law.
        factors: > 0; above 1 the law is too flat.

    Returns:
        One suspect proportional to p ** (1 / factor) for each factor.

    Raises:
        ValueError: naming the field that is wrong.
    """
    law = validate.law("p", p)
    suspects = []
    for factor in factors:
        power = 1 / validate.positive("factors", factor)
        # relative to the largest cell, which keeps the exponent from underflowing altogether
        bent = np.where(law > 0, (law / law.max()) ** power, 0.0)
        suspects.append(Suspect(f"temperature x {factor:g}", bent / bent.sum()))
    return suspects


def thin_tails(p: npt.ArrayLike, masses: Sequence[float] = MASSES) -> list[Suspect]:
    """Half of the draws from the tail are lost.

    Half, not all: a bet that the tail is gone loses everything on the first draw from it.

    Args:
        p: [k] law.
        masses: probability, in (0, 1), of the rarest cells that make up the tail.

    Returns:
        One suspect for each mass; a mass without a whole cell gives none.

    Raises:
        ValueError: naming the field that is wrong.
    """
    law = validate.law("p", p)
    order = np.argsort(law, kind="stable")
    cumulative = np.cumsum(law[order])
    suspects = []
    for mass in masses:
        thinned = law.copy()
        thinned[order[cumulative <= validate.inside("masses", mass)]] *= 0.5
        if (thinned != law).any():
            suspects.append(Suspect(f"lost tail {mass:g}", thinned / thinned.sum()))
    return suspects
