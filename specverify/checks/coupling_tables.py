"""Tables of the rule itself: what it accepts, what it recovers, how long its emissions are.

They hold for the acceptance rule that a sampler declares.  A lossless method with another coupling
breaks them lawfully; a sampler that lost q, or never accepts, breaks nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np

from specverify import laws
from specverify._cells import Cells, Seen, Term
from specverify.cases import Case, FloatArray, TableRequest
from specverify.checks import suspicion
from specverify.checks.diagnosis import Branch
from specverify.checks.tables import JOINT_CELLS, Table
from specverify.checks.verdict import Family
from specverify.contract import AcceptanceRule
from specverify.evidence import Suspect

Law = Callable[[], laws.ChainOutcomeLaw]


def coupling_tables(case: Case, convention: str, acceptance: AcceptanceRule) -> list[Table]:
    """The tables of every request with drafts; none if no acceptance rule is declared."""
    if acceptance is AcceptanceRule.UNDECLARED:
        return []
    one_hot = acceptance is AcceptanceRule.MATCH or not case.dense
    return [
        table
        for number, request in enumerate(case.requests)
        if request.num_drafts
        for table in _request_tables(number, request, case.vocab_size, convention, one_hot)
    ]


def _request_tables(
    number: int, request: TableRequest, vocab: int, convention: str, one_hot: bool
) -> Iterator[Table]:
    outcome: Law = functools.cache(
        functools.partial(_outcome_law, request, convention=convention, one_hot=one_hot)
    )
    yield Table(
        name=f"request {number}: accepted length",
        family=Family.COUPLING,
        shape=(request.num_drafts + 1,),
        index=_length(number),
        law=functools.partial(_length_law, outcome),
        axes=("accepted",),
        request=number,
        branch=Branch.ACCEPTED,
    )
    for j in range(request.num_drafts + 1):
        yield _last_token(number, request, j, vocab, convention, one_hot, outcome)
        if j < request.num_drafts and j not in request.placeholders:
            bets = (
                None
                if j
                else functools.partial(_first_draft_bets, request, not one_hot, convention)
            )
            yield from _draft_tables(number, j, vocab, outcome, bets)


def _outcome_law(request: TableRequest, *, convention: str, one_hot: bool) -> laws.ChainOutcomeLaw:
    return laws.chain_outcome_law(
        request.target_tables(convention),
        request.draft_tables(),
        one_hot=one_hot,
        placeholders=request.placeholders,
    )


def _last_token(
    number: int,
    request: TableRequest,
    j: int,
    vocab: int,
    convention: str,
    one_hot: bool,
    outcome: Law,
) -> Table:
    """The recovered token after j accepted drafts, or the bonus."""
    kind = "bonus" if j == request.num_drafts else f"last token after {j} accepted"
    drawn = j == request.num_drafts or j in request.placeholders
    return Table(
        name=f"request {number}: {kind}",
        family=Family.COUPLING,
        shape=(vocab,),
        rest=True,
        index=_last(number, j, vocab),
        law=functools.partial(_last_law, outcome, j),
        axes=("token",),
        suspects=functools.partial(suspicion.of_last_token, request, j, convention, not one_hot),
        request=number,
        position=j,
        branch=Branch.BONUS if drawn else Branch.RECOVERED,
    )


Bets = Callable[[Callable[[FloatArray], FloatArray], FloatArray], list[Suspect]]


def _first_draft_bets(
    request: TableRequest,
    dense: bool,
    convention: str,
    cells: Callable[[FloatArray], FloatArray],
    _law: FloatArray,
) -> list[Suspect]:
    return suspicion.of_first_draft(request, dense, convention, cells)


def _draft_tables(
    number: int, j: int, vocab: int, outcome: Law, bets: Bets | None
) -> Iterator[Table]:
    """How often draft j passes, overall and by draft token, and what replaces it."""
    yield Table(
        name=f"request {number}: acceptance rate of draft {j}",
        family=Family.COUPLING,
        shape=(2,),
        index=_passed(number, j),
        law=functools.partial(_rate_law, outcome, j),
        axes=("passed",),
        suspects=bets and functools.partial(bets, _passed_cells),
        request=number,
        position=j,
        branch=Branch.ACCEPTED,
    )
    yield Table(
        name=f"request {number}: draft {j} accepted",
        family=Family.COUPLING,
        shape=(vocab, 2),
        rest=True,
        index=_accepted(number, j, vocab),
        law=functools.partial(_accepted_law, outcome, j),
        axes=("draft", "passed"),
        suspects=bets and functools.partial(bets, _with_rest),
        request=number,
        position=j,
        branch=Branch.ACCEPTED,
    )
    if vocab**2 <= JOINT_CELLS:
        yield Table(
            name=f"request {number}: recovered at {j} by draft",
            family=Family.COUPLING,
            shape=(vocab, vocab),
            rest=True,
            index=_recovered(number, j, vocab),
            law=functools.partial(_recovered_law, outcome, j),
            axes=("draft", "recovered"),
            request=number,
            position=j,
            branch=Branch.RECOVERED,
        )


def _length(number: int) -> Cells:
    return Cells((Term(1, Seen.ACCEPTED, number),))


def _length_law(outcome: Law) -> FloatArray:
    # With q = p a sum may pass 1 by an ulp.
    return np.minimum(outcome().length_law(), 1.0)


def _last(number: int, j: int, vocab: int) -> Cells:
    return Cells((Term(1, Seen.LAST, number),), rest=vocab, stopped=(number, j))


def _last_law(outcome: Law, j: int) -> FloatArray:
    return _with_rest(outcome().last_token_law(j))


def _passed(number: int, j: int) -> Cells:
    return Cells((Term(1, Seen.PASSED, number, j),))


def _rate_law(outcome: Law, j: int) -> FloatArray:
    """[not accepted or not reached, accepted]; for j = 0 and dense q the second is 1 - TV(p, q)."""
    accepted = min(1.0, float(outcome().accept_by_draft(j)[:, 1].sum()))
    return np.array([1.0 - accepted, accepted])


def _accepted(number: int, j: int, vocab: int) -> Cells:
    terms = Term(2, Seen.DRAFT, number, j), Term(1, Seen.PASSED, number, j)
    return Cells(terms, rest=2 * vocab, reached=(number, j))


def _accepted_law(outcome: Law, j: int) -> FloatArray:
    return _with_rest(outcome().accept_by_draft(j))


def _recovered(number: int, j: int, vocab: int) -> Cells:
    terms = Term(vocab, Seen.DRAFT, number, j), Term(1, Seen.LAST, number)
    return Cells(terms, rest=vocab * vocab, stopped=(number, j))


def _recovered_law(outcome: Law, j: int) -> FloatArray:
    return _with_rest(outcome().stopped_law(j))


def _passed_cells(joint: FloatArray) -> FloatArray:
    """[not accepted, accepted] of a joint law [V, 2]."""
    return np.asarray(joint.sum(axis=0))


def _with_rest(part: FloatArray) -> FloatArray:
    """The table with a last cell for everything else."""
    return np.append(part.reshape(-1), max(0.0, 1.0 - float(part.sum())))
