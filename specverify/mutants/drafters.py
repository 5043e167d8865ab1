"""Mutants that bring a drafter: what is reported of the drafts is not what happened.

Verification is the reference's in all of them but the last few.  To drafts that the harness draws
they are correct samplers; only drafts of their own, over more than one round, show the bug.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from specverify.contract import PLACEHOLDER, Batch, Coins
from specverify.drafting import Contexts, Proposal, TableDrafter, tempered, with_drafter
from specverify.mutants.mutant import mutant_of
from specverify.reference import ChainSampler, Step
from specverify.reference.chain import CAPABILITIES
from specverify.streams import Purpose, request_uniforms


def _noise(seeds: torch.Tensor, positions: torch.Tensor, vocab: int) -> torch.Tensor:
    """[N, V] unit exponentials of a request's stream at one position."""
    places = positions.cpu().numpy()[:, None] * vocab + torch.arange(vocab).numpy()
    uniform = request_uniforms(seeds.cpu().numpy()[:, None], places, Purpose.NOISE)
    exponential = -torch.log1p(-torch.from_numpy(uniform))
    return exponential.clamp(min=1e-300).to(seeds.device)


class _RaceDrafter(TableDrafter):
    """Draws by an exponential race (Gumbel-max), with noise of its own; correct by itself."""

    takes_coins = False

    def draw(
        self, law: torch.Tensor, contexts: Contexts, rows: torch.Tensor, j: int
    ) -> torch.Tensor:
        noise = _noise(contexts.seeds[rows], contexts.positions[rows] + j, law.shape[1])
        return (noise / law).argmin(dim=1)


class SharedNoise(ChainSampler):
    """The noise that drew the draft also draws the recovered token."""

    drafter: ClassVar[TableDrafter] = _RaceDrafter()
    capabilities = with_drafter(CAPABILITIES, drafter)

    def draw(self, step: Step, weights: torch.Tensor) -> torch.Tensor:
        batch = step.batch
        noise = _noise(batch.seeds, batch.positions + step.accepted, batch.vocab_size)
        step.coins = Coins(accept=step.coins.accept, noise=noise)
        return super().draw(step, weights)


class _CutDrafter(TableDrafter):
    """Draws from the two likeliest tokens."""

    def drawn_from(
        self, logits: torch.Tensor, reported: torch.Tensor, temperature: torch.Tensor
    ) -> torch.Tensor:
        kept = reported.topk(min(2, reported.shape[1]), dim=1)
        return torch.zeros_like(reported).scatter(1, kept.indices, kept.values).double()


class FilteredDraftRawLaw(ChainSampler):
    """Drafts are drawn after top-k, q is reported before it."""

    drafter: ClassVar[TableDrafter] = _CutDrafter()
    capabilities = with_drafter(CAPABILITIES, drafter)


class _ArgmaxDrafter(TableDrafter):
    def drawn_from(
        self, logits: torch.Tensor, reported: torch.Tensor, temperature: torch.Tensor
    ) -> torch.Tensor:
        best = reported.argmax(dim=1)
        return torch.nn.functional.one_hot(best, reported.shape[1]).double()


class ArgmaxDraftSoftLaw(ChainSampler):
    """The draft is the argmax, q is reported soft."""

    drafter: ClassVar[TableDrafter] = _ArgmaxDrafter()
    capabilities = with_drafter(CAPABILITIES, drafter)


class _BfloatDrafter(TableDrafter):
    def drawn_from(
        self, logits: torch.Tensor, reported: torch.Tensor, temperature: torch.Tensor
    ) -> torch.Tensor:
        return reported.bfloat16().double()


class BfloatDraw(ChainSampler):
    """Drafts are drawn from a bfloat16 softmax, q is reported in float32.

    The laws differ by a TV of about 1e-3: trials would need tens of millions, coins a few thousand.
    """

    drafter: ClassVar[TableDrafter] = _BfloatDrafter()
    capabilities = with_drafter(CAPABILITIES, drafter)


class _TwiceDrafter(TableDrafter):
    def drawn_from(
        self, logits: torch.Tensor, reported: torch.Tensor, temperature: torch.Tensor
    ) -> torch.Tensor:
        return tempered(logits, temperature.double() ** 2)


class DrafterTemperatureTwice(ChainSampler):
    """The drafter divides by the temperature twice before it draws, once in what it reports."""

    drafter: ClassVar[TableDrafter] = _TwiceDrafter()
    capabilities = with_drafter(CAPABILITIES, drafter)


class _SparseDrafter(TableDrafter):
    def finish(self, proposal: Proposal, contexts: Contexts) -> Proposal:
        assert proposal.q is not None
        at = proposal.tokens.clamp(min=0)[..., None]
        known = proposal.q.gather(2, at)
        rest = ((1 - known) / max(1, proposal.q.shape[2] - 1)).clamp(min=0)
        q = rest.expand(proposal.q.shape).clone().scatter(2, at, known)
        return Proposal(proposal.tokens, q, proposal.counts)


