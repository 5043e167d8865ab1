"""A memory checker for kernels in the interpreter: every load, store and atomic inside a tensor.

On a GPU a lane that is not masked reads whatever lies there, and a test that compares tokens
passes: what a row past the end of a tensor held is often not used.  Only compute-sanitizer, or the
end of an allocation, shows it.  Here each address that a lane uses must lie in a tensor that the
launch was given.  A lane that strays into another tensor of the same launch is not found.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter


class OutOfBoundsError(AssertionError):
    """A lane that is not masked points outside all tensors of the launch."""


class _Extents:
    """Where the tensors of the launch that runs now lie."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.begins = self.ends = np.empty(0, dtype=np.uint64)

    def of(self, tensors: dict[str, Any]) -> None:
        """Take the tensors of a launch, by name."""
        found = sorted(
            (one.data_ptr(), one.data_ptr() + _span(one), name)
            for name, one in tensors.items()
            if isinstance(one, torch.Tensor) and one.numel()
        )
        self.names = [name for _, _, name in found]
        self.begins = np.array([begin for begin, _, _ in found], dtype=np.uint64)
        # Of tensors that overlap, an address may lie in any that begins before it.
        ends = np.array([end for _, end, _ in found], dtype=np.uint64)
        self.ends = np.maximum.accumulate(ends) if len(ends) else ends

    def check(self, pointers: Any, mask: Any, what: str) -> None:
        """Raise where a lane that is not masked points outside."""
        addresses, on = np.broadcast_arrays(pointers.data, True if mask is None else mask.data)
        addresses = addresses[on.astype(bool)].astype(np.uint64)
        if addresses.size == 0:
            return
        size = np.uint64(max(1, pointers.get_element_ty().primitive_bitwidth // 8))
        at = np.searchsorted(self.begins, addresses, side="right") - 1
        inside = at >= 0
        inside[inside] = addresses[inside] + size <= self.ends[at[inside]]
        if not inside.all():
            first = int(np.flatnonzero(~inside)[0])
            near = int(at[first])
            after = (
                f"{int(addresses[first]) - int(self.ends[near])} bytes past the end of "
                f"'{self.names[near]}' or a tensor before it"
                if near >= 0
                else "before every tensor"
            )
            raise OutOfBoundsError(
                f"{what}: {int((~inside).sum())} lanes out of bounds, one {after}"
            )


def _span(tensor: torch.Tensor) -> int:
    """Bytes from the first element of a tensor to its last."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (sum((size - 1) * step for size, step in steps) + 1) * tensor.element_size()


EXTENTS = _Extents()
_WATCHED = ("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas")
_MASK_AT = {"create_masked_load": 1, "create_masked_store": 2, "create_atomic_rmw": 3}
"""Where the mask is among the arguments; an atomic compare has none."""


def _with_check(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(self: Any, *arguments: Any, **options: Any) -> Any:
        # Read-modify-write takes the operation first.
        pointers = arguments[1 if name == "create_atomic_rmw" else 0]
        mask = arguments[_MASK_AT[name]] if name in _MASK_AT else None
        EXTENTS.check(pointers, mask, name.removeprefix("create_"))
        return original(self, *arguments, **options)

    return wrapper


def install() -> None:
    """Watch every launch of this process from now on."""
    if getattr(interpreter.GridExecutor, "_bounds_are_watched", False):
        return
    for name in _WATCHED:
        original = getattr(interpreter.InterpreterBuilder, name)
        setattr(interpreter.InterpreterBuilder, name, _with_check(name, original))
    to_host = interpreter.GridExecutor._init_args_hst

    @functools.wraps(to_host)
    def recorded(self: Any, arguments: Any, options: Any) -> Any:
        args, kwargs = to_host(self, arguments, options)
        EXTENTS.of({**dict(zip(self.arg_names, args, strict=False)), **kwargs})
        return args, kwargs

    interpreter.GridExecutor._init_args_hst = recorded
    interpreter.GridExecutor._bounds_are_watched = True
