"""Recorded rows: verification steps of a real language model, in one safetensors file.

Rows of a real model are peaked and long-tailed over tens of thousands of tokens, unlike any
synthetic row. The file holds the tensors of a :class:`~specverify.contract.Batch` without its
random state, and is read without running any code of the file (never pickle).
``docs/real-rows.md`` is the description of the format.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from specverify._optional import require
from specverify.contract import Batch

FORMAT = "specverify-recorded-rows"
VERSION = "1"
_REQUIRED = (
    "target_logits", "draft_token_ids", "cu_drafts", "temperature", "top_k", "top_p", "min_p",
)  # fmt: skip
_OPTIONAL = ("draft_probs",)
_EXTRA = "real"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RecordedRows:
    """Verification steps as they were recorded, one request a step, in the packed layout.

    Attributes:
        target_logits: [R, V] float32 / bfloat16 / float16, raw logits, before temperature.
        draft_token_ids: [D] int64, the tokens that were proposed.
        draft_probs: [D, V] floating, the law each was drawn from; ``None`` for one-hot drafts.
        cu_drafts: [B + 1] int64, cumulative draft counts with a leading zero.
        temperature: [B] floating, 0 is greedy.
        top_k: [B] int64, 0 is off.
        top_p: [B] floating, 1 is off.
        min_p: [B] floating, 0 is off.
        metadata: model, drafter, description, created, and whatever else the writer noted.

    Raises:
        ValueError: if the tensors do not make a valid :class:`~specverify.contract.Batch`.
    """

    target_logits: torch.Tensor
    draft_token_ids: torch.Tensor
    draft_probs: torch.Tensor | None
    cu_drafts: torch.Tensor
    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._batch(0, check_values=True)

    @property
    def num_requests(self) -> int:
        """B, the number of recorded steps."""
        return self.cu_drafts.shape[0] - 1

    @property
    def vocab_size(self) -> int:
        """V, the number of tokens."""
        return self.target_logits.shape[1]

    def batch(self, first_seed: int = 0) -> Batch:
        """The rows as one batch; request i gets seed ``first_seed + i`` and position 0."""
        return self._batch(first_seed, check_values=False)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors of the file by name; ``draft_probs`` is left out for one-hot drafts."""
        found = {name: getattr(self, name) for name in (*_REQUIRED, *_OPTIONAL)}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def digest(self) -> str:
        """SHA-256 of names, dtypes, shapes and values of all tensors, as 64 hexadecimal digits.

        Metadata does not enter: equal digests mean equal rows, whoever recorded them.
        """
        digest = hashlib.sha256()
        for name, tensor in sorted(self.tensors().items()):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)};".encode())
            digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def _batch(self, first_seed: int, *, check_values: bool) -> Batch:
        # The length of an arbitrary object is not to be trusted before the contract has looked.
        requests = self.temperature.numel() if isinstance(self.temperature, torch.Tensor) else 0
        seeds = torch.arange(first_seed, first_seed + requests).to(torch.uint64)
        positions = torch.zeros(requests, dtype=torch.int64)
        fields: dict[str, Any] = {name: getattr(self, name) for name in (*_REQUIRED, *_OPTIONAL)}
        return Batch(**fields, seeds=seeds, positions=positions, check_values=check_values)


def save(path: Path, rows: RecordedRows, metadata: Mapping[str, str]) -> None:
    """Write rows to a file, replacing it whole or not at all.

    Args:
        path: where to; the folder must exist.
        rows: what to write.
        metadata: at least ``model`` and ``drafter``; ``created`` (UTC) is added when absent.

    Raises:
        ValueError: if ``model`` or ``drafter`` is missing, the safetensors package is absent, or
            the file cannot be written.
    """
    missing = [key for key in ("model", "drafter") if key not in metadata]
    if missing:
        raise ValueError(f"metadata: got {sorted(metadata)}; expected {' and '.join(missing)} too")
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    header = {"description": "", "created": now, **metadata, "format": FORMAT, "version": VERSION}
    tensors = {name: tensor.contiguous() for name, tensor in rows.tensors().items()}
    safetensors = require("safetensors.torch", _EXTRA)
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_bytes(safetensors.save(tensors, metadata=header))
        partial.replace(path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written: {error.strerror}") from error


def load(path: Path) -> RecordedRows:
    """Read recorded rows and validate every field.

    Raises:
        ValueError: naming the file and what is wrong with it: no such file, not safetensors, not
            recorded rows, another version, a tensor missing or unknown, or values that the
            contract refuses (NaN logits, q that does not sum to 1, an id outside the vocabulary).
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; expected a file of recorded rows")
    safetensors = require("safetensors", _EXTRA)
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header: dict[str, str] = dict(file.metadata() or {})
            _check_header(header)
            _check_names(set(file.keys()))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return RecordedRows(**{"draft_probs": None, **tensors}, metadata=header)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(f"{path}: not a safetensors file that can be read: {error}") from error


def _check_header(header: Mapping[str, str]) -> None:
    if header.get("format") != FORMAT:
        got = header.get("format", "no format in the metadata")
        raise ValueError(f"metadata: got {got}; expected format {FORMAT}")
    if header.get("version") != VERSION:
        got = header.get("version", "none")
        raise ValueError(
            f"metadata: got version {got}; expected {VERSION}, which this release reads"
        )


def _check_names(names: set[str]) -> None:
    missing = [name for name in _REQUIRED if name not in names]
    unknown = sorted(names - {*_REQUIRED, *_OPTIONAL})
    if missing:
        raise ValueError(f"tensors: got no {', '.join(missing)}; expected {', '.join(_REQUIRED)}")
    if unknown:
        raise ValueError(f"tensors: got unknown {', '.join(unknown)}; expected at most draft_probs")
