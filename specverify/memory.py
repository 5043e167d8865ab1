"""What one verification step keeps in memory, for our kernels and for the layouts of engines.

A plan is arithmetic on shapes: it reads no device and imports no engine.  Sources of the peers'
layouts: vLLM 0.33 ``v1/worker/gpu/spec_decode/rejection_sampler_utils.py`` (tensors that
``rejection_sample`` allocates), SGLang 0.5.23 ``kernels/ops/speculative/reject_sampling.py``
(probabilities [B, K + 1, V] and [B, K, V] in fp32), transformers 5 ``_speculative_sampling``
(softmax of both in fp32, batch 1).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
"""Bytes of one element by dtype name."""

_TILE = 1024
_PARTS = 4
_LISTED = 256
_VLLM_BLOCK = 8192
_VLLM_RESAMPLE_BLOCK = 1024


@dataclasses.dataclass(frozen=True)
class Shape:
    """One step: every request has the same number of drafts.

    Attributes:
        batch: B requests.
        drafts: K drafts a request.
        vocab: V tokens.
        dtype: of the target logits, a key of ``BYTES``.
        draft_dtype: of draft probabilities or draft logits.

    Raises:
        ValueError: naming the field that is out of range.
    """

    batch: int
    drafts: int
    vocab: int
    dtype: str = "bfloat16"
    draft_dtype: str = "float32"

    def __post_init__(self) -> None:
        for field, least in (("batch", 1), ("drafts", 0), ("vocab", 1)):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{field}: got {value!r}; expected an integer >= {least}")
        for field in ("dtype", "draft_dtype"):
            if getattr(self, field) not in BYTES:
                raise ValueError(
                    f"{field}: got {getattr(self, field)!r}; expected one of {sorted(BYTES)}"
                )

    @property
    def rows(self) -> int:
        """R, target rows."""
        return self.batch * (self.drafts + 1)

    @property
    def slots(self) -> int:
        """D, draft slots."""
        return self.batch * self.drafts


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one step under one layout.

    Attributes:
        layout: whose.
        logits: target logits, as the model leaves them.
        draft: draft probabilities or draft logits that the layout keeps until verification.
        copies: full [R, V] or [D, V] tensors that the layout makes beside these.
        scratch: everything else between input and output.
        outputs: token ids and counts.
    """

    layout: str
    logits: int
    draft: int
    copies: int
    scratch: int
    outputs: int

    @property
    def extra(self) -> int:
        """What the sampler itself adds to its inputs."""
        return self.copies + self.scratch + self.outputs

    @property
    def total(self) -> int:
        """Everything together."""
        return self.logits + self.draft + self.extra


def plans(shape: Shape) -> list[MemoryPlan]:
    """The plans of all known layouts, ours first."""
    return [layout(shape) for layout in LAYOUTS.values()]


def _inputs(shape: Shape) -> tuple[int, int]:
    """Bytes of target logits and of a dense [D, V] draft tensor."""
    logits = shape.rows * shape.vocab * BYTES[shape.dtype]
    return logits, shape.slots * shape.vocab * BYTES[shape.draft_dtype]


def _tiles(vocab: int, size: int) -> int:
    return -(-vocab // size)


def _outputs(shape: Shape) -> int:
    return 8 * shape.batch * (shape.drafts + 1) + 8 * shape.batch


def _ours(shape: Shape, *, dense: bool, draft_logits: bool = False) -> MemoryPlan:
    """Two fp32 a tile and row; a verdict or a counter a row; a word a request."""
    logits, draft = _inputs(shape)
    rows = shape.rows + (shape.slots if draft_logits else 0)
    scratch = 8 * rows * _tiles(shape.vocab, _TILE) + 8 * (shape.rows + shape.batch)
    name = "specverify triton, " + ("draft logits" if draft_logits else "q" if dense else "one-hot")
    return MemoryPlan(name, logits, draft if dense else 0, 0, scratch, _outputs(shape))


def _ours_filtered(shape: Shape) -> MemoryPlan:
    """Beside the plain kernel's: two bytes a part of a tile, a list a row, the drawn token."""
    logits, _ = _inputs(shape)
    tiles = _tiles(shape.vocab, _TILE)
    keys = 2 * 4 * _PARTS * _tiles(tiles, 4)
    scratch = (8 * tiles + keys + 4 * _LISTED + 16) * shape.rows + 8 * shape.batch
    return MemoryPlan("specverify triton, filters", logits, 0, 0, scratch, _outputs(shape))


def _vllm(shape: Shape) -> MemoryPlan:
    logits, draft = _inputs(shape)
    block = _tiles(shape.vocab, _VLLM_BLOCK)
    local = shape.rows * block * (8 + 4 * 4)
    resample = shape.batch * _tiles(shape.vocab, _VLLM_RESAMPLE_BLOCK) * (8 + 4)
    outputs = 8 * shape.batch * (shape.drafts + 1) + 4 * shape.batch
    return MemoryPlan(
        "vllm V2, draft logits", logits, draft, 0, local + resample + 8 * shape.batch, outputs
    )


def _sglang(shape: Shape) -> MemoryPlan:
    logits, _ = _inputs(shape)
    draft = 4 * shape.slots * shape.vocab
    coins = 4 * (shape.rows + shape.batch)
    outputs = 4 * (2 * shape.rows + shape.batch)
    return MemoryPlan(
        "sglang chain, fp32 probabilities", logits, draft, 4 * shape.rows * shape.vocab, coins,
        outputs,
    )  # fmt: skip


def _transformers(shape: Shape) -> MemoryPlan:
    logits, draft = _inputs(shape)
    softmaxes = 4 * (shape.rows + shape.slots) * shape.vocab
    return MemoryPlan(
        "transformers, softmax of both", logits, draft, softmaxes, 4 * shape.batch * shape.vocab,
        8 * shape.rows,
    )  # fmt: skip


LAYOUTS: dict[str, Callable[[Shape], MemoryPlan]] = {
    "triton": lambda shape: _ours(shape, dense=True),
    "triton-one-hot": lambda shape: _ours(shape, dense=False),
    "triton-draft-logits": lambda shape: _ours(shape, dense=True, draft_logits=True),
    "triton-filtered": _ours_filtered,
    "vllm": _vllm,
    "sglang": _sglang,
    "transformers": _transformers,
}
"""Layouts by name."""


def table(shape: Shape) -> str:
    """The plans as text, one line each, sizes in decimal units."""
    columns = ("logits", "draft", "copies", "scratch", "outputs")
    lines = [f"{'layout':34s}" + "".join(f"{name:>10s}" for name in columns) + "  extra/logits"]
    for plan in plans(shape):
        sizes = (plan.logits, plan.draft, plan.copies, plan.scratch, plan.outputs)
        share = plan.extra / plan.logits
        lines.append(f"{plan.layout:34s}" + "".join(map(_size, sizes)) + f"{share:14.2%}")
    return "\n".join(lines)


def _size(count: int) -> str:
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    number = f"{value:.0f}" if units[0] == "B" else f"{value:.3g}"
    return f"{number + ' ' + units[0]:>10s}"
