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
        if self.cases is not None and not self.cases.is_file():
            raise ValueError(f"cases: got {str(self.cases)!r}; expected a file of recorded rows")

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
