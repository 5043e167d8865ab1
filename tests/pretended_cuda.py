"""A second device without a GPU: tensors that say they are on ``cuda:0`` and live on the CPU.

Where there is no GPU, a harness that mixes its own CPU tensors with those of a sampler on a GPU
passes every test.  Under :func:`pretended_cuda` it fails as it would on a GPU: tensors of the
device carry its name through views, results and in-place writes, and an operation that needs all
of its operands on one device raises what PyTorch raises.

It works where PyTorch picks a backend (below composite functions and Python indexing), so that only
the rules of the primitive operations are written down here:

- one 0-dim CPU tensor may stand beside tensors of the device in a pointwise operation, not as the
  one that is written to (``TensorIterator``); a 0-dim tensor of the device beside CPU tensors may
  not;
- integer and boolean CPU tensors may index tensors of the device, never the reverse;
- ``copy_`` and ``to`` cross devices, and nothing else does;
- numpy sees no tensor of the device;
- the generators of the CPU and of the device are not interchangeable.

It is no GPU: see the tests for what it shows.  Operations that have no CUDA kernel, asynchrony,
other rounding, kernels of Triton, streams, events and memory are not pretended.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from unittest import mock

import torch
from pretended_rules import CROSSING, check, check_indices, check_values, flat, gathers
from pretended_tensor import CPU, HOME, Pretended, inner, outer, tensors_of
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten


class PretendedGenerator(torch.Generator):
    """A generator that may say it is the device's; its numbers are the CPU's."""

    def __new__(cls, device: object = "cpu") -> PretendedGenerator:
        made = super().__new__(cls, "cpu")
        made.home = HOME if torch.device(device).type == "cuda" else CPU
        if made.home == HOME:
            _Dispatch.generators[made._cdata] = made
        return made

    def __init__(self, device: object = "cpu") -> None:
        del device

    @property
    def device(self) -> torch.device:
        """Where it says it is."""
        return self.home


class _Dispatch(TorchDispatchMode):
    """Sends every primitive operation to the CPU, if its operands are where they must be."""

    # As with fake tensors, no CUDA runtime is asked for while this mode is on.
    _mode_key = torch._C._TorchDispatchModeKey.FAKE

    generators: ClassVar[dict[int, torch.Generator]] = {}
    """Those of the device by address: an operation is given another Python object of the same."""

    def __init__(self, default: torch.Generator) -> None:
        super().__init__()
        self.default = default

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        tensors = list(tensors_of([*args, *kwargs.values()]))
        there = [tensor for tensor in tensors if isinstance(tensor, Pretended)]
        asked = kwargs.get("device")
        home = bool(there) if asked is None else torch.device(asked).type == "cuda"
        if there and len(there) != len(tensors):
            check(function, args, kwargs, tensors)
        if there and torch.Tag.inplace_view in function.tags:
            raise NotImplementedError(f"{function}: a pretended tensor keeps its shape and strides")
        if asked is not None:
            kwargs["device"] = CPU
        if not there and not home:
            _check_generator(kwargs, CPU)
            return function(*args, **kwargs)
        if function in CROSSING:
            home = isinstance(args[0], Pretended) if asked is None else home
        _check_generator(kwargs, HOME)
        inner_args, inner_kwargs = inner(list(args)), {k: inner(v) for k, v in kwargs.items()}
        with self._numbers(function, inner_kwargs):
            found = function(*inner_args, **inner_kwargs)
        known = {id(tensor.inner): tensor for tensor in there}
        return outer(found, known) if home else found

    @contextmanager
    def _numbers(self, function: Any, kwargs: dict[str, Any]) -> Iterator[None]:
        """Random numbers of the device's default generator, not of the CPU's."""
        if torch.Tag.nondeterministic_seeded not in function.tags or kwargs.get("generator"):
            yield
            return
        before = torch.default_generator.get_state()
        torch.default_generator.set_state(self.default.get_state())
        try:
            yield
        finally:
            self.default.set_state(torch.default_generator.get_state())
            torch.default_generator.set_state(before)


def _check_generator(kwargs: dict[str, Any], home: torch.device) -> None:
    generator = kwargs.get("generator")
    if generator is None:
        return
    its = HOME if generator._cdata in _Dispatch.generators else CPU
    if its != home:
        raise RuntimeError(
            f"Expected a '{home.type}' device type for generator but found '{its.type}'"
        )


class _Names(TorchFunctionMode):
    """What PyTorch asks a CUDA runtime for before any primitive operation is reached."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in _METHODS and any(isinstance(t, Pretended) for t in tensors_of(args)):
            return _METHODS[function](*args, **kwargs)
        if function is torch.Tensor.cuda:
            return args[0].to(HOME)
        args = tuple(_named(value) for value in args)
        return function(*args, **{key: _named(value) for key, value in kwargs.items()})


