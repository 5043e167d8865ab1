"""Checks of ``gpu_checks.py``: filters, memory that grows or is declared, sanitizers, suites."""

from __future__ import annotations

import concurrent.futures
import itertools
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from kernel_batches import random_batch
from kernel_budget import disagreements
from specverify.kernels import (
    Filters,
    FilterWorkspace,
    Proposal,
    TritonChain,
    Workspace,
    filter_logits,
    triton_chain,
    triton_vllm,
    verify_chain,
    verify_filtered,
)

from specverify.checks.oracle import reference_for
from specverify.contract import Batch
from specverify.memory import LAYOUTS, Shape
from specverify.sampling import CONVENTIONS

ROOT = Path(__file__).resolve().parent.parent
_CALLS = 100_000
_SECONDS = 55.0


def with_filters(batch: Batch, generator: torch.Generator) -> Batch:
    """The batch with one of four filters, or none, for each request."""
    device = batch.device
    pick = torch.randint(5, (batch.num_requests,), device=device, generator=generator)
    return batch.replace(
        check_values=False,
        top_k=torch.tensor([0, 50, 0, 20, 300], device=device)[pick],
        top_p=torch.tensor([1.0, 1.0, 0.9, 0.8, 0.99], device=device)[pick],
        min_p=torch.tensor([0.0, 0.0, 0.0, 0.02, 0.0], device=device)[pick],
    )


_HARD = ((0, 0.9, 0.0), (50, 1.0, 0.0), (20, 0.8, 0.02), (1000, 0.99, 0.0), (0, 0.999, 0.0),
         (0, 1.0, 0.05), (300, 0.5, 0.0), (1, 1.0, 0.0), (0, 1.0, 0.0))  # fmt: skip


def _hard(batch: Batch, generator: torch.Generator) -> Batch:
    """The batch with filters that keep one token, a few, thousands, or all."""
    pick = torch.randint(len(_HARD), (batch.num_requests,), device="cuda", generator=generator)
    k, p, m = (torch.tensor(column, device="cuda")[pick] for column in zip(*_HARD, strict=True))
    return batch.replace(check_values=False, top_k=k, top_p=p, min_p=m)


def _filters_part(job: tuple[torch.dtype, bool, str]) -> tuple[int, int, list[str]]:
    """One dtype and form of q in a process of its own, so that kernels compile side by side."""
    dtype, dense, convention = job
    sampler = TritonChain(convention=convention, small_vocab=0)
    right = reference_for(sampler.capabilities)
    generator = torch.Generator(device="cuda").manual_seed(18)
    total = differ = 0
    unlawful = []
    for vocab in (40, 257, 32000, 128256, 151936):
        for _ in range(3):
            batch = random_batch(generator, vocab, 96, 4, dtype, dense=dense, coins=True)
            batch = _hard(batch, generator)
            found = disagreements(batch, sampler(batch), right(batch), CONVENTIONS[convention])
            total += 96
            differ += len(found)
            unlawful += [f"  V={vocab} {dtype} dense={dense}: {x}" for x in found if not x.lawful]
    return total, differ, unlawful


def filters() -> tuple[bool, str]:
    """Filtered targets token for token under injected coins, mixed with requests without filters.

    Top-p counts exponentials in fp32: where a boundary is nearer than 1e-6 one token more or less
    may stay, which the budget of an unfiltered row does not know; so three requests may differ.
    """
    return _filters_under("reference")


def sequential() -> tuple[bool, str]:
    """The same as ``filters`` under vLLM's convention: top-p counts on what is left before it."""
    return _filters_under("vllm")


def _filters_under(convention: str) -> tuple[bool, str]:
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    jobs = list(itertools.product(dtypes, (True, False), (convention,)))
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(6, mp_context=context) as pool:
        parts = list(pool.map(_filters_part, jobs))
    for part in parts:
        print(*part[2][:5], sep="\n", end="\n" if part[2] else "")
    beyond = sum(len(part[2]) for part in parts)
    total, differ = (sum(part[i] for part in parts) for i in (0, 1))
    return beyond <= 3, (
        f"{total} requests, {differ} differ, {beyond} beyond the budget of an unfiltered row"
    )


