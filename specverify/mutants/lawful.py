"""Lawful variants: samplers that differ from the reference and are right all the same.

A check that rejects one of these is wrong.  They are what people write instead of the reference:
another way to draw, the other end of the interval, another coupling, another precision.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from specverify.contract import (
    AcceptanceRule,
    Batch,
    Capabilities,
    Coins,
    Emission,
    FinalCoin,
    Sampler,
)
from specverify.mutants.slow import (
    AlwaysRejectRecoverTarget,
    DraftLawDropped,
    RejectSomeRecoverMatching,
)
from specverify.reference import ChainSampler, MatchSampler, Step
from specverify.reference.chain import CAPABILITIES
from specverify.sampling import CONVENTIONS, batch_probabilities
from specverify.streams import Purpose, request_uniform_run

RACE = dataclasses.replace(CAPABILITIES, final_coin=FinalCoin.RACE)
OWN_COINS = dataclasses.replace(CAPABILITIES, final_coin=None)
MATCH = dataclasses.replace(OWN_COINS, acceptance=AcceptanceRule.MATCH)
UNDECLARED = dataclasses.replace(OWN_COINS, acceptance=AcceptanceRule.UNDECLARED)


def exponentials(batch: Batch) -> torch.Tensor:
    """[B, V] float64 unit exponentials of each request's own stream, fresh for every position.

    Args:
        batch: whose seeds and positions key the streams.
    """
    vocab = batch.vocab_size
    uniforms = request_uniform_run(
        batch.seeds.cpu().numpy(), batch.positions.cpu().numpy() * vocab, vocab, Purpose.NOISE
    )
    # 1 - u is in (0, 1], so the logarithm is finite; a zero becomes the smallest grid step.
    return -torch.log1p(-torch.from_numpy(uniforms)).clamp(max=-(2.0**-54)).to(batch.device)


class ExponentialRace(ChainSampler):
    """An exponential race instead of the inverse CDF."""

    capabilities = RACE

    def noise(self, step: Step) -> torch.Tensor:
        """[B, V] float64: what was injected, or the requests' own."""
        noise = step.coins.noise
        return exponentials(step.batch) if noise is None else noise.double()

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        return (self.noise(step) / weights).argmin(dim=1)


class GlobalNoise(ExponentialRace):
    """A race whose noise comes from torch's global generator unless it is injected."""

    capabilities = dataclasses.replace(RACE, per_request_seeds=False)

    def noise(self, step: Step) -> torch.Tensor:
        if step.coins.noise is not None:
            return step.coins.noise.double()
        shape = (step.batch.num_requests, step.batch.vocab_size)
        return torch.empty(shape, dtype=torch.float64, device=step.target.device).exponential_()


class GumbelMax(GlobalNoise):
    """Gumbel-max in float32 instead of the inverse CDF."""

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        gumbel = -self.noise(step).float().log()
        # Relative to the largest: all that is left of a residual may lie below what float32 holds.
        largest = weights.amax(dim=1, keepdim=True)
        return ((weights / largest).float().log() + gumbel).argmax(dim=1)


class SharedNoiseRow(GlobalNoise):
    """Every position has its recovered token ready, all raced with one noise row of the request.

    One of them at most is emitted, so that they depend on each other does not matter.
    """

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        batch, noise = step.batch, self.noise(step)
        last = (noise / weights).argmin(dim=1)
        if batch.num_drafts == 0:
            return last
        p, owner = step.target[step.draft_rows], batch.draft_request
        if batch.draft_probs is None:
            left = p.scatter(1, step.drafts[:, None], 0.0)
        else:
            left = (p - batch.draft_probs).clamp(min=0)
        left = torch.where(left.sum(dim=1, keepdim=True) > 0, left, p)
        ready = (noise[owner] / left).argmin(dim=1)
        return torch.where(step.rejected(), ready[step.draft_slot()], last)


class LessOrEqual(ChainSampler):
    """Accepts with u <= p / q, and never a token of probability 0."""

    def accepts(self, step: Step) -> torch.Tensor:
        p, q = self.target_at_drafts(step), self.draft_at_drafts(step)
        passed = (self.accept_coins(step) <= p / q) & (p > 0)
        return passed if step.proposed is None else passed & step.proposed


class CoinsAboveZero(ChainSampler):
    """Coins in (0, 1] instead of [0, 1), with the comparisons that belong to them."""

    capabilities = OWN_COINS

    def accepts(self, step: Step) -> torch.Tensor:
        p, q = self.target_at_drafts(step), self.draft_at_drafts(step)
        passed = (1.0 - self.accept_coins(step)) * q <= p
        return passed if step.proposed is None else passed & step.proposed

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        assert step.coins.final is not None
        cdf = weights.cumsum(dim=1)
        point = (1.0 - step.coins.final)[:, None] * cdf[:, -1:]
        return torch.searchsorted(cdf, point, right=False).squeeze(1)


