"""What the ledger counts under: the keys of accounts, and the records it answers with.

Evidence may only be added up when all of it is about the same thing.  The key of an account
therefore holds everything that could change what the counts mean: the subject and its version, what
it declares, where it runs, the case, the table, the exact law, and how trials are drawn.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from specverify.evidence import validate

if TYPE_CHECKING:
    from specverify.contract import Capabilities

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

TRIALS_SCHEMA = 1
"""How trial numbers become randomness and outcomes become counts. Whoever changes that raises this
number, and every account starts anew."""

DIGEST_LENGTH = 64
"""Hexadecimal digits of a SHA-256."""


def law_digest(law: npt.ArrayLike) -> str:
    """The identity of a law: SHA-256 over its float64 values, little-endian, in cell order.

    A law is the same when it is the same to the last bit; -0.0 counts as 0.0.

    Args:
        law: [cells] probabilities.

    Returns:
        64 hexadecimal digits.

    Raises:
        ValueError: if ``law`` is not a probability vector.
    """
    validate.law("law", law)
    return hashlib.sha256(law_values(law).tobytes()).hexdigest()


def law_values(law: npt.ArrayLike) -> FloatArray:
    """The law as it is stored: [cells] little-endian float64 without negative zeros."""
    return np.ascontiguousarray(np.asarray(law, dtype="<f8") + 0.0)


def capabilities_digest(capabilities: Capabilities) -> str:
    """The identity of what a sampler declares: SHA-256 over its fields by name.

    Raises:
        ValueError: if ``capabilities`` is something else.
    """
    # Here, because the contract loads torch, which a look into a ledger does not need.
    from specverify.contract import Capabilities

    if not isinstance(capabilities, Capabilities):
        _fail("capabilities", type(capabilities).__name__, "a specverify Capabilities")
    text = json.dumps(dataclasses.asdict(capabilities), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def source_digest(sampler: object) -> str:
    """A version for a sampler that has none: the digest of the file that defines it.

    What that file imports is not seen, so a sampler of several files should have a version.

    Args:
        sampler: a function, a class or an instance of one, or a partial application.

    Returns:
        ``sha256:`` and 64 hexadecimal digits.

    Raises:
        ValueError: if there is no source file, as for samplers typed into an interpreter.
    """
    while isinstance(sampler, functools.partial):
        sampler = sampler.func
    found: Any = sampler
    if inspect.isroutine(found):
        found = inspect.unwrap(found)
    elif not inspect.isclass(found):
        found = type(found)
    try:
        source = Path(inspect.getsourcefile(found) or "").read_bytes()
    except (OSError, TypeError) as error:
        _fail("sampler", f"{sampler!r} without a source file ({error})", "one from a file")
    return f"sha256:{hashlib.sha256(source).hexdigest()}"


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class AccountGroup:
    """All tables of one case of one subject: they are counted in the same trials.

    Attributes:
        subject: name of the subject, as the user gave it.
        version: of the subject, or a digest of its source; never empty, because evidence on an
            unknown version cannot be added to anything.
        suite: name of the suite.
        case: name of the case in its suite.
        capabilities: 64 hexadecimal digits, from :func:`capabilities_digest`.
        device: torch device type; a kernel for another device is another sampler.
        schema: version of the trials, see :data:`TRIALS_SCHEMA`.

    Raises:
        ValueError: naming the field that is wrong.
    """

    subject: str
    version: str
    suite: str
    case: str
    capabilities: str
    device: str = "cpu"
    schema: int = TRIALS_SCHEMA

    def __post_init__(self) -> None:
        for field in ("subject", "version", "suite", "case", "device"):
            name(field, getattr(self, field))
        digest("capabilities", self.capabilities)
        validate.whole("schema", self.schema, 1)


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Account:
    """One table of counts with its law.

    Attributes:
        group: the subject and the case.
        table: name of the table (of the check), unique in its case.
        law: 64 hexadecimal digits, from :func:`law_digest`.
        cells: of the law.

    Raises:
        ValueError: naming the field that is wrong.
    """

    group: AccountGroup
    table: str
    law: str
    cells: int

    def __post_init__(self) -> None:
        if not isinstance(self.group, AccountGroup):
            _fail("group", type(self.group).__name__, "an AccountGroup")
        name("table", self.table)
        digest("law", self.law)
        validate.whole("cells", self.cells, 1)

    @classmethod
    def of(cls, group: AccountGroup, table: str, law: npt.ArrayLike) -> Account:
        """The account of a table whose law is at hand.

        Raises:
            ValueError: naming the field that is wrong.
        """
        return cls(group=group, table=table, law=law_digest(law), cells=int(np.shape(law)[0]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reservation:
    """Trials that belong to one process, whether or not it ever finishes them.

    Attributes:
        id: number in the ledger.
        group: the subject and the case.
        root_seed: root of every random number of the trials.
        first_trial: number of the first trial.
        trials: how many.
    """

    id: int
    group: AccountGroup
    root_seed: int
    first_trial: int
    trials: int


@dataclasses.dataclass(frozen=True, order=True)
class SeedRange:
    """Trials ``first_trial .. stop - 1`` of one root seed."""

    root_seed: int
    first_trial: int
    stop: int

    @property
    def trials(self) -> int:
        """How many."""
        return self.stop - self.first_trial


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardEntry:
    """What one shard brought to one account.

    Attributes:
        trials: where the counts come from.
        entries: sum of the counts (half the trials for tables of pairs).
        log_e: natural logarithm of the shard's e-value, ``None`` if none was recorded.
        created: when it was committed, ISO 8601 in UTC.
        run: name of the run.
    """

    trials: SeedRange
    entries: int
    log_e: float | None
    created: str
    run: str


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Totals:
    """Everything that an account holds.

    Attributes:
        counts: [cells] int64, the sum over shards; zeros for an account without any.
        trials: trials behind the counts.
        entries: sum of the counts.
        ranges: the trials, in order; neighbours are joined.
        shards: how many were added.
        log_e: sum of the shards' log e-values; ``None`` if a shard has none, or there is no shard.
    """

    counts: IntArray
    trials: int
    entries: int
    ranges: tuple[SeedRange, ...]
    shards: int
    log_e: float | None


def joined(ranges: list[SeedRange]) -> tuple[SeedRange, ...]:
    """The same trials in order, with neighbours joined."""
    done: list[SeedRange] = []
    for part in sorted(ranges):
        last = done[-1] if done else None
        if last and (last.root_seed, last.stop) == (part.root_seed, part.first_trial):
            done[-1] = SeedRange(last.root_seed, last.first_trial, part.stop)
        else:
            done.append(part)
    return tuple(done)


def name(field: str, value: Any) -> str:
    """A name of at least one printable character.

    Raises:
        ValueError: if it is not, or cannot be written as UTF-8.
    """
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        _fail(field, repr(value), "a printable name of at least one character")
    return value


def digest(field: str, value: Any) -> str:
    """The hexadecimal digits of a SHA-256.

    Raises:
        ValueError: if it is not.
    """
    if (
        not isinstance(value, str)
        or len(value) != DIGEST_LENGTH
        or not set(value) <= set("0123456789abcdef")
    ):
        _fail(field, repr(value), f"{DIGEST_LENGTH} lower-case hexadecimal digits of a SHA-256")
    return value


def below(field: str, value: Any, least: int, limit: int) -> int:
    """An integer in [least, limit).

    Raises:
        ValueError: if it is not.
    """
    number = validate.whole(field, value, least)
    if number >= limit:
        _fail(field, number, f"an integer below {limit}")
    return number


def _fail(field: str, got: object, expected: str) -> NoReturn:
    raise ValueError(f"{field}: got {got}; expected {expected}")
