"""Compiles the kernels of the trial loop for an architecture, without a GPU; prints one line each.

Run by ``test_kernels_build.py`` in a process of its own, where the interpreter is off.
"""

from __future__ import annotations

import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from specverify import _device_kernels as kernels

REALS = {"cdf": "*fp64", "flag": "*i32"}
ROWS = ("logits_table", "probs_table", "logits", "probs")
WHOLE = ("plan", "ids", "seeds", "tokens", "emitted", "columns", "recipes", "counts", "index")


def build(kernel: Any, architecture: int, logits: str, **constants: object) -> None:
    known = {**REALS, **dict.fromkeys(ROWS, logits), **dict.fromkeys(WHOLE, "*i64")}
    names = kernel.arg_names
    signature = {
        name: known.get(name, "constexpr" if name in constants else "i64") for name in names
    }
    places = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, places)
    built = triton.compile(source, target=GPUTarget("cuda", architecture, 32))
    print(f"{kernel.__name__} {logits} {len(built.asm['cubin'])} B")  # noqa: T201


if __name__ == "__main__":
    sm = int(sys.argv[1])
    build(kernels.fill_kernel, sm, "*fp32", DENSE=True, MIXED=True, BLOCK=128, LANES=16)
    build(kernels.fill_kernel, sm, "*bf16", DENSE=False, MIXED=False, BLOCK=8, LANES=256)
    build(kernels.read_kernel, sm, "", BLOCK=128, LANES=16)
    build(kernels.tables_kernel, sm, "", CHUNK=2048, BINS=1024)
    build(kernels.count_kernel, sm, "", CHUNK=2048, BINS=1024)
