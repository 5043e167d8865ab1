"""Compile every kernel to machine code without a GPU: ``python -m specverify.kernels.precompile``.

A kernel that runs in the interpreter may still not compile.  This builds each one for an
architecture and every form of its compile-time arguments, and returns what it costs.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import triton
from specverify.kernels._forms import forms as small_and_block_forms
from specverify.kernels._forms_filtered import forms as filter_forms
from specverify.kernels._machine_code import conditional_collectives, machine_code
from specverify.kernels.chain import chain_kernel
from specverify.kernels.chain_rounds import rounds_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

OPTIONS: dict[str, Any] = {}
"""More compiler options, for experiments."""

_LOGITS = {"bf16": "*bf16", "fp16": "*fp16", "fp32": "*fp32"}


@dataclasses.dataclass(frozen=True)
class Built:
    """One compiled kernel.

    Attributes:
        name: kernel and form.
        bytes: size of the cubin.
        shared: bytes of shared memory a program needs.
        conditional: reductions over a warp that run under a condition; there should be none
            (:mod:`._machine_code`).
    """

    name: str
    bytes: int
    shared: int
    conditional: tuple[str, ...]


def _chain_signature(logits: str, q: str) -> dict[str, str]:
    return {
        "logits": logits, "drafts": "*i64", "q_ptr": q, "cu_drafts": "*i64",
        "temperature": "*fp32", "draft_temperature": "*fp32", "seeds": "*i64",
        "positions": "*i64", "accept_coins": "*fp64", "final_coins": "*fp64", "pairs": "*i64",
        "outcomes": "*i64", "counters": "*i64", "tokens": "*i64", "emitted": "*i64",
    }  # fmt: skip


def _forms() -> Iterator[tuple[str, Any, dict[str, str], dict[str, Any]]]:
    """Name, kernel, types of the pointers, constants."""
    for dtype, q, coins in itertools.product(_LOGITS, (0, 1, 2), (False, True)):
        pointers = _chain_signature(_LOGITS[dtype], "*fp32" if q == 1 else _LOGITS[dtype])
        constants = {
            "Q": q, "COINS": coins, "UNIFORM": not coins, "TILE": 1024, "GROUP": 4,
            "STEPS": 1 if coins else 4, "STEPS_1": 1 if coins else 4, "STAGES": 1 if coins else 3,
            "EARLY": int(not coins), "LANES": 4, "TILES": 128, "WIDTH": 128,
        }  # fmt: skip
        yield f"chain {dtype} q={q} coins={int(coins)}", chain_kernel, pointers, constants
        if dtype == "bf16" and not coins:
            yield f"rounds {dtype} q={q}", rounds_kernel, pointers, {**constants, "EARLY": 64}
    yield from filter_forms()
    yield from small_and_block_forms()


def build(architecture: int = 90, *only: str) -> Iterator[Built]:
    """Compile for ``sm_<architecture>``: all, or the names that contain one of ``only``."""
    target = GPUTarget("cuda", architecture, 32)
    for name, kernel, pointers, constants in _forms():
        if only and not any(part in name for part in only):
            continue
        signature = {
            arg: pointers.get(arg, "constexpr" if arg in constants else "i64")
            for arg in kernel.arg_names
        }
        # Strides of one token, and rows that start at a multiple of 16, are what a caller has.
        fixed = {**constants, **{arg: 1 for arg in signature if arg.endswith("stride_v")}}
        signature.update(dict.fromkeys(fixed, "constexpr"))
        places = {(kernel.arg_names.index(arg),): value for arg, value in fixed.items()}
        aligned = {
            (i,): [["tt.divisibility", 16]]
            for i, arg in enumerate(kernel.arg_names)
            if arg in pointers or arg == "vocab" or arg.endswith("stride_r")
        }
        source = ASTSource(kernel, signature, places, aligned)
        built = triton.compile(source, target=target, options={"num_warps": 4, **OPTIONS})
        cubin = built.asm["cubin"]
        conditional = tuple(conditional_collectives(machine_code(cubin)))
        yield Built(name, len(cubin), built.metadata.shared, conditional)


if __name__ == "__main__":
    for one in build(int(sys.argv[1]) if len(sys.argv) > 1 else 90, *sys.argv[2:]):
        print(  # noqa: T201
            f"{one.name:32s} cubin {one.bytes:8d} B  shared {one.shared:6d} B"
            f"  conditional reductions: {', '.join(one.conditional) or 'none'}"
        )
