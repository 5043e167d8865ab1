"""The key under which compiled kernels are kept against Triton's own view of the arguments."""

from __future__ import annotations

# isort: off
from kernel_setup import DEVICE  # noqa: F401  before triton

# isort: on
from collections import defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from specverify.kernels import _direct
from specverify.kernels.chain import chain_kernel
from specverify.kernels.chain_rounds import rounds_kernel
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction, create_function_from_signature

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.float64)
NUMBERS = (0, 1, 2, 15, 16, 17, 32, 128256, 2**31 - 16, 2**31, 2**40)
COUNTS = (0, 1, 16, 17, 2**31 - 1, 2**31, 2**35)
SKIPPED = ("requests", "rows", "q_at", "tiles", "shares", "shares_1", "width")


class Address:
    """What Triton sees of a tensor: its dtype and where it starts."""

    def __init__(self, dtype: torch.dtype, address: int) -> None:
        self.dtype = dtype
        self._address = address

    def data_ptr(self) -> int:
        return self._address


def triton_view(kernel, tensors, numbers, counts, constants):
    """Types and specialisations of all arguments, as Triton's launcher computes them."""
    from triton.backends.nvidia.compiler import CUDABackend

    function = JITFunction(kernel.fn, do_not_specialize=list(SKIPPED))
    backend = CUDABackend(GPUTarget("cuda", 90, 32))
    bind = create_function_from_signature(function.signature, function.params, backend)
    _bound, specialization, _options = bind(*tensors, *numbers, *counts, *constants)
    return str(specialization)


def parameters(kernel) -> tuple[int, int]:
    """How many pointers a kernel has, and how many constants."""
    names = list(kernel.arg_names)
    return names.index("stride_r"), sum(name.isupper() for name in names)


@pytest.mark.parametrize("kernel", [chain_kernel, rounds_kernel], ids=["chain", "rounds"])
def test_parameters_come_in_the_order_of_the_launch(kernel) -> None:
    names = list(kernel.arg_names)
    pointers, constants = parameters(kernel)
    numbers = ["stride_r", "stride_v", "q_stride_r", "q_stride_v", "vocab"]
    counts = list(SKIPPED)
    assert names[pointers : len(names) - constants] == numbers + counts


@pytest.mark.parametrize("kernel", [chain_kernel, rounds_kernel], ids=["chain", "rounds"])
def test_one_key_means_one_specialisation(kernel) -> None:
    """150 argument sets that differ in few things: equal keys only where Triton's view is equal.

    A key without the dtypes, the alignment, the numbers or the range of the counts fails.
    """
    pointers, constants = parameters(kernel)
    seen = defaultdict(set)
    merged = 0

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        nonlocal merged
        dtypes = [torch.int64] * pointers
        dtypes[data.draw(st.integers(0, 3))] = data.draw(st.sampled_from(DTYPES))
        addresses = [4096] * pointers
        addresses[data.draw(st.integers(0, pointers - 1))] += data.draw(
            st.sampled_from((0, 0, 0, 16, 8, 2))
        )
        numbers = [16] * 5
        numbers[data.draw(st.integers(0, 4))] = data.draw(st.sampled_from(NUMBERS))
        counts = [3] * len(SKIPPED)
        counts[data.draw(st.integers(0, len(counts) - 1))] = data.draw(st.sampled_from(COUNTS))
        fixed = [1] * constants
        fixed[data.draw(st.integers(0, constants - 1))] = data.draw(st.sampled_from((1, 2, 4)))
        tensors = [Address(*pair) for pair in zip(dtypes, addresses, strict=True)]
        view = triton_view(kernel, tensors, numbers, counts, fixed)
        if _direct.fits(addresses, counts):
            key = _direct.key_of(kernel, tuple(dtypes), tuple(numbers), tuple(fixed), ())
            merged += view in seen[key]
            seen[key].add(view)

    check()
    assert merged > 10  # the same key came again, so the test says something
    assert all(len(views) == 1 for views in seen.values())