class SparseDraftReport(ChainSampler):
    """q is kept at the drafted token only; the other tokens share the remaining mass evenly."""

    drafter: ClassVar[TableDrafter] = _SparseDrafter()
    capabilities = with_drafter(CAPABILITIES, drafter)


class _StaleDrafter(TableDrafter):
    """Hands over the rows that the step before had written."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: torch.Tensor | None = None

    def finish(self, proposal: Proposal, contexts: Contexts) -> Proposal:
        old, self._kept = self._kept, proposal.q
        if contexts.step == 0 or old is None:
            return proposal
        return Proposal(proposal.tokens, old, proposal.counts)


class StaleDraftRow(ChainSampler):
    """From the second round on, q is the buffer's content of the round before."""

    def __init__(self) -> None:
        self.drafter = _StaleDrafter()
        self.capabilities = with_drafter(CAPABILITIES, self.drafter)


class _NeighbourDrafter(TableDrafter):
    def finish(self, proposal: Proposal, contexts: Contexts) -> Proposal:
        assert proposal.q is not None
        inside = proposal.proposed()
        q = proposal.q.clone()
        q[inside] = proposal.q[inside].roll(1, dims=0)
        return Proposal(proposal.tokens, q, proposal.counts)


class DraftBufferShifted(ChainSampler):
    """The packed draft buffer is written one slot off: every q row is its neighbour's."""

    drafter: ClassVar[TableDrafter] = _NeighbourDrafter()
    capabilities = with_drafter(CAPABILITIES, drafter)


class _TruncatingDrafter(TableDrafter):
    floor = 0.3

    def finish(self, proposal: Proposal, contexts: Contexts) -> Proposal:
        assert proposal.q is not None
        mass = proposal.q.gather(2, proposal.tokens.clamp(min=0)[..., None]).squeeze(2)
        kept = proposal.proposed() & (mass >= self.floor)
        counts = kept.long().cumprod(dim=1).sum(dim=1)
        column = torch.arange(kept.shape[1], device=counts.device)
        tokens = torch.where(column < counts[:, None], proposal.tokens, PLACEHOLDER)
        return Proposal(tokens, proposal.q, counts)


class PostSampleTruncation(ChainSampler):
    """A sampled draft is dropped, with all behind it, because its own q is low.

    What survives is not distributed as q, so ratio rules are biased; a rule that accepts if equal
    to the target's own draw would not be.
    """

    drafter: ClassVar[TableDrafter] = _TruncatingDrafter()
    capabilities = with_drafter(CAPABILITIES, drafter)


class RoundCoinsReused(ChainSampler):
    """The accept coins of every round are those of the first: the position is not advanced."""

    def accept_coins(self, step: Step) -> torch.Tensor:
        batch = step.batch
        start = torch.repeat_interleave(batch.cu_drafts[:-1], batch.draft_counts)
        place = torch.arange(batch.num_drafts, device=batch.device) - start
        seeds = batch.seeds.cpu().numpy()[batch.draft_request.cpu().numpy()]
        coins = request_uniforms(seeds, place.cpu().numpy(), Purpose.ACCEPT)
        return torch.from_numpy(coins).to(batch.device)


class RoundFinalReused(ChainSampler):
    """The coin of the recovered or bonus token is the same in every round."""

    def begin(self, batch: Batch) -> Step:
        step = super().begin(batch)
        first = torch.zeros_like(batch.positions).cpu().numpy()
        final = request_uniforms(batch.seeds.cpu().numpy(), first, Purpose.FINAL)
        step.coins = Coins(accept=step.coins.accept, final=torch.from_numpy(final).to(batch.device))
        return step


MUTANTS = (
    mutant_of(SharedNoise, "shared-noise", "vllm #54282, #47386", "D", "recovered"),
    mutant_of(FilteredDraftRawLaw, "filtered-draft-raw-q", "transformers #47932", "Q D", "drafted"),
    mutant_of(ArgmaxDraftSoftLaw, "argmax-draft-soft-q", "transformers #32867", "Q D", "drafted"),
    mutant_of(BfloatDraw, "bf16-draw", "DeepSpec #31", "Q X", "drafted"),
    mutant_of(
        DrafterTemperatureTwice, "drafter-temperature-twice", "vLLM's V2 sampler", "D Q", "drafted"
    ),
    mutant_of(SparseDraftReport, "sparse-draft-report", "xLLM #2175", "Q D", "drafted"),
    mutant_of(StaleDraftRow, "stale-draft-row", "textbook", "Q", "drafted"),
    mutant_of(
        DraftBufferShifted, "draft-buffer-shifted", "the class of vllm #53017", "Q J", "drafted"
    ),
    mutant_of(PostSampleTruncation, "post-sample-truncation", "textbook", "D Q", "drafted"),
    mutant_of(RoundCoinsReused, "round-coins-reused", "textbook", "J R", "request"),
    mutant_of(RoundFinalReused, "round-final-reused", "textbook", "J R", "request"),
)
