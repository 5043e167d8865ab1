"""What ``precompile`` builds of the chain kernels: every type of row, every plan that is chosen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from specverify.kernels._launch import Plan, constants_of
from specverify.kernels.chain import ONE_HOT, chain_kernel
from specverify.kernels.chain_rounds import rounds_kernel

Form = tuple[str, Any, dict[str, str], dict[str, Any]]
"""Name, kernel, types of the pointers, constants (and, as at a launch, options)."""

_LOGITS = {"bf16": "*bf16", "fp16": "*fp16", "fp32": "*fp32"}
_VOCABS = (16, 300, 1025, 4099, 17_000, 32_000, 128_256, 151_936)
_ROWS = (1, 40, 400, 2_000, 10_000, 1_000_000)


def _pointers(logits: str, q: str) -> dict[str, str]:
    return {
        "logits": logits, "drafts": "*i64", "q_ptr": q, "cu_drafts": "*i64",
        "temperature": "*fp32", "draft_temperature": "*fp32", "seeds": "*i64",
        "positions": "*i64", "accept_coins": "*fp64", "final_coins": "*fp64", "pairs": "*i64",
        "verdicts": "*i64", "epochs": "*i64", "counters": "*i64", "tokens": "*i64",
        "emitted": "*i64",
    }  # fmt: skip


def forms() -> Iterator[Form]:
    """Every dtype, form of q and kind of coins; then the plans."""
    for dtype, q, coins in itertools.product(_LOGITS, (0, 1, 2), (False, True)):
        pointers = _pointers(_LOGITS[dtype], "*fp32" if q == 1 else _LOGITS[dtype])
        constants = {
            "Q": q, "COINS": coins, "UNIFORM": not coins, "TILE": 1024, "GROUP": 4,
            "STEPS": 1 if coins else 4, "STEPS_1": 1 if coins else 4, "STAGES": 1 if coins else 3,
            "EARLY": int(not coins), "LANES": 4, "TILES": 128, "WIDTH": 128,
            "OVERLAP": 0,
        }  # fmt: skip
        yield f"chain {dtype} q={q} coins={int(coins)}", chain_kernel, pointers, constants
        if dtype == "bf16" and not coins:
            yield f"rounds {dtype} q={q}", rounds_kernel, pointers, {**constants, "EARLY": 64}
    yield from _plans()


def _plans() -> Iterator[Form]:
    """Every plan that ``Plan.of`` chooses, with bf16 logits and coins of the seeds."""
    for q in (0, 1, 2):
        seen = set()
        for vocab, rows in itertools.product(_VOCABS, _ROWS):
            plan = Plan.of(rows, vocab, dense=q != ONE_HOT)
            tiles = -(-vocab // plan.tile)
            constants = constants_of(plan, q, False, False, tiles, 4, rounds=plan.rounds, overlap=0)
            if (plan, constants) in seen:
                continue
            seen.add((plan, constants))
            kernel = rounds_kernel if plan.rounds else chain_kernel
            names = kernel.arg_names[-len(constants) :]
            yield (
                f"plan q={q} V={vocab} R={rows}", kernel,
                _pointers("*bf16", "*fp32" if q == 1 else "*bf16"),
                {**dict(zip(names, constants, strict=True)), **dict(plan.options)},
            )  # fmt: skip
