"""Top-p near 1: the few tokens beyond it are never emitted, and those before it always may be.

Engines take 0.995 and more for off, or store top-p in half precision, where 0.9999 is 1.  What is
cut has a probability of 1 - top-p at most, so a few draws do not tell; but one draw of a token that
is cut is a proof, and the trials are planned for it.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch

from specverify.cases import Case, FloatArray, TableRequest
from specverify.checks.chosen import ChosenCase, Counted, every_token, log_row
from specverify.checks.experiment import Settings
from specverify.contract import Capabilities
from specverify.streams import Purpose, Stream

LEVELS = (0.9999, 0.995)
"""Top-p of the requests without drafts; of the one with a draft the first."""
LEVELS_UNBATCHED = (0.998, 0.995)
CUT = 0.9
"""Share of 1 - top-p that is cut: correct samplers in float32 agree where the cut is."""
LAST = 2e-3
"""Probability of the last token that is kept."""
LIKELY, GONE = 8, 4
"""Likely tokens, and tokens that are cut."""


@functools.lru_cache(maxsize=8)
def near_one(capabilities: Capabilities, name: str = "tail/top-p-near-one") -> ChosenCase:
    """Requests with a filter that cuts next to nothing, as far as a subject takes filters.

    Args:
        capabilities: of the subject.
        name: of the case.
    """
    levels = LEVELS if capabilities.batched else LEVELS_UNBATCHED
    draws = Stream.derive(0, "near one", name).uniform_run(
        [0], range(3), 2 * _vocab(), Purpose.LAYOUT
    )[0]
    requests = []
    if capabilities.exclusion or not capabilities.filtering:
        for level, one in zip(levels, draws, strict=False):
            requests.append(TableRequest(target=(_row(level, one),), draft=(), top_p=level))
    if capabilities.filtering:
        row = _row(levels[0], draws[2])
        gone = torch.nn.functional.one_hot(row.argmin(dim=1), _vocab()).float()
        requests.append(
            TableRequest(target=(row, _row(levels[0], draws[1])), draft=(gone,), top_p=levels[0])
        )
    case = Case(name=name, requests=tuple(requests), dense=capabilities.dense)
    counted = [Counted(i, (0,), (every_token(_vocab()),)) for i in range(len(requests))]
    return ChosenCase(case, counted, functools.partial(_trials, CUT * (1 - levels[0])))


def _trials(cut: float, settings: Settings) -> int:
    """Trials in which a filter that is off emits a token that is cut."""
    return math.ceil(math.log(1 - settings.power) / math.log1p(-cut))


def _vocab() -> int:
    return LIKELY + 1 + GONE


def _row(level: float, draws: FloatArray) -> torch.Tensor:
    """[1, V] float32 logits: likely tokens, the last that is kept, those that are cut, shuffled."""
    gone = 0.5 + draws[:GONE]
    gone *= CUT * (1 - level) / gone.sum()
    likely = 0.5 + draws[GONE : GONE + LIKELY]
    likely *= (1 - LAST - gone.sum()) / likely.sum()
    p = np.concatenate([likely, [LAST], gone])
    return torch.from_numpy(log_row(p[np.argsort(draws[_vocab() :])])[None]).float()
