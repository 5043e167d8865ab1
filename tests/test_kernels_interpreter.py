"""The interpreter patches the language once a kernel, and everything is as it was afterwards."""

from __future__ import annotations

# isort: off
from kernel_setup import DEVICE  # before triton

# isort: on
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton.language as tl
from specverify.kernels import Proposal, verify_small
from specverify.kernels._interpreter import PatchOnce, patch_once
from triton.runtime import interpreter

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.skipif(DEVICE == "cuda", reason="on a GPU there is no interpreter"),
]


class Counted:
    """A patch that counts, and the scopes that it gave."""

    def __init__(self) -> None:
        self.patched: list[Any] = []
        self.restored = 0

    def __call__(self, fn: Any) -> Any:
        self.patched.append(fn)
        return self

    def restore(self) -> None:
        self.restored += 1


def sees(**names: Any) -> Callable[[], None]:
    """A function with these globals."""
    return types.FunctionType((lambda: None).__code__, names)


def test_a_kernel_patches_once_and_the_next_one_again() -> None:
    counted = Counted()
    patch = PatchOnce(counted)
    kernel, helper = sees(tl=tl), sees(tl=tl, other=torch)
    for kernels in (1, 2):
        scope = patch(kernel)
        for _ in range(3):
            patch(helper)
        scope.restore()
        assert counted.patched == [kernel] * kernels
        assert counted.restored == kernels


def test_another_module_of_the_language_is_patched_too() -> None:
    counted = Counted()
    patch = PatchOnce(counted)
    kernel, standard = sees(tl=tl), sees(core=tl.core)
    scope = patch(kernel)
    for _ in range(3):
        patch(standard)
    assert counted.patched == [kernel, standard]
    scope.restore()
    assert counted.restored == 1  # the interpreter itself restores what the kernel saw


def test_patching_twice_is_patching_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted()
    monkeypatch.setattr(interpreter, "_patch_lang", counted)
    patch_once()
    first = interpreter._patch_lang
    patch_once()
    assert interpreter._patch_lang is first
    first(sees(tl=tl))
    assert len(counted.patched) == 1


def test_a_triton_that_works_otherwise_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(interpreter, "_patch_lang")
    patch_once()
    assert not hasattr(interpreter, "_patch_lang")


def emitted() -> list[list[int]]:
    """Tokens of a small batch."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(12, 7, generator=generator)
    probs = torch.softmax(torch.randn(8, 7, generator=generator), 1)
    tokens, _ = verify_small(
        logits, torch.randint(0, 7, (8,), generator=generator), torch.arange(5) * 2,
        torch.ones(4), torch.arange(4), torch.zeros(4, dtype=torch.int64), max_drafts=2,
        proposal=Proposal(probs=probs),
    )  # fmt: skip
    found: list[list[int]] = tokens.tolist()
    return found


def test_same_tokens_and_the_language_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(interpreter._patch_lang, PatchOnce)
    load = tl.load
    quick = emitted()
    assert tl.load is load
    monkeypatch.setattr(interpreter, "_patch_lang", interpreter._patch_lang._patch)
    assert emitted() == quick
