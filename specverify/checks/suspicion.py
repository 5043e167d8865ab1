"""What a broken sampler would emit instead: the directed bets of each kind of table.

A bet that wins names the likely cause in the verdict.  The lists are fixed before the first trial,
so the e-process that mixes them stays valid whatever they say.
"""

from __future__ import annotations

import numpy as np

from specverify import laws
from specverify.cases import FloatArray, TableRequest
from specverify.evidence import Suspect, leaks, temperatures, thin_tails

RECOVERY_SHARES = (0.05, 0.3, 1.0)
TAIL_FROM = 16
"""Vocabulary from which a lost tail is worth a bet."""


def of_token(request: TableRequest, j: int, dense: bool, law: FloatArray) -> list[Suspect]:
    """Bets on the law of the j-th emitted token.

    Args:
        request: the table request.
        j: position.
        dense: whether the sampler is shown q.
        law: [V] float64, its law.
    """
    found = [Suspect(f"a {s.name}", s.law) for s in temperatures(law)]
    if law.shape[0] >= TAIL_FROM:
        found += [Suspect(f"a {s.name}", s.law) for s in thin_tails(law)]
    if j < request.num_drafts:
        draft = laws.completed_marginal(request.draft_tables(), j)
        found += leaks(law, draft, "the draft law q leaks into the text, share")
        found.append(Suspect("every draft is accepted", draft))
    return found + _first_recovery(request, dense, law) if j == 0 else found


def _first_recovery(request: TableRequest, dense: bool, law: FloatArray) -> list[Suspect]:
    """The first token, exactly, if what is recovered were drawn from something else."""
    if not request.num_drafts or request.placeholders:
        return []
    draft = request.draft_tables()[0][0]
    accepted = np.minimum(law, draft) if dense else law * draft
    rejected = 1.0 - accepted.sum()
    return [
        Suspect(f"recovered tokens follow {name}, not the residual", accepted + rejected * other)
        for name, other in (("p", law), ("q", draft))
    ]


def of_last_token(request: TableRequest, j: int, convention: str, law: FloatArray) -> list[Suspect]:
    """Bets on the last token after j accepted drafts, [V + 1] with a cell for everything else."""
    mass = float(law[:-1].sum())
    if mass == 0:
        return []
    target = laws.completed_marginal(request.target_tables(convention), j)
    if j == request.num_drafts:
        before = laws.completed_marginal(request.target_tables(convention), j - 1)
        return _instead(law, before, "the bonus follows the row before it")
    draft = laws.completed_marginal(request.draft_tables(), j)
    return [
        *_instead(law, target, "recovered tokens follow p, not the residual"),
        *_instead(law, draft, "recovered tokens follow q, not the residual"),
    ]


def _instead(law: FloatArray, other: FloatArray, name: str) -> list[Suspect]:
    """The last token drawn from ``other`` in a share of the cases; how often it is drawn stays."""
    drawn = np.append(other * law[:-1].sum(), law[-1])
    return [
        Suspect(f"{name} (share {share:g})", law + share * (drawn - law))
        for share in RECOVERY_SHARES
    ]
