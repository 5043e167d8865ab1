"""A batch in a few lines for a person, for the report of the smallest layout that shows a fault."""

from __future__ import annotations

import torch

from specverify.contract import PLACEHOLDER, Batch

_MOST_REQUESTS = 8
_MOST_COLUMNS = 8


def describe(batch: Batch) -> str:
    """Write down requests, settings, memory and rows of a batch.

    Rows of a small vocabulary are written out; larger ones are summed up.  Of a large batch the
    first requests are shown.
    """
    lines = [_headline(batch)]
    for request in range(min(batch.num_requests, _MOST_REQUESTS)):
        lines.append(_request(batch, request))
        first, count = int(batch.first_row[request]), int(batch.draft_counts[request])
        lines += [_row(batch, request, first + j, j < count) for j in range(count + 1)]
    if batch.num_requests > _MOST_REQUESTS:
        lines.append(f"... and {batch.num_requests - _MOST_REQUESTS} requests more")
    return "\n".join(lines)


def _headline(batch: Batch) -> str:
    parts = [
        _counted(batch.num_requests, "request"),
        _counted(batch.num_drafts, "draft"),
        f"V = {batch.vocab_size}",
        f"logits {_memory(batch.target_logits)}",
        "one-hot drafts" if batch.draft_probs is None else f"q {_memory(batch.draft_probs)}",
    ]
    if batch.coins is not None:
        parts.append("injected coins")
    return ", ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _memory(matrix: torch.Tensor) -> str:
    dtype = str(matrix.dtype).removeprefix("torch.")
    if matrix.is_contiguous() and matrix.storage_offset() == 0:
        return f"{dtype} contiguous"
    offset = f", offset {matrix.storage_offset()}" if matrix.storage_offset() else ""
    return f"{dtype} (strides {matrix.stride(0)}, {matrix.stride(1)}{offset})"


def _request(batch: Batch, request: int) -> str:
    first, last = batch.cu_drafts[request : request + 2].tolist()
    names = [
        "placeholder" if token == PLACEHOLDER else str(token)
        for token in batch.draft_token_ids[first:last].tolist()
    ]
    temperature = float(batch.temperature[request])
    return (
        f"request {request}: {'drafts ' + ', '.join(names) if names else 'no drafts'}; "
        f"{'greedy' if temperature == 0 else f'T = {temperature:.6g}'}, "
        f"{_filters(batch, request)}; "
        f"seed {batch.seeds[request].item()}, stream position {batch.positions[request].item()}"
    )


def _filters(batch: Batch, request: int) -> str:
    top_k, top_p = int(batch.top_k[request]), float(batch.top_p[request])
    min_p = float(batch.min_p[request])
    active = [f"top-k {top_k}"] if top_k else []
    active += [f"top-p {top_p:.6g}"] if top_p < 1 else []
    active += [f"min-p {min_p:.6g}"] if min_p > 0 else []
    return ", ".join(active) or "no filters"


def _row(batch: Batch, request: int, row: int, has_draft: bool) -> str:
    logits = batch.target_logits[row].double()
    text = f"  row {row}: logits {_logits(logits)}"
    if not has_draft:
        return f"{text} (bonus)"
    draft = row - request
    token = int(batch.draft_token_ids[draft])
    if batch.draft_probs is None or token == PLACEHOLDER:
        return text
    return f"{text}; q {_probabilities(batch.draft_probs[draft], logits, token)}"


def _numbers(values: torch.Tensor) -> str:
    return "[" + ", ".join(f"{value:.4g}" for value in values.tolist()) + "]"


def _logits(logits: torch.Tensor) -> str:
    if logits.numel() <= _MOST_COLUMNS:
        return _numbers(logits)
    finite = logits[torch.isfinite(logits)]
    low, high = float(finite.min()), float(finite.max())
    tied = int((logits == high).sum())
    where = f"token {int(logits.argmax())}" if tied == 1 else f"{tied} tied tokens"
    masked = logits.numel() - finite.numel()
    return f"in [{low:.4g}, {high:.4g}], largest at {where}" + (
        f", {masked} are -inf" if masked else ""
    )


def _probabilities(row: torch.Tensor, logits: torch.Tensor, token: int) -> str:
    if row.numel() <= _MOST_COLUMNS:
        return _numbers(row)
    zeros = int((row == 0).sum())
    text = f"({token}) = {float(row[token]):.4g}, largest {float(row.max()):.4g}"
    if not bool(torch.isfinite(logits[row > 0]).any()):
        return f"{text}, support disjoint from the target's"
    return f"{text}, {zeros} are 0" if zeros else text
