"""What a broken sampler would emit instead: the directed bets of each kind of table.

A bet that wins names the likely cause in the verdict, and the cause names a branch.  The lists are
fixed before the first trial, so the e-process that mixes them stays valid whatever they say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from specverify import laws
from specverify.cases import FloatArray, TableRequest
from specverify.checks.diagnosis import Branch
from specverify.evidence import Suspect, leaks, temperatures, thin_tails

RECOVERY_SHARES = (0.05, 0.3, 1.0)
TAIL_FROM = 16
"""Vocabulary from which a lost tail is worth a bet."""
_BRANCHES = (
    ("recovered tokens", Branch.RECOVERED),
    ("drafts pass", Branch.ACCEPTED),
    ("every draft is accepted", Branch.ACCEPTED),
    ("the bonus", Branch.BONUS),
)
"""How the causes of a branch begin; others (a temperature, a lost tail) are of p itself."""


OR = ", or "
"""Between causes that would emit the same."""


def branch_of(cause: str | None) -> Branch | None:
    """The branch that a likely cause speaks of; none where equal causes speak of several."""
    named = {_branch_of_one(one) for one in cause.split(OR)} if cause else set()
    return named.pop() if len(named) == 1 else None


def _branch_of_one(cause: str) -> Branch | None:
    return next((branch for words, branch in _BRANCHES if cause.startswith(words)), None)


def of_token(
    request: TableRequest, j: int, dense: bool, convention: str, law: FloatArray
) -> list[Suspect]:
    """Bets on the law of the j-th emitted token.

    Args:
        request: the table request.
        j: position.
        dense: whether the sampler is shown q.
        convention: of the filters.
        law: [V] float64, its law.
    """
    found = [Suspect(f"a {s.name}", s.law) for s in temperatures(law)]
    if law.shape[0] >= TAIL_FROM:
        found += [Suspect(f"a {s.name}", s.law) for s in thin_tails(law)]
    if j < request.num_drafts:
        draft = laws.completed_marginal(request.draft_tables(), j)
        found += leaks(law, draft, "the draft law q leaks into the text, share")
        found.append(Suspect("every draft is accepted", draft))
    if j == 0 and request.num_drafts and 0 not in request.placeholders:
        found += _first_token(request, dense, convention, law)
    return found


def _first_token(
    request: TableRequest, dense: bool, convention: str, law: FloatArray
) -> list[Suspect]:
    """The first token, exactly, if drafts passed by another rule, or others were recovered.

    By draft d: q(d) a(d) of it, and q(d) (1 - a(d)) of what is recovered.
    """
    draft = request.draft_tables()[0][0]
    right = _rule(law, draft, dense)
    recovered = _residuals(law, draft, dense)
    found = [
        Suspect(name, _mixed(draft, passing, recovered))
        for name, passing in _other_rules(request, dense, convention, law, draft)
    ]
    found += [
        Suspect(f"recovered tokens {name}", _mixed(draft, right, other))
        for name, other in _other_recoveries(law, draft, dense)
    ]
    return found


def _mixed(draft: FloatArray, passing: FloatArray, recovered: FloatArray) -> FloatArray:
    """[V] float64: the law of the first token, from a [V] and the recovered laws [V, V] by d."""
    law = draft * passing + (draft * (1 - passing)) @ recovered
    return np.asarray(law / law.sum())


def _rule(law: FloatArray, draft: FloatArray, dense: bool) -> FloatArray:
    """[V] float64: the probability that each draft passes."""
    return _ratio(law, draft) if dense else np.minimum(law, 1.0)


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """min(1, above / below), 1 where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(below > 0, np.minimum(1.0, above / below), 1.0))


def _residuals(law: FloatArray, draft: FloatArray, dense: bool) -> FloatArray:
    """[V, V] float64: what is recovered after each draft; p where the residual is empty."""
    if not dense:
        return _rows(law * (1 - np.eye(law.shape[0])), law)
    return _rows(np.tile(np.maximum(law - draft, 0.0), (law.shape[0], 1)), law)


def _rows(weights: FloatArray, otherwise: FloatArray) -> FloatArray:
    """Rows that sum to 1."""
    total = weights.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(total > 0, weights / total, otherwise))


