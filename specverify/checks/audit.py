"""Decision by decision: may a correct sampler have emitted this, given these coins?

Two emissions under the same coins are equal, or they part at some decision.  From there on the
subject walks a path of its own, so every decision of that path is held against its own threshold:
each accepted draft, the stop, and the last token.  A decision on the wrong side of its threshold is
lawful only within the float budget; a token of probability 0 never is.
"""

from __future__ import annotations

import dataclasses
import math

import torch

from specverify.checks.float_budget import (
    TINY,
    accept_allowance,
    batch_errors,
    cdf_allowance,
    race_allowance,
)
from specverify.contract import PLACEHOLDER, AcceptanceRule, Batch, Emission


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """One decision of an emission against its threshold.

    Attributes:
        kind: accepted, rejected, recovered, bonus, own draw or greedy.
        position: 0 is the first emitted token.
        distance: of the coin from the side on which the decision would be right; 0 if it is there,
            infinite if no coin leads to it.
        allowed: the float budget.
    """

    kind: str
    position: int
    distance: float
    allowed: float = 0.0

    @property
    def lawful(self) -> bool:
        """Whether a correct sampler may have taken it."""
        return self.distance <= self.allowed

    @property
    def strain(self) -> float:
        """Share of the budget that it takes."""
        return self.distance / max(self.allowed, TINY)


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """A request that the subject and the reference emit differently.

    Attributes:
        request: index in the batch.
        decision: of the subject, the one that strains its budget most.
        message: p, q, coin and both outcomes.
    """

    request: int
    decision: Decision
    message: str


