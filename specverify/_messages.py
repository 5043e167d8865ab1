"""What the parts of the pytest plugin say to each other, within a process and across workers."""

from __future__ import annotations

from typing import Protocol

import pydantic

from specverify.results import ErrorRecord, RunResults, SamplerRecord, VerdictRecord

HEADER = "specverify.header"
"""Name of the property of a test report that carries a :class:`Header`."""
RESULT = "specverify.result"
"""Name of the property of a test report that carries a :class:`CaseResult`."""
WATCHER = "specverify-watcher"
"""Name under which a :class:`Watcher` is registered as a plugin of pytest."""


class Header(pydantic.BaseModel):
    """What a process decided at collection: the same in every worker."""

    tests: int
    alpha_per_test: float
    confidence: float
    cases: int
    sampler: SamplerRecord


class CaseResult(pydantic.BaseModel):
    """What the test of one case found."""

    model_config = pydantic.ConfigDict(frozen=True, ser_json_inf_nan="strings")

    verdicts: tuple[VerdictRecord, ...]
    error: ErrorRecord | None = None


class Watcher(Protocol):
    """Somebody who watches a run: the progress bar of the command."""

    command: tuple[str, ...]

    def trials(self, done: int, planned: int) -> None:
        """An experiment has done so many of its trials (only without workers)."""

    def case_finished(self, result: CaseResult) -> None:
        """A case was answered."""

    def run_finished(self, results: RunResults) -> None:
        """The run is over and its files are written."""
