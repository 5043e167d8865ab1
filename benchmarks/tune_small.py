"""Times the ways to cut the kernel of small vocabularies.

    python benchmarks/tune_small.py

CUDA graphs; the batches are those of the trial loop and do not fit into the cache.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from specverify.kernels import Proposal, verify_small
from timing import graph_us

from specverify._device_blocks import DeviceBlocks
from specverify.cases import Case, RequestSpec, make_case
from specverify.contract import Batch, Capabilities
from specverify.trials import stream_of

CASES = ((16, 4, True, "float32"), (16, 4, True, "bfloat16"), (16, 4, False, "float32"),
         (64, 2, True, "float32"), (256, 1, True, "float16"))  # fmt: skip
CUTS = ((512, 1), (512, 2), (1024, 1), (1024, 2), (1024, 4), (2048, 2), (2048, 4), (4096, 8))
LOGITS = 1 << 26
"""Of one batch."""


def _builder(case: Case) -> tuple[DeviceBlocks, int]:
    trials = LOGITS // (case.num_rows * case.vocab_size) // 2 * 2
    return DeviceBlocks(case, stream_of(1, case), "cuda", 5, Capabilities()), trials


def small() -> None:
    """Tile and warps of ``verify_small``."""
    for vocab, drafts, dense, dtype in CASES:
        spec = RequestSpec(drafts=drafts)
        case = make_case(f"tune {vocab} {drafts} {dense}", vocab, (spec,), dense, dtype)
        builder, trials = _builder(case)
        batches = [builder.build(number * trials, trials).batch for number in range(2)]
        found = [(_verify_us(batches, *cut), cut) for cut in CUTS]
        best = "  ".join(f"{tile}/{warps} {us:.0f} us" for us, (tile, warps) in sorted(found))
        rate = trials / min(found)[0] * 1e6
        kind = "dense" if dense else "one-hot"
        print(f"V={vocab} K={drafts} {kind} {dtype}: {rate:.2e} trials/s  {best}", flush=True)


def _verify_us(batches: list[Batch], tile: int, warps: int) -> float:
    calls = [
        lambda one=one: verify_small(
            one.target_logits, one.draft_token_ids, one.cu_drafts, one.temperature, one.seeds,
            one.positions, max_drafts=one.max_drafts, proposal=Proposal(probs=one.draft_probs),
            tile=tile, num_warps=warps,
        )
        for one in batches
    ]  # fmt: skip
    return graph_us(calls, replays=5)


if __name__ == "__main__":
    torch.cuda.init()
    small()
