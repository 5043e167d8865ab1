"""The checks behind the laws: every array that comes in, with errors that name it.

Each message has the same form as those of the contract: the field, what it holds, what was
expected. Arrays are converted to float64 here and nowhere else.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EXACT_MASS = 1e-6
"""How far from 1 a row may sum where it is taken for a law that tokens are drawn from."""

STORED_MASS = 2e-2
"""The same for a row that a sampler reads as stored, perhaps in 16 bits, and never draws from."""

MAX_CELLS = 2**27
"""The largest array a joint law may take: 1 GiB of float64."""


def fail(field: str, got: str, expected: str) -> NoReturn:
    """Raise the one kind of error that this package raises."""
    raise ValueError(f"{field}: got {got}; expected {expected}")


def distribution(
    field: str, value: ArrayLike, *, ndim: int | None = None, tolerance: float = EXACT_MASS
) -> Floats:
    """A float64 array whose last axis is a distribution, or an error that names the field."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        fail(field, type(value).__name__, "an array of probabilities")
    wanted = "[..., V]" if ndim is None else f"of {ndim} axes, the last of length V"
    if array.ndim == 0 or array.shape[-1] == 0 or ndim not in (None, array.ndim):
        fail(field, f"shape {list(array.shape)}", f"an array {wanted} with V >= 1")
    # A NaN fails this comparison too, and an infinite entry fails the mass below.
    good = array >= 0
    if not good.all():
        fail(field, f"the entry {array[~good][0]}", "probabilities >= 0, no NaN")
    mass = array.sum(axis=-1)
    off = np.abs(mass - 1)
    if not (off <= tolerance).all():
        worst = mass.reshape(-1)[int(off.argmax())]
        fail(field, f"a row that sums to {worst:.9g}", f"a sum of 1 within {tolerance:g}")
    return array


def pair(p: ArrayLike, q: ArrayLike) -> tuple[Floats, Floats]:
    """Check p and q, over one vocabulary and with leading axes that broadcast."""
    target = distribution("p", p)
    draft = distribution("q", q, tolerance=STORED_MASS)
    same = target.shape[-1] == draft.shape[-1]
    leading = zip(reversed(target.shape[:-1]), reversed(draft.shape[:-1]), strict=False)
    if not (same and all(a == b or 1 in (a, b) for a, b in leading)):
        fail("q", f"shape {list(draft.shape)}", f"one that broadcasts to p's {list(target.shape)}")
    return target, draft


def token_ids(
    field: str, value: ArrayLike, shape: tuple[int, ...], lowest: int, vocab: int
) -> Ints:
    """Token ids of this shape in [lowest, vocab), as int64."""
    array = np.asarray(value)
    if array.size == 0:  # an empty list arrives as float64
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or array.shape != shape:
        fail(field, f"{list(array.shape)} {array.dtype}", f"integers of shape {list(shape)}")
    ids = array.astype(np.int64)
    good = (ids >= lowest) & (ids < vocab)
    if not good.all():
        fail(field, f"the id {int(ids[~good][0])}", f"ids in [{lowest}, {vocab})")
    return ids


def tables(field: str, value: Sequence[ArrayLike], vocab: int | None = None) -> tuple[Floats, ...]:
    """Prefix tables: table j is [V**j, V], or [1, V] where all prefixes share a row."""
    checked: list[Floats] = []
    for j, entry in enumerate(value):
        table = distribution(f"{field}[{j}]", entry, ndim=2)
        vocab = vocab or table.shape[1]
        if table.shape[1] != vocab or table.shape[0] not in (1, vocab**j):
            expected = f"[{vocab**j}, {vocab}] (a row for every prefix) or [1, {vocab}]"
            fail(f"{field}[{j}]", f"shape {list(table.shape)}", expected)
        checked.append(table)
    return tuple(checked)


def target_tables(value: Sequence[ArrayLike]) -> tuple[Floats, ...]:
    """At least one target table: the row that follows no draft at all."""
    checked = tables("target_tables", value)
    if not checked:
        fail("target_tables", "no table", "k + 1 tables, one more than there are drafts")
    return checked


def draft_tables(value: Sequence[ArrayLike], targets: tuple[Floats, ...]) -> tuple[Floats, ...]:
    """Draft tables that fit the target tables: one fewer, over the same vocabulary."""
    if len(value) != len(targets) - 1:
        fail("draft_tables", f"{len(value)} tables", f"{len(targets) - 1}, one fewer than targets")
    return tables("draft_tables", value, targets[0].shape[1])


def placeholders(value: Collection[int], drafts: int) -> tuple[int, ...]:
    """Draft slots that were never proposed, in order."""
    return tuple(sorted(index("placeholders", slot, drafts) for slot in value))


def index(field: str, value: int, count: int) -> int:
    """A position in [0, count)."""
    try:
        position = operator.index(value)
    except TypeError:
        fail(field, type(value).__name__, f"an integer in [0, {count})")
    if not 0 <= position < count:
        fail(field, str(position), f"an integer in [0, {count})")
    return position


def share(field: str, value: float) -> float:
    """A number in [0, 1]."""
    if not 0 <= value <= 1:
        fail(field, str(value), "a number in [0, 1]")
    return float(value)


def affordable(field: str, cells: int) -> None:
    """Refuse a joint law that would not fit in memory, before numpy tries."""
    if cells > MAX_CELLS:
        expected = f"at most {MAX_CELLS}; ask for a marginal instead"
        fail(field, f"a joint law of {cells} cells", expected)
