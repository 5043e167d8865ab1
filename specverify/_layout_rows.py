"""Rows of logits and draft probabilities from short descriptions of them.

A strategy that let Hypothesis draw every logit would be slow and would shrink badly.  So it draws
a word per row (``flat``, ``ties``, ``disjoint``, ...) and one integer per request, and this module
expands them with the counter-based streams of :mod:`specverify.streams`: the same description
gives the same numbers for ever.  In every tuple of words the simple ones come first, because
Hypothesis shrinks towards the front.

Finite target logits are multiples of 2**-12.  Two of them tie exactly or differ by far more than
the rounding of a division by the temperature in fp32, so the order of the tokens, and with it the
top-k set, is the same in every precision.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specverify.streams import Purpose, Stream

F64 = npt.NDArray[np.float64]

TARGET_KINDS = ("flat", "random", "ties", "peaked", "masked", "few", "shifted")
"""flat: all 0. random: uniform in [-3, 3]. ties: three values only. peaked: one token 10 above the
rest. masked: random, about half of the tokens -inf. few: two finite logits. shifted: random + 64,
where an exponential overflows unless the maximum is subtracted first."""

DRAFT_KINDS = ("flat", "random", "equal", "peaked", "sparse", "disjoint")
"""flat: 1/V. random: unrelated to the target. equal: q = p, filters included (reference
convention). peaked: one likely token. sparse: some tokens have exactly q = 0. disjoint: q > 0 only
where the target has logit -inf."""

DENSE_PICKS = ("agreed", "drawn", "rare")
"""The draft token is, among those with q > 0: the one of the highest target logit, one drawn from
q, one of the least likely."""

ONE_HOT_PICKS = ("agreed", "drawn", "impossible")
"""The draft token is: an argmax of the target, any token, one with target logit -inf."""

PLACEHOLDER_PICK = "placeholder"

_GRID = 4096.0
_LEAST_Q = 2.0**-100  # below it a device that flushes denormals would see q = 0 at its own draft
_LEAST_DRAFTED_Q = 2.0**-24  # a draft less likely than this is not met in ten million steps


@dataclasses.dataclass(frozen=True)
class Slot:
    """One draft slot: the words for its target row, its draft row and its draft token."""

    target: str
    draft: str
    pick: str

    @property
    def disjoint(self) -> bool:
        """Whether the target row must have tokens of logit -inf for the draft to live on."""
        return self.draft == "disjoint" or self.pick == "impossible"


class Uniforms:
    """The uniforms of one batch, [rows, V] for each use, independent of each other.

    Args:
        entropies: the integer of each request.
        rows: number of target rows of each request; R in all.
        vocab: number of tokens V.
    """

    def __init__(self, entropies: Sequence[int], rows: Sequence[int], vocab: int) -> None:
        drawn = np.concatenate(
            [
                # The label makes a first row of entropy 0 that token 0, first of flat rows, loses.
                Stream.derive(entropy, "layout request").uniform_run(
                    range(4), range(count), vocab + 2, Purpose.LAYOUT
                )
                for entropy, count in zip(entropies, rows, strict=True)
            ],
            axis=1,
        )
        self.target, self.target_mask, self.draft, self.draft_mask = drawn[:, :, :vocab]
        self.target_token, _, self.draft_token, self.pick = drawn[:, :, vocab]


def target_row(kind: str, mask: bool, values: F64, order: F64, choice: float) -> F64:
    """The logits of one target row.

    Args:
        kind: one of ``TARGET_KINDS``.
        mask: make sure that some logits are -inf.
        values: [V] uniforms for the logits.
        order: [V] uniforms that say which tokens are masked first.
        choice: a uniform that chooses the peak.

    Returns:
        [V] float64, multiples of 2**-12 or -inf, at least one of them finite.
    """
    row = _finite_row(kind, values, choice)
    vocab = row.size
    if kind == "few":
        row[np.argsort(order)[: max(1, vocab - 2)]] = -np.inf
    elif kind == "masked" or mask:
        hidden = min(max(1, int((order < 0.5).sum())), vocab - 1)
        row[np.argsort(order)[:hidden]] = -np.inf
    return row


def _finite_row(kind: str, values: F64, choice: float) -> F64:
    if kind == "flat":
        return np.zeros_like(values)
    if kind == "ties":
        return np.floor(3 * values)
    spread = 2.0 if kind == "peaked" else 6.0
    row: F64 = np.round((values - 0.5) * spread * _GRID) / _GRID
    if kind == "peaked":
        row[int(choice * row.size)] += 10
    return row + 64 if kind == "shifted" else row


def draft_row(
    kind: str, logits: F64, target: F64, values: F64, order: F64, choice: float
) -> npt.NDArray[np.float32]:
    """The probabilities of one draft row.

    Args:
        kind: one of ``DRAFT_KINDS``.
        logits: [V] target logits as stored.
        target: [V] target probabilities, for ``equal``.
        values: [V] uniforms for the probabilities.
        order: [V] uniforms that say which tokens get q = 0.
        choice: a uniform that chooses the peak.

    Returns:
        [V] float32 that sums to 1; entries are 0 or at least 2**-100.
    """
    if kind == "flat":
        weights = np.ones_like(values)
    elif kind == "equal":
        weights = target.copy()
    else:
        weights = np.exp((2.0 if kind == "peaked" else 6.0) * (values - 0.5))
    if kind == "peaked":
        weights[int(choice * weights.size)] *= np.exp(6.0)
    elif kind == "sparse":
        weights[(order < 0.5) & (order > order.min())] = 0
    elif kind == "disjoint":
        weights[np.isfinite(logits)] = 0
    weights /= weights.sum()
    weights[weights < _LEAST_Q] = 0
    row: npt.NDArray[np.float32] = (weights / weights.sum()).astype(np.float32)
    return row


def dense_token(pick: str, logits: F64, q: npt.NDArray[np.float32], choice: float) -> int:
    """A draft token with q > 0, chosen as ``DENSE_PICKS`` says."""
    likely = np.flatnonzero(q >= _LEAST_DRAFTED_Q)
    if pick == "agreed":
        return int(likely[np.argmax(logits[likely])])
    if pick == "rare":
        return int(likely[np.argmin(q[likely])])
    mass = np.cumsum(q[likely], dtype=np.float64)
    return int(likely[np.searchsorted(mass, choice * mass[-1], side="right")])


def one_hot_token(pick: str, logits: F64, choice: float) -> int:
    """A draft token of a drafter without probabilities, chosen as ``ONE_HOT_PICKS`` says."""
    if pick == "agreed":
        return int(np.argmax(logits))
    among = np.arange(logits.size) if pick == "drawn" else np.flatnonzero(np.isneginf(logits))
    return int(among[int(choice * among.size)])


def target_rows(kinds: Sequence[str], masks: Sequence[bool], uniforms: Uniforms) -> F64:
    """[R, V] float64 target logits, before they are stored in the dtype of the batch."""
    return np.stack(
        [
            target_row(
                kind,
                mask,
                uniforms.target[row],
                uniforms.target_mask[row],
                float(uniforms.target_token[row]),
            )
            for row, (kind, mask) in enumerate(zip(kinds, masks, strict=True))
        ]
    )
