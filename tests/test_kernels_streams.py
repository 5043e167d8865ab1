"""The kernels' random numbers are the bits of ``specverify.streams``."""

from __future__ import annotations

# isort: off
from kernel_setup import DEVICE  # before triton

# isort: on
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from specverify.kernels._draw import ACCEPT_WORD, FINAL_WORD, request_uniform, retry_uniforms

from specverify.streams import Purpose, request_uniforms

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@triton.jit
def draw_kernel(seeds, places, accept, final, first, second, N: tl.constexpr):
    i = tl.arange(0, N)
    seed, place = tl.load(seeds + i), tl.load(places + i)
    tl.store(accept + i, request_uniform(seed, place, ACCEPT_WORD))
    tl.store(final + i, request_uniform(seed, place, FINAL_WORD))
    one, two = retry_uniforms(seed, place, i + 1)
    tl.store(first + i, one)
    tl.store(second + i, two)


def test_the_same_bits() -> None:
    seeds = np.array([0, 1, 2**32, 2**63, 2**64 - 1, 12345678901234567890, 7, 7], dtype=np.uint64)
    places = np.array([0, 1, 2, 3, 2**33, 2**62 - 1, 10, 11], dtype=np.int64)
    out = [torch.empty(8, dtype=torch.float64, device=DEVICE) for _ in range(4)]
    arrays = [torch.from_numpy(x.view(np.int64)).to(DEVICE) for x in (seeds, places)]
    draw_kernel[(1,)](*arrays, *out, N=8)
    accept, final, first, second = (x.cpu().numpy() for x in out)
    np.testing.assert_array_equal(accept, request_uniforms(seeds, places, Purpose.ACCEPT))
    np.testing.assert_array_equal(final, request_uniforms(seeds, places, Purpose.FINAL))
    numbers = np.concatenate([accept, final, first, second])
    assert len(set(numbers.tolist())) == 32  # no retry reuses a number
    assert bool(((numbers >= 0) & (numbers < 1)).all())
