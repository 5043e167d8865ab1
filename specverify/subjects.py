"""What is put to the test: a sampler with its name, version and capabilities."""

from __future__ import annotations

import dataclasses

from specverify.contract import Capabilities, Sampler, capabilities_of


@dataclasses.dataclass(frozen=True)
class Subject:
    """A sampler under test.

    Attributes:
        name: as the user named it, for example ``reference`` or ``my_file:my_sampler``.
        sampler: the callable itself.
        capabilities: what it declares.
        version: of the distribution it came from, ``None`` when unknown.
    """

    name: str
    sampler: Sampler
    capabilities: Capabilities
    version: str | None = None

    @classmethod
    def of(cls, sampler: Sampler, name: str | None = None) -> Subject:
        """Wrap a sampler that is already at hand (tests, notebooks)."""
        return cls(
            name or str(getattr(sampler, "__name__", type(sampler).__name__)),
            sampler,
            capabilities_of(sampler),
        )
