"""What ``precompile`` builds of the kernels that filter."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from specverify.kernels._launch_filtered import FilterPlan, lanes_of
from specverify.kernels.filtered import decide_kernel, read_kernel
from specverify.kernels.filters import apply_kernel, cut_kernel

Form = tuple[str, Any, dict[str, str], dict[str, Any]]
"""Name, kernel, types of the pointers, constants."""

_LOGITS = {"bf16": "*bf16", "fp16": "*fp16", "fp32": "*fp32"}
_UNITS = {"bf16": 1 << 16, "fp16": 1 << 13, "fp32": 1}
_TYPES = {
    "*fp32": (
        "temperature", "draft_temperature", "top_ps", "min_ps", "max_ptr", "sum_ptr", "q_max",
        "q_sum",
    ),
    "*i64": (
        "drafts", "cu_drafts", "top_ks", "seeds", "positions", "words", "drawn", "outcomes",
        "tokens", "emitted", "marks",
    ),
    "*fp64": ("accept_coins", "final_coins"),
    "*i16": ("keys_ptr",),
    "*i32": ("list_ptr",),
}  # fmt: skip


def _pointers(kernel: Any, logits: str, q: int) -> dict[str, str]:
    types = {name: kind for kind, names in _TYPES.items() for name in names}
    types |= {"logits": logits, "out": logits, "q_ptr": "*fp32" if q == 1 else logits}
    return {name: kind for name, kind in types.items() if name in kernel.arg_names}


def forms() -> Iterator[Form]:
    """Every dtype, form of q and order of the filters; the wide form once for each order.

    Of one dtype also what small batches of other vocabularies take.
    """
    for (dtype, logits), q in itertools.product(_LOGITS.items(), (0, 1, 2)):
        coins = dtype == "fp32"
        fixed = {
            "Q": q, "COINS": coins, "WIDE": coins and q == 2, "CLEAN": coins, "TILE": 1024,
            "UNIT": _UNITS[dtype], "LANES": 8, "AT_ONCE": 16, "TILES": 128, "WIDTH": 32,
            "STEPS": 4, "STAGES": 3, "OVERLAP": False,
        }  # fmt: skip
        kernels = {"read": read_kernel, "decide": decide_kernel}
        if q == 0:
            kernels |= {"cut": cut_kernel, "apply": apply_kernel}
        for name, kernel in kernels.items():
            constants = {key: fixed[key] for key in fixed if key in kernel.arg_names}
            if name == "apply":
                constants = {"IN_PLACE": False, "BLOCK": 4096}
            for label, more in _orders(kernel):
                yield (
                    f"filter {name} {dtype} q={q}{label}", kernel, _pointers(kernel, logits, q),
                    {**constants, **more},
                )  # fmt: skip
                if q == 0 and dtype == "bf16" and "TILES" in constants:
                    for vocab in (33, 3_000, 32_000):
                        yield (
                            f"filter {name} V={vocab}{label}", kernel, _pointers(kernel, logits, q),
                            {**constants, **more, **_cut(vocab)},
                        )  # fmt: skip


def _cut(vocab: int) -> dict[str, Any]:
    """How one row of a vocabulary is cut in small batches."""
    plan = FilterPlan.of(4, vocab)
    lanes = lanes_of(-(-vocab // plan.tile))
    return {
        "TILE": plan.tile, "TILES": lanes, "num_warps": plan.num_warps, "AT_ONCE": plan.at_once,
    }  # fmt: skip


def _orders(kernel: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each order of the filters adds to a form's name and constants, if the kernel has one."""
    if "SEQUENTIAL" in kernel.arg_names:
        yield "", {"SEQUENTIAL": False}
        yield " sequential", {"SEQUENTIAL": True}
    else:
        yield "", {}
