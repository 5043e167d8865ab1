"""The checks behind the contract: every field of a batch or an emission, with errors that name it.

Each message has the same form: the field, what it holds, what was expected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import torch

if TYPE_CHECKING:
    from specverify.contract import Batch, Coins, Emission

LOGIT_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_ON_THE_DEVICE = (
    "draft_token_ids",
    "draft_probs",
    "cu_drafts",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seeds",
    "positions",
)
_MASS_TOLERANCE = {
    torch.float64: 1e-6,
    torch.float32: 1e-4,
    torch.bfloat16: 2e-2,
    torch.float16: 1e-2,
}


def _fail(field: str, got: str, expected: str) -> NoReturn:
    raise ValueError(f"{field}: got {got}; expected {expected}")


def _describe(tensor: object) -> str:
    if not isinstance(tensor, torch.Tensor):
        return type(tensor).__name__
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _tensor(
    field: str,
    value: object,
    shape: tuple[int | None, ...],
    kind: str,
    *dtypes: torch.dtype,
) -> torch.Tensor:
    """Check that a field is a tensor of this shape (None: any length) and one of these dtypes."""
    sizes = ", ".join("any" if size is None else str(size) for size in shape)
    names = " / ".join(str(dtype).removeprefix("torch.") for dtype in dtypes) or "floating"
    expected = f"a tensor {kind} = [{sizes}] of {names}"
    if not isinstance(value, torch.Tensor):
        _fail(field, _describe(value), expected)
    right_dtype = value.dtype in dtypes if dtypes else value.dtype.is_floating_point
    right_shape = value.ndim == len(shape) and all(
        want in (None, have) for want, have in zip(shape, value.shape, strict=True)
    )
    if not (right_dtype and right_shape):
        _fail(field, _describe(value), expected)
    return value


def _where(bad: torch.Tensor) -> int:
    return int(torch.nonzero(bad.reshape(-1))[0])


def _every(field: str, good: torch.Tensor, values: torch.Tensor, expected: str) -> None:
    """Fail with the first element that is not good."""
    if not bool(good.all()):
        at = _where(~good)
        _fail(f"{field}[{at}]", str(values.reshape(-1)[at].item()), expected)


def batch(value: Batch, *, check_values: bool) -> None:
    """Validate a whole batch; raise ValueError for the first field that is wrong."""
    counts = _tensor("cu_drafts", value.cu_drafts, (None,), "[B + 1]", torch.int64)
    if counts.shape[0] < 2:
        _fail("cu_drafts", _describe(counts), "at least one request, so two entries or more")
    _cumulative(counts)
    requests, drafts = counts.shape[0] - 1, int(counts[-1])
    logits = _tensor(
        "target_logits", value.target_logits, (drafts + requests, None), "[D + B, V]", *LOGIT_DTYPES
    )
    vocab = logits.shape[1]
    if vocab < 1:
        _fail("target_logits", _describe(logits), "a vocabulary of at least one token")
    ids = _tensor("draft_token_ids", value.draft_token_ids, (drafts,), "[D]", torch.int64)
    _every(
        "draft_token_ids",
        (ids >= -1) & (ids < vocab),
        ids,
        f"an id in [0, {vocab}), or -1 for a slot that was never proposed",
    )
    if value.draft_probs is not None:
        _tensor("draft_probs", value.draft_probs, (drafts, vocab), "[D, V]", *_MASS_TOLERANCE)
    _request_fields(value, requests)
    _one_device(value)
    if value.coins is not None:
        _coins_fit(value.coins, requests, drafts, vocab)
    if check_values:
        _logit_values(logits)
        if value.draft_probs is not None:
            _draft_prob_values(value.draft_probs, ids)


def _cumulative(counts: torch.Tensor) -> None:
    if int(counts[0]) != 0:
        _fail("cu_drafts[0]", str(int(counts[0])), "0: the cumulative counts start with a zero")
    steps = counts[1:] - counts[:-1]
    if not bool((steps >= 0).all()):
        at = _where(steps < 0)
        _fail("cu_drafts", f"a draft count of {int(steps[at])} for request {at}", "counts >= 0")


def _request_fields(value: Batch, requests: int) -> None:
    shape = (requests,)
    temperature = _tensor("temperature", value.temperature, shape, "[B]")
    good = torch.isfinite(temperature) & (temperature >= 0)
    _every("temperature", good, temperature, "a finite number >= 0 (0 is greedy)")
    top_k = _tensor("top_k", value.top_k, shape, "[B]", torch.int64)
    _every("top_k", top_k >= 0, top_k, "an integer >= 0 (0 is off)")
    top_p = _tensor("top_p", value.top_p, shape, "[B]")
    _every("top_p", (top_p > 0) & (top_p <= 1), top_p, "a number in (0, 1] (1 is off)")
    min_p = _tensor("min_p", value.min_p, shape, "[B]")
    _every("min_p", (min_p >= 0) & (min_p <= 1), min_p, "a number in [0, 1] (0 is off)")
    _tensor("seeds", value.seeds, shape, "[B]", torch.uint64)
    positions = _tensor("positions", value.positions, shape, "[B]", torch.int64)
    _every("positions", positions >= 0, positions, "an integer >= 0")


def _one_device(value: Batch) -> None:
    home = value.target_logits.device
    fields = {name: getattr(value, name) for name in _ON_THE_DEVICE}
    if value.coins is not None:
        parts = ("accept", "final", "noise")
        fields |= {f"coins.{name}": getattr(value.coins, name) for name in parts}
    for name, tensor in fields.items():
        if tensor is not None and tensor.device != home:
            _fail(name, f"a tensor on {tensor.device}", f"{home}, where target_logits is")


def _logit_values(logits: torch.Tensor) -> None:
    # Two row reductions see everything: a NaN spreads into the maximum, +inf is the maximum, and a
    # row without any finite logit has -inf for its maximum.
    top = logits.amax(dim=1)
    if bool(torch.isfinite(top).all()):
        return
    row = _where(~torch.isfinite(top))
    got = {True: "NaN", False: "+inf"}[bool(torch.isnan(top[row]))]
    if bool(torch.isneginf(top[row])):
        got = "only -inf"
    _fail(f"target_logits[{row}]", got, "logits below +inf, at least one of them finite, no NaN")


def _draft_prob_values(probs: torch.Tensor, ids: torch.Tensor) -> None:
    proposed = ids >= 0  # the row of a placeholder is never read
    low = probs.amin(dim=1) if probs.shape[0] else probs.new_zeros(0)
    bad = proposed & ~(low >= 0)
    if bool(bad.any()):
        _fail(f"draft_probs[{_where(bad)}]", "a negative probability or NaN", "probabilities >= 0")
    mass = probs.sum(dim=1, dtype=torch.float64)
    tolerance = _MASS_TOLERANCE[probs.dtype]
    bad = proposed & ~((mass - 1).abs() <= tolerance)
    if bool(bad.any()):
        at = _where(bad)
        _fail(f"draft_probs[{at}]", f"a row that sums to {float(mass[at]):.6g}",
              f"a probability distribution: a sum of 1 within {tolerance:g}")  # fmt: skip


def coins(value: Coins) -> None:
    """Validate injected coins by themselves; raise ValueError for the first field that is wrong."""
    accept = _tensor("coins.accept", value.accept, (None,), "[D]")
    _every("coins.accept", (accept >= 0) & (accept < 1), accept, "a number in [0, 1)")
    if (value.final is None) == (value.noise is None):
        _fail("coins", "both or neither of final and noise", "exactly one form of the final coin")
    if value.final is not None:
        final = _tensor("coins.final", value.final, (None,), "[B]")
        _every("coins.final", (final >= 0) & (final < 1), final, "a number in [0, 1)")
    if value.noise is not None:
        noise = _tensor("coins.noise", value.noise, (None, None), "[B, V]")
        good = (noise > 0) & torch.isfinite(noise)
        _every("coins.noise", good, noise, "a finite number > 0, a unit exponential")


def _coins_fit(value: Coins, requests: int, drafts: int, vocab: int) -> None:
    _tensor("coins.accept", value.accept, (drafts,), "[D]")
    if value.final is not None:
        _tensor("coins.final", value.final, (requests,), "[B]")
    if value.noise is not None:
        _tensor("coins.noise", value.noise, (requests, vocab), "[B, V]")


def emission(value: Emission) -> None:
    """Validate shapes and dtypes of an emission by itself; raise ValueError if they are wrong."""
    emitted = _tensor("num_emitted", value.num_emitted, (None,), "[B]", torch.int64)
    _tensor("token_ids", value.token_ids, (emitted.shape[0], None), "[B, max k + 1]", torch.int64)
