"""What an emission must look like whatever was drawn: shape, prefix, padding, support, greedy rows.

These properties are exact.  They hold for every lossless rule on chains, need no trials and spend
no alpha: one violation is a proof.  Each function returns the violations it found, at most
``limit`` of them, and an empty list when all is well; none of them raises for a faulty emission,
however broken, because the fault is the finding.

The checks run inside the loop over trials, so the path of a clean emission is a handful of tensor
operations on ``[B, K + 1]`` and one transfer of a boolean.  The words for a person are put
together on the slow path only.
"""

from __future__ import annotations

import dataclasses

import torch

from specverify.contract import PLACEHOLDER, Batch, Emission

WHOLE_BATCH = -1
"""The ``request`` of a violation that is not the fault of one request, such as a wrong shape."""

_LISTED_TOKENS = 5


@dataclasses.dataclass(frozen=True)
class Violation:
    """One broken rule, where it was broken, and what a person needs to know to find the bug.

    Attributes:
        request: index in the batch, or ``WHOLE_BATCH``.
        position: 0 is the first emitted token; ``None`` if the request as a whole is at fault.
        message: what was expected and what was found.
    """

    request: int
    position: int | None
    message: str

    def __str__(self) -> str:
        if self.request == WHOLE_BATCH:
            return f"the whole batch: {self.message}"
        where = "" if self.position is None else f", position {self.position}"
        return f"request {self.request}{where}: {self.message}"


def structural_violations(batch: Batch, emission: Emission, limit: int = 5) -> list[Violation]:
    """Check shape, counts, accepted prefix, token range, placeholders and padding.

    Source: the definition of emitted tokens in chain verification (Leviathan et al. 2023,
    Algorithm 1): accepted drafts in order, then exactly one recovered or bonus token.

    Args:
        batch: what the sampler was given.
        emission: what it returned: ``token_ids`` [B, K + 1] int64, ``num_emitted`` [B] int64.
        limit: the most violations to return.

    Returns:
        The violations by request and position; empty if there are none.
    """
    misfit = _misfit(batch, emission)
    if misfit is not None:
        return [misfit][:limit]
    drafts = _padded_drafts(batch)
    faulty = _faulty_requests(batch, emission, drafts)
    if not bool(faulty.any()):
        return []
    found: list[Violation] = []
    for request in torch.nonzero(faulty).flatten()[:limit].tolist():
        found += _diagnose(
            request,
            emission.token_ids[request].tolist(),
            int(emission.num_emitted[request]),
            drafts[request, : int(batch.draft_counts[request])].tolist(),
            batch.vocab_size,
        )
    return found[:limit]


def support_violations(
    batch: Batch, emission: Emission, support: torch.Tensor, limit: int = 5
) -> list[Violation]:
    """Find emitted tokens that the target gives probability 0: one hit is a proof of a fault.

    Source: losslessness; p(x) = 0 at a row (masked, or cut by top-k, top-p or min-p) means that no
    lossless rule ever emits x there.  Tokens that are not readable (out of range, beyond the last
    row of the request) are left to :func:`structural_violations`.

    Args:
        batch: what the sampler was given.
        emission: what it returned.
        support: [R, V] bool, true where the target probability is positive.
        limit: the most violations to return.

    Returns:
        The violations by request and position; empty if there are none.

    Raises:
        ValueError: if ``support`` is not a boolean tensor [R, V].
    """
    if support.dtype != torch.bool or support.shape != batch.target_logits.shape:
        raise ValueError(
            f"support: got {list(support.shape)} {support.dtype}; "
            f"expected a bool tensor [R, V] = {list(batch.target_logits.shape)}"
        )
    misfit = _misfit(batch, emission)
    if misfit is not None:
        return [misfit][:limit]
    rows, tokens, readable = _emitted(batch, emission)
    bad = readable & ~support[rows, tokens]
    return [
        Violation(request, position, _support_message(batch, emission, support, request, position))
        for request, position in _places(bad, limit)
    ]


