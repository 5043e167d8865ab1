"""Settings at the ends of their ranges, by what a request then emits.

Engines take a min-p of 1, a top-p or min-p near 0 for off, cap temperatures, and cut one token too
many at a top-k of V.  Layouts meet these now and then; a sampler that takes no coins is asked for
them here, with and without a draft.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch

from specverify.cases import Case, TableRequest
from specverify.checks.chosen import ChosenCase, Counted, every_token, log_row
from specverify.checks.experiment import Settings
from specverify.contract import Capabilities

LAW = np.full(16, 0.0016)
"""Probabilities of the tokens before filters; half of the tokens are cut by a small min-p."""
LAW[::2] = (0.03, 0.06, 0.5, 0.06, 0.2472, 0.03, 0.04, 0.02)
SLOPE = 1 + np.arange(16) / 64
"""The same, up to a factor, where top-k keeps all; the first token is what may be lost."""
RARE = 1
SMALL_MIN_P = 0.004
HOT = 10.0
ENDS: tuple[dict[str, float], ...] = (
    {"min_p": 1.0},
    {"top_p": 1e-3},
    {"min_p": SMALL_MIN_P},
    {"temperature": HOT},
    {"top_k": len(LAW)},
    {"top_k": len(LAW) + 1},
)
"""The settings of one request each."""
LEAST = 0.0128
"""The smallest mass that is cut."""


@functools.lru_cache(maxsize=4)
def range_ends(capabilities: Capabilities, name: str = "tail/range-ends") -> ChosenCase:
    """A request for each end, without drafts and with one, as far as a subject takes filters.

    Args:
        capabilities: of the subject.
        name: of the case.
    """
    rare = torch.nn.functional.one_hot(torch.tensor([RARE]), len(LAW)).float()
    drafted = capabilities.batched or not capabilities.exclusion  # else one kind must do
    requests = []
    for able, draft in (
        (capabilities.exclusion or not capabilities.filtering, ()),
        (capabilities.filtering and drafted, (rare,)),
    ):
        for end in ENDS if able else ():
            law = SLOPE if "top_k" in end else LAW
            row = torch.from_numpy(log_row(law)[None]) * end.get("temperature", 1.0)
            requests.append(
                TableRequest(target=(row.float(),) * (len(draft) + 1), draft=draft, **end)  # type: ignore[arg-type]
            )
    case = Case(name=name, requests=tuple(requests), dense=capabilities.dense)
    each = every_token(len(LAW))
    first = (each == 0).astype(np.int64)
    counted = [
        Counted(i, (0,), (first if request.top_k else each,)) for i, request in enumerate(requests)
    ]
    return ChosenCase(case, counted, _trials)


def _trials(settings: Settings) -> int:
    """Trials in which a filter that is off emits a token that it should cut."""
    return math.ceil(math.log(1 - settings.power) / math.log1p(-LEAST))
