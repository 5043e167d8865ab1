"""The reference drafter: draws from rows of a draft model by each request's own stream, in float64.

The step is cut into methods, each one clause of what a drafter does, so that a mutant is this
drafter with one clause changed.
"""

from __future__ import annotations

import torch

from specverify.contract import PLACEHOLDER
from specverify.drafting.protocol import Contexts, DraftModel, Proposal
from specverify.reference.draw import by_inverse_cdf
from specverify.streams import Purpose, request_uniforms


class TableDrafter:
    """Draws draft j from softmax(logits / temperature) of the text and the drafts before it.

    The coin of draft j is number ``position + j`` of the request's stream under the purpose DRAFT.
    The next round starts behind the last emitted token, so the coins that two rounds share drew
    drafts behind a rejection, at which nobody looked.  Temperature 0 is the argmax, with the
    lowest id on ties.

    Args:
        model: where logits come from; ``None`` takes the one that comes with the contexts.
    """

    reports_q = True
    takes_coins = True

    def __init__(self, model: DraftModel | None = None) -> None:
        self.model = model

    def propose(self, contexts: Contexts) -> Proposal:
        """Propose as many drafts as every request wants.

        Raises:
            ValueError: if there is no model, or its vocabulary is another one.
        """
        width, requests = contexts.max_drafts, contexts.num_requests
        text = torch.nn.functional.pad(contexts.tokens, (0, width), value=PLACEHOLDER)
        tokens = torch.full((requests, width), PLACEHOLDER, device=text.device)
        q = torch.zeros(requests, width, contexts.vocab_size, device=text.device)
        for j in range(width):
            rows = torch.nonzero(contexts.counts > j).squeeze(1)
            ends = contexts.lengths[rows] + j
            logits = self._model(contexts).logits(rows, text[rows], ends)
            q[rows, j] = self.reported(logits, contexts.temperature[rows])
            law = self.drawn_from(logits, q[rows, j], contexts.temperature[rows])
            drawn = self.draw(law, contexts, rows, j)
            tokens[rows, j] = drawn
            text[rows, ends] = drawn
        return self.finish(Proposal(tokens, q, contexts.counts), contexts)

    def _model(self, contexts: Contexts) -> DraftModel:
        model = self.model or contexts.model
        if model is None:
            raise ValueError("model: got None; expected a draft model, here or with the contexts")
        if model.vocab_size != contexts.vocab_size:
            raise ValueError(
                f"model: got a vocabulary of {model.vocab_size}; expected {contexts.vocab_size}"
            )
        return model

    def reported(self, logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        """[n, V] float32: the law q that is reported."""
        return tempered(logits, temperature).float()

    def drawn_from(
        self, logits: torch.Tensor, reported: torch.Tensor, temperature: torch.Tensor
    ) -> torch.Tensor:
        """[n, V] float64: the weights that drafts are drawn from; the reported values as stored."""
        del logits, temperature
        return reported.double()

    def draw(
        self, law: torch.Tensor, contexts: Contexts, rows: torch.Tensor, j: int
    ) -> torch.Tensor:
        """[n] int64: draft j of the requests ``rows`` [n], from their weights ``law`` [n, V]."""
        if contexts.coins is not None:
            return by_inverse_cdf(law, contexts.coins[rows, j])
        seeds, places = contexts.seeds.cpu()[rows.cpu()], contexts.positions.cpu()[rows.cpu()] + j
        coins = request_uniforms(seeds.numpy(), places.numpy(), Purpose.DRAFT)
        return by_inverse_cdf(law, torch.from_numpy(coins).to(law.device))

    def finish(self, proposal: Proposal, contexts: Contexts) -> Proposal:
        """The proposal as it is handed over."""
        del contexts
        return proposal


def tempered(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """[n, V] float64: softmax(logits / temperature); one-hot at the argmax for temperature 0.

    Args:
        logits: [n, V] floating.
        temperature: [n] floating, >= 0.
    """
    exact = logits.double()
    each = torch.where(temperature > 0, temperature, 1.0).double()[:, None]
    soft = torch.softmax(exact / each, dim=1)
    greedy = torch.nn.functional.one_hot(exact.argmax(dim=1), exact.shape[1]).double()
    return torch.where(temperature[:, None] > 0, soft, greedy)
