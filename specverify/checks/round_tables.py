"""Tables of several rounds: the text that they emit, and the drafts that they verify.

*Text*: completed to the horizon, it follows the target's product law (the tables of a single step,
over more tokens), and the first token of a round knows nothing of the round before.  *Drafts*:
each follows the law that its drafter reports.  Drafts of different rows fill one table through the
randomised probability integral transform (Rosenblatt 1952): it is uniform whatever the row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np

from specverify.cases import FloatArray
from specverify.checks._rounds import BINS, RoundCase, RoundOutcomes
from specverify.checks.diagnosis import Branch
from specverify.checks.law_tables import independence_tables, law_tables
from specverify.checks.tables import JOINT_CELLS, Table
from specverify.checks.verdict import Family
from specverify.trials import IntArray, Outcomes

_NEVER = -1


def text_tables(plan: RoundCase, convention: str) -> list[Table]:
    """Every table of the text of all rounds."""
    return [
        *independence_tables(plan.case, convention),
        *_between_rounds(plan),
        *law_tables(plan.case, convention),
    ]


def _between_rounds(plan: RoundCase) -> Iterator[Table]:
    """The first token of a round beside what happened in the round before."""
    for number, drafts in enumerate(plan.drafts):
        for step in range(plan.rounds - 1):
            yield _pairs(
                f"request {number}: first tokens of rounds {step} and {step + 1}",
                functools.partial(_first_bins, number=number, step=step),
                functools.partial(_first_bins, number=number, step=step + 1),
                number,
            )
            if drafts:
                yield _pairs(
                    f"request {number}: whether round {step} accepted, and round {step + 1}",
                    functools.partial(_accepted_any, number=number, step=step),
                    functools.partial(_first_bins, number=number, step=step + 1),
                    number,
                    rows=2,
                )


def transform_tables(plan: RoundCase) -> list[Table]:
    """Every table of drafts in which rows of q are mixed: uniform, whatever the rows are."""
    found: list[Table | None] = []
    for number, drafts in enumerate(plan.drafts):
        for step in range(plan.rounds):
            for j in range(drafts):
                found.append(_uniform(number, step, j))
                found.append(_beside_context(number, step, j, plan.case.vocab_size))
        found.extend(_draft_pairs(plan, number, drafts))
    return [table for table in found if table is not None]


def _uniform(number: int, step: int, j: int) -> Table:
    return Table(
        name=f"request {number}: draft {j} of round {step}, transformed",
        family=Family.LAW,
        shape=(BINS,),
        index=functools.partial(
            _only, functools.partial(_draft_bins, number=number, step=step, j=j)
        ),
        law=lambda: np.full(BINS, 1 / BINS),
        axes=("eighth",),
        request=number,
        position=j,
        branch=Branch.DRAFTED,
    )


def _beside_context(number: int, step: int, j: int, vocab: int) -> Table | None:
    """Whether a draft errs differently by the token before it."""
    if step == 0 and j == 0:
        return None  # the prompt is always the same
    return _pairs(
        f"request {number}: draft {j} of round {step} and the token before it",
        functools.partial(_token_before, number=number, step=step, j=j),
        functools.partial(_draft_bins, number=number, step=step, j=j),
        number,
        rows=vocab,
        branch=Branch.DRAFTED,
    )


def _draft_pairs(plan: RoundCase, number: int, drafts: int) -> Iterator[Table]:
    """Pairs of drafts that must not know of each other: positions, rounds, requests, trials."""
    if not drafts:
        return
    first = functools.partial(_draft_bins, number=number, step=0, j=0)
    for j in range(drafts - 1):
        yield _pairs(
            f"request {number}: drafts {j} and {j + 1}",
            functools.partial(_draft_bins, number=number, step=0, j=j),
            functools.partial(_draft_bins, number=number, step=0, j=j + 1),
            number,
        )
    # Drafts behind a rejection may be drawn again by the same coins: only first ones are compared.
    for step in range(plan.rounds - 1):
        yield _pairs(
            f"request {number}: first drafts of rounds {step} and {step + 1}",
            functools.partial(_draft_bins, number=number, step=step, j=0),
            functools.partial(_draft_bins, number=number, step=step + 1, j=0),
            number,
        )
    after = number + 1
    if after < len(plan.drafts) and plan.drafts[after]:
        yield _pairs(
            f"requests {number} and {after}: first drafts",
            first,
            functools.partial(_draft_bins, number=after, step=0, j=0),
            number,
        )
    yield _pairs(
        f"trials t and t + 1: first drafts of request {number}",
        functools.partial(_every_other, first, 0),
        functools.partial(_every_other, first, 1),
        number,
    )


def reported_tables(plan: RoundCase) -> list[Table]:
    """Drafts of the first round by prefix, whose law is that which the drafter reports.

    The law of these tables is unknown until the drafter has spoken:
    :meth:`specverify.checks._reported.Reported.settle` puts it in.
    """
    vocab = plan.case.vocab_size
    return [
        Table(
            name=f"request {number}: draft {j}" + (" after each prefix" if j else ""),
            family=Family.LAW,
            shape=(vocab,) * (j + 1),
            index=functools.partial(_prefix_and_draft, number=number, j=j, vocab=vocab),
            law=_unsettled,
            axes=(*["after"] * j, "draft"),
            request=number,
            position=j,
            branch=Branch.DRAFTED,
        )
        for number, drafts in enumerate(plan.drafts)
        for j in range(drafts)
        if vocab ** (j + 1) <= JOINT_CELLS
    ]


def _unsettled() -> FloatArray:
    raise RuntimeError("the law of a reported table is known only after the drafts")


Cells = Callable[[RoundOutcomes], IntArray]


def _pairs(
    name: str,
    left: Cells,
    right: Cells,
    number: int,
    rows: int = BINS,
    branch: Branch | None = None,
) -> Table:
    """An independence table; the laws only say how its margins are pooled."""
    return Table(
        name=name,
        family=Family.INDEPENDENCE,
        shape=(rows, BINS),
        index=functools.partial(_beside, left, right),
        law=lambda: np.full(rows * BINS, 1 / (rows * BINS)),
        axes=("eighth" if rows == BINS else "value", "eighth"),
        request=number,
        branch=branch,
    )


def _beside(left: Cells, right: Cells, outcomes: Outcomes) -> IntArray:
    assert isinstance(outcomes, RoundOutcomes)
    one, other = left(outcomes), right(outcomes)
    both = (one >= 0) & (other >= 0)
    return one[both] * BINS + other[both]


def _only(cells: Cells, outcomes: Outcomes) -> IntArray:
    assert isinstance(outcomes, RoundOutcomes)
    found = cells(outcomes)
    return found[found >= 0]


def _first_bins(outcomes: RoundOutcomes, *, number: int, step: int) -> IntArray:
    return outcomes.rounds[step].first_bins[:, number]


def _accepted_any(outcomes: RoundOutcomes, *, number: int, step: int) -> IntArray:
    return (outcomes.rounds[step].emitted[:, number] > 1).astype(np.int64)


def _draft_bins(outcomes: RoundOutcomes, *, number: int, step: int, j: int) -> IntArray:
    bins = outcomes.rounds[step].draft_bins
    if j >= bins.shape[2]:  # nobody proposed so many
        return np.full(bins.shape[0], _NEVER, dtype=np.int64)
    return bins[:, number, j]


def _token_before(outcomes: RoundOutcomes, *, number: int, step: int, j: int) -> IntArray:
    one = outcomes.rounds[step]
    if j == 0:
        return one.before[:, number]
    return one.drafts[:, number, j - 1] if j <= one.drafts.shape[2] else one.before[:, number]


def _every_other(cells: Cells, start: int, outcomes: RoundOutcomes) -> IntArray:
    found = cells(outcomes)
    return found[: found.shape[0] // 2 * 2][start::2]


def _prefix_and_draft(outcomes: Outcomes, *, number: int, j: int, vocab: int) -> IntArray:
    assert isinstance(outcomes, RoundOutcomes)
    drafts = outcomes.rounds[0].drafts
    if j >= drafts.shape[2]:
        return np.empty(0, dtype=np.int64)
    mine = drafts[:, number]
    cell = np.zeros(mine.shape[0], dtype=np.int64)
    for column in mine[:, : j + 1].T:
        cell = cell * vocab + column
    return cell[mine[:, j] >= 0]
