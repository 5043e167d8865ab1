"""Compiles the kernels of the trial loop for an architecture, without a GPU; prints one line each.

Run by ``test_kernels_build.py`` in a process of its own, where the interpreter is off.
"""

from __future__ import annotations

import sys
from typing import Any

import triton
from specverify.kernels._machine_code import conditional_collectives, machine_code
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from specverify import _device_kernels as kernels
from specverify import _device_sizes as sizes

TYPES = {"cdf": "*fp64", "flag": "*i32", "plan": "*i32", "columns": "*i16", "key": "i64",
         "seed_base": "i64", "first_trial": "i64"}  # fmt: skip
ROWS = ("logits_table", "probs_table", "logits", "probs")
WHOLE = ("ids", "seeds", "tokens", "emitted", "recipes", "counts", "index")


def build(kernel: Any, architecture: int, logits: str, warps: int = 4, **constants: object) -> None:
    known = {**dict.fromkeys(ROWS, logits), **dict.fromkeys(WHOLE, "*i64"), **TYPES}
    names = kernel.arg_names
    signature = {
        name: known.get(name, "constexpr" if name in constants else "i32") for name in names
    }
    places = {(names.index(name),): value for name, value in constants.items()}
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(names)
        if known.get(name, "").startswith("*")
    }
    source = ASTSource(kernel, signature, places, aligned)
    built = triton.compile(
        source, target=GPUTarget("cuda", architecture, 32), options={"num_warps": warps}
    )
    conditional = conditional_collectives(machine_code(built.asm["cubin"]))
    print(  # noqa: T201
        f"{kernel.__name__} {logits} {len(built.asm['cubin'])} B"
        f"  conditional reductions: {', '.join(conditional) or 'none'}"
    )


if __name__ == "__main__":
    sm = int(sys.argv[1])
    for dtype, dense, vocab in (("*fp32", True, 16), ("*bf16", False, 256), ("*fp32", True, 5)):
        lanes = max(2, triton.next_power_of_2(vocab))
        build(
            kernels.fill_kernel, sm, dtype, sizes.FILL_WARPS, DENSE=dense, MIXED=dense,
            VOCAB=vocab, BLOCK=sizes.fill_block(lanes), LANES=lanes,
            STEP=sizes.FILL_STEP,
        )  # fmt: skip
    block = {"VOCAB": 16, "BLOCK": sizes.READ_BLOCK, "LANES": 16}
    build(kernels.read_kernel, sm, "", sizes.READ_WARPS, **block)
    for bins in (*sizes.BINS, 0):
        build(kernels.tables_kernel, sm, "", sizes.COUNT_WARPS, CHUNK=sizes.COUNT_CHUNK, BINS=bins)
    build(kernels.count_kernel, sm, "", CHUNK=sizes.COUNT_CHUNK)
