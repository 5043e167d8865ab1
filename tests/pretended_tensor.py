"""A tensor that says it is on a CUDA device; see :mod:`pretended_cuda`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

HOME = torch.device("cuda", 0)
CPU = torch.device("cpu")


class Pretended(torch.Tensor):
    """A tensor that says it is on the device; ``inner`` holds its values, on the CPU."""

    inner: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Pretended:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=HOME,
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Reached outside of the pretence only, where nothing of the device may be left."""
        raise RuntimeError(f"a tensor of the pretended device was kept: {function} is called on it")

    def numpy(self, *, force: bool = False) -> Any:
        """Raise what PyTorch raises."""
        if force:
            return self.inner.numpy(force=True).copy()
        raise TypeError(
            f"can't convert {HOME} device type tensor to numpy. Use Tensor.cpu() to copy the "
            "tensor to host memory first."
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.numpy()

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise BufferError(f"a tensor on {HOME} is not for the host")

    def tolist(self) -> Any:
        """Python numbers; they cross."""
        return self.inner.tolist()

    def data_ptr(self) -> int:
        """Of the values on the CPU."""
        return self.inner.data_ptr()

    def __repr__(self, **kwargs: Any) -> str:
        return f"{self.inner!r} on {HOME}"


def tensors_of(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among values, in lists, tuples and slices, too."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_of(value)
        elif isinstance(value, slice):
            yield from tensors_of((value.start, value.stop, value.step))


def inner(value: Any) -> Any:
    """The value with tensors of the CPU for those of the device."""
    if isinstance(value, Pretended):
        return value.inner
    if isinstance(value, list | tuple):
        return type(value)(inner(one) for one in value)
    if isinstance(value, slice):
        return slice(*(inner(end) for end in (value.start, value.stop, value.step)))
    return value


def outer(value: Any, known: dict[int, Pretended]) -> Any:
    """What an operation returned, on the device.

    Args:
        value: on the CPU.
        known: tensors of the device, by the identity of their inner tensor.
    """
    if isinstance(value, torch.Tensor):
        return known[id(value)] if id(value) in known else Pretended(value)
    if isinstance(value, list | tuple):
        return type(value)(outer(one, known) for one in value)
    return value