def greedy_violations(
    batch: Batch, emission: Emission, limit: int = 5, *, text_only: bool = False
) -> list[Violation]:
    """Compare the requests at temperature 0 with greedy verification, token for token.

    Every emitted token must be a maximum of its target row, and verification must not stop at a
    draft that it then emits itself.  Where several logits tie for the maximum, each of the tied
    tokens may be emitted, and a tied draft may be accepted or replaced by another tied token.
    Filters never remove every maximum, so they play no part.

    Source: Leviathan et al. 2023, section 2.2 (argmax sampling as the limit of temperature 0):
    accept while the draft is the argmax, then emit the argmax.

    Args:
        batch: what the sampler was given.
        emission: what it returned.
        limit: the most violations to return.
        text_only: let verification stop early: the text is right, only shorter than it could be.

    Returns:
        The violations by request and position; empty if there are none.
    """
    greedy = batch.temperature == 0
    if not bool(greedy.any()):
        return []
    misfit = _misfit(batch, emission)
    if misfit is not None:
        return [misfit][:limit]
    rows, tokens, readable = _emitted(batch, emission)
    readable &= greedy[:, None]
    maxima = batch.target_logits.amax(dim=1)
    not_maximal = readable & (batch.target_logits[rows, tokens] != maxima[rows])
    bad = not_maximal
    if not text_only:
        bad = bad | (readable & _stops_at_its_own_draft(batch, emission))
    return [
        Violation(request, position, _greedy_message(batch, emission, request, position))
        for request, position in _places(bad, limit)
    ]


def _misfit(batch: Batch, emission: Emission) -> Violation | None:
    """A fault of the emission as a whole, after which nothing else can be read from it."""
    tokens, counts = emission.token_ids, emission.num_emitted
    shape = [batch.num_requests, batch.max_drafts + 1]
    if list(tokens.shape) != shape:
        return Violation(
            WHOLE_BATCH,
            None,
            f"token_ids has shape {list(tokens.shape)}; expected [B, max k + 1] = {shape}",
        )
    for field, tensor in (("token_ids", tokens), ("num_emitted", counts)):
        if tensor.dtype != torch.int64 or tensor.device != batch.device:
            return Violation(
                WHOLE_BATCH,
                None,
                f"{field} is {tensor.dtype} on {tensor.device}; "
                f"expected torch.int64 on {batch.device}",
            )
    return None


def _columns(batch: Batch) -> torch.Tensor:
    return torch.arange(batch.max_drafts + 1, device=batch.device)


def _padded_drafts(batch: Batch) -> torch.Tensor:
    """[B, K + 1] int64, the drafts of each request with -1 where it has none."""
    columns = _columns(batch)
    if batch.num_drafts == 0:
        return columns.new_full((batch.num_requests, 1), PLACEHOLDER)
    index = (batch.cu_drafts[:-1, None] + columns).clamp_(max=batch.num_drafts - 1)
    present = columns < batch.draft_counts[:, None]
    return torch.where(present, batch.draft_token_ids[index], PLACEHOLDER)


def _faulty_requests(batch: Batch, emission: Emission, drafts: torch.Tensor) -> torch.Tensor:
    """[B] bool. A placeholder equals no token, so the prefix rule also stops acceptance there."""
    tokens, counts = emission.token_ids, emission.num_emitted[:, None]
    columns = _columns(batch)
    is_draft = (tokens == drafts) & (drafts >= 0)
    in_range = (tokens >= 0) & (tokens < batch.vocab_size)
    after = torch.where(columns == counts - 1, in_range, tokens == PLACEHOLDER)
    good = torch.where(columns < counts - 1, is_draft, after).all(dim=1)
    few = emission.num_emitted - 1
    return ~(good & (few >= 0) & (few <= batch.draft_counts))


