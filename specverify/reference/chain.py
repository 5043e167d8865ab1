"""The chain rule on a whole packed batch at once, in float64, on any device.

The vectorised twin of :mod:`specverify.reference.rowwise`: same expressions, same order of
operations, same coins, hence the same tokens.  A step is cut into methods, each of which is one
clause of the rule, so that a variant or a mutant is the reference with one clause changed.
"""

from __future__ import annotations

import dataclasses

import torch

from specverify.contract import PLACEHOLDER, Batch, Capabilities, Coins, Emission, FinalCoin
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
    devices=("cpu", "cuda"),
)


@dataclasses.dataclass(eq=False)
class Step:
    """What one verification step looks at.

    Attributes:
        batch: the input.
        target: [R, V] float64, p after temperature and filters.
        draft_rows: [D] int64, the target row of each draft.
        drafts: [D] int64, draft ids with placeholders read as 0.
        proposed: [D] bool, False at placeholders; ``None`` when there are none.
        coins: accept and final coins.
        accepted: [B] int64, accepted drafts of each request; set once they are known.
    """

    batch: Batch
    target: torch.Tensor
    draft_rows: torch.Tensor
    drafts: torch.Tensor
    proposed: torch.Tensor | None
    coins: Coins
    accepted: torch.Tensor = dataclasses.field(init=False)

    def draft_slot(self) -> torch.Tensor:
        """[B] int64, the slot at which each request stopped (clamped where it has none left)."""
        slots = self.batch.cu_drafts[:-1] + self.accepted
        return slots.clamp(max=max(self.batch.num_drafts - 1, 0))

    def rejected(self) -> torch.Tensor:
        """[B] bool: stopped at a proposed draft, so the last token is a recovered one."""
        stopped = self.accepted < self.batch.draft_counts
        if self.proposed is None or self.batch.num_drafts == 0:
            return stopped
        return stopped & self.proposed[self.draft_slot()]


class ChainSampler:
    """Accept each draft with min(1, p/q), recover from (p - q)+, bonus from p.

    Source: Leviathan et al. 2023, Algorithm 1.  Without ``draft_probs`` the drafts are one-hot:
    accept with p(draft), recover from p without the draft.
    """

    capabilities = CAPABILITIES

    def __call__(self, batch: Batch) -> Emission:
        """Verify a packed batch and emit; the input is not changed."""
        step = self.begin(batch)
        step.accepted = self.accepted_lengths(step, self.accepts(step))
        weights = self.final_weights(step)
        return self.emit(step, self.draw(step, weights))

    def begin(self, batch: Batch) -> Step:
        """Target probabilities, coins and the row of every draft."""
        ids = batch.draft_token_ids
        proposed = ids != PLACEHOLDER
        some_missing = not bool(proposed.all())
        return Step(
            batch=batch,
            target=self.target(batch),
            draft_rows=torch.arange(batch.num_drafts, device=batch.device) + batch.draft_request,
            drafts=ids.clamp(min=0) if some_missing else ids,
            proposed=proposed if some_missing else None,
            coins=batch.coins or coins_of(batch),
        )

    def target(self, batch: Batch) -> torch.Tensor:
        """[R, V] float64: the law that the emitted text must follow."""
        return batch_probabilities(batch)

    def target_at_drafts(self, step: Step) -> torch.Tensor:
        """[D] float64: p of each draft token."""
        vocab = step.target.shape[1]  # one flat gather: half the time of indexing by two tensors
        return step.target.reshape(-1).index_select(0, step.draft_rows * vocab + step.drafts)

    def draft_at_drafts(self, step: Step) -> torch.Tensor:
        """[D] float64: q of each draft token; 1 for one-hot drafts."""
        probs = step.batch.draft_probs
        if probs is None:
            return torch.ones(step.drafts.shape, dtype=torch.float64, device=step.target.device)
        return probs.gather(1, step.drafts[:, None]).squeeze(1).double()

    def accept_coins(self, step: Step) -> torch.Tensor:
        """[D] float64: one coin for each draft."""
        return step.coins.accept.double()

    def accepts(self, step: Step) -> torch.Tensor:
        """[D] bool: whether each draft passes by itself (u < p / q, without the division)."""
        coins, p, q = (
            self.accept_coins(step),
            self.target_at_drafts(step),
            self.draft_at_drafts(step),
        )
        passed = coins * q < p
        return passed if step.proposed is None else passed & step.proposed

    def accepted_lengths(self, step: Step, passed: torch.Tensor) -> torch.Tensor:
        """[B] int64: drafts before the first one that did not pass."""
        batch, width = step.batch, step.batch.max_drafts
        if width == 0:
            return torch.zeros(batch.num_requests, dtype=torch.int64, device=batch.device)
        return self.passed_grid(step, passed).cumprod(dim=1).sum(dim=1)

    def passed_grid(self, step: Step, passed: torch.Tensor) -> torch.Tensor:
        """[B, max k] int64: 1 where a request has a draft that passed, else 0."""
        batch, width = step.batch, step.batch.max_drafts
        if batch.num_drafts == batch.num_requests * width:  # no ragged request: a view will do
            return passed.reshape(-1, width).long()
        inside = torch.arange(width, device=batch.device) < batch.draft_counts[:, None]
        return torch.zeros_like(inside).masked_scatter(inside, passed).long()

    def final_rows(self, step: Step) -> torch.Tensor:
        """[B] int64: the target row of the last token."""
        return step.batch.first_row + step.accepted

    def final_weights(self, step: Step) -> torch.Tensor:
        """[B, V] float64: residual after a rejection, else the target itself (bonus)."""
        target = step.target[self.final_rows(step)]
        rejected = step.rejected()
        if not bool(rejected.any()):
            return target
        recovered = self.residual(step, target)
        empty = recovered.sum(dim=1) <= 0  # p = q: rejected by rounding alone
        use = rejected & ~empty
        return torch.where(use[:, None], recovered, target)

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        """[B, V] float64: (p - q)+, for the requests that were rejected (others: anything)."""
        probs, slot = step.batch.draft_probs, step.draft_slot()
        if probs is not None:
            return (target - probs[slot]).clamp_(min=0)
        return target.scatter(1, step.drafts[slot][:, None], 0.0)

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        """[B] int64: the recovered or bonus token."""
        if step.coins.noise is not None:
            return by_race(weights, step.coins.noise)
        assert step.coins.final is not None
        return by_inverse_cdf(weights, step.coins.final)

    def emit(self, step: Step, last: torch.Tensor) -> Emission:
        """Accepted drafts, then the last token, then padding."""
        batch, width = step.batch, step.batch.max_drafts
        column = torch.arange(width + 1, device=batch.device)
        tokens = torch.full(
            (batch.num_requests, width + 1), PLACEHOLDER, dtype=torch.int64, device=batch.device
        )
        if width:
            kept = column < step.accepted[:, None]
            slots = (batch.cu_drafts[:-1, None] + column).clamp_(max=batch.num_drafts - 1)
            tokens = torch.where(kept, batch.draft_token_ids[slots], tokens)
        tokens.scatter_(1, step.accepted[:, None], last[:, None])
        return Emission(tokens, step.accepted + 1)
