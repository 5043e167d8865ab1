"""A family of small cases, to look for the smallest one in which a failure still shows.

A member is a handful of words and numbers: requests, drafts, V, temperature, filters, and how much
the rows of p and q differ from each other.  The rows follow from these, and a row depends on the
request, the position and the prefix that it belongs to and on nothing else, so that leaving a
request out changes no other.  In every choice the simple value comes first.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from specverify.cases import (
    DTYPES,
    REDRAWS,
    Case,
    FloatArray,
    RequestSpec,
    Seeding,
    TableRequest,
    ambiguous_rows,
)
from specverify.streams import Purpose, Stream

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

MAX_REQUESTS, MAX_DRAFTS, MAX_VOCAB = 4, 3, 8
ENTROPIES = 4
"""Sets of rows: where one shows little of a fault, another may show more."""

LIKELIER = 3
"""How many times as likely as its simple value a parameter has the one of the failed case."""

_SPREAD, _GRID = 2.0, 8.0


class Rows(enum.StrEnum):
    """What the rows of p and q depend on."""

    ONE = "one"
    POSITION = "position"
    PREFIX = "prefix"

    @property
    def words(self) -> str:
        """For a person."""
        return {
            Rows.ONE: "one row p for all (and one row q)",
            Rows.POSITION: "a row for each request and position",
            Rows.PREFIX: "a row for each request, position and prefix",
        }[self]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallRequest:
    """One request.

    Attributes:
        drafts: k.
        temperature, top_k, top_p, min_p: its sampling parameters.
        placeholders: slots that were never proposed.
        drafting: ``sampled`` drafts are drawn from a soft q, ``greedy`` ones are its argmax.
        number: which rows it has.
    """

    drafts: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    placeholders: tuple[int, ...] = ()
    drafting: str = "sampled"
    number: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallCase:
    """One member of the family; as a literal it is all that a reader needs to make the case again.

    Attributes:
        vocab: V.
        requests: the batch.
        dense: whether the sampler is shown q.
        rows: what the rows depend on.
        seeding: how the seeds of the rows of a run are related.
        dtype: of the logits.
        entropy: which set of rows.
    """

    vocab: int
    requests: tuple[SmallRequest, ...]
    dense: bool = False
    rows: Rows = Rows.ONE
    seeding: Seeding = Seeding.MIXED
    dtype: str = "float32"
    entropy: int = 0

    def __post_init__(self) -> None:
        # Literals in a snippet hold plain words.
        object.__setattr__(self, "rows", Rows(self.rows))
        object.__setattr__(self, "seeding", Seeding(self.seeding))

    @property
    def literal(self) -> str:
        """The case as Python writes it, without what is as usual."""
        return _literal(self)

    @functools.cached_property
    def case(self) -> Case:
        """The case with its tables.

        Raises:
            ValueError: if no rows off the boundaries of the filters are found.
        """
        return Case(
            name="small",  # so all members draw the same coins: one is not luckier than another
            requests=tuple(self._request(request) for request in self.requests),
            dense=self.dense,
            seeding=self.seeding,
        )

    def _request(self, request: SmallRequest) -> TableRequest:
        spec = RequestSpec(
            drafts=request.drafts,
            temperature=request.temperature,
            top_k=request.top_k,
            top_p=request.top_p,
            min_p=request.min_p,
        )
        q = [self._draft(request, j) for j in range(request.drafts)]
        return TableRequest(
            target=tuple(self._target(request, j, spec) for j in range(request.drafts + 1)),
            draft=tuple(q),
            temperature=request.temperature,
            top_k=request.top_k,
            top_p=request.top_p,
            min_p=request.min_p,
            placeholders=frozenset(request.placeholders),
        )

    def _target(self, request: SmallRequest, j: int, spec: RequestSpec) -> torch.Tensor:
        """[V**j, V] logits without ties and off the boundaries of the filters."""
        scale = spec.temperature or 1.0
        table = torch.from_numpy(self._values("p", request, j, 0) * scale).to(DTYPES[self.dtype])
        for attempt in range(1, REDRAWS):
            bad = ambiguous_rows(table, spec)
            if not bool(bad.any()):
                return table
            fresh = torch.from_numpy(self._values("p", request, j, attempt) * scale)
            table[bad] = fresh.to(table.dtype)[bad]
        raise ValueError(f"requests: found no rows off the boundaries of {spec}")

    def _draft(self, request: SmallRequest, j: int) -> torch.Tensor:
        """[V**j, V] float32: q, which has nothing to do with p."""
        soft = torch.softmax(torch.from_numpy(self._values("q", request, j, 0)), dim=1)
        if request.drafting == "greedy":
            return torch.nn.functional.one_hot(soft.argmax(dim=1), self.vocab).float()
        return soft.float()

    def _values(self, which: str, request: SmallRequest, j: int, attempt: int) -> FloatArray:
        """[V**j, V] float64 on a grid of eighths in [-2, 2]."""
        one, prefix = self.rows is Rows.ONE, self.rows is Rows.PREFIX
        place = (0, 0) if one else (request.number, j)
        stream = Stream.derive(self.entropy, "small", which, *place, attempt)
        count = self.vocab**j
        drawn = stream.uniform_run([0], range(count if prefix else 1), self.vocab, Purpose.LAYOUT)[
            0
        ]
        rows = np.round((drawn * 2 - 1) * _SPREAD * _GRID) / _GRID
        return np.broadcast_to(rows, (count, self.vocab)).copy()


def _literal(value: object) -> str:
    """A record, tuple or scalar as Python reads it."""
    if isinstance(value, tuple):
        inner = ", ".join(map(_literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if not dataclasses.is_dataclass(value):
        return repr(value.value if isinstance(value, enum.Enum) else value)
    told = [
        f"{field.name}={_literal(getattr(value, field.name))}"
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != field.default
    ]
    return f"{type(value).__name__}({', '.join(told)})"


def bounds_of(case: Case, request: int | None = None) -> SmallCase:
    """The largest member of the family that looks for what a case has found.

    Args:
        case: in which something failed; of many requests, a few of each kind are kept.
        request: at fault, if one is; it is kept.
    """
    chosen = _varied(case.requests, request)
    return SmallCase(
        vocab=min(case.vocab_size, MAX_VOCAB),
        requests=tuple(_small_request(number, request) for number, request in chosen),
        dense=case.dense,
        rows=Rows.PREFIX,
        seeding=case.seeding,
        dtype=str(case.dtype).removeprefix("torch."),
        entropy=ENTROPIES - 1,
    )


def _varied(
    requests: tuple[TableRequest, ...], wanted: int | None
) -> list[tuple[int, TableRequest]]:
    """A few requests of different kinds, in order."""
    kinds: dict[tuple[object, ...], int] = {}
    for number, request in enumerate(requests):
        kind = (request.temperature, request.filtered, request.num_drafts == 0)
        kinds.setdefault(kind, number)
    first = [] if wanted is None else [wanted]
    order = dict.fromkeys([*first, *kinds.values(), *range(len(requests))])
    return [(number, requests[number]) for number in sorted(list(order)[:MAX_REQUESTS])]


def _small_request(number: int, request: TableRequest) -> SmallRequest:
    drafts = min(request.num_drafts, MAX_DRAFTS)
    greedy = bool(request.draft) and all(bool((q.amax(dim=1) == 1).all()) for q in request.draft)
    return SmallRequest(
        drafts=drafts,
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        min_p=request.min_p,
        placeholders=tuple(sorted(slot for slot in request.placeholders if slot < drafts)),
        drafting="greedy" if greedy else "sampled",
        number=number,
    )


def within(most: SmallCase, *, one_hot: bool) -> SearchStrategy[SmallCase]:
    """Members that are no larger and no stranger than ``most``.

    Args:
        most: every choice is between the simple value and the one that it has.
        one_hot: whether the subject takes drafts without q, which are the simpler ones.
    """
    from hypothesis import strategies as st

    @st.composite
    def member(draw: st.DrawFn) -> SmallCase:
        kept = [draw(st.booleans()) for _ in most.requests]
        # All are drawn, so that leaving one out moves no choice of another.
        drawn = [_draw_request(draw, request) for request in most.requests]
        chosen = [request for request, keep in zip(drawn, kept, strict=True) if keep]
        vocab = draw(st.integers(2, most.vocab))
        simple = [False] if one_hot and most.dense else []
        return SmallCase(
            vocab=vocab,
            requests=tuple(chosen or drawn[:1]),
            dense=draw(st.sampled_from([*simple, most.dense])),
            rows=draw(st.sampled_from(list(Rows)[: list(Rows).index(most.rows) + 1])),
            seeding=draw(st.sampled_from(list(dict.fromkeys([Seeding.MIXED, most.seeding])))),
            dtype=draw(st.sampled_from(list(dict.fromkeys(["float32", most.dtype])))),
            entropy=draw(st.integers(0, most.entropy)),
        )

    return member()


def _draw_request(draw: DrawFn, most: SmallRequest) -> SmallRequest:
    from hypothesis import strategies as st

    def either(simple: object, value: object) -> object:
        # Some faults show only where several values are strange at once.
        return draw(st.sampled_from([simple] if simple == value else [simple] + [value] * LIKELIER))

    drafts = draw(st.integers(0, most.drafts))
    simple = SmallRequest(drafts=drafts, number=most.number)
    names = ("temperature", "top_k", "top_p", "min_p", "placeholders", "drafting")
    values: dict[str, Any] = {
        name: either(getattr(simple, name), getattr(most, name)) for name in names
    }
    if values["top_k"]:
        values["top_k"] = draw(st.integers(min(2, most.top_k), most.top_k))
    found = dataclasses.replace(simple, **values)
    inside = tuple(slot for slot in found.placeholders if slot < drafts)
    return dataclasses.replace(found, placeholders=inside)
