"""What ``precompile`` builds of the kernels for small vocabularies and for block verification."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from specverify.kernels import block
from specverify.kernels._launch_small import WARPS, shape_of
from specverify.kernels.trials import small_kernel

Form = tuple[str, Any, dict[str, str], dict[str, Any]]
"""Name, kernel, types of the pointers, constants."""

_LOGITS = {"bf16": "*bf16", "fp16": "*fp16", "fp32": "*fp32"}
_REALS = ("tops", "masses", "q_tops", "q_masses", "ratios", "accept_coins", "final_coins")
_FILTERS: dict[str, dict[str, Any]] = {
    "": {},
    " filters": {"FILTERED": True},
    " filters sequential": {"FILTERED": True, "SEQUENTIAL": True},
}
_WHOLE = ("drafts", "cu_drafts", "seeds", "positions", "tokens", "emitted", "bests", "lengths")


def _pointers(kernel: Any, logits: str, form: int) -> dict[str, str]:
    types = {
        **dict.fromkeys(_REALS, "*fp64"), **dict.fromkeys(_WHOLE, "*i64"), "passes": "*i32",
        "logits": logits, "q_ptr": "*fp32" if form == 1 else logits, "temperature": "*fp32",
        "top_ks": "*i64", "top_ps": "*fp32", "min_ps": "*fp32",
        "draft_temperature": "*fp32",
    }  # fmt: skip
    return {name: kind for name, kind in types.items() if name in kernel.arg_names}


def forms() -> Iterator[Form]:
    """Every dtype, and every form of q."""
    for (dtype, logits), q in itertools.product(_LOGITS.items(), (0, 1, 2)):
        coins = dtype == "fp32"
        for vocab in (16, 2, 3, 256)[: 4 if dtype == "bf16" else 1]:
            requests, lanes = shape_of(vocab)
            constants = {
                "Q": q, "COINS": coins, "FILTERED": False, "SEQUENTIAL": False, "BLOCK": requests,
                "LANES": lanes, "WIDTH": 8, "num_warps": WARPS,
            }  # fmt: skip
            pointers = _pointers(small_kernel, logits, q)
            for label, more in _FILTERS.items():
                yield (
                    f"small {dtype} q={q} V={lanes}{label}", small_kernel, pointers,
                    {**constants, **more},
                )  # fmt: skip
        if dtype == "bf16" or q == 1:
            yield from _block_forms(dtype, logits, q, coins)


def _block_forms(dtype: str, logits: str, q: int, coins: bool) -> Iterator[Form]:
    tiles = {"TILE": 1024}
    drawn = {"Q": q, "COINS": coins, **tiles}
    constants = {
        block.softmax_kernel: {"DRAFTS": q == 2, **tiles},
        block.ratio_kernel: {"Q": q},
        block.test_kernel: drawn,
        block.last_kernel: {**drawn, "WIDTH": 8},
    }
    for kernel, fixed in constants.items():
        part = kernel.__name__.removesuffix("_kernel")
        yield f"block {part} {dtype} q={q}", kernel, _pointers(kernel, logits, q), fixed
