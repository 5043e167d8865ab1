"""The loop that produces recorded steps: draft, one target pass, advance the text.

The continuation is Algorithm 1 of Leviathan et al. 2023 in a few lines of float64. It decides
only which texts the rows come from; no verdict depends on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch

from specverify._record_drafters import Drafter, Proposal, draw
from specverify._record_model import LanguageModel
from specverify.recorded import RecordedRows
from specverify.sampling import target_probabilities


@dataclasses.dataclass(frozen=True)
class SamplingParameters:
    """What every recorded request asks for: temperature (0 greedy), top-k and top-p (0, 1: off)."""

    temperature: float
    top_k: int
    top_p: float

    def tensors(self, requests: int) -> dict[str, torch.Tensor]:
        """The four fields of the contract for a number of requests, min-p off."""
        return {
            "temperature": torch.full((requests,), self.temperature, dtype=torch.float64),
            "top_k": torch.full((requests,), self.top_k),
            "top_p": torch.full((requests,), self.top_p, dtype=torch.float64),
            "min_p": torch.zeros(requests, dtype=torch.float64),
        }

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """[R, V] float64: the target probabilities of logits [R, V]."""
        t = self.tensors(logits.shape[0])
        return target_probabilities(logits, t["temperature"], t["top_k"], t["top_p"], t["min_p"])


@dataclasses.dataclass(frozen=True)
class RecordedStep:
    """One verification step: target logits [k + 1, V] float32 and the k drafts before them."""

    logits: torch.Tensor
    proposal: Proposal


@dataclasses.dataclass(frozen=True)
class RecordingLoop:
    """Everything that a step depends on besides the text.

    Attributes:
        model: the target.
        drafter: proposes the drafts.
        parameters: of every request.
        drafts: the most that a step proposes.
        generator: draws drafts, coins and final tokens.
    """

    model: LanguageModel
    drafter: Drafter
    parameters: SamplingParameters
    drafts: int
    generator: torch.Generator

    def steps(self, prompts: list[list[int]], count: int) -> Iterator[RecordedStep]:
        """Yield ``count`` steps, the prompts (token ids) taking turns."""
        texts = [list(prompt) for prompt in prompts]
        for number in range(count):
            turn = number % len(texts)
            if self._ended(texts[turn]):
                texts[turn] = list(prompts[turn])
            step = self._step(texts[turn])
            texts[turn] += self._advance(step)
            yield step

    def _step(self, text: list[int]) -> RecordedStep:
        proposal = self.drafter.propose(text, self.drafts, self.generator)
        rows = len(proposal.token_ids) + 1
        return RecordedStep(self.model.logits(text + proposal.token_ids, rows), proposal)

    def _ended(self, text: list[int]) -> bool:
        """Whether a text has come to its end or to the end of the model's context."""
        room = self.model.max_context - len(text)
        return text[-1] == self.model.end_of_text or room <= self.drafts

    def _advance(self, step: RecordedStep) -> list[int]:
        """The emitted tokens: accepted drafts, then one recovered or bonus token."""
        target = self.parameters.probabilities(step.logits)
        for place, token in enumerate(step.proposal.token_ids):
            q = _draft_row(step.proposal, place, target.shape[1])
            coin = torch.rand((), dtype=torch.float64, generator=self.generator)
            if coin * q[token] < target[place, token]:
                continue
            residual = (target[place] - q).clamp_min(0)
            if not bool(residual.any()):  # p and q differ by rounding alone
                residual = target[place]
            return [*step.proposal.token_ids[:place], draw(residual, self.generator)]
        return [*step.proposal.token_ids, draw(target[-1], self.generator)]


def _draft_row(proposal: Proposal, place: int, vocab: int) -> torch.Tensor:
    """[V] float64: q of one draft, one-hot where the drafter has none."""
    if proposal.probs is not None:
        return proposal.probs[place].double()
    one_hot = torch.zeros(vocab, dtype=torch.float64)
    one_hot[proposal.token_ids[place]] = 1
    return one_hot


def pack(
    steps: list[RecordedStep], parameters: SamplingParameters, metadata: dict[str, str]
) -> RecordedRows:
    """Steps in the packed layout, one request each."""
    counts = torch.tensor([0, *(len(step.proposal.token_ids) for step in steps)])
    ids = [token for step in steps for token in step.proposal.token_ids]
    probs = [step.proposal.probs for step in steps if step.proposal.probs is not None]
    return RecordedRows(
        target_logits=torch.cat([step.logits for step in steps]),
        draft_token_ids=torch.tensor(ids, dtype=torch.int64),
        draft_probs=torch.cat(probs) if probs else None,
        cu_drafts=counts.cumsum(dim=0),
        **parameters.tensors(len(steps)),
        metadata=metadata,
    )
