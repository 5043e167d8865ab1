"""The record of one run, as it is written to ``results.json`` and read by every report.

This schema is the only thing that reports know, so it imports nothing of the package but its own
parts (and never torch): results can be read where no sampler could run.  It is versioned: a file
names its schema first, and :func:`load` refuses any other.  Numbers that JSON cannot hold are
written as the strings ``"Infinity"``, ``"-Infinity"`` and ``"NaN"``, and read back as floats.
"""

from __future__ import annotations

import enum
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Literal

import pydantic

from specverify._record_base import Record as _Record
from specverify._shrunk_record import CellRecord as CellRecord
from specverify._shrunk_record import ShrunkRecord as ShrunkRecord
from specverify._shrunk_record import ShrunkRequestRecord as ShrunkRequestRecord

SCHEMA_VERSION = 1


class Outcome(enum.StrEnum):
    """What a check, or a whole run, came to."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_SUPPORTED = "not-supported"
    ERROR = "error"
    """The harness itself failed; says nothing about the sampler and never counts as passed."""

    @property
    def word(self) -> str:
        """The outcome in capital letters, for the start of a line."""
        return self.value.replace("-", " ").upper()


class RunStatus(enum.StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    CRASHED = "crashed"


class LookRecord(_Record):
    """What a check that may stop early knew after some of its trials."""

    trials: int
    """Trials so far."""
    log_e: float | None = None
    """Natural logarithm of the e-process."""
    rejects_at: float | None = None
    """Value of ``log_e`` that rejects: ln(1 / alpha), alpha being what looking may spend."""
    tv_observed: float | None = None
    """Plug-in total variation so far."""
    tv_certified: float | None = None
    """Upper bound on the true total variation so far."""


class VerdictRecord(_Record):
    """The answer of one check on one case."""

    suite: str
    """Name of the suite."""
    case: str
    """Name of the case, unique in its suite."""
    check: str
    """Name of the check, unique in its case."""
    family: str
    """What the check relies on: exact, law, coupling, independence; ``harness`` for errors."""
    status: Outcome
    """What the check came to."""
    reason: str
    """One sentence for a person."""
    trials: int = 0
    """Trials behind the answer; for exact checks, examples."""
    statistic: str | None = None
    """Name of the statistic that decided."""
    value: float | None = None
    """Its value."""
    p_value: float | None = None
    """Its p-value under the law."""
    alpha: float = 0.0
    """Share of the run's false-alarm probability that the check spent; 0 for exact checks."""
    power: float | None = None
    """Probability with which a deviation of ``tv_detectable`` is rejected."""
    cells: int | None = None
    """Cells of the table after pooling."""
    tv_requested: float | None = None
    """Total variation that the run asked to be caught."""
    tv_detectable: float | None = None
    """Smallest total variation that is caught with probability ``power``."""
    tv_observed: float | None = None
    """Plug-in total variation between the counts and the law."""
    tv_certified: float | None = None
    """Upper bound on the true total variation, which holds with probability ``confidence``."""
    confidence: float | None = None
    """Confidence of ``tv_certified``."""
    request: int | None = None
    """Request of the batch that the check looks at, if it looks at one."""
    position: int | None = None
    """Position in the request that the check looks at, if it looks at one."""
    branch: str | None = None
    """Part of the verification step that the fault lies in: drafted, accepted, recovered, bonus."""
    cause: str | None = None
    """What would explain the failure, where a directed bet does."""
    shrunk: ShrunkRecord | None = None
    """The smallest layout that was found to fail still; given to some failures of a run."""
    snippet: str | None = None
    """Lines of Python that show the failure without the suites."""
    worst: tuple[CellRecord, ...] = ()
    """The cells that deviate most."""
    looks: tuple[LookRecord, ...] = ()
    """Each look at the data, in order of trials; empty for a check that looks once."""
    log_e: float | None = None
    """Natural logarithm of this run's e-value, where the check has one."""
    first_trial: int = 0
    """Number of the first trial; not 0 where a ledger has earlier ones."""
    account_trials: int | None = None
    """Trials of all runs in the ledger, this one included."""
    account_log_e: float | None = None
    """Natural logarithm of the e-value of all these runs together: the mean of the product of
    theirs and of one bet that goes on through all their trials."""
    account_certified: float | None = None
    """Upper bound on the true total variation from all these runs, which holds with probability
    ``confidence`` however often one looks."""
    seconds: float = 0.0
    """Wall time."""
    replay: str | None = None
    """Token for ``specverify replay``; given to checks that did not pass."""

    @property
    def name(self) -> str:
        """Suite, case and check in one line."""
        return f"{self.suite}/{self.case}/{self.check}"

    @property
    def place(self) -> str:
        """Layer, request, position and branch of a failure, as far as they are known."""
        known = (
            ("layer", self.suite),
            ("request", self.request),
            ("position", self.position),
            ("branch", self.branch),
        )
        return ", ".join(f"{name} {value}" for name, value in known if value is not None)


