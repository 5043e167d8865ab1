"""Target probabilities in float64, from the logits as stored, under a stated filter convention.

The target is computed from the bits the sampler received (bf16 logits upcast to float64), so that
a sampler is never blamed for the rounding of its input.  What "top-k 50, top-p 0.9" means differs
between engines: :mod:`specverify.conventions` says how, and its names are importable from here.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from specverify.conventions import (
    CONVENTIONS,
    FLASHINFER,
    REFERENCE,
    SGLANG,
    SGLANG_TORCH,
    TRANSFORMERS,
    VLLM,
    FilterConvention,
    Order,
    Ties,
    TopPBoundary,
)

if TYPE_CHECKING:
    from specverify.contract import Batch

__all__ = [
    "CONVENTIONS",
    "FLASHINFER",
    "REFERENCE",
    "SGLANG",
    "SGLANG_TORCH",
    "TRANSFORMERS",
    "VLLM",
    "FilterConvention",
    "Order",
    "Ties",
    "TopPBoundary",
    "batch_probabilities",
    "filter_support",
    "target_probabilities",
]


def target_probabilities(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    convention: FilterConvention = REFERENCE,
) -> torch.Tensor:
    """The law p that the next token of each row must follow.

    Args:
        logits: [R, V] floating, any device. A token at -inf has probability exactly 0.
        temperature: [R] floating, >= 0. 0 is greedy: all mass on the largest logit, the lowest id
            among ties, whatever the filters.
        top_k: [R] int64; 0 and anything >= V are off.
        top_p: [R] floating in (0, 1]; 1 is off.
        min_p: [R] floating in [0, 1]; 0 is off.
        convention: the meaning of the filters.

    Returns:
        [R, V] float64 on the device of ``logits``; rows sum to 1.

    Raises:
        ValueError: naming the field that is of the wrong shape or out of range, or the first row
            of ``logits`` that holds NaN, +inf or nothing but -inf.
    """
    _check_rows(logits, temperature, top_k, top_p, min_p)
    return _law(logits, _Rows(temperature, top_k, top_p, min_p), convention)


def batch_probabilities(batch: Batch, convention: FilterConvention = REFERENCE) -> torch.Tensor:
    """``target_probabilities`` of every target row of a batch.

    Args:
        batch: a validated batch; each row takes the fields of its request.
        convention: the meaning of the filters.

    Returns:
        [R, V] float64 on the device of the batch.

    Raises:
        ValueError: if a row of the logits holds NaN, +inf or nothing but -inf.
    """
    rows = _Rows(batch.temperature, batch.top_k, batch.top_p, batch.min_p, batch.row_request)
    return _law(batch.target_logits, rows, convention)


def filter_support(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    convention: FilterConvention = REFERENCE,
) -> torch.Tensor:
    """The tokens that may be emitted: those whose probability is not 0 in float64.

    Arguments and errors as :func:`target_probabilities`.  One emitted token outside it is a proof
    of a fault, without statistics: what float64 rounds to 0 has probability < 1e-300.

    Returns:
        [R, V] bool.
    """
    return target_probabilities(logits, temperature, top_k, top_p, min_p, convention) > 0


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Parameters of the rows, or of their requests with a map from rows to requests.

    Whether any filter is on is asked of the requests, which are fewer than their rows.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    request: torch.Tensor | None = None

    def expand(self, field: torch.Tensor) -> torch.Tensor:
        return field if self.request is None else field[self.request]

    def filtered(self, vocab: int) -> torch.Tensor:
        """Which requests filter at all, with temperature above 0."""
        top_k = (self.top_k > 0) & (self.top_k < vocab)
        return (top_k | (self.top_p < 1) | (self.min_p > 0)) & (self.temperature > 0)

    def select(self, rows: torch.Tensor) -> _Rows:
        """The parameters of some rows, one entry a row."""
        fields = (self.temperature, self.top_k, self.top_p, self.min_p)
        return _Rows(*(self.expand(field)[rows] for field in fields))


def _law(logits: torch.Tensor, rows: _Rows, convention: FilterConvention) -> torch.Tensor:
    law = _tempered(logits, rows)
    filtered = rows.filtered(logits.shape[1])
    if bool(filtered.any()):
        chosen = rows.expand(filtered).nonzero().squeeze(1)
        law[chosen] = _filter(logits[chosen].double(), law[chosen], rows.select(chosen), convention)
    return law


def _tempered(logits: torch.Tensor, rows: _Rows) -> torch.Tensor:
    """Softmax of logits / temperature, one-hot where the temperature is 0.

    The largest logit is subtracted before the division: 1e-5 does not overflow, and the
    differences of stored logits are exact or nearly so.  Written out, because torch.softmax over
    a short last dimension in float64 takes five times as long (measured at V = 16).
    """
    law = logits.to(torch.float64, copy=True)
    top = law.amax(dim=1, keepdim=True)
    finite = torch.isfinite(top)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0, 0])
        raise ValueError(
            f"logits[{row}]: got a row whose largest logit is {float(top[row])}; expected a finite "
            "logit in every row, no NaN and no +inf"
        )
    law -= top
    greedy = rows.temperature == 0
    if not bool((rows.temperature == 1).all()):
        scale = torch.where(greedy, 1.0, rows.temperature.double())
        law /= rows.expand(scale)[:, None]
    law.exp_()
    law /= law.sum(dim=1, keepdim=True)
    if bool(greedy.any()):
        chosen = rows.expand(greedy).nonzero().squeeze(1)
        # torch.argmax promises the first of several maxima.
        best = logits[chosen].argmax(dim=1)
        law[chosen] = 0.0
        law[chosen, best] = 1.0
    return law


def _filter(
    logits: torch.Tensor, law: torch.Tensor, rows: _Rows, convention: FilterConvention
) -> torch.Tensor:
    """Filter and renormalise rows that all have a temperature above 0."""
    order = _Descending(logits, convention.tie_order)
    keep_k = _top_k_mask(logits, rows.top_k, convention.top_k_ties, order)
    keep_min = law >= rows.min_p.double()[:, None] * law.amax(dim=1, keepdim=True)
    counted = law
    if convention.order is Order.TOP_K_FIRST:
        counted = torch.where(keep_k, counted, 0.0)
    if convention.min_p_first:
        counted = torch.where(keep_min, counted, 0.0)
    keep_p = _top_p_mask(counted, rows.top_p.double(), convention, order)
    law = torch.where(keep_k & keep_min & keep_p, law, 0.0)
    return law / law.sum(dim=1, keepdim=True)


class _Descending:
    """Tokens of each row by descending logit; ties by ascending or by descending id.

    Attributes:
        logits: [R, V] sorted logits.
        ids: [R, V] the token at each place.
    """

    def __init__(self, logits: torch.Tensor, ties: Ties) -> None:
        flipped = ties is Ties.HIGHEST_ID
        source = logits.flip(1) if flipped else logits
        self.logits, ids = torch.sort(source, dim=1, descending=True, stable=True)
        self.ids = logits.shape[1] - 1 - ids if flipped else ids

    def to_tokens(self, mask: torch.Tensor) -> torch.Tensor:
        """A mask over places as a mask over tokens."""
        return torch.empty_like(mask).scatter_(1, self.ids, mask)


def _top_k_mask(
    logits: torch.Tensor, top_k: torch.Tensor, ties: Ties, order: _Descending
) -> torch.Tensor:
    vocab = logits.shape[1]
    k = torch.where((top_k > 0) & (top_k < vocab), top_k, vocab)[:, None]
    if ties is Ties.KEEP_ALL:
        return logits >= order.logits.gather(1, k - 1)
    return order.to_tokens(torch.arange(vocab, device=logits.device) < k)


def _top_p_mask(
    counted: torch.Tensor, top_p: torch.Tensor, convention: FilterConvention, order: _Descending
) -> torch.Tensor:
    """Which tokens top-p keeps, their mass counted on ``counted`` (renormalised here)."""
    mass = counted.gather(1, order.ids)
    upto = mass.cumsum(dim=1)
    upto /= upto[:, -1:].clone()
    first, last = _tie_groups(order.logits, convention.top_p_ties)
    limit = top_p[:, None]
    if convention.top_p_boundary is TopPBoundary.AT_MOST:
        keep = (upto.gather(1, last) <= limit) | (first == 0)
    else:
        before = torch.nn.functional.pad(upto, (1, 0)).gather(1, first)
        crossing = convention.top_p_boundary is TopPBoundary.INCLUSIVE_CROSSING
        keep = before < limit if crossing else before <= limit
    # The sum of a row may pass 1 by an ulp before its end; off is off.
    return order.to_tokens(keep | (limit >= 1))


def _tie_groups(values: torch.Tensor, ties: Ties) -> tuple[torch.Tensor, torch.Tensor]:
    """[R, V] the first and the last place of the tokens that are counted together."""
    places = torch.arange(values.shape[1], device=values.device).expand_as(values)
    if ties is not Ties.KEEP_ALL:
        return places, places
    starts = torch.ones_like(values, dtype=torch.bool)
    starts[:, 1:] = values[:, 1:] != values[:, :-1]
    ends = starts.roll(-1, dims=1)
    first = torch.where(starts, places, 0).cummax(dim=1).values
    last = torch.where(ends, places, values.shape[1]).flip(1).cummin(dim=1).values.flip(1)
    return first, last


def _check_rows(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
) -> None:
    if logits.ndim != 2 or not logits.dtype.is_floating_point or logits.shape[1] < 1:
        got = f"{list(logits.shape)} {logits.dtype}"
        raise ValueError(f"logits: got {got}; expected [R, V] floating with V >= 1")
    good = torch.isfinite(temperature) & (temperature >= 0)
    _check_field("temperature", temperature, good, logits, "a finite number >= 0")
    _check_field("top_p", top_p, (top_p > 0) & (top_p <= 1), logits, "a number in (0, 1]")
    _check_field("min_p", min_p, (min_p >= 0) & (min_p <= 1), logits, "a number in [0, 1]")
    _check_field("top_k", top_k, top_k >= 0, logits, "an integer >= 0", torch.int64)


def _check_field(
    field: str,
    value: torch.Tensor,
    good: torch.Tensor,
    logits: torch.Tensor,
    expected: str,
    dtype: torch.dtype | None = None,
) -> None:
    """Check one parameter: [R], int64 or floating, every entry good."""
    right = value.dtype == dtype if dtype else value.dtype.is_floating_point
    if not right or value.shape != logits.shape[:1]:
        got, want = f"{list(value.shape)} {value.dtype}", dtype or "floating"
        raise ValueError(f"{field}: got {got}; expected [R] = [{logits.shape[0]}] {want}")
    if not bool(good.all()):
        row = int((~good).nonzero()[0, 0])
        raise ValueError(f"{field}[{row}]: got {value[row].item()}; expected {expected}")
