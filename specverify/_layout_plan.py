"""From the short description of a batch that Hypothesis drew to the batch itself.

Pure functions: one plan, one batch.  The strategies are in :mod:`specverify.layouts`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import torch

from specverify import _layout_filters, _layout_rows
from specverify._layout_rows import F64, PLACEHOLDER_PICK, Slot
from specverify.contract import PLACEHOLDER, Batch
from specverify.sampling import batch_probabilities

VIEWS = ("contiguous", "padded", "offset", "strided", "transposed")
"""How a matrix lies in memory: dense; rows of a wider matrix; one element past the start of its
storage, so that no row is aligned; every other column of a wider matrix; column by column."""

_BETWEEN = 100.0  # would win every argmax and every draw if a sampler read it


@dataclasses.dataclass(frozen=True)
class Request:
    """One request before it is expanded; ``filters`` are top-k, top-p, min-p as wanted.

    Its rows follow from its own ``entropy`` and their places in it, so that they stay the same
    whoever is in the batch besides.
    """

    slots: tuple[Slot, ...]
    bonus: str
    temperature: float
    filters: tuple[int, float, float]
    seed: int
    position: int
    entropy: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """One batch before it is expanded."""

    requests: tuple[Request, ...]
    vocab: int
    dense: bool
    dtype: torch.dtype
    views: tuple[str, str]
    boundaries: bool


def expand(plan: Plan) -> Batch:
    """The batch that a plan stands for."""
    counts = np.array([len(request.slots) for request in plan.requests])
    cu_drafts = np.concatenate([[0], np.cumsum(counts)])
    entropies = [request.entropy for request in plan.requests]
    uniforms = _layout_rows.Uniforms(entropies, (counts + 1).tolist(), plan.vocab)
    logits = _stored_logits(plan, uniforms)
    top_k, top_p, min_p = _settled_filters(plan, logits.double().numpy(), cu_drafts)
    draftless = Batch(
        target_logits=logits,
        draft_token_ids=torch.full((int(cu_drafts[-1]),), PLACEHOLDER),
        draft_probs=None,
        cu_drafts=torch.from_numpy(cu_drafts),
        temperature=torch.tensor([request.temperature for request in plan.requests]),
        top_k=torch.tensor(top_k),
        top_p=torch.tensor(top_p),
        min_p=torch.tensor(min_p),
        seeds=torch.from_numpy(np.array([r.seed for r in plan.requests], dtype=np.uint64)),
        positions=torch.tensor([request.position for request in plan.requests]),
        check_values=False,
    )
    ids, probs = _drafts(plan, uniforms, draftless)
    return draftless.replace(
        target_logits=as_view(logits, plan.views[0]),
        draft_token_ids=torch.tensor(ids, dtype=torch.int64),
        draft_probs=None if probs is None else as_view(torch.from_numpy(probs), plan.views[1]),
    )


def _stored_logits(plan: Plan, uniforms: _layout_rows.Uniforms) -> torch.Tensor:
    kinds, masks = [], []
    for request in plan.requests:
        kinds += [slot.target for slot in request.slots] + [request.bonus]
        masks += [slot.disjoint for slot in request.slots] + [False]
    return torch.from_numpy(_layout_rows.target_rows(kinds, masks, uniforms)).to(plan.dtype)


def _settled_filters(
    plan: Plan, logits: F64, cu_drafts: npt.NDArray[np.int64]
) -> tuple[list[int], list[float], list[float]]:
    """Top-k, top-p and min-p of every request, with room around them in each of its rows."""
    starts = cu_drafts + np.arange(cu_drafts.size)
    settled = [
        _layout_filters.settle(
            logits[first:end], request.temperature, request.filters, plan.boundaries
        )
        for request, first, end in zip(plan.requests, starts[:-1], starts[1:], strict=True)
    ]
    return [one[0] for one in settled], [one[1] for one in settled], [one[2] for one in settled]


def _drafts(
    plan: Plan, uniforms: _layout_rows.Uniforms, draftless: Batch
) -> tuple[list[int], npt.NDArray[np.float32] | None]:
    """The draft tokens and, if the batch is dense, the [D, V] float32 rows they come from."""
    logits = draftless.target_logits.double().numpy()
    slots = [slot for request in plan.requests for slot in request.slots]
    rows = (np.arange(len(slots)) + draftless.draft_request.numpy()).tolist()
    probs = _draft_rows(slots, rows, logits, uniforms, draftless) if plan.dense else None
    ids = []
    for draft, (slot, row) in enumerate(zip(slots, rows, strict=True)):
        choice = float(uniforms.pick[row])
        if slot.pick == PLACEHOLDER_PICK:
            ids.append(PLACEHOLDER)
        elif probs is not None:
            ids.append(_layout_rows.dense_token(slot.pick, logits[row], probs[draft], choice))
        else:
            ids.append(_layout_rows.one_hot_token(slot.pick, logits[row], choice))
    return ids, probs


def _draft_rows(
    slots: list[Slot],
    rows: list[int],
    logits: F64,
    uniforms: _layout_rows.Uniforms,
    draftless: Batch,
) -> npt.NDArray[np.float32]:
    equal = any(slot.draft == "equal" for slot in slots)
    target = batch_probabilities(draftless).numpy() if equal else logits
    probs = np.empty((len(slots), logits.shape[1]), dtype=np.float32)
    for draft, (slot, row) in enumerate(zip(slots, rows, strict=True)):
        probs[draft] = _layout_rows.draft_row(
            slot.draft,
            logits[row],
            target[row],
            uniforms.draft[row],
            uniforms.draft_mask[row],
            float(uniforms.draft_token[row]),
        )
    return probs


def as_view(matrix: torch.Tensor, view: str) -> torch.Tensor:
    """The same values, [rows, columns], stored as ``VIEWS`` says.

    Memory that belongs to no element holds 100.

    Raises:
        ValueError: if ``view`` is not one of ``VIEWS``.
    """
    rows, columns = matrix.shape
    if view == "contiguous":
        return matrix.contiguous()
    if view == "transposed":
        return matrix.t().contiguous().t()
    if view == "padded":
        return _filled(matrix, (rows, columns + 3), slice(0, columns))
    if view == "strided":
        return _filled(matrix, (rows, 2 * columns), slice(0, None, 2))
    if view == "offset":
        storage = matrix.new_full((rows * columns + 1,), _BETWEEN)
        return storage[1:].view(rows, columns).copy_(matrix)
    raise ValueError(f"view: got {view!r}; expected one of {VIEWS}")


def _filled(matrix: torch.Tensor, shape: tuple[int, int], columns: slice) -> torch.Tensor:
    return matrix.new_full(shape, _BETWEEN)[:, columns].copy_(matrix)