def _emitted(batch: Batch, emission: Emission) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Row, token (both safe to index with) and whether it is readable, each [B, K + 1]."""
    columns, tokens = _columns(batch), emission.token_ids
    rows = (batch.first_row[:, None] + columns).clamp_(max=batch.target_logits.shape[0] - 1)
    readable = (columns < emission.num_emitted[:, None]) & (columns <= batch.draft_counts[:, None])
    readable &= (tokens >= 0) & (tokens < batch.vocab_size)
    return rows, tokens.clamp(0, batch.vocab_size - 1), readable


def _stops_at_its_own_draft(batch: Batch, emission: Emission) -> torch.Tensor:
    """[B, K + 1] bool, true at a last token that equals the draft it is supposed to replace."""
    columns = _columns(batch)
    last = columns == emission.num_emitted[:, None] - 1
    rejected = last & (columns < batch.draft_counts[:, None])
    return rejected & (emission.token_ids == _padded_drafts(batch))


def _places(bad: torch.Tensor, limit: int) -> list[tuple[int, int]]:
    """The first ``limit`` (request, position) pairs that are marked."""
    if not bool(bad.any()):
        return []
    return [(request, position) for request, position in torch.nonzero(bad)[:limit].tolist()]


def _diagnose(
    request: int, tokens: list[int], count: int, drafts: list[int], vocab: int
) -> list[Violation]:
    """Every fault of one request, first the count, without which the rest cannot be told apart."""
    if not 1 <= count <= len(drafts) + 1:
        return [
            Violation(
                request,
                None,
                f"num_emitted is {count}; expected 1 .. {len(drafts) + 1} for {len(drafts)} "
                f"drafts: the accepted ones and one recovered or bonus token (token_ids {tokens})",
            )
        ]
    found = []
    for position, token in enumerate(tokens):
        if position < count - 1:
            message = _prefix_fault(token, drafts[position], count)
        elif position == count - 1:
            message = _last_fault(token, count, vocab)
        else:
            message = _padding_fault(token, count)
        if message is not None:
            found.append(Violation(request, position, message))
    return found


def _prefix_fault(token: int, draft: int, count: int) -> str | None:
    if draft == PLACEHOLDER:
        return (
            f"verification went on past a placeholder (emitted {token}, num_emitted {count}); "
            f"expected it to end there with a token drawn from the target"
        )
    if token == draft:
        return None
    return (
        f"got token {token} where draft {draft} counts as accepted (num_emitted {count}); "
        f"expected every emitted token but the last to be the draft itself"
    )


def _last_fault(token: int, count: int, vocab: int) -> str | None:
    if 0 <= token < vocab:
        return None
    if token == PLACEHOLDER:
        return f"got padding (-1) as the last emitted token; expected {count} tokens (num_emitted)"
    return f"emitted token {token} is outside of the vocabulary; expected an id in [0, {vocab})"


def _padding_fault(token: int, count: int) -> str | None:
    if token == PLACEHOLDER:
        return None
    return f"got {token} after the last emitted token (num_emitted {count}); expected padding -1"


def _role(batch: Batch, emission: Emission, request: int, position: int) -> str:
    if position < int(emission.num_emitted[request]) - 1:
        return "accepted draft"
    return "bonus" if position == int(batch.draft_counts[request]) else "recovered"


def _listed(tokens: list[int]) -> str:
    shown = ", ".join(str(token) for token in tokens[:_LISTED_TOKENS])
    return shown if len(tokens) <= _LISTED_TOKENS else f"{shown}, ... ({len(tokens)} in all)"


def _support_message(
    batch: Batch, emission: Emission, support: torch.Tensor, request: int, position: int
) -> str:
    row = int(batch.first_row[request]) + position
    token = int(emission.token_ids[request, position])
    possible = _listed(torch.nonzero(support[row]).flatten().tolist())
    masked = " (its logit is -inf)" if bool(torch.isneginf(batch.target_logits[row, token])) else ""
    return (
        f"{_role(batch, emission, request, position)} token {token} has target probability 0 "
        f"in row {row}{masked}; expected one of {possible}"
    )


def _greedy_message(batch: Batch, emission: Emission, request: int, position: int) -> str:
    row = int(batch.first_row[request]) + position
    token = int(emission.token_ids[request, position])
    logits = batch.target_logits[row]
    maximum = logits.max()
    best = torch.nonzero(logits == maximum).flatten().tolist()
    if token in best:
        return (
            f"temperature 0: draft {token} is the argmax of row {row}, yet verification stopped "
            f"and emitted {token} as recovered; expected the draft accepted and one token more"
        )
    expected = f"token {best[0]}, the argmax" if len(best) == 1 else f"one of {_listed(best)}, tied"
    return (
        f"temperature 0: got {_role(batch, emission, request, position)} token {token} "
        f"(logit {float(logits[token]):g}); expected {expected} of row {row} "
        f"(logit {float(maximum):g})"
    )
