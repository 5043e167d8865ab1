"""The two drafters that rows are recorded with: an early exit of the model, and prompt lookup.

An early exit gives dense drafts that agree with the target as a real draft model does; prompt
lookup gives one-hot drafts, and none at all where the text has not repeated itself.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import torch

from specverify._record_model import LanguageModel

EARLY_EXIT, PROMPT_LOOKUP = "early-exit", "prompt-lookup"
_LONGEST_MATCH = 3


@dataclasses.dataclass(frozen=True)
class Proposal:
    """What a drafter proposes after some tokens.

    Attributes:
        token_ids: the k >= 0 drafts.
        probs: [k, V] float32, the row q each was drawn from; ``None`` for one-hot drafts.
    """

    token_ids: list[int]
    probs: torch.Tensor | None


class Drafter(Protocol):
    """Proposes tokens; ``dense`` says whether it has rows q."""

    @property
    def dense(self) -> bool:
        """Whether its proposals carry probabilities."""
        ...

    def propose(self, tokens: list[int], drafts: int, generator: torch.Generator) -> Proposal:
        """Propose at most ``drafts`` tokens to follow ``tokens``."""
        ...


@dataclasses.dataclass(frozen=True)
class EarlyExit:
    """The target without its last layers, drawing from its softmax at the request's temperature.

    Source: Elhoushi et al. 2024 (LayerSkip), without the training that makes early exits good.
    """

    model: LanguageModel
    layers: int
    temperature: float
    dense: bool = True

    def propose(self, tokens: list[int], drafts: int, generator: torch.Generator) -> Proposal:
        """Propose exactly ``drafts`` tokens, each drawn from the stored float32 row."""
        proposed: list[int] = []
        rows: list[torch.Tensor] = []
        with self.model.first_layers(self.layers):
            for _ in range(drafts):
                row = softmax_row(self.model.logits(tokens + proposed, 1)[0], self.temperature)
                rows.append(row)
                proposed.append(draw(row, generator))
        return Proposal(proposed, torch.stack(rows))


@dataclasses.dataclass(frozen=True)
class PromptLookup:
    """What followed the latest earlier occurrence of the last tokens, longest match first.

    Source: prompt lookup decoding, Saxena 2023.
    """

    dense: bool = False

    def propose(self, tokens: list[int], drafts: int, generator: torch.Generator) -> Proposal:  # noqa: ARG002
        """Propose up to ``drafts`` tokens, none when the last token has not occurred before."""
        for length in range(min(_LONGEST_MATCH, len(tokens) - 1), 0, -1):
            suffix = tokens[-length:]
            for start in range(len(tokens) - length - 1, -1, -1):
                if tokens[start : start + length] == suffix:
                    return Proposal(tokens[start + length : start + length + drafts], None)
        return Proposal([], None)


def parse_drafter(spec: str) -> int | None:
    """The number of layers that ``early-exit:N`` names, ``None`` for ``prompt-lookup``.

    Raises:
        ValueError: if the text is neither.
    """
    kind, _, layers = spec.partition(":")
    if spec == PROMPT_LOOKUP:
        return None
    if kind == EARLY_EXIT and layers.isascii() and layers.isdigit() and int(layers) > 0:
        return int(layers)
    raise ValueError(
        f"drafter: got {spec!r}; expected {EARLY_EXIT}:N with N layers kept, or {PROMPT_LOOKUP}"
    )


def make_drafter(layers: int | None, model: LanguageModel, temperature: float) -> Drafter:
    """The drafter of a parsed specification for a loaded model.

    Raises:
        ValueError: if an early exit would keep every layer, or the model's layers are not found.
    """
    if layers is None:
        return PromptLookup()
    if layers >= model.num_layers:
        raise ValueError(
            f"drafter: got {EARLY_EXIT}:{layers}; expected fewer than the model's "
            f"{model.num_layers} layers"
        )
    return EarlyExit(model, layers, temperature)


def softmax_row(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """[V] float32: softmax of logits [V] at a temperature, one-hot at the argmax for 0."""
    if temperature == 0:
        return torch.zeros_like(logits).index_fill_(0, logits.argmax(), 1.0)
    return (logits.double() / temperature).softmax(dim=-1).to(torch.float32)


def draw(weights: torch.Tensor, generator: torch.Generator) -> int:
    """A token drawn by inverse CDF in float64 from non-negative weights [V] of any total."""
    cdf = weights.double().cumsum(dim=0)
    coin = torch.rand((), dtype=torch.float64, generator=generator)
    # right=True: the first token whose CDF exceeds the coin, so never one of weight zero.
    found = int(torch.searchsorted(cdf, coin * cdf[-1], right=True))
    return min(found, int(torch.nonzero(weights)[-1]))
