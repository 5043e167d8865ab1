"""What a user may decide for a run, checked early, in one place for the command and the plugin."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specverify.checks.experiment import Settings
    from specverify.subjects import Subject

PROFILE_NAMES = ("quick", "gate", "nightly")
"""The keys of :data:`specverify.checks.experiment.PROFILES`, here without the cost of torch."""

CASES_VARIABLE = "SPECVERIFY_CASES"
"""Environment variable that hands the file of recorded rows to its suite, in every worker."""


_ROOM = 1 << 20
"""Bytes that a run wants free beside its ledger: many shards of small tables, a few of large."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run.

    Attributes:
        sampler: name of the subject, as the registry understands it.
        alpha: false-alarm probability of the whole run, in (0, 1).
        power: promised probability of catching the requested deviation, in (0, 1).
        tv: requested total variation in (0, 1), ``None`` for the profile's.
        profile: quick, gate or nightly.
        seed: root of every random number, >= 0.
        device: torch device that the sampler runs on.
        trials: exact number of trials of a case, ``None`` to plan them.
        out: folder for results, ``None`` to write none.
        cases: file of recorded rows.
        only_check: report this check alone.
        ledger: file in which evidence adds up from run to run, ``None`` for none.
        first_trial: where a shard of a ledger began, when it is replayed.
        corpus: file of replay tokens that are run first, ``None`` for none.
        corpus_all: run the tokens of other samplers, too.

    Raises:
        ValueError: naming the option, what it holds and what was expected.
    """

    sampler: str
    alpha: float = 1e-6
    power: float = 0.999
    tv: float | None = None
    profile: str = "quick"
    seed: int = 0
    device: str = "cpu"
    trials: int | None = None
    out: Path | None = None
    cases: Path | None = None
    only_check: str | None = None
    ledger: Path | None = None
    first_trial: int | None = None
    corpus: Path | None = None
    corpus_all: bool = False

    def __post_init__(self) -> None:
        for name in ("alpha", "power", "tv"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise ValueError(f"{name}: got {value}; expected a number strictly between 0 and 1")
        if self.profile not in PROFILE_NAMES:
            raise ValueError(
                f"profile: got {self.profile!r}; expected one of {', '.join(PROFILE_NAMES)}"
            )
        if self.seed < 0:
            raise ValueError(f"seed: got {self.seed}; expected an integer >= 0")
        if self.trials is not None and self.trials < 1:
            raise ValueError(f"trials: got {self.trials}; expected a count >= 1")
        if self.first_trial is not None and (self.first_trial < 0 or self.first_trial % 2):
            raise ValueError(f"first_trial: got {self.first_trial}; expected an even count >= 0")
        if self.first_trial is not None and self.ledger is not None:
            raise ValueError("first_trial: got a ledger as well, which says where to begin")
        if self.cases is not None and not self.cases.is_file():
            raise ValueError(f"cases: got {str(self.cases)!r}; expected a file of recorded rows")
        if self.corpus is not None and not self.corpus.is_file():
            raise ValueError(f"corpus: got {str(self.corpus)!r}; expected a file of replay tokens")
        if self.corpus is None and self.corpus_all:
            raise ValueError("corpus_all: got no corpus whose tokens could be run")

    def settings(self, alpha_per_test: float) -> Settings:
        """What every experiment of the run is told."""
        from specverify.checks.experiment import PROFILES, Settings

        return Settings(
            root_seed=self.seed,
            alpha=alpha_per_test,
            power=self.power,
            tv=self.tv,
            profile=PROFILES[self.profile],
            device=self.device,
            trials=self.trials,
            ledger=None if self.ledger is None else str(self.ledger.absolute()),
            first_trial=self.first_trial,
        )


def open_subject(options: RunOptions) -> Subject:
    """Find the sampler and make sure that it can run on the device asked for.

    Raises:
        ValueError: if there is no such sampler or device, or the one does not support the other.
    """
    from specverify import registry

    subject = registry.resolve(options.sampler)
    kind = _device_kind(options.device)
    supported = subject.capabilities.devices
    if kind not in supported:
        raise ValueError(
            f"device: got {options.device!r}; expected one that the sampler {subject.name!r} "
            f"declares: {', '.join(supported)}"
        )
    return subject


def _device_kind(device: str) -> str:
    import torch

    try:
        parsed = torch.device(device)
    except RuntimeError:
        raise ValueError(
            f"device: got {device!r}; expected a torch device, such as cpu or cuda"
        ) from None
    backend = getattr(torch, parsed.type, None)
    if parsed.type != "cpu" and not (backend is not None and backend.is_available()):
        raise ValueError(f"device: got {device!r}, which is not available on this machine")
    if parsed.type == "cuda" and (parsed.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device: got {device!r}; this machine has {torch.cuda.device_count()} CUDA device(s)"
        )
    return parsed.type


def prepare_out(out: Path) -> None:
    """Make the folder for results and try to write in it.

    Raises:
        ValueError: if that is not possible.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ValueError(
            f"out: got {str(out)!r}, which cannot be written ({error.strerror or error}); "
            "expected a folder for results"
        ) from None


def prepare_ledger(options: RunOptions, subject: Subject) -> None:
    """Open the ledger of a run, or create it, read it whole, and see that it can be written.

    Raises:
        ValueError: if it is damaged or cannot be written, if the disk is full, or if the subject
            has neither a version nor a source file to tell it by.
    """
    if options.ledger is None:
        return
    from specverify.checks.account import subject_version
    from specverify.ledger import Ledger

    try:
        subject_version(subject)
    except ValueError as error:
        raise ValueError(f"ledger: {subject.name!r} cannot be told by a version: {error}") from None
    if options.ledger.absolute().parent.is_dir():
        _require_room(options.ledger)
    Ledger.open(options.ledger).close()


def _require_room(ledger: Path) -> None:
    """Write and flush what a shard may need beside the file, and take it away again."""
    try:
        with tempfile.TemporaryFile(dir=ledger.absolute().parent) as stream:
            stream.write(bytes(_ROOM))
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise ValueError(
            f"ledger: got {str(ledger)!r}, beside which nothing can be written "
            f"({error.strerror or error}); expected a file in a folder with room for it"
        ) from None


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def announced_cases(cases: Path | None) -> Generator[None, None, None]:
    """Name the file of recorded rows to its suite, here and in worker processes, for a while."""
    before = os.environ.pop(CASES_VARIABLE, None)
    if cases is not None:
        os.environ[CASES_VARIABLE] = str(cases.absolute())
    try:
        yield
    finally:
        os.environ.pop(CASES_VARIABLE, None)
        if before is not None:
            os.environ[CASES_VARIABLE] = before
