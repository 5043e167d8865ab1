"""Which operands a primitive operation takes from two devices; see :mod:`pretended_cuda`."""

from __future__ import annotations

from typing import Any

import torch
from pretended_tensor import HOME, Pretended, tensors_of

_aten = torch.ops.aten

CROSSING = {_aten.copy_.default, _aten._to_copy.default}
_INDEXING = {
    _aten.index.Tensor,
    _aten.index_put.default,
    _aten.index_put_.default,
    _aten._index_put_impl_.default,
    _aten._unsafe_index.Tensor,
}
_SEVERAL_SCALARS = {_aten.where.self}
_MASKED = {_aten.masked_fill.Tensor, _aten.masked_fill_.Tensor}
"""Their value may be a 0-dim CPU tensor, their mask may not."""


def check(function: Any, args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> None:
    """Raise for operands on two devices, as the operation would.

    Args:
        function: a primitive operation.
        args: of it.
        kwargs: of it.
        tensors: among them, some on the CPU and some on the device.

    Raises:
        RuntimeError: if it does not take them.
    """
    if function in CROSSING:
        return
    if function in _INDEXING:
        check_indices(args[0], args[1])
        if len(args) > 2:
            check_values(args[0], args[2])
        return
    strangers = [tensor for tensor in tensors if not isinstance(tensor, Pretended)]
    scalars = all(tensor.dim() == 0 for tensor in strangers)
    if function in _MASKED:
        allowed = scalars and isinstance(args[0], Pretended) and isinstance(args[1], Pretended)
    else:
        allowed = (
            torch.Tag.pointwise in function.tags
            and scalars
            and (len(strangers) == 1 or function in _SEVERAL_SCALARS)
            and not any(tensor is stranger for tensor in _written(function, args, kwargs)
                        for stranger in strangers)
        )  # fmt: skip
    if not allowed:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{HOME} and cpu! ({function})"
        )


def check_indices(target: torch.Tensor, index: Any) -> None:
    """Raise for indices of the device into the CPU; a single number of theirs is read first.

    Args:
        target: indexed.
        index: of any kind.

    Raises:
        RuntimeError: if an index is on the device and the target is not.
    """
    strangers = [] if isinstance(target, Pretended) else list(tensors_of(flat(index)))
    if any(isinstance(one, Pretended) and gathers(one) for one in strangers):
        raise RuntimeError(
            "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
        )


def check_values(target: torch.Tensor, value: torch.Tensor) -> None:
    """Raise if values cannot be put at indices of a tensor, because they are elsewhere.

    Args:
        target: indexed by tensors.
        value: assigned.

    Raises:
        RuntimeError: unless both are on one device, or there is one value alone.
    """
    if isinstance(value, Pretended) != isinstance(target, Pretended) and value.dim() > 0:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{HOME} and cpu! (values of an indexed assignment)"
        )


def _written(function: Any, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The operands that the operation writes to."""
    found = []
    for number, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            found += list(tensors_of([value]))
    return found


def gathers(index: Any) -> bool:
    """Whether an index is more than a number, a slice or ``None``."""
    if isinstance(index, torch.Tensor):
        return index.dim() > 0 or index.dtype in (torch.bool, torch.uint8)
    return hasattr(index, "__array__") or isinstance(index, list)


def flat(index: Any) -> list[Any]:
    """The parts of an index."""
    return list(index) if isinstance(index, tuple) else [index]