def _named(value: Any) -> Any:
    """``cuda:0`` for ``cuda``: which device is current, a build without CUDA cannot say."""
    if isinstance(value, torch.device | str) and str(value).partition(":")[0] == "cuda":
        return HOME
    return value


def _get(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """``tensor[index]``, one of them at least on the device."""
    if isinstance(tensor, Pretended):
        return Pretended(tensor.inner[inner(index)])
    check_indices(tensor, index)
    return tensor[inner(index)]


def _set(tensor: torch.Tensor, index: Any, value: Any) -> None:
    """``tensor[index] = value``: a copy, which crosses devices, unless tensors are the index."""
    check_indices(tensor, index)
    if isinstance(value, torch.Tensor) and any(gathers(one) for one in flat(index)):
        check_values(tensor, value)
    target = tensor.inner if isinstance(tensor, Pretended) else tensor
    target[inner(index)] = inner(value)


def _nonzero(tensor: torch.Tensor, *, as_tuple: bool = False) -> Any:
    found = _aten.nonzero.default(tensor)
    return found.unbind(1) if as_tuple else found


def _new_tensor(like: torch.Tensor, data: Any, **kwargs: Any) -> torch.Tensor:
    home = kwargs.pop("device", None) or like.device
    return torch.tensor(data, **{"dtype": like.dtype} | kwargs).to(home)


_METHODS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.__getitem__: _get,
    torch.Tensor.__setitem__: _set,
    torch.Tensor.new_tensor: _new_tensor,
    torch.Tensor.__format__: lambda tensor, spec: format(tensor.inner, spec),
    torch.Tensor.__bool__: lambda tensor: bool(tensor.inner),
    torch.Tensor.__int__: lambda tensor: int(tensor.inner),
    torch.Tensor.__index__: lambda tensor: operator.index(tensor.inner),
    torch.Tensor.__float__: lambda tensor: float(tensor.inner),
    torch.Tensor.copy_: _aten.copy_.default,
    torch.Tensor.nonzero: _nonzero,
    torch.nonzero: _nonzero,
    torch.Tensor.__invert__: lambda tensor: tensor.bitwise_not(),
    torch.Tensor.numpy: Pretended.numpy,
    torch.Tensor.__array__: Pretended.__array__,
    torch.Tensor.tolist: Pretended.tolist,
    torch.Tensor.data_ptr: Pretended.data_ptr,
    torch.Tensor.__repr__: Pretended.__repr__,
}


@contextmanager
def pretended_cuda() -> Generator[None, None, None]:
    """Pretend for a while that this machine has one CUDA device.

    Nothing that was made on it may be used afterwards.
    """
    default = torch.Generator("cpu").manual_seed(0)

    def get_state(device: object = "cuda") -> torch.Tensor:
        return default.get_state()

    def set_state(state: torch.Tensor, device: object = "cuda") -> None:
        default.set_state(state)

    def seed(value: int) -> None:
        default.manual_seed(value)

    stands_for: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "synchronize": lambda device=None: None,
        "get_rng_state": get_state,
        "set_rng_state": set_state,
        "manual_seed": seed,
        "manual_seed_all": seed,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "mem_get_info": lambda device=None: (2**30, 2**30),
        "memory_reserved": lambda device=None: 0,
        "memory_allocated": lambda device=None: 0,
        "get_device_name": lambda device=None: "pretended",
    }
    lifting = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with (
            mock.patch.multiple(torch.cuda, **stands_for),
            mock.patch.object(torch, "Generator", PretendedGenerator),
            _Dispatch(default),
            _Names(),
        ):
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(lifting)
        _Dispatch.generators.clear()


__all__ = ["HOME", "Pretended", "pretended_cuda"]
