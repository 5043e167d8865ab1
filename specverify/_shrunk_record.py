"""The smallest failing layout in the results: its record, and the words that reports show."""

from __future__ import annotations

from specverify._record_base import Record


class CellRecord(Record):
    """One cell of a table of counts."""

    label: str
    """What the cell stands for, for example the emitted tokens."""
    observed: int
    """Trials that fell into the cell."""
    expected: float
    """Trials that the law puts into the cell."""


class ShrunkRequestRecord(Record):
    """One request of a smallest layout."""

    drafts: int
    """Number of draft slots."""
    tokens: tuple[int, ...] | None = None
    """The draft tokens, -1 for a placeholder; null where they are drawn in each trial."""
    placeholders: tuple[int, ...] = ()
    """Slots that were never proposed."""
    temperature: float = 1.0
    """0 is greedy."""
    top_k: int = 0
    """0 is off."""
    top_p: float = 1.0
    """1 is off."""
    min_p: float = 0.0
    """0 is off."""

    @property
    def line(self) -> str:
        """Drafts, temperature and filters in one line."""
        told = [self._drafts()]
        told.append("greedy" if self.temperature == 0 else f"T = {self.temperature:.6g}")
        told += [f"top-k {self.top_k}"] if self.top_k else []
        told += [f"top-p {self.top_p:.6g}"] if self.top_p < 1 else []
        told += [f"min-p {self.min_p:.6g}"] if self.min_p > 0 else []
        return ", ".join(told)

    def _drafts(self) -> str:
        if self.tokens:
            names = ("placeholder" if token < 0 else str(token) for token in self.tokens)
            return f"drafts {', '.join(names)}"
        said = _count(self.drafts, "draft") if self.drafts else "no drafts"
        slots = ", ".join(map(str, self.placeholders))
        return f"{said}, never proposed at {slots}" if slots else said


class ShrunkRecord(Record):
    """The smallest layout that was found to fail still."""

    requests: tuple[ShrunkRequestRecord, ...]
    """The batch, in order."""
    vocab: int
    """Number of tokens V."""
    dense: bool
    """Whether the sampler is shown q; one-hot drafts if not."""
    rows: str
    """How the rows of p and q differ from each other, in words."""
    check: str
    """What fails on it."""
    reason: str
    """What is wrong there, in one sentence."""
    request: int | None = None
    """Request that is wrong, if it is one."""
    position: int | None = None
    """Position of the token that is wrong, if it is one."""
    branch: str | None = None
    """Part of the verification step: drafted, accepted, recovered or bonus."""
    trials: int = 1
    """Trials behind the answer; 1 for an exact failure."""
    p_value: float | None = None
    """Of the test, where there is one."""
    worst: tuple[CellRecord, ...] = ()
    """The cells that deviate most."""
    tried: int = 0
    """Layouts that were tried until this one was left."""
    complete: bool = True
    """Whether the search came to its end; false if its budget ended it."""

    @property
    def size(self) -> str:
        """Requests, drafts and V of the layout."""
        drafts = sum(request.drafts for request in self.requests)
        told = [_count(len(self.requests), "request"), _count(drafts, "draft")]
        return ", ".join([*told, f"V = {self.vocab}"])

    @property
    def short(self) -> str:
        """Size and place: what a progress line has room for."""
        where = [] if self.request is None else [f"request {self.request}"]
        where += [self.branch] if self.branch is not None else []
        return f"{self.size} ({', '.join(where)})" if where else self.size

    @property
    def lines(self) -> tuple[str, ...]:
        """The layout, one line for each request, and what is wrong there."""
        kind = "q shown" if self.dense else "one-hot drafts"
        told = [f"{self.size}; {kind}; {self.rows}"]
        told += [f"request {n}: {request.line}" for n, request in enumerate(self.requests)]
        told.append(f"{self.check}: {self.reason}")
        if not self.complete:
            told.append("the search ended because its time did; there may be a smaller one")
        return tuple(told)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
