"""What a drafter is asked and what it answers.

A *drafter* proposes the tokens that a sampler verifies, with randomness of its own, and reports the
law q that it drew them from.  The promise of speculative sampling rests on that report: drafts that
do not follow the reported q make every ratio rule emit the wrong text (Leviathan et al. 2023,
Algorithm 1, needs x ~ q).  Drafts of different methods (tables, n-grams, draft models) meet here.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol, runtime_checkable

import torch

from specverify._validate import _every, _fail, _tensor
from specverify.contract import PLACEHOLDER

MASS_TOLERANCE = 1e-3
"""How far a reported row may sum from 1: rows of bfloat16 are upcast before they are reported."""


class DraftModel(Protocol):
    """Where the logits of drafts come from: a table, a small language model, a head."""

    @property
    def vocab_size(self) -> int:
        """V."""
        ...

    def logits(
        self, rows: torch.Tensor, tokens: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        """[n, V] logits of the next token.

        Args:
            rows: [n] int64, which requests of the batch are asked about.
            tokens: [n, L] int64, their texts, padded with -1.
            lengths: [n] int64, the lengths of the texts.
        """
        ...


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Contexts:
    """What is known when drafts are proposed.

    Attributes:
        tokens: [B, L] int64, prompt and emitted tokens of each request, padded with -1.
        lengths: [B] int64, how many of them there are, at least 1.
        counts: [B] int64, how many drafts each request wants at most.
        temperature: [B] floating, >= 0; 0 is greedy.
        seeds: [B] uint64, the key of each request's random stream.
        positions: [B] int64, where in its stream each request stands.
        vocab_size: V.
        step: rounds that these requests have been through; 0 begins a new text.
        model: a draft model for the asking; a drafter with a model of its own ignores it.
        coins: [B, K] float64 in [0, 1) for an inverse CDF in token order, or ``None`` when the
            drafter draws its own. Only drafters that declare ``takes_coins`` are given any.

    Raises:
        ValueError: naming the field, what it holds and what was expected.
    """

    tokens: torch.Tensor
    lengths: torch.Tensor
    counts: torch.Tensor
    temperature: torch.Tensor
    seeds: torch.Tensor
    positions: torch.Tensor
    vocab_size: int
    step: int = 0
    model: DraftModel | None = None
    coins: torch.Tensor | None = None

    def __post_init__(self) -> None:
        tokens = _tensor("tokens", self.tokens, (None, None), "[B, L]", torch.int64)
        shape = (tokens.shape[0],)
        lengths = _tensor("lengths", self.lengths, shape, "[B]", torch.int64)
        good = (lengths >= 1) & (lengths <= tokens.shape[1])
        _every("lengths", good, lengths, f"a length in [1, {tokens.shape[1]}]")
        counts = _tensor("counts", self.counts, shape, "[B]", torch.int64)
        _every("counts", counts >= 0, counts, "a count >= 0")
        temperature = _tensor("temperature", self.temperature, shape, "[B]")
        good = torch.isfinite(temperature) & (temperature >= 0)
        _every("temperature", good, temperature, "a finite number >= 0 (0 is greedy)")
        _tensor("seeds", self.seeds, shape, "[B]", torch.uint64)
        positions = _tensor("positions", self.positions, shape, "[B]", torch.int64)
        _every("positions", positions >= 0, positions, "an integer >= 0")
        if self.coins is not None:
            size = (shape[0], self.max_drafts)
            coins = _tensor("coins", self.coins, size, "[B, K]", torch.float64)
            _every("coins", (coins >= 0) & (coins < 1), coins, "a number in [0, 1)")

    @property
    def num_requests(self) -> int:
        """B."""
        return int(self.tokens.shape[0])

    @property
    def max_drafts(self) -> int:
        """K, the largest number of drafts that a request wants."""
        return int(self.counts.max()) if self.counts.numel() else 0


@dataclasses.dataclass(frozen=True, eq=False)
class Proposal:
    """What a drafter proposes.

    Attributes:
        tokens: [B, K] int64, the drafts of each request, padded with -1 behind its count.
        q: [B, K, V] floating, the law that each draft was drawn from, after the request's
            temperature; ``None`` for one-hot drafts.  Rows behind a request's count are not read.
        counts: [B] int64 in [0, K].  Whether a slot is proposed may depend on q and on the
            context, never on the token that was drawn for it.

    Raises:
        ValueError: naming the field, what it holds and what was expected.
    """

    tokens: torch.Tensor
    q: torch.Tensor | None
    counts: torch.Tensor

    def __post_init__(self) -> None:
        tokens = _tensor("tokens", self.tokens, (None, None), "[B, K]", torch.int64)
        requests, width = tokens.shape
        counts = _tensor("counts", self.counts, (requests,), "[B]", torch.int64)
        _every("counts", (counts >= 0) & (counts <= width), counts, f"a count in [0, {width}]")
        proposed = self.proposed()
        _every("tokens", ~proposed | (tokens >= 0), tokens, "an id >= 0 in front of the count")
        _every("tokens", proposed | (tokens == PLACEHOLDER), tokens, "-1 behind the count")
        if self.q is not None:
            q = _tensor("q", self.q, (requests, width, None), "[B, K, V]")
            _every("tokens", tokens < q.shape[2], tokens, f"an id below V = {q.shape[2]}")
            _rows_are_laws(q, proposed)

    def proposed(self) -> torch.Tensor:
        """[B, K] bool: the slots in front of each request's count."""
        column = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return column < self.counts[:, None]


