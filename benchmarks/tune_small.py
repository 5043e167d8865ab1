"""Times the ways to cut the kernel of small vocabularies, and the kernels of the trial loop.

    python benchmarks/tune_small.py [small] [loop]

CUDA graphs; the batches are those of the trial loop and do not fit into the cache.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from specverify.kernels import Proposal, triton_chain, verify_small
from timing import graph_us

from specverify import _device_blocks
from specverify._device_blocks import DeviceBlocks
from specverify.cases import Case, RequestSpec, make_case
from specverify.checks.tables import tables_of
from specverify.checks.verdict import Family
from specverify.contract import Batch, Capabilities
from specverify.subjects import Subject
from specverify.trials import DEVICE_ELEMENTS, run_block, stream_of

CASES = ((16, 4, True, "float32"), (16, 4, True, "bfloat16"), (16, 4, False, "float32"),
         (64, 2, True, "float32"), (256, 1, True, "bfloat16"))  # fmt: skip
CUTS = ((512, 1), (512, 2), (1024, 1), (1024, 2), (1024, 4), (2048, 2), (2048, 4), (4096, 8))
TABLES = (Family.LAW, Family.INDEPENDENCE, Family.COUPLING)


def _builder(case: Case) -> tuple[DeviceBlocks, int]:
    trials = DEVICE_ELEMENTS // (case.num_rows * case.vocab_size) // 2 * 2
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


def loop() -> None:
    """Trials a program of the filling and reading kernels, and the chunks of the counting one."""
    case = make_case("random/dense-V16-K4", 16, (RequestSpec(drafts=4),), True)
    builder, trials = _builder(case)
    for size in (32, 64, 128, 256):
        builder._block = size
        block = builder.build(0, trials)
        emission = triton_chain(block.batch)
        fill = graph_us([lambda: builder.build(trials, trials)], replays=5)
        read = graph_us(
            [lambda block=block, out=emission: builder.account(out, block, 0)], replays=5
        )
        print(f"{size} trials a program: fill {fill:.0f} us, read {read:.0f} us", flush=True)
    outcomes = run_block(Subject.of(triton_chain, "triton"), builder, 0, trials)
    for families in (TABLES[:2], TABLES):
        tables = tables_of(case, families, Capabilities())
        for chunk in (1024, 2048, 4096):
            _device_blocks._CHUNK = chunk
            counter = builder.counter({table.name: table.cells for table in tables})
            counter.count(tables, outcomes)
            us = graph_us([lambda one=counter, those=tables: one.count(those, outcomes)], replays=5)
            print(f"count {len(tables)} tables, {chunk} trials a program: {us:.0f} us", flush=True)


if __name__ == "__main__":
    torch.cuda.init()
    for name in sys.argv[1:] or ("small", "loop"):
        {"small": small, "loop": loop}[name]()
