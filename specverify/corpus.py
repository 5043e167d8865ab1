"""A corpus: replay tokens of failures that once were, kept in a repository like regression tests.

A text file, one token a line; ``#`` begins a comment, and empty lines are free.  A run with a
corpus replays it before anything else, on the sampler under test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from specverify.replay import ReplayToken
from specverify.results import write_text

_HEAD = """# Failures that once were: replay tokens of specverify, one a line.
# `specverify run --corpus FILE` runs them first.
"""

SHARE = 0.5
"""The largest part of a run's alpha that its corpus may spend."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One token of a corpus.

    Attributes:
        line: where it stands, from 1.
        text: the token as written.
        token: unpacked.
    """

    line: int
    text: str
    token: ReplayToken

    @property
    def name(self) -> str:
        """Suite, case and check."""
        return f"{self.token.suite}/{self.token.case}/{self.token.check}"


def read(path: Path) -> list[Entry]:
    """The tokens of a file, in order; what stands there twice is kept once.

    Raises:
        ValueError: if the file cannot be read, or naming the line of a token that is damaged or of
            another version.
    """
    entries: dict[tuple[object, ...], Entry] = {}
    for number, line in enumerate(_lines(path), start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            entry = Entry(number, text, ReplayToken.decode(text))
        except ValueError as error:
            raise ValueError(f"corpus: {path}, line {number}: {error}") from None
        entries.setdefault(_identity(entry.token), entry)
    return list(entries.values())


def add(path: Path, tokens: Iterable[str]) -> list[ReplayToken]:
    """Append tokens that a file does not hold yet; the file is made if it is absent.

    The file is replaced as a whole, so a reader sees the old one or the new one.  A token is new if
    its check, its sampler or its seed is.

    Args:
        path: of the corpus.
        tokens: as printed by checks that failed.

    Returns:
        those that were new.

    Raises:
        ValueError: if the file or a token cannot be read, or the file cannot be written.
    """
    before = "".join(f"{line}\n" for line in _lines(path)) if path.exists() else _HEAD
    known = {_identity(entry.token) for entry in read(path)} if path.exists() else set()
    added = []
    for text in tokens:
        token = ReplayToken.decode(text)
        if _identity(token) not in known:
            known.add(_identity(token))
            added.append(token)
            before += f"\n# {_remark(token)}\n{text.strip()}\n"
    if added:
        _write(path, before)
    return added


def create(path: Path) -> None:
    """Make an empty corpus.

    Raises:
        ValueError: if it cannot be written.
    """
    _write(path, _HEAD)


def shares(entries: Sequence[Entry], alpha: float) -> list[float]:
    """What each token may spend of a run's alpha: its own share, and all together at most half.

    Args:
        entries: that will be run.
        alpha: false-alarm probability of the whole run.
    """
    most = alpha * SHARE / max(1, len(entries))
    return [min(entry.token.alpha, most) for entry in entries]


def of_sampler(entries: Iterable[Entry], sampler: str) -> tuple[list[Entry], list[Entry]]:
    """The tokens that were made for a sampler, and the others."""
    mine: list[Entry] = []
    others: list[Entry] = []
    for entry in entries:
        (mine if entry.token.sampler == sampler else others).append(entry)
    return mine, others


def _identity(token: ReplayToken) -> tuple[object, ...]:
    """What makes a token another one: not the version that made it, nor how alpha was split."""
    fields = token.model_dump(exclude={"made_by", "alpha", "power", "outcome", "n", "cases_path"})
    return tuple(fields.values())


def _remark(token: ReplayToken) -> str:
    check = " ".join(f"{token.suite}/{token.case}/{token.check}".split())
    sampler = " ".join(token.sampler.split())
    return (
        f"{check}: {token.outcome} after {token.n:,} trials, {sampler}, specverify {token.made_by}"
    )


def _write(path: Path, text: str) -> None:
    try:
        write_text(path.resolve(), text)
    except OSError as error:
        said = error.strerror or error
        raise ValueError(f"corpus: got {str(path)!r}, which cannot be written ({said})") from None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        said = error.strerror or error
        raise ValueError(f"corpus: got {str(path)!r}, which cannot be read ({said})") from None
    except UnicodeDecodeError:
        raise ValueError(
            f"corpus: got {str(path)!r}, which is not UTF-8 text; expected replay tokens"
        ) from None