def _plain(batch: Batch, width: int, workspace: Workspace) -> tuple[torch.Tensor, torch.Tensor]:
    return verify_chain(
        batch.target_logits, batch.draft_token_ids, batch.cu_drafts, batch.temperature,
        batch.seeds, batch.positions, max_drafts=width, proposal=Proposal(probs=batch.draft_probs),
        workspace=workspace,
    )  # fmt: skip


def _filtered(
    batch: Batch, width: int, workspace: FilterWorkspace
) -> tuple[torch.Tensor, torch.Tensor]:
    return verify_filtered(
        batch.target_logits, batch.draft_token_ids, batch.cu_drafts, batch.temperature,
        batch.seeds, batch.positions, Filters(batch.top_k, batch.top_p, batch.min_p),
        max_drafts=width, proposal=Proposal(probs=batch.draft_probs), workspace=workspace,
    )  # fmt: skip


def soak() -> tuple[bool, str]:
    """1e5 calls of changing shapes, one in ten filtered: memory does not grow, tokens stay."""
    generator = torch.Generator(device="cuda").manual_seed(17)
    pool = [
        with_filters(random_batch(
            generator, (257, 1025, 8192)[index % 3], 1 + 7 * (index % 9), index % 7,
            torch.bfloat16, dense=index % 2 == 0, coins=False,
        ), generator)
        for index in range(60)
    ]  # fmt: skip
    widths = [batch.max_drafts for batch in pool]
    plain, filtered = Workspace("cuda"), FilterWorkspace("cuda")

    def call(index: int) -> tuple[torch.Tensor, torch.Tensor]:
        batch, width = pool[index % 60], widths[index % 60]
        if index // 60 % 10 == 9:
            return _filtered(batch, width, filtered)
        return _plain(batch, width, plain)

    first = [call(index) for index in range(600)]
    torch.cuda.synchronize()
    base, start, done = torch.cuda.memory_allocated(), time.monotonic(), 0
    reserved = torch.cuda.memory_reserved()
    while done < _CALLS and time.monotonic() - start < _SECONDS:
        for index in range(600):
            call(index)
        done += 600
    torch.cuda.synchronize()
    seconds = time.monotonic() - start
    last = [call(index) for index in range(600)]
    same = all(torch.equal(a, b) for old, new in zip(first, last, strict=True)
               for a, b in zip(old, new, strict=True))  # fmt: skip
    del last
    torch.cuda.synchronize()
    grown = torch.cuda.memory_allocated() - base + torch.cuda.memory_reserved() - reserved
    good = grown == 0 and same and done >= _CALLS
    return good, f"{done} calls in {seconds:.0f} s, {grown} bytes more, same tokens: {same}"


def _peak(call: Callable[[], object]) -> int:
    """Bytes that one call allocates at most beside what is there."""
    call()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = call()
    torch.cuda.synchronize()
    del kept
    return torch.cuda.max_memory_allocated() - before


def memory() -> tuple[bool, str]:
    """The peak of a call without a workspace is at most what ``specverify.memory`` declares."""
    generator = torch.Generator(device="cuda").manual_seed(19)
    good, lines = True, []
    for layout, dense, filters in (
        ("triton", True, False), ("triton-one-hot", False, False), ("triton-filtered", False, True),
    ):  # fmt: skip
        for requests, drafts in ((8, 3), (64, 7)):
            batch = _even(generator, requests, drafts, 128256, dense=dense)
            if filters:
                batch = with_filters(batch, generator)
            plan = LAYOUTS[layout](Shape(requests, drafts, 128256, "bfloat16"))
            peak = _peak(lambda batch=batch: TritonChain()(batch))
            # The allocator hands out multiples of 512 bytes, to a dozen tensors; flags are small.
            allowed = plan.extra + 16 * 512
            good &= peak <= allowed
            lines.append(f"{layout} B={requests} K={drafts}: {peak} of {plan.extra} bytes")
    return good, "; ".join(lines)


