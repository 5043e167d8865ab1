"""When a sampler in fp32 may disagree with the float64 reference under the same coins.

The kernels compute an exponential to a relative error of about 2**-22 (2 + |log p|) (the argument
of exp2 is rounded to fp32, and ex2.approx adds 2**-22) and sums to about 2**-22 in all.  A decision
may differ only where a coin lies that close to its threshold: ``u q`` to ``p`` for an acceptance,
``u`` to the CDF interval of the emitted token for the last draw, whose error is relative to the
mass W that is drawn from.
"""

from __future__ import annotations

import dataclasses

import torch

from specverify.contract import Batch, Emission
from specverify.reference.coins import coins_of
from specverify.sampling import REFERENCE, FilterConvention, batch_probabilities

UNIT = 2.0**-22


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """One request that differs: how far its coin is from the threshold, how far is allowed."""

    request: int
    kind: str
    distance: float
    allowed: float

    @property
    def lawful(self) -> bool:
        return self.distance <= self.allowed


def disagreements(
    batch: Batch, ours: Emission, theirs: Emission, convention: FilterConvention = REFERENCE
) -> list[Disagreement]:
    """All requests whose tokens differ, each with its excuse; most batches have none."""
    differ = (ours.token_ids != theirs.token_ids).any(1) | (ours.num_emitted != theirs.num_emitted)
    if not bool(differ.any()):
        return []
    target = batch_probabilities(batch, convention)
    coins = batch.coins or coins_of(batch)
    return [
        _explain(batch, target, coins, ours, theirs, b) for b in differ.nonzero()[:, 0].tolist()
    ]


def _explain(batch, target, coins, ours, theirs, b) -> Disagreement:
    first, row = int(batch.cu_drafts[b]), int(batch.first_row[b])
    mine, other = int(ours.num_emitted[b]) - 1, int(theirs.num_emitted[b]) - 1
    stop = min(mine, other)
    emitted = ours.token_ids[b, : mine + 1]
    # First of all: such a token has no weight to look up, and no near coin excuses it.
    if bool(((emitted < 0) | (emitted >= batch.vocab_size)).any()):
        return Disagreement(b, f"tokens {emitted.tolist()}", float("inf"), 0.0)
    if not torch.equal(ours.token_ids[b, :stop], theirs.token_ids[b, :stop]):
        return Disagreement(b, "accepted tokens", float("inf"), 0.0)
    p = target[row + stop]
    draft = (
        int(batch.draft_token_ids[first + stop])
        if first + stop < int(batch.cu_drafts[b + 1])
        else -1
    )
    q = None if draft < 0 or batch.draft_probs is None else batch.draft_probs[first + stop].double()
    if mine != other:
        at = 1.0 if q is None else float(q[draft])
        allowed = _relative(float(p[draft])) * float(p[draft]) + 1e-37
        coin = float(coins.accept[first + stop])
        return Disagreement(b, "acceptance", abs(coin * at - float(p[draft])), allowed)
    weights = (
        p
        if draft < 0
        else (p - q).clamp(min=0)
        if q is not None
        else p.index_fill(0, torch.tensor([draft], device=p.device), 0.0)
    )
    if float(weights.sum()) <= 0:
        weights = p
    token = int(ours.token_ids[b, stop])
    cdf = weights.cumsum(0)
    total = float(cdf[-1])
    coin = float(coins.final[b]) * total
    low = float(cdf[token] - weights[token])
    distance = max(low - coin, coin - float(cdf[token]), 0.0)
    if float(p[token]) == 0:
        return Disagreement(b, "impossible token", float("inf"), 0.0)
    return Disagreement(b, "last token", distance, 8 * UNIT)


def _relative(p: float) -> float:
    return UNIT * (4.0 + abs(torch.tensor(max(p, 1e-300), dtype=torch.float64).log().item()))
