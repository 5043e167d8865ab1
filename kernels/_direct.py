"""Launches a compiled kernel again without Triton's look at every argument.

Triton examines each argument of each call to find the kernel that was compiled for its kind, some
60 us for thirty arguments.  Here the kernel is remembered under everything that can decide it: the
type of every pointer, that all pointers are multiples of 16, the value of every number that Triton
specialises on, and the constants.  Whatever does not fit (a pointer that is not a multiple of 16, a
count of 2**31) takes Triton's own way, and so does the interpreter.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

_COMPILED: dict[tuple[Any, ...], Any] = {}


@functools.cache
def overlaps(device: torch.device) -> bool:
    """Whether kernels there can start while the one before them ends."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def key_of(
    kernel: Any, types: tuple[torch.dtype, ...], numbers: tuple[int, ...],
    constants: tuple[Any, ...], options: tuple[tuple[str, int], ...],
) -> tuple[Any, ...]:  # fmt: skip
    """What a kernel is remembered under, for aligned pointers and counts below 2**31."""
    device = torch.cuda.current_device() if torch.cuda.is_available() else -1
    return (id(kernel), device, types, numbers, constants, options)


def fits(addresses: Sequence[int], counts: Sequence[int]) -> bool:
    """Whether the key says all that Triton asks of these pointers and unspecialised counts."""
    together = 0
    for address in addresses:
        together |= address
    return together & 15 == 0 and max(counts) < 2**31 and min(counts) >= 0


def launch(
    kernel: Any, programs: int, tensors: Sequence[torch.Tensor], numbers: tuple[int, ...],
    counts: tuple[int, ...], constants: tuple[Any, ...], options: tuple[tuple[str, int], ...],
) -> None:  # fmt: skip
    """Run a kernel on the current stream.

    Args:
        kernel: its parameters are pointers, numbers, counts and constants, in this order.
        programs: size of the grid.
        tensors: the pointers; uint64 counts as int64.
        numbers: integers that Triton specialises on.
        counts: integers that it does not (``do_not_specialize``).
        constants: values of the compile-time parameters.
        options: compiler options.
    """
    addresses = [one.data_ptr() for one in tensors]
    known = fits(addresses, counts)
    key = key_of(kernel, tuple([one.dtype for one in tensors]), numbers, constants, options)
    compiled = _COMPILED.get(key) if known else None
    if compiled is not None:
        compiled[(programs, 1, 1)](*addresses, *numbers, *counts, *constants)
        return
    signed = [one.view(torch.int64) if one.dtype == torch.uint64 else one for one in tensors]
    compiled = kernel[(programs,)](*signed, *numbers, *counts, *constants, **dict(options))
    if known and compiled is not None:
        _COMPILED[key] = compiled
