"""Replay tokens: everything that one check needs to be run again, byte for byte, in one word.

A token is ``sv2.`` and the base64url form of a CRC-32 and a deflated JSON list.  It holds
the decisions of the run (seed, share of alpha, power, profile, ...), not its data: every random
number derives from the seed and the place where it is used, so the same decisions give the same
counts.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import difflib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic

import specverify
from specverify._options import RunOptions, file_digest
from specverify.checks.verdict import ACCOUNT_STATISTIC
from specverify.results import Outcome, VerdictRecord

if TYPE_CHECKING:
    from specverify._runner import Answer
    from specverify.checks.experiment import Experiment, Progress, Suite

PREFIX = "sv2."
"""First characters of a token; the number is the version of its layout."""

# Part of the layout: with these words known beforehand a token is half as long. Never change it
# without a new prefix.
_DICTIONARY = (
    b'","mixed","support","exclusion","acceptance","greedy","random","one-hot-V","dense-V'
    b"exact/independence/coupling/law/request 0: recovered at accepted length"
    b' last token after 0 accepted: joint of tokens",e-10,e-09,0.999,null,"nightly","gate","quick"'
    b',null,"cuda","cpu",null,null,"inconclusive","fail",["0.1.0","mutant:'
)


class ReplayToken(pydantic.BaseModel):
    """What a token holds, in the order in which it is packed."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )

    made_by: str
    """Version of specverify that made the token."""
    sampler: str
    """Name of the sampler, as the user gave it."""
    suite: str
    """Name of the suite."""
    case: str
    """Name of the case."""
    check: str
    """Name of the check."""
    seed: int
    """Root of every random number."""
    alpha: float
    """Share of the one test."""
    power: float
    """Promised probability of catching the requested deviation."""
    tv: float | None
    """Requested total variation; None takes the profile's."""
    profile: str
    """Name of the profile."""
    trials: int | None
    """Exact number of trials, if the run forced it."""
    device: str
    """Torch device."""
    cases_path: str | None
    """File of recorded rows, as the user named it."""
    cases_digest: str | None
    """First 16 hexadecimal digits of its SHA-256."""
    outcome: str
    """What the check came to in the run that made the token."""
    n: int
    """Trials that it took."""
    first_trial: int | None
    """Where the shard of a ledger began; None without a ledger."""

    def encode(self) -> str:
        """The token as one word of URL-safe characters."""
        text = json.dumps(list(self.model_dump().values()), separators=(",", ":"))
        packer = zlib.compressobj(9, wbits=-15, zdict=_DICTIONARY)
        packed = packer.compress(text.encode()) + packer.flush()
        checksum = zlib.crc32(packed).to_bytes(4, "big")
        return PREFIX + base64.urlsafe_b64encode(checksum + packed).decode().rstrip("=")

    @classmethod
    def decode(cls, token: str) -> ReplayToken:
        """Unpack a token.

        Raises:
            ValueError: if it was made by another version of the layout, or is damaged.
        """
        token = token.strip()
        if not token.startswith(PREFIX):
            raise ValueError(
                f"token: got {_shorten(token)!r}; expected one that starts with {PREFIX!r} "
                "(another start means another version of specverify, or no token at all)"
            )
        try:
            raw = base64.b64decode(_padded(token[len(PREFIX) :]), b"-_", validate=True)
            if zlib.crc32(raw[4:]) != int.from_bytes(raw[:4], "big"):
                raise ValueError("checksum")
            unpacker = zlib.decompressobj(wbits=-15, zdict=_DICTIONARY)
            values = json.loads(unpacker.decompress(raw[4:]) + unpacker.flush())
            return cls.model_validate(dict(zip(cls.model_fields, values, strict=True)))
        except (ValueError, TypeError, zlib.error, binascii.Error):
            raise ValueError(
                f"token: {_shorten(token)!r} is damaged; copy it again, whole and in one line"
            ) from None

    def options(self, cases: Path | None = None) -> RunOptions:
        """The options of a run that reproduces the check; they name no ledger, ever.

        Args:
            cases: where the file of recorded rows is now, if it has moved.

        Raises:
            ValueError: if the file is missing or is not the one that the check was run on.
        """
        if self.cases_path is not None:
            cases = cases or Path(self.cases_path)
        options = RunOptions(
            sampler=self.sampler, power=self.power, tv=self.tv, profile=self.profile,
            seed=self.seed, device=self.device, trials=self.trials, cases=cases,
            only_check=self.check, first_trial=self.first_trial,
        )  # fmt: skip
        if cases is not None and not file_digest(cases).startswith(self.cases_digest or ""):
            raise ValueError(
                f"cases: {str(cases)!r} is not the file that the token was made for; expected "
                f"one whose SHA-256 starts with {self.cases_digest}"
            )
        return options