class SmallerAcceptance(RejectSomeRecoverMatching):
    """Accepts with 0.9 min(1, p/q) and recovers from what that leaves; declares no rule."""

    capabilities = UNDECLARED


class NeverAccepts(AlwaysRejectRecoverTarget):
    """Never accepts and draws from p; declares no rule."""

    capabilities = UNDECLARED


class AcceptIffEqual(MatchSampler):
    """Draws from p and accepts if equal; declares that rule and takes no coins."""

    capabilities = MATCH

    def begin(self, batch: Batch) -> Step:
        step = super().begin(batch)
        # The same uniforms, mirrored: another sampler's stream.
        step.coins = Coins(
            accept=(1.0 - step.coins.accept).clamp(max=1 - 2.0**-53), final=step.coins.final
        )
        return step


class OneHotRule(DraftLawDropped):
    """Ignores q, accepts with p and recovers from p without the draft; declares MATCH."""

    capabilities = MATCH


class Float32(ChainSampler):
    """Float32 throughout: scaled before the maximum is subtracted, coins cast, running sums."""

    @staticmethod
    def cast(coins: torch.Tensor) -> torch.Tensor:
        """Float32 coins that stay below 1."""
        return coins.float().clamp(max=1 - 2.0**-24)

    def target(self, batch: Batch) -> torch.Tensor:
        exact = batch_probabilities(batch)
        temperature = batch.temperature[batch.row_request, None]
        scale = torch.where(temperature > 0, temperature, 1.0)
        law = torch.softmax(batch.target_logits.float() / scale, dim=1)
        law = torch.where((exact > 0) & (temperature > 0), law, exact.float())
        return (law / law.sum(dim=1, keepdim=True)).double()

    def accepts(self, step: Step) -> torch.Tensor:
        p, q = self.target_at_drafts(step).float(), self.draft_at_drafts(step).float()
        passed = self.cast(self.accept_coins(step)) * q < p
        return passed if step.proposed is None else passed & step.proposed

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        assert step.coins.final is not None
        cdf = weights.float().cumsum(dim=1)
        total = cdf[:, -1:]
        point = self.cast(step.coins.final)[:, None] * total
        point = torch.minimum(point, torch.nextafter(total, torch.zeros_like(total)))
        return torch.searchsorted(cdf, point, right=True).squeeze(1)


class OtherConvention(ChainSampler):
    """The filters mean what vLLM means by them, and it says so."""

    capabilities = dataclasses.replace(CAPABILITIES, convention="vllm")

    def target(self, batch: Batch) -> torch.Tensor:
        return batch_probabilities(batch, CONVENTIONS["vllm"])


class GlobalGenerator(ChainSampler):
    """Draws from torch's global generator: no seeds of the requests, no coins."""

    capabilities: Capabilities = dataclasses.replace(OWN_COINS, per_request_seeds=False)

    def __call__(self, batch: Batch) -> Emission:
        coins = Coins(
            accept=torch.rand(batch.num_drafts, dtype=torch.float64).to(batch.device),
            final=torch.rand(batch.num_requests, dtype=torch.float64).to(batch.device),
        )
        return super().__call__(batch.replace(coins=coins, check_values=False))


@dataclasses.dataclass(frozen=True)
class Lawful:
    """A correct sampler that is not the reference.

    Attributes:
        name: as in ``lawful:NAME``.
        summary: what it does differently, in one line.
        build: makes the sampler.
    """

    name: str
    summary: str
    build: Callable[[], Sampler]


def _lawful(build: Callable[[], Sampler], name: str) -> Lawful:
    summary = (build.__doc__ or name).strip().splitlines()[0].rstrip(".")
    return Lawful(name, summary, build)


LAWFUL: dict[str, Lawful] = {
    variant.name: variant
    for variant in (
        _lawful(ExponentialRace, "exponential-race"),
        _lawful(GumbelMax, "gumbel-max"),
        _lawful(SharedNoiseRow, "shared-noise-row"),
        _lawful(LessOrEqual, "less-or-equal"),
        _lawful(CoinsAboveZero, "coins-above-zero"),
        _lawful(SmallerAcceptance, "smaller-acceptance"),
        _lawful(NeverAccepts, "never-accepts"),
        _lawful(AcceptIffEqual, "accept-iff-equal"),
        _lawful(OneHotRule, "one-hot-rule"),
        _lawful(Float32, "float32"),
        _lawful(OtherConvention, "other-convention"),
        _lawful(GlobalGenerator, "global-generator"),
    )
}