def _even(generator: torch.Generator, b: int, k: int, vocab: int, *, dense: bool) -> Batch:
    """A batch in which every request has k drafts, as a memory plan takes it."""
    one = random_batch(
        generator, 8, b, 0, torch.bfloat16, dense=False, coins=False, greedy=0.0, gaps=0.0
    )
    rows, device = b * (k + 1), generator.device
    q = torch.rand(b * k, vocab, device=device, generator=generator) if dense else None
    return one.replace(
        check_values=False,
        target_logits=torch.randn(rows, vocab, device=device, generator=generator).bfloat16(),
        draft_token_ids=torch.randint(vocab, (b * k,), device=device, generator=generator),
        draft_probs=None if q is None else q / q.sum(1, keepdim=True),
        cu_drafts=torch.arange(b + 1, device=device) * k,
    )


def sanitize() -> tuple[bool, str]:
    """Every kernel once on tiny shapes; run it under ``compute-sanitizer --tool ...``.

    Run it once without the tool before: that fills Triton's cache, and compiling is most of it.
    """
    generator = torch.Generator(device="cuda").manual_seed(20)
    count, chain = 0, TritonChain(small_vocab=0)
    for vocab, dense, coins in ((300, True, False), (300, True, True), (2100, False, False)):
        batch, tiny = (
            random_batch(generator, size, 4, 2, torch.bfloat16, dense=dense, coins=coins)
            for size in (vocab, 60)
        )
        for sampler, one in (
            (triton_chain, with_filters(tiny, generator)),
            (triton_vllm, with_filters(tiny, generator)), (chain, batch), (triton_chain, batch),
            (triton_vllm, with_filters(batch, generator)),
            (triton_chain, with_filters(batch, generator)),
        ):  # fmt: skip
            out = sampler(one)
            assert bool((out.token_ids < vocab).all()), f"V={vocab}: {out.token_ids.tolist()}"
            count += int(out.num_emitted.sum())
        for convention in ("reference", "vllm"):
            filtered = filter_logits(
                one.target_logits, one.cu_drafts, one.temperature, one.top_k, one.top_p, one.min_p,
                max_drafts=one.max_drafts, convention=convention,
            )  # fmt: skip
            count += int(filtered.isfinite().any(1).sum())
    for name, verify in _others().items():
        batch = random_batch(generator, 60, 4, 2, torch.bfloat16, dense=True, coins=False)
        tokens, _ = verify(
            batch.target_logits, batch.draft_token_ids, batch.cu_drafts, batch.temperature,
            batch.seeds, batch.positions, max_drafts=batch.max_drafts,
            proposal=Proposal(probs=batch.draft_probs),
        )  # fmt: skip
        assert bool((tokens[:, 0] >= 0).all()), name
        count += int((tokens >= 0).sum())
    torch.cuda.synchronize()
    return count > 0, f"{count} tokens"


def _others() -> dict[str, Callable[..., tuple[torch.Tensor, torch.Tensor]]]:
    """The kernels for small vocabularies and for block verification."""
    from specverify.kernels._launch_block import verify_block
    from specverify.kernels._launch_small import verify_small

    return {"small": verify_small, "block": verify_block}


def suites() -> tuple[bool, str]:
    """The gate profile of every suite with ``--sampler triton --device cuda``; minutes."""
    out = Path(os.environ.get("OUT", str(ROOT / "specverify-out"))) / "gpu-suites"
    command = [
        sys.executable, "-c", "from specverify.cli import main; main()", "run", "--sampler",
        "specverify.kernels:triton_chain", "--device", "cuda", "--profile", "gate",
        "--out", str(out), *os.environ.get("SPECVERIFY_SUITES", "").split(),
    ]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (run.stdout + run.stderr).strip().splitlines()
    print(*said[-40:], sep="\n")
    return run.returncode == 0, f"exit code {run.returncode}; results in {out.name}/"
