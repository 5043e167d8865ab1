"""Trials a second on a GPU: the samplers alone, and the whole loop around them.

Called by ``benchmarks/trials.py`` where there is a GPU.  *Alone* is the sampler called again and
again on batches that the loop would hand to it; *loop* is ``run_trials`` on the same case: drafts
drawn, batch filled, sampler called, emission checked and completed, every table counted.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

import peers

from specverify.cases import Case
from specverify.checks.tables import tables_of
from specverify.checks.verdict import Family
from specverify.contract import Batch, Capabilities, Emission
from specverify.subjects import Subject
from specverify.trials import Outcomes, device_block, run_block, run_trials, stream_of

LOSSLESS = (Family.INDEPENDENCE, Family.LAW)
LOOP_SECONDS = 0.2
"""How long a sampler alone would take for the trials of one run of the loop, 10 to 40 blocks."""
EVERYTHING = (Family.INDEPENDENCE, Family.LAW, Family.COUPLING)


class VllmSampler:
    """VLLM's V2 ``rejection_sample`` behind the contract, for random requests of k drafts at T = 1.

    What an engine keeps from step to step (index maps) is made once; the draft logits that it
    takes instead of q, its order of the drafts and the padding are made in every call, and
    ``alone`` leaves them out.
    """

    capabilities = Capabilities(
        one_hot=False, greedy=False, zero_drafts=False, per_request_seeds=True, devices=("cuda",)
    )

    def __init__(self) -> None:
        module = peers.load("vllm", "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils")
        self._sample = module.rejection_sample
        self._maps: tuple[torch.Tensor, ...] = ()

    def arguments(self, batch: Batch) -> tuple[object, ...]:
        """What ``rejection_sample`` takes."""
        b, k, home = batch.num_requests, batch.max_drafts, batch.device
        if not self._maps or self._maps[0].shape[0] != b:
            index = torch.arange(b, dtype=torch.int32, device=home)
            local = torch.arange(k + 1, dtype=torch.int32, device=home).repeat(b)
            rows = (torch.arange(b + 1, device=home) * (k + 1)).int()
            self._maps = index, index.repeat_interleave(k + 1), local, rows
        index, expanded, local, rows = self._maps
        assert batch.draft_probs is not None
        sampled = torch.zeros(b, k + 1, dtype=torch.int64, device=home)
        sampled[:, 1:] = batch.draft_token_ids.view(b, k)
        places = batch.positions[:, None] + torch.arange(k + 1, device=home)
        return (
            batch.target_logits, batch.draft_probs.log().view(b, k, -1), sampled.view(-1), rows,
            places.view(-1), index, expanded, local, batch.temperature,
            batch.seeds.view(torch.int64), k,
        )  # fmt: skip

    def __call__(self, batch: Batch, /) -> Emission:
        """Verify a batch."""
        tokens, emitted = self._sample(*self.arguments(batch))
        column = torch.arange(tokens.shape[1], device=tokens.device)
        tokens = torch.where(column < emitted[:, None], tokens.long(), -1)
        return Emission(tokens, emitted.long())

    def alone(self, batch: Batch) -> Callable[[], object]:
        """The engine's own call, its arguments ready."""
        ready = self.arguments(batch)
        return lambda: self._sample(*ready)


def subjects() -> Iterator[Subject]:
    """Those that this machine has."""
    from specverify.kernels import triton_chain

    yield Subject.of(triton_chain, "triton")
    if peers.version("vllm"):
        yield Subject.of(VllmSampler(), f"vllm {peers.version('vllm')}")


def seconds(call: Callable[[], object], repeats: int = 7) -> float:
    """Median wall time of a call, the device drained before and after."""
    call()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def alone(subject: Subject, case: Case, trials: int) -> tuple[float, float]:
    """Trials a second of the sampler behind the contract, and of the engine's own call."""
    from specverify._device_blocks import DeviceBlocks

    builder = DeviceBlocks(case, stream_of(1, case), "cuda", 0, subject.capabilities)
    batches = [builder.build(2 * number * trials, trials).batch for number in range(3)]

    def rate(calls: list[Callable[[], object]]) -> float:
        def several() -> None:
            for _ in range(5):
                for call in calls:
                    call()

        return 15 * trials / seconds(several)

    sampler = subject.sampler
    behind = rate([lambda one=one: sampler(one) for one in batches])
    bare = [sampler.alone(one) for one in batches] if hasattr(sampler, "alone") else None
    return behind, rate(bare) if bare else behind


def loop(subject: Subject, case: Case, families: tuple[Family, ...], trials: int) -> float:
    """Trials a second of ``run_trials``."""
    tables = tables_of(case, families, subject.capabilities)

    def run() -> None:
        run_trials(subject, case, tables, root_seed=1, trials=trials, device="cuda")

    return trials / seconds(run, 3)


def parts(subject: Subject, case: Case, trials: int) -> str:
    """Where the time of one block of the loop goes, each part by itself."""
    from specverify._device_blocks import DeviceBlocks

    tables = tables_of(case, LOSSLESS, subject.capabilities)
    builder = DeviceBlocks(case, stream_of(1, case), "cuda", 5, subject.capabilities)
    block = builder.build(0, trials)
    emission = subject.sampler(block.batch)
    outcomes: Outcomes = run_block(subject, builder, 0, trials)
    counter = builder.counter({table.name: table.cells for table in tables})

    calls = {
        "build": lambda: builder.build(trials, trials),
        "sampler": lambda: subject.sampler(block.batch),
        "read": lambda: builder.account(emission, block, 0),
        f"count {len(tables)} tables": lambda: counter.count(tables, outcomes),
        "all but counting": lambda: run_block(subject, builder, trials, trials),
    }
    return ", ".join(f"{name} {seconds(call) * 1e6:.0f} us" for name, call in calls.items())


def main(case: Case) -> None:
    """Print one line for each sampler."""
    if importlib.util.find_spec("triton") is None:
        print("no triton: trials run on the CPU")
        return
    trials = device_block(case, "cuda")
    print(f"{torch.cuda.get_device_name()}, {trials:,} trials a call, {case.name}")
    print(f"{'sampler':<12} {'own call':>10} {'contract':>10} {'loop':>10} {'+ coupling':>10}")
    for subject in subjects():
        behind, own = alone(subject, case, trials)
        planned = max(10, min(40, int(behind * LOOP_SECONDS / trials))) * trials
        whole = loop(subject, case, LOSSLESS, planned)
        more = loop(subject, case, EVERYTHING, planned)
        print(
            f"{subject.name:<12} {own:>10.3g} {behind:>10.3g} {whole:>10.3g} {more:>10.3g}"
            f"   loop / own call {whole / own:.0%}, / contract {whole / behind:.0%}",
            flush=True,
        )
        print(f"  {parts(subject, case, trials)}", flush=True)