class CulpritRecord(_Record):
    """A check that is rejected together with all others at the alpha of the whole run."""

    check: str
    """Suite, case and check in one line."""
    adjusted_p_value: float
    """Its p-value, adjusted by Holm's rule; at most the alpha of the run."""


class ErrorRecord(_Record):
    """A fault of the harness itself, not of the sampler."""

    where: str
    """The case, or the phase of the run, in which it happened."""
    message: str
    """One sentence for a person."""
    detail: str = ""
    """Traceback or captured output, for a report to the authors."""


class Environment(_Record):
    """Where the run took place."""

    python: str
    """Version of Python."""
    implementation: str
    """Python implementation, for example CPython."""
    platform: str
    """Operating system, release and machine."""
    cpu_count: int
    """Logical processors that this process may use."""
    packages: dict[str, str]
    """Versions of the installed distributions that matter to a verdict."""


class SamplerRecord(_Record):
    """The sampler under test."""

    name: str
    """As the user named it."""
    version: str | None = None
    """Version of the distribution it came from."""
    capabilities: dict[str, Any] = pydantic.Field(default_factory=dict)
    """What it declares; anything it does not declare was not asked of it."""


class CasesRecord(_Record):
    """A file of recorded rows that the run read its cases from."""

    path: str
    """As the user named it."""
    digest: str
    """SHA-256 of its bytes, hexadecimal."""


class RunSettings(_Record):
    """What was decided before anything ran; with the environment, enough to run it again."""

    sampler: SamplerRecord
    """What was put to the test."""
    suites: tuple[str, ...]
    """Suites that answered."""
    seed: int
    """Root of every random number."""
    alpha: float
    """False-alarm probability of the whole run, at most."""
    alpha_per_test: float
    """The share of one statistical test."""
    tests: int
    """Statistical tests that alpha was split over."""
    power: float
    """Promised probability of catching the requested deviation."""
    tv: float | None
    """Requested total variation; null takes the profile's."""
    confidence: float
    """Of the certificates."""
    profile: str
    """How much work was allowed: quick, gate or nightly."""
    device: str
    """Torch device that the sampler ran on."""
    trials: int | None = None
    """Exact number of trials, if it was forced."""
    ledger: str | None = None
    """File in which the evidence of several runs adds up, as the user named it."""
    workers: int = 1
    """Processes that ran cases."""
    cases_file: CasesRecord | None = None
    """Recorded rows, if any."""
    command: tuple[str, ...]
    """The command line."""


class RunResults(_Record):
    """Everything that a run found."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    status: RunStatus
    """How the run ended."""
    verdict: Outcome
    """The verdict of the run: the worst of its parts; pass only if every planned case was run."""
    started: str
    """When it started, ISO 8601 with offset."""
    seconds: float
    """Wall time of the run."""
    cases_planned: int
    """Cases that were to be run."""
    cases_finished: int
    """Cases that were run."""
    settings: RunSettings
    """What was decided before anything ran."""
    environment: Environment
    """Where it ran."""
    verdicts: tuple[VerdictRecord, ...]
    """The answer of every check, ordered by suite, case and check."""
    errors: tuple[ErrorRecord, ...] = ()
    """Faults of the harness itself."""
    culprits: tuple[CulpritRecord, ...] = ()
    """If a statistical test failed: all checks that Holm's rule rejects, strongest first."""
    global_log_e: float | None = None
    """Natural logarithm of the e-value of the hypothesis that every law holds: the mean of the
    e-values of all checks that have one."""


def write(results: RunResults, path: Path) -> None:
    """Write ``results`` so that a reader sees the old file or the whole new one, never a part.

    Raises:
        OSError: if the folder cannot be written.
    """
    write_text(path, results.model_dump_json(indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically: a temporary file beside it, then a rename."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        # mkstemp makes files that only their owner reads; results are meant to be shared.
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: Path | str) -> RunResults:
    """Read a ``results.json``.

    Raises:
        ValueError: if the file is no JSON, of another schema, or a field has a wrong value.
        OSError: if the file cannot be read.
    """
    try:
        data = json.loads(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: got a file that is not valid JSON ({error})") from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"{path}: got schema_version {version!r}; expected {SCHEMA_VERSION}, "
            "the only one that this version of specverify reads"
        )
    try:
        return RunResults.model_validate(data)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{path}: field {field}: {first['msg']}") from None
