"""The memory checker of the kernels' tests sees a lane that strays, and only such a lane."""

from __future__ import annotations

# isort: off
from kernel_setup import DEVICE  # before triton

# isort: on
import pytest
import torch
import triton
import triton.language as tl

if DEVICE != "cpu":
    pytest.skip("the checker watches the interpreter", allow_module_level=True)


@triton.jit
def copy(source, target, size, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(source + i + SHIFT, mask=i < size, other=0.0)
    tl.store(target + i, x, mask=i < size)


@triton.jit
def add(target, size, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(target + i, 1, mask=i < size)


def copied(source: torch.Tensor, size: int, shift: int = 0, room: int = 8) -> torch.Tensor:
    target = torch.zeros(room)
    copy[(1,)](source, target, size, SHIFT=shift, BLOCK=16)
    return target


def test_what_is_inside_or_masked_passes() -> None:
    assert copied(torch.arange(8.0), 8).tolist() == list(range(8))
    assert copied(torch.arange(8.0)[2:], 6, room=6).tolist() == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("size", "shift", "room", "what"),
    [(8, 1, 8, "masked_load: 1 lanes"), (8, -1, 8, "masked_load: 1 lanes"),
     (8, 0, 7, "masked_store: 1 lanes")],
    ids=["past the end", "before the start", "store"],
)  # fmt: skip
def test_a_stray_lane_is_seen(size: int, shift: int, room: int, what: str) -> None:
    # Small tensors may lie side by side, so only rows with room between them are certain.
    held = [torch.zeros(1 << 16) for _ in range(3)]
    source = held[1][1 << 15 :][:8]
    target = held[2][1 << 15 :][:room]
    with pytest.raises(Exception, match=what):
        copy[(1,)](source, target, size, SHIFT=shift, BLOCK=16)


def test_an_atomic_that_strays_is_seen() -> None:
    held = torch.zeros(1 << 16, dtype=torch.int32)
    inside = held[1 << 15 :][:8]
    add[(1,)](inside, 8, BLOCK=16)
    assert inside.tolist() == [1] * 8
    with pytest.raises(Exception, match="atomic_rmw: 8 lanes"):
        add[(1,)](inside, 16, BLOCK=16)


def test_an_empty_tensor_has_nothing_to_read() -> None:
    with pytest.raises(Exception, match="masked_load: 2 lanes"):
        copied(torch.zeros(0), 2)
    assert copied(torch.zeros(0), 0).tolist() == [0.0] * 8
