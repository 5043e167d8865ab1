"""Launches a kernel of the trial loop again without Triton's look at every argument.

Triton examines each argument of each call to find what was compiled for its kind, some 60 us for
twenty.  The kernels of the trial loop specialise on no number, so that a compiled one is remembered
under the types of its pointers, which numbers are wider than 32 bits, and its constants.  A pointer
that is not a multiple of 16 takes Triton's own way, and so does the interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_COMPILED: dict[tuple[Any, ...], Any] = {}


def launch(
    kernel: Any, grid: tuple[int, int], tensors: Sequence[torch.Tensor], numbers: Sequence[int],
    constants: tuple[Any, ...], warps: int,
) -> None:  # fmt: skip
    """Run a kernel on the current stream.

    Args:
        kernel: its parameters are pointers, numbers (all in ``do_not_specialize``) and constants,
            in this order.
        grid: programs.
        tensors: its pointers.
        numbers: its integers.
        constants: values of the compile-time parameters.
        warps: of a program.
    """
    addresses = [tensor.data_ptr() for tensor in tensors]
    together = 0
    for address in addresses:
        together |= address
    types = tuple([tensor.dtype for tensor in tensors])
    widths = tuple([-(2**31) <= number < 2**31 for number in numbers])
    key = (kernel, _device(), types, widths, constants, warps)
    compiled = _COMPILED.get(key) if together & 15 == 0 else None
    if compiled is not None:
        compiled[(*grid, 1)](*addresses, *numbers, *constants)
        return
    compiled = kernel[grid](*tensors, *numbers, *constants, num_warps=warps)
    if compiled is not None and together & 15 == 0:
        _COMPILED[key] = compiled


def _device() -> int:
    return torch.cuda.current_device() if torch.cuda.is_available() else -1
