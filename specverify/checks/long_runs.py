"""Proposals so long that a generator's words or a buffer of coins may be used twice.

Counter-based generators give four or eight words at a time, and engines keep coins for 8 or 16
drafts.  If the coin of one slot is that of an earlier one, a draft there that was accepted says
what happens here; but a proposal seldom comes as far.  Here it does: only some slots may reject,
4 or a multiple of it apart, and all drafts between them are what the target emits.  A slot that
was never filled is met as late as that, too.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import torch

from specverify import evidence
from specverify.cases import Case, TableRequest
from specverify.checks.chosen import ChosenCase, Counted, log_row
from specverify.checks.experiment import Settings
from specverify.checks.watch import LOOKING_SHARE
from specverify.contract import Capabilities

DRAFTS = 20
"""k; engines cut theirs at 8 or 16."""
OPEN = (0, 4, 8, 12, 16)
"""Slots that may reject."""
GAPS = (5, 9)
"""Slots that were never filled, of requests of their own: verification stops there, however far it
came, and the target is drawn."""
VOCAB, TOKENS = 41, (5, 29)
"""V, and the two tokens that are ever emitted."""
TARGET, DRAFT = (0.3, 0.7), (0.6, 0.4)
"""The laws of these there; elsewhere both are certain of one."""
NOTICED = {"quick": 0.05, "gate": 0.03, "nightly": 0.02}
"""Total variation of two tokens that is noticed, by profile."""


@functools.lru_cache(maxsize=4)
def long_runs(capabilities: Capabilities, name: str = "tail/long-V41-K20") -> ChosenCase:
    """A long request whose open slots are counted in pairs, beside two with a late placeholder.

    Args:
        capabilities: of the subject.
        name: of the case.
    """
    requests = [_request(DRAFTS, OPEN)]
    pairs = list(itertools.combinations((*OPEN, DRAFTS), 2))
    cells = np.full(VOCAB, 2)
    cells[list(TOKENS)] = (0, 1)
    counted = [Counted(0, pair, (cells, cells)) for pair in pairs]
    if capabilities.placeholders:
        for gap in GAPS:
            counted.append(Counted(len(requests), (gap,), (cells,)))
            requests.append(_request(gap + 2, (), frozenset({gap})))
    case = Case(name=name, requests=tuple(requests), dense=capabilities.dense)
    return ChosenCase(case, counted, _trials)


def _request(
    drafts: int, open_slots: tuple[int, ...], gaps: frozenset[int] = frozenset()
) -> TableRequest:
    """A proposal that is certain but for its open slots, its gaps and the token behind it."""
    target, draft = [], []
    for slot in range(drafts + 1):
        certain = np.eye(2)[slot % 2]
        p, q = np.zeros(VOCAB), np.zeros(VOCAB)
        p[list(TOKENS)] = TARGET if slot in {*open_slots, *gaps, drafts} else certain
        q[list(TOKENS)] = DRAFT if slot in open_slots else certain
        target.append(torch.from_numpy(log_row(p)[None]).float())
        draft.append(torch.from_numpy(q[None]).float())
    return TableRequest(target=tuple(target), draft=tuple(draft[:drafts]), placeholders=gaps)


def _trials(settings: Settings) -> int:
    noticed = NOTICED.get(settings.profile.name, 0.05)
    alpha = settings.alpha * (1 - LOOKING_SHARE)
    return evidence.trials_needed(4, noticed, alpha, settings.power)