def stamp(verdict: VerdictRecord, options: RunOptions, alpha: float, digest: str | None) -> str:
    """The token of a check.

    Args:
        verdict: what the check came to.
        options: of the run.
        alpha: share of one test in that run.
        digest: SHA-256 of the file of recorded rows, if there is one.
    """
    in_ledger = options.ledger is not None or options.first_trial is not None
    return ReplayToken(
        made_by=specverify.__version__, sampler=options.sampler,
        suite=verdict.suite, case=verdict.case, check=verdict.check,
        seed=options.seed, alpha=alpha, power=options.power, tv=options.tv,
        profile=options.profile, trials=options.trials, device=options.device,
        cases_path=str(options.cases) if options.cases else None,
        cases_digest=digest[:16] if digest else None,
        outcome=verdict.status.value, n=verdict.trials,
        first_trial=verdict.first_trial if in_ledger else None,
    ).encode()  # fmt: skip


def stamped(answer: Answer, options: RunOptions, alpha: float, digest: str | None) -> Answer:
    """The same answer, with a token on every check that failed or was inconclusive.

    What failed by the evidence of several runs together cannot be shown by running one again.
    """
    verdicts = tuple(
        verdict.model_copy(update={"replay": stamp(verdict, options, alpha, digest)})
        if verdict.status in (Outcome.FAIL, Outcome.INCONCLUSIVE)
        and verdict.statistic != ACCOUNT_STATISTIC
        else verdict
        for verdict in answer.verdicts
    )
    return dataclasses.replace(answer, verdicts=verdicts)


def find(suites: Mapping[str, Suite], suite: str, case: str) -> Experiment:
    """The experiment of that name.

    Raises:
        ValueError: naming what exists instead.
    """
    if suite not in suites:
        raise ValueError(f"suite: got {suite!r}; expected one of {', '.join(sorted(suites))}")
    named = {experiment.case: experiment for experiment in suites[suite].experiments}
    if case not in named:
        close = difflib.get_close_matches(case, named, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ValueError(f"case: suite {suite!r} has no case {case!r}{hint}")
    return named[case]


def rerun(
    token: ReplayToken,
    options: RunOptions,
    suites: Mapping[str, Suite],
    progress: Progress | None = None,
) -> Answer:
    """Run the case of a token again and keep the answer of its check.

    Raises:
        ValueError: if the sampler, the suite, the case or the check does not exist here.
    """
    from specverify._options import open_subject
    from specverify._runner import answer
    from specverify.checks.shrink import Shrinking

    experiment = find(suites, token.suite, token.case)
    subject = open_subject(options)
    settings = options.settings(token.alpha)
    found = answer(experiment, subject, settings, progress, Shrinking(wanted=token.check))
    if found.error is None:
        kept = tuple(verdict for verdict in found.verdicts if verdict.check == token.check)
        if not kept:
            answered = ", ".join(verdict.check for verdict in found.verdicts)
            raise ValueError(
                f"check: case {token.case!r} answered no check {token.check!r}, only {answered}"
            )
        found = dataclasses.replace(found, verdicts=kept)
    digest = file_digest(options.cases) if options.cases else None
    return stamped(found, options, token.alpha, digest)


def _padded(text: str) -> bytes:
    return text.encode() + b"=" * (-len(text) % 4)


def _shorten(text: str) -> Any:
    return text if len(text) <= 24 else f"{text[:21]}..."
