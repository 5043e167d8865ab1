"""What a failure says of the bug: the branch that went wrong, and the smallest layout for it.

Plain records: every layer of the harness fills the same fields, and every report shows them.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specverify.contract import Batch


class Branch(enum.StrEnum):
    """The part of a verification step that a fault lies in.

    DRAFTED: the draft itself does not follow the q that its drafter reports.  ACCEPTED: a draft is
    accepted or rejected wrongly.  RECOVERED: the token that replaces a rejected draft is wrong.
    BONUS: the token drawn when nothing is left to verify is wrong.
    """

    DRAFTED = "drafted"
    ACCEPTED = "accepted"
    RECOVERED = "recovered"
    BONUS = "bonus"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell of a table, for the list of worst cells of a verdict."""

    label: str
    observed: int
    expected: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """What is wrong with the answer to one layout.

    Attributes:
        text: one sentence for a person.
        request: of the layout, if one request is at fault.
        position: 0 is the first emitted token; ``None`` if no single token is at fault.
        branch: what the token is, where that is known.
        batch: a part of the layout that shows the problem as well, if one was found.
    """

    text: str
    request: int | None = None
    position: int | None = None
    branch: Branch | None = None
    batch: Batch | None = None

    def under(self, heading: str) -> Problem:
        """The same problem with words in front."""
        return dataclasses.replace(self, text=f"{heading}: {self.text}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShrunkRequest:
    """One request of a smallest layout.

    Attributes:
        drafts: k, the number of draft slots.
        tokens: the draft tokens (-1 is a placeholder); ``None`` where they are drawn in each trial.
        placeholders: slots that were never proposed.
        temperature, top_k, top_p, min_p: its sampling parameters.
    """

    drafts: int
    tokens: tuple[int, ...] | None = None
    placeholders: tuple[int, ...] = ()
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shrunk:
    """The smallest layout that was found to fail still.

    Attributes:
        requests: the batch, in order.
        vocab: V.
        dense: whether the sampler is shown q.
        rows: how the rows of p and q differ from each other, in words.
        check: what fails on it.
        reason: what is wrong there, in one sentence.
        request, position, branch: where.
        trials: behind the answer; 1 for an exact failure.
        p_value: of the test, where there is one.
        worst: observed and expected of the cells that deviate most.
        tried: layouts that were tried until this one was left.
        complete: False if the search ended because its budget did.
    """

    requests: tuple[ShrunkRequest, ...]
    vocab: int
    dense: bool
    rows: str
    check: str
    reason: str
    request: int | None = None
    position: int | None = None
    branch: Branch | None = None
    trials: int = 1
    p_value: float | None = None
    worst: Sequence[Cell] = ()
    tried: int = 0
    complete: bool = True
