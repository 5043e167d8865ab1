"""The chain rule as a person would write it on a board: one request, one draft at a time.

Leviathan et al. 2023, Algorithm 1; Chen et al. 2023, Algorithm 2.  Slow on purpose: this version is
to be believed by reading.  :mod:`specverify.reference.chain` is its vectorised twin and must agree
with it token for token under the same coins.
"""

from __future__ import annotations

import torch

from specverify.contract import (
    PLACEHOLDER,
    Batch,
    Capabilities,
    Coins,
    Emission,
    FinalCoin,
    sampler,
)
from specverify.reference.coins import coins_of
from specverify.reference.draw import by_inverse_cdf, by_race
from specverify.sampling import batch_probabilities

CAPABILITIES = Capabilities(
    placeholders=True,
    filtering=True,
    exclusion=True,
    per_request_seeds=True,
    final_coin=FinalCoin.INVERSE_CDF,
    arithmetic=(),  # float64 throughout, coins of 53 bits
    batched=False,
    devices=("cpu", "cuda"),
)


@sampler(CAPABILITIES)
def reference_rowwise(batch: Batch) -> Emission:
    """Verify a batch request by request, in float64.

    A request at temperature 0 needs no case of its own: its target is one-hot at the argmax, so the
    same three lines accept the argmax, reject everything else, and recover the argmax.
    """
    target = batch_probabilities(batch)
    coins = batch.coins or coins_of(batch)
    emitted = [
        verify_request(batch, target, coins, request) for request in range(batch.num_requests)
    ]
    width = batch.max_drafts + 1
    padded = [tokens + [PLACEHOLDER] * (width - len(tokens)) for tokens in emitted]
    return Emission(
        torch.tensor(padded, dtype=torch.int64, device=batch.device),
        torch.tensor([len(tokens) for tokens in emitted], dtype=torch.int64, device=batch.device),
    )


def verify_request(batch: Batch, target: torch.Tensor, coins: Coins, request: int) -> list[int]:
    """The tokens that one request emits.

    Args:
        batch: the whole batch.
        target: [R, V] float64, the target probabilities after temperature and filters.
        coins: the accept coins and final coins or noise of the whole batch.
        request: which request.
    """
    first_draft = int(batch.cu_drafts[request])
    drafts = batch.draft_token_ids[first_draft : int(batch.cu_drafts[request + 1])].tolist()
    emitted: list[int] = []
    for j, draft in enumerate(drafts):
        p = target[first_draft + request + j]
        if draft == PLACEHOLDER:  # nothing was proposed here: a plain decoding step
            return [*emitted, _draw(p, coins, request)]
        q = _draft_row(batch, first_draft + j, draft)
        coin = coins.accept[first_draft + j].double()
        if coin * q[draft] < p[draft]:  # u < p / q, without dividing by a q of zero
            emitted.append(draft)  # accepted
        else:
            return [*emitted, _draw(residual(p, q), coins, request)]  # recovered
    bonus = target[first_draft + request + len(drafts)]
    return [*emitted, _draw(bonus, coins, request)]


def residual(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """The unnormalised residual (p - q)+ of shape [V]; p itself where nothing is left.

    With p = q a rejection has probability zero, and only rounding leads here.
    """
    left = (p - q).clamp(min=0)
    return left if bool(left.sum() > 0) else p


def _draft_row(batch: Batch, slot: int, draft: int) -> torch.Tensor:
    """The law that the draft in this slot was drawn from: its row of q, or all mass on itself."""
    if batch.draft_probs is not None:
        return batch.draft_probs[slot].double()
    one_hot = torch.zeros(batch.vocab_size, dtype=torch.float64, device=batch.device)
    one_hot[draft] = 1.0
    return one_hot


def _draw(weights: torch.Tensor, coins: Coins, request: int) -> int:
    if coins.noise is not None:
        return int(by_race(weights[None], coins.noise[request][None]))
    assert coins.final is not None
    return int(by_inverse_cdf(weights[None], coins.final[request][None]))