def _rows_are_laws(q: torch.Tensor, proposed: torch.Tensor) -> None:
    mass = q.sum(dim=2, dtype=torch.float64)
    good = ~proposed | (((mass - 1).abs() <= MASS_TOLERANCE) & (q >= 0).all(dim=2))
    if not bool(good.all()):
        request, slot = (int(i) for i in torch.nonzero(~good)[0])
        _fail(
            f"q[{request}, {slot}]",
            f"a row that sums to {float(mass[request, slot]):.6g}",
            f"probabilities >= 0 with a sum of 1 within {MASS_TOLERANCE:g}",
        )


@runtime_checkable
class Drafter(Protocol):
    """Proposes drafts.  A sampler brings its own as its attribute ``drafter``.

    Attributes:
        reports_q: whether proposals carry q; False for one-hot drafts.
        takes_coins: whether ``Contexts.coins`` are used, by inverse CDF in token order.
    """

    reports_q: bool
    takes_coins: bool

    def propose(self, contexts: Contexts, /) -> Proposal:
        """Drafts for every request, at most as many as it wants; must not change its input."""
        ...


def check_fits(proposal: Proposal, contexts: Contexts, *, reports_q: bool) -> None:
    """Check that a proposal answers its contexts.

    Raises:
        ValueError: naming the field of the proposal, what it holds and what was expected.
    """
    if proposal.tokens.shape[0] != contexts.num_requests:
        _fail(
            "tokens", str(list(proposal.tokens.shape)), f"[B, K] with B = {contexts.num_requests}"
        )
    asked = proposal.counts <= contexts.counts
    _every("counts", asked, proposal.counts, "at most as many drafts as were asked for")
    _every(
        "tokens",
        proposal.tokens < contexts.vocab_size,
        proposal.tokens,
        f"an id below V = {contexts.vocab_size}",
    )
    if (proposal.q is not None) != reports_q:
        got = "no q" if proposal.q is None else "a q"
        _fail("q", got, f"what the drafter declares: reports_q = {reports_q}")
    if proposal.q is not None and proposal.q.shape[2] != contexts.vocab_size:
        _fail("q", str(list(proposal.q.shape)), f"[B, K, V] with V = {contexts.vocab_size}")