class Audit:
    """Holds emissions of one batch against its coins.

    Args:
        batch: the input, with the coins that both samplers were given.
        target: [R, V] float64, p under the subject's filter convention.
        rule: what the subject declares, RATIO or MATCH.
    """

    def __init__(self, batch: Batch, target: torch.Tensor, rule: AcceptanceRule) -> None:
        if batch.coins is None:
            raise ValueError("batch.coins: got None; expected the coins of both samplers")
        self.batch, self.target, self.rule = batch, target, rule
        self.coins = batch.coins
        self.errors = batch_errors(batch)

    def disagreements(self, subject: Emission, reference: Emission) -> list[Disagreement]:
        """The requests that differ, each with the decision that takes most to excuse.

        Args:
            subject: structurally valid.
            reference: what the reference emits from the same coins.
        """
        differ = (subject.token_ids != reference.token_ids).any(dim=1)
        differ |= subject.num_emitted != reference.num_emitted
        found = []
        for request in differ.nonzero().flatten().tolist():
            theirs = subject.token_ids[request, : int(subject.num_emitted[request])].tolist()
            ours = reference.token_ids[request, : int(reference.num_emitted[request])].tolist()
            decision = max(self.decisions(request, theirs), key=lambda d: d.strain)
            message = self._message(request, decision, theirs, ours)
            found.append(Disagreement(request, decision, message))
        return found

    def decisions(self, b: int, emitted: list[int]) -> list[Decision]:
        """Every decision behind the tokens that request ``b`` emitted."""
        if float(self.batch.temperature[b]) == 0:
            return self._greedy(b, emitted)
        stop = len(emitted) - 1
        if self.rule is AcceptanceRule.MATCH:
            return [self._own_draw(b, j, token, j == stop) for j, token in enumerate(emitted)]
        found = [self._accept(b, j, accepted=True) for j in range(stop)]
        if self._draft(b, stop) != PLACEHOLDER:
            found.append(self._accept(b, stop, accepted=False))
        return [*found, self._last(b, stop, emitted[stop])]

    def _row(self, b: int, j: int) -> int:
        return int(self.batch.first_row[b]) + j

    def _slot(self, b: int, j: int) -> int:
        return int(self.batch.cu_drafts[b]) + j

    def _draft(self, b: int, j: int) -> int:
        """The draft of a position; a placeholder also at the bonus position."""
        if j >= int(self.batch.draft_counts[b]):
            return PLACEHOLDER
        return int(self.batch.draft_token_ids[self._slot(b, j)])

    def _q(self, b: int, j: int) -> torch.Tensor:
        """[V] float64: the law of the draft of a position."""
        if self.batch.draft_probs is not None:
            return self.batch.draft_probs[self._slot(b, j)].double()
        q = torch.zeros_like(self.target[0])
        q[self._draft(b, j)] = 1.0
        return q

    def _greedy(self, b: int, emitted: list[int]) -> list[Decision]:
        """At temperature 0 nothing is rounded, but each of several tied maxima may be emitted."""
        found = []
        for j, token in enumerate(emitted):
            logits = self.batch.target_logits[self._row(b, j)]
            early = j == len(emitted) - 1 and token == self._draft(b, j)
            wrong = early or bool(logits[token] != logits.max())
            found.append(Decision(kind="greedy", position=j, distance=math.inf if wrong else 0.0))
        return found

    def _accept(self, b: int, j: int, *, accepted: bool) -> Decision:
        """Where the accept coin lies: u q against p."""
        draft, row = self._draft(b, j), self._row(b, j)
        p = float(self.target[row, draft])
        scaled = float(self.coins.accept[self._slot(b, j)]) * float(self._q(b, j)[draft])
        distance = max(scaled - p, 0.0) if accepted else max(p - scaled, 0.0)
        if accepted and p == 0:
            distance = math.inf
        return Decision(
            kind="accepted" if accepted else "rejected",
            position=j,
            distance=distance,
            allowed=accept_allowance(p, float(self.errors[row])),
        )

    def _own_draw(self, b: int, j: int, token: int, last: bool) -> Decision:
        """Accept iff equal: the target's own draw, at a slot by its accept coin."""
        p = self.target[self._row(b, j)]
        if j == int(self.batch.draft_counts[b]):
            return self._drawn("bonus", b, j, p, token)
        if last and token == self._draft(b, j):
            return Decision(kind="own draw", position=j, distance=math.inf)
        coin = float(self.coins.accept[self._slot(b, j)])
        return self._interval("own draw", b, j, p, token, coin)

    def _last(self, b: int, j: int, token: int) -> Decision:
        """The recovered or bonus token."""
        p = self.target[self._row(b, j)]
        if self._draft(b, j) == PLACEHOLDER:
            return self._drawn("bonus", b, j, p, token)
        q, error = self._q(b, j), float(self.errors[self._row(b, j)])
        residual = (p - q).clamp(min=0)
        if float(residual.sum()) <= 2 * error + TINY:  # p = q up to rounding: it is all noise
            return Decision(
                kind="recovered", position=j, distance=0.0 if float(p[token]) > 0 else math.inf
            )
        if float(p[token] * (1 + error) + TINY - q[token]) <= 0:  # weight 0 in every precision
            return Decision(kind="recovered", position=j, distance=math.inf)
        return self._drawn("recovered", b, j, residual, token)

    def _drawn(self, kind: str, b: int, j: int, weights: torch.Tensor, token: int) -> Decision:
        if self.coins.final is not None:
            return self._interval(kind, b, j, weights, token, float(self.coins.final[b]))
        return self._race(kind, b, j, weights, token)

    def _interval(
        self, kind: str, b: int, j: int, weights: torch.Tensor, token: int, coin: float
    ) -> Decision:
        """Distance of the coin from the token's stretch of the cumulative weights."""
        row = self._row(b, j)
        cdf = weights.cumsum(0)
        point, high = coin * float(cdf[-1]), float(cdf[token])
        distance = max(high - float(weights[token]) - point, point - high, 0.0)
        if float(self.target[row, token]) == 0:
            distance = math.inf
        allowed = cdf_allowance(weights.shape[0], float(self.errors[row]))
        return Decision(kind=kind, position=j, distance=distance, allowed=allowed)

    def _race(self, kind: str, b: int, j: int, weights: torch.Tensor, token: int) -> Decision:
        """By how much the token arrives after the winner: n_t w_r against n_r w_t."""
        assert self.coins.noise is not None
        row, noise = self._row(b, j), self.coins.noise[b].double()
        p, error = self.target[row], float(self.errors[row])
        winner = int((noise / weights).argmin())
        most = float(weights[token] + error * p[token])
        least = max(float(weights[winner] - error * p[winner]), 0.0)
        late, early = float(noise[token]) * least, float(noise[winner]) * most
        slack = race_allowance(
            float(noise[token]), float(noise[winner]), float(weights[token]), float(weights[winner])
        )
        distance = math.inf if float(p[token]) == 0 else max(late - early, 0.0)
        return Decision(kind=kind, position=j, distance=distance, allowed=early * slack + TINY)

    def _message(self, b: int, decision: Decision, theirs: list[int], ours: list[int]) -> str:
        """The decision, p, q, coins and both outcomes, for a person."""
        j = decision.position
        p, token = self.target[self._row(b, j)], theirs[j]
        words = [f"token {token} has p = {float(p[token]):.6g}"]
        draft = self._draft(b, j)
        if draft != PLACEHOLDER:
            q, coin = self._q(b, j)[draft], self.coins.accept[self._slot(b, j)]
            words.append(f"draft {draft} has p = {float(p[draft]):.6g}, q = {float(q):.6g}")
            words.append(f"accept coin {float(coin)!r}")
        if self.coins.final is not None:
            words.append(f"final coin {float(self.coins.final[b])!r}")
        elif self.coins.noise is not None:
            words.append(f"noise {float(self.coins.noise[b, token]):.6g}")
        reason = f"off by {decision.distance:.3g}, float budget {decision.allowed:.3g}"
        if math.isinf(decision.distance):
            reason = "no rounding leads there"
        return (
            f"{decision.kind}: emitted {theirs}, the reference {ours}; {', '.join(words)}; {reason}"
        )