def _other_rules(
    request: TableRequest, dense: bool, convention: str, law: FloatArray, draft: FloatArray
) -> Iterator[tuple[str, FloatArray]]:
    """[V] float64: how each draft would pass by a rule that is wrong."""
    following = request.target_tables(convention)[1]
    rows = following if following.shape[0] == law.shape[0] else following[:1].repeat(len(law), 0)
    later = np.diagonal(rows)
    if not dense:
        yield "drafts pass by the row of the next position", np.minimum(later, 1.0)
        return
    yield "drafts pass with q / p, not with p / q", _ratio(draft, law)
    yield "drafts pass with p, as if q were not shown", np.minimum(law, 1.0)
    yield "drafts pass by the row of the next position", _ratio(later, draft)


def _other_recoveries(
    law: FloatArray, draft: FloatArray, dense: bool
) -> Iterator[tuple[str, FloatArray]]:
    """[V, V] float64: what would be recovered after each draft."""
    vocab = law.shape[0]

    def same(weights: FloatArray) -> FloatArray:
        return _rows(np.tile(weights, (vocab, 1)), law)

    yield "follow p, not the residual", same(law)
    yield "follow q, not the residual", same(draft)
    best = _residuals(law, draft, dense).argmax(axis=1)
    yield "are the likeliest of the residual, not drawn from it", np.eye(vocab)[best]
    if dense:
        yield "follow p without the draft, not p - q", _rows(law * (1 - np.eye(vocab)), law)
        yield "follow |p - q|, not its positive part", same(np.abs(law - draft))
        yield "follow (q - p)+, not (p - q)+", same(np.maximum(draft - law, 0.0))
    else:
        yield "are the draft itself", np.eye(vocab)


def of_last_token(
    request: TableRequest, j: int, convention: str, dense: bool, law: FloatArray
) -> list[Suspect]:
    """Bets on the last token after j accepted drafts, [V + 1] with a cell for everything else."""
    mass = float(law[:-1].sum())
    if mass == 0:
        return []
    target = laws.completed_marginal(request.target_tables(convention), j)
    if j == request.num_drafts:
        before = _row_before(request, convention, dense)
        return _instead(law, before, "the bonus follows the row before it")
    draft = laws.completed_marginal(request.draft_tables(), j)
    found = [
        *_instead(law, target, "recovered tokens follow p, not the residual"),
        *_instead(law, draft, "recovered tokens follow q, not the residual"),
    ]
    return found if j or 0 in request.placeholders else [*found, *_first_recoveries(
        target, draft, dense, law)]  # fmt: skip


def _row_before(request: TableRequest, convention: str, dense: bool) -> FloatArray:
    """[V] float64: the row of the last draft, by the prefixes behind which all are accepted."""
    reached, before = np.ones(1), np.ones((1, 1))
    targets = request.target_tables(convention)
    for target, draft in zip(targets, request.draft_tables(), strict=False):
        before = np.broadcast_to(target, (reached.shape[0], target.shape[1]))
        passed = np.minimum(target, draft) if dense else draft * target
        mass = reached[:, None] * passed
        reached = mass.reshape(-1)
    behind = mass.sum(axis=1)
    return np.asarray(behind @ before / max(behind.sum(), 1e-300))


def _first_recoveries(
    target: FloatArray, draft: FloatArray, dense: bool, law: FloatArray
) -> list[Suspect]:
    """The token that replaces the first draft, if it were drawn from something else."""
    rejected = draft * (1 - _rule(target, draft, dense))
    return [
        Suspect(f"recovered tokens {name}", np.append(rejected @ other, law[-1]))
        for name, other in _other_recoveries(target, draft, dense)
        if not name.endswith("not the residual")  # these are bet on by share
    ]


def _instead(law: FloatArray, other: FloatArray, name: str) -> list[Suspect]:
    """The last token drawn from ``other`` in a share of the cases; how often it is drawn stays."""
    drawn = np.append(other * law[:-1].sum(), law[-1])
    return [
        Suspect(f"{name} (share {share:g})", law + share * (drawn - law))
        for share in RECOVERY_SHARES
    ]


def of_first_draft(
    request: TableRequest, dense: bool, convention: str, cells: Callable[[FloatArray], FloatArray]
) -> list[Suspect]:
    """Bets on a table of whether the first draft passes.

    Args:
        request: the table request, whose first slot is no placeholder.
        dense: whether the sampler is shown q.
        convention: of the filters.
        cells: the law of the table, from the joint law [V, 2] of the draft and whether it passes.
    """
    law, draft = request.target_tables(convention)[0][0], request.draft_tables()[0][0]
    wrong = [
        ("every draft is accepted", np.ones_like(law)),
        *_other_rules(request, dense, convention, law, draft),
    ]
    return [
        Suspect(name, cells(np.stack([draft * (1 - passing), draft * passing], axis=1)))
        for name, passing in wrong
    ]
