"""Which branch of a verification step is at fault: the first one that goes wrong along the chain.

A fault shows behind itself as well: where drafts are accepted too often, fewer tokens are recovered
and more bonus tokens are drawn.  So the tables of the rule are read in the order in which a step is
taken, and the first that is rejected is the fault; what follows may only be its shadow.
"""

from __future__ import annotations

from collections.abc import Iterable

from specverify.checks.diagnosis import Branch
from specverify.checks.verdict import Status, Verdict
from specverify.contract import PLACEHOLDER, Batch, Emission

_ORDER = (Branch.DRAFTED, Branch.ACCEPTED, Branch.RECOVERED, Branch.BONUS)


def first_fault(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The failed check of the earliest decision, ``None`` if no failed check looks at one.

    Args:
        verdicts: on the tables of one case, counted over the same trials.
    """
    failed = [
        verdict
        for verdict in verdicts
        if verdict.status is Status.FAIL
        and verdict.branch is not None
        and verdict.position is not None
    ]
    return min(failed, key=_place, default=None)


def branch_at(batch: Batch, emission: Emission, request: int, position: int) -> Branch | None:
    """What the token at a position of an emission is.

    Args:
        batch: what the sampler was given.
        emission: what it returned, of the right shape.
        request: index in the batch.
        position: 0 is the first emitted token.

    Returns:
        ``None`` if the request cannot emit a token there.
    """
    count = int(batch.draft_counts[request])
    if not 0 <= position <= count:
        return None
    last = int(emission.num_emitted[request]) - 1
    if position < last:
        extra = _only_one_behind(batch, emission, request, position, last)
        return Branch.BONUS if extra else Branch.ACCEPTED
    draft = PLACEHOLDER
    if position < count:
        draft = int(batch.draft_token_ids[int(batch.cu_drafts[request]) + position])
    if draft == PLACEHOLDER:
        return Branch.BONUS
    repeated = int(emission.token_ids[request, position]) == draft
    return Branch.ACCEPTED if repeated else Branch.RECOVERED


def decision_that_differs(
    batch: Batch, before: Emission, after: Emission, request: int
) -> tuple[int, Branch] | None:
    """The first decision of which two verifications of one request came to different ends.

    Args:
        batch: what both were given.
        before: an emission of the right structure.
        after: another.
        request: index in the batch.

    Returns:
        Position and branch: of the draft that one accepted and the other did not, else of the last
        token; ``None`` if they are the same.
    """
    lengths = [int(one.num_emitted[request]) for one in (before, after)]
    position = min(lengths) - 1
    if lengths[0] != lengths[1]:
        return position, Branch.ACCEPTED
    if bool((before.token_ids[request] == after.token_ids[request])[: position + 1].all()):
        return None
    start, count = int(batch.cu_drafts[request]), int(batch.draft_counts[request])
    open_slot = position < count and int(batch.draft_token_ids[start + position]) != PLACEHOLDER
    return position, Branch.RECOVERED if open_slot else Branch.BONUS


def _only_one_behind(
    batch: Batch, emission: Emission, request: int, position: int, last: int
) -> bool:
    """Whether a draft was replaced at a position, and one more token drawn behind it.

    That token is a bonus where none is due; tokens that equal their drafts were accepted there.
    """
    count, start = int(batch.draft_counts[request]), int(batch.cu_drafts[request])
    drafts = batch.draft_token_ids[start : start + count].tolist()
    tokens = emission.token_ids[request].tolist()
    replaced = drafts[position] not in (PLACEHOLDER, tokens[position])
    drawn = last >= count or tokens[last] != drafts[last]
    return replaced and position + 1 == last and drawn


def _place(verdict: Verdict) -> tuple[int, int, float, int]:
    assert verdict.branch is not None
    assert verdict.position is not None
    p_value = 1.0 if verdict.p_value is None else verdict.p_value
    return verdict.position, _ORDER.index(verdict.branch), p_value, verdict.request or 0
