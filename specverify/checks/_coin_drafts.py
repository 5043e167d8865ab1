"""Drafts by injected coins: with them a drafter is a function of its own report.

A drafter that declares ``takes_coins`` draws by inverse CDF in token order, so the draft must be
the token in whose interval of the reported CDF the coin falls.  Where trials would need millions to
see that drafts follow a bfloat16 copy of q, a few thousand coins show it.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from specverify.checks._round_calls import proposal_of
from specverify.checks._rounds import RoundRunner
from specverify.checks.verdict import Status
from specverify.drafting import Contexts, Proposal
from specverify.streams import Purpose, Stream

FLOAT32_STEP = 2.0**-23
COPIES = 64
"""Copies of the case for each of the profile's examples."""


@dataclasses.dataclass(frozen=True)
class CoinDrafts:
    """What injected coins showed.

    Attributes:
        drafts: how many were looked at.
        wrong: how many lie further outside their interval than rounding explains.
        reason: one sentence for a person.
    """

    drafts: int
    wrong: int
    reason: str

    @property
    def status(self) -> Status:
        """FAIL if any draft is wrong."""
        return Status.FAIL if self.wrong else Status.PASS


def by_injected_coins(runner: RoundRunner, examples: int) -> CoinDrafts:
    """Give the drafter coins, the ends of the unit interval among them, and check every draft.

    The budget for rounding is V steps of float32: the error of a cumulative sum of V terms.

    Args:
        runner: of the case, with its drafter.
        examples: of the profile.

    Raises:
        SamplerFault: naming what the drafter did.
    """
    plan = runner.plan
    copies = examples * COPIES
    contexts = _contexts(runner, copies)
    proposal = proposal_of(runner.drafter, contexts, int(runner.stream.key & 0x7FFFFFFF))
    assert proposal.q is not None
    assert contexts.coins is not None
    outside = _outside(proposal, contexts.coins)
    tolerance = plan.case.vocab_size * FLOAT32_STEP
    wrong = outside > tolerance
    drafts = int(proposal.counts.sum())
    if not bool(wrong.any()):
        return CoinDrafts(drafts, 0, f"{drafts} coins drew the token of their interval of q")
    row, slot = (int(i) for i in torch.nonzero(outside == outside.max())[0])
    return CoinDrafts(
        drafts,
        int(wrong.sum()),
        f"{int(wrong.sum())} of {drafts} coins drew a token outside their interval of the "
        f"reported q; worst: request {row % len(plan.drafts)}, draft {slot}: coin "
        f"{float(contexts.coins[row, slot]):.9g} drew token {int(proposal.tokens[row, slot])}, "
        f"{float(outside[row, slot]):.3g} away (rounding explains {tolerance:.2g})",
    )


def _outside(proposal: Proposal, coins: torch.Tensor) -> torch.Tensor:
    """[B, K] float64: distance of each coin from its draft's interval of the CDF; 0 inside."""
    assert proposal.q is not None
    q = proposal.q.double()
    cdf = q.cumsum(dim=2)
    total = torch.where(cdf[..., -1:] > 0, cdf[..., -1:], 1.0)
    at = proposal.tokens.clamp(min=0)[..., None]
    upper = (cdf / total).gather(2, at).squeeze(2)
    lower = upper - (q / total).gather(2, at).squeeze(2)
    away = torch.maximum(lower - coins, coins - upper).clamp(min=0)
    return torch.where(proposal.proposed(), away, 0.0)


def _contexts(runner: RoundRunner, copies: int) -> Contexts:
    """The first round of many copies of the case, with coins."""
    plan, requests = runner.plan, len(runner.plan.drafts)
    stream = Stream.derive(runner.stream.key, "coin drafts")
    counts = torch.tensor(plan.drafts).repeat(copies)
    width = int(counts.max())
    coins = stream.uniforms(
        np.arange(copies * requests)[:, None], 0, np.arange(width)[None], Purpose.DRAFT
    )
    edges = np.array([0.0, 2.0**-53, 1 - 2.0**-24, 1 - 2.0**-53])
    coins[: 4 * requests] = np.repeat(edges, requests)[: len(coins), None]
    temperatures = [request.temperature for request in plan.case.requests]
    home = runner.device
    return Contexts(
        tokens=torch.from_numpy(np.tile(runner.prompt, (copies, 1))).to(home),
        lengths=torch.full((copies * requests,), runner.prompt.shape[1]).to(home),
        counts=counts.to(home),
        temperature=torch.tensor(temperatures, dtype=torch.float32).repeat(copies).to(home),
        seeds=torch.arange(copies * requests).to(torch.uint64).to(home),
        positions=torch.zeros(copies * requests, dtype=torch.int64).to(home),
        vocab_size=plan.case.vocab_size,
        model=runner.model,
        coins=torch.from_numpy(coins).to(home),
    )


__all__ = ["CoinDrafts", "by_injected_coins"]
