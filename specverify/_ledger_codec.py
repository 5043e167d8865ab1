"""How the ledger writes arrays and how it notices that a stored byte has changed.

SQLite checks its own structure and not the bytes that it stores, so every row carries a checksum.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Value = None | int | float | str | bytes
"""What SQLite stores."""

_WORD = 8
_LEVEL = 6


def pack(values: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> bytes:
    """Compress an array of 8-byte numbers.

    Bytes of equal significance are put side by side first: the high bytes of counts are zero and
    the exponents of a law are alike, so this is both smaller and faster than the plain order.

    Args:
        values: [cells] int64 or float64.
    """
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    planes = little.view(np.uint8).reshape(-1, _WORD).T
    return zlib.compress(planes.tobytes(), _LEVEL)


def unpack_counts(blob: bytes, cells: int) -> npt.NDArray[np.int64]:
    """The int64 counts that :func:`pack` was given.

    Raises:
        ValueError: if the bytes are not those of so many cells.
    """
    return _bytes(blob, cells).view("<i8").astype(np.int64, copy=False)


def unpack_law(blob: bytes, cells: int) -> npt.NDArray[np.float64]:
    """The float64 law that :func:`pack` was given.

    Raises:
        ValueError: if the bytes are not those of so many cells.
    """
    return _bytes(blob, cells).view("<f8").astype(np.float64, copy=False)


def _bytes(blob: bytes, cells: int) -> npt.NDArray[np.uint8]:
    size = cells * _WORD
    try:
        # One byte more than expected is enough to see that there are too many.
        raw = zlib.decompressobj().decompress(blob, size + 1)
    except zlib.error as error:
        raise ValueError(f"stored array: does not decompress ({error})") from error
    if len(raw) != size:
        raise ValueError(f"stored array: got {len(raw)} bytes or more; expected {size}")
    return np.frombuffer(raw, np.uint8).reshape(_WORD, cells).T.copy().reshape(-1)


def row_checksum(table: str, values: Sequence[Value]) -> bytes:
    """SHA-256 over the name of a table and the values of a row, each with its type and length."""
    state = hashlib.sha256()
    for value in (table, *values):
        tag, data = _encoded(value)
        state.update(struct.pack("<cQ", tag, len(data)))
        state.update(data)
    return state.digest()


def _encoded(value: Value) -> tuple[bytes, bytes]:
    if value is None:
        return b"n", b""
    if isinstance(value, bytes):
        return b"b", value
    if isinstance(value, str):
        return b"s", value.encode()
    if isinstance(value, float):
        return b"f", struct.pack("<d", value)
    return b"i", str(value).encode()
