"""Token ids beyond 15 and 16 bits, as drafts that are accepted or not, and as last tokens.

The reference cases of large vocabularies have no drafts there: what an engine does to a draft of a
late id (an id that turns negative, a table that ends) shows only where it is proposed often.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch

from specverify.cases import Case, TableRequest
from specverify.checks.chosen import ChosenCase, Counted, log_row
from specverify.checks.experiment import Settings
from specverify.contract import Capabilities

IDS = (7, 32_767, 32_768, 65_537)
"""Likely tokens: before and behind the end of int16, and behind that of uint16."""
VOCAB = 65_543
TARGET = ((0.4, 0.2, 0.2, 0.2), (0.25, 0.25, 0.25, 0.25))
"""Of the likely tokens, before and behind the draft; the drafter proposes each with 1/4."""
LEAST = 0.2
"""Probability of the rarest of them."""


@functools.lru_cache(maxsize=4)
def late_ids(capabilities: Capabilities, name: str = "tail/late-ids-V65543") -> ChosenCase:
    """One request with one draft, and another draw behind it.

    Args:
        capabilities: of the subject.
        name: of the case.
    """
    cells = np.full(VOCAB, len(IDS))
    cells[list(IDS)] = range(len(IDS))
    draft = torch.zeros(1, VOCAB)
    draft[0, list(IDS)] = 1 / len(IDS)
    target = []
    for law in TARGET:
        logits = torch.full((1, VOCAB), -torch.inf)
        logits[0, list(IDS)] = torch.from_numpy(log_row(np.array(law))).float()
        target.append(logits)
    request = TableRequest(target=tuple(target), draft=(draft,))
    case = Case(name=name, requests=(request,), dense=capabilities.dense)
    return ChosenCase(case, [Counted(0, (j,), (cells,)) for j in (0, 1)], _trials)


def _trials(settings: Settings) -> int:
    """Trials after which a likely token that never comes is rejected, twice over."""
    return 2 * math.ceil(math.log(settings.alpha / 2) / math.log1p(-LEAST))
