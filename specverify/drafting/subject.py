"""A sampler that brings its own drafter.

Drafts then come from that drafter and not from the harness: a bug that shares noise between draft
and verification is invisible to drafts that somebody else drew.
"""

from __future__ import annotations

import dataclasses

from specverify.contract import Batch, Capabilities, Emission, Sampler, capabilities_of
from specverify.drafting.protocol import Drafter


@dataclasses.dataclass(frozen=True, kw_only=True)
class DraftingCapabilities(Capabilities):
    """Capabilities of a sampler with an attribute ``drafter``.

    Attributes:
        reports_q: whether its drafter reports the law of its drafts.
        takes_coins: whether its drafter takes injected coins.
    """

    reports_q: bool = True
    takes_coins: bool = False


def with_drafter(capabilities: Capabilities, drafter: Drafter) -> DraftingCapabilities:
    """The capabilities of a sampler once it brings ``drafter``."""
    base = {
        field.name: getattr(capabilities, field.name) for field in dataclasses.fields(Capabilities)
    }
    return DraftingCapabilities(
        **base, reports_q=drafter.reports_q, takes_coins=drafter.takes_coins
    )


class DraftingSampler:
    """Puts a sampler and a drafter together into one subject.

    Args:
        sampler: verifies; what it declares is kept.
        drafter: proposes.

    Raises:
        ValueError: if ``drafter`` is no drafter.
    """

    def __init__(self, sampler: Sampler, drafter: Drafter) -> None:
        if not isinstance(drafter, Drafter):
            raise ValueError(
                f"drafter: got {type(drafter).__name__}; expected propose(contexts), reports_q "
                "and takes_coins"
            )
        self.sampler, self.drafter = sampler, drafter
        self.capabilities = with_drafter(capabilities_of(sampler), drafter)

    def __call__(self, batch: Batch) -> Emission:
        """Verify with the sampler."""
        return self.sampler(batch)


def drafter_of(sampler: object) -> Drafter | None:
    """The drafter that a sampler brings, ``None`` if it brings none.

    Raises:
        ValueError: if the attribute ``drafter`` is no drafter, or the capabilities do not declare
            it (alpha is shared out by capabilities, before anything runs).
    """
    drafter = getattr(sampler, "drafter", None)
    if drafter is None:
        return None
    if not isinstance(drafter, Drafter):
        raise ValueError(
            f"drafter: got {type(drafter).__name__}; expected an object with propose(contexts), "
            "reports_q and takes_coins"
        )
    declared = capabilities_of(sampler)
    want = with_drafter(declared, drafter)
    if declared != want:
        raise ValueError(
            "capabilities: got none that declare the drafter; expected "
            f"with_drafter(capabilities, drafter): reports_q={want.reports_q}, "
            f"takes_coins={want.takes_coins}"
        )
    return drafter
