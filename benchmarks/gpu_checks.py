"""Checks of the kernels that need a GPU; prints one line each and ends with exit code 1 on a fault.

python benchmarks/gpu_checks.py [differential] [streams] [isolation] [large] [soak] [graph] ...
compute-sanitizer --tool racecheck python benchmarks/gpu_checks.py sanitize
"""

from __future__ import annotations

import concurrent.futures
import itertools
import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from gpu_forms import forms
from gpu_soak import filters, memory, sanitize, sequential, soak, suites
from inputs import Case, build
from kernel_batches import random_batch
from kernel_budget import disagreements
from small_checks import block, small, small_filtered
from specverify.kernels import (
    Plan,
    Proposal,
    TritonChain,
    Workspace,
    triton_chain,
    verify_chain,
)

from specverify import evidence
from specverify.contract import Batch, Emission
from specverify.reference import reference

VOCABS = (2, 3, 31, 257, 1025, 4099, 32000, 128256, 151936)
CHAIN = TritonChain(small_vocab=0)
"""The chain kernel for every batch; ``triton_chain`` sends them elsewhere."""
Bets = dict[str, torch.Tensor]
_MANY, _AT_ONCE = 1_000_000, 192
SAMPLERS = {"chain": CHAIN, "routed": triton_chain}


def _differential_part(job: tuple[torch.dtype, bool]) -> tuple[int, int, int, list[str]]:
    """One dtype and form of q in a process of its own, so that kernels compile side by side."""
    dtype, dense = job
    generator = torch.Generator(device="cuda").manual_seed(11)
    total = rows = differ = 0
    unlawful = []
    for vocab in VOCABS:
        for _ in range(20 if vocab < 5000 else 6):
            requests = 300 if vocab < 5000 else 48
            batch = random_batch(generator, vocab, requests, 5, dtype, dense=dense, coins=True)
            right = reference(batch)
            for name, sampler in SAMPLERS.items():
                found = disagreements(batch, sampler(batch), right)
                total += requests
                rows += batch.target_logits.shape[0]
                differ += len(found)
                where = f"  {name} V={vocab} {dtype} dense={dense}"
                unlawful += [f"{where}: {one}" for one in found if not one.lawful]
    return total, rows, differ, unlawful


def differential() -> tuple[bool, str]:
    """Injected coins: token for token against the float64 reference.

    The chain kernel, then the kernels that ``triton_chain`` takes.
    """
    jobs = list(itertools.product((torch.float32, torch.bfloat16, torch.float16), (True, False)))
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(6, mp_context=context) as pool:
        parts = list(pool.map(_differential_part, jobs))
    for part in parts:
        print(*part[3][:5], sep="\n", end="\n" if part[3] else "")
    total, rows, differ = (sum(part[i] for part in parts) for i in range(3))
    beyond = sum(len(part[3]) for part in parts)
    return beyond == 0, (
        f"{total} requests, {rows} rows, {differ} differ, {beyond} of them beyond the float budget"
    )


def streams() -> tuple[bool, str]:
    """Own coins: lengths as the reference's, and all tokens where no dense residual is drawn."""
    generator = torch.Generator(device="cuda").manual_seed(12)
    differ = total = 0
    for vocab in (31, 1025, 32000):
        for dense in (True, False):
            batch = random_batch(generator, vocab, 500, 5, torch.bfloat16, dense=dense, coins=False)
            ours, theirs = CHAIN(batch), reference(batch)
            same = ours.num_emitted == theirs.num_emitted
            if not dense:
                same &= (ours.token_ids == theirs.token_ids).all(1)
            differ += int((~same).sum())
            total += 500
    return differ <= 1, f"{total} requests, {differ} differ"


def isolation() -> tuple[bool, str]:
    """NaN, all -inf and +inf rows change no other request; the same request alone is the same."""
    generator = torch.Generator(device="cuda").manual_seed(13)
    bad, notes = 0, []
    for dense in (True, False):
        batch = random_batch(generator, 4099, 64, 4, torch.float32, dense=dense, coins=False)
        clean = CHAIN(batch)
        first = batch.first_row.tolist()
        logits = batch.target_logits.clone()
        for request, value in ((3, float("nan")), (17, float("-inf")), (40, float("inf"))):
            logits[first[request]] = value
        logits[first[50], 7] = float("inf")
        logits[first[51], 9] = float("nan")
        broken = CHAIN(batch.replace(target_logits=logits, check_values=False))
        others = torch.ones(64, dtype=torch.bool, device="cuda")
        others[[3, 17, 40, 50, 51]] = False
        same = (broken.token_ids == clean.token_ids).all(1) & (
            broken.num_emitted == clean.num_emitted
        )
        bad += int((~same & others).sum())
        inside = (broken.token_ids >= -1) & (broken.token_ids < 4099)
        bad += int((~inside).sum()) + int((broken.num_emitted < 1).sum())
        notes.append(broken.token_ids[[3, 17, 40, 50, 51], 0].tolist())
    return bad == 0, f"{bad} requests touched; first tokens of the broken ones {notes}"


def plans() -> tuple[bool, str]:
    """Every way to cut the rows gives the same tokens within the budget; scratch left as it was."""
    generator = torch.Generator(device="cuda").manual_seed(14)
    unlawful = 0
    for plan in (
        Plan(64, 1, 1, 1, 1), Plan(256, 2, 4, 2), Plan(1024, 2, 1, 1, 1, lanes=2),
        Plan(1024, 2, 4, 3, 2, 96, later=4), Plan(2048, 4, 2, 3, 4, later=8),
        Plan(1024, 4, 8, 3, 4, 96, later=8, wait=64, rounds=True),
        Plan(1024, 2, 1, 2, 4, later=4, rounds=True),
    ):  # fmt: skip
        for dense in (True, False):
            batch = random_batch(generator, 9000, 64, 5, torch.bfloat16, dense=dense, coins=True)
            workspace = Workspace("cuda")
            workspace.pairs(1 << 18, zero=False).fill_(-1)
            workspace.counters(1 << 12).fill_(-1)
            out = verify_chain(
                batch.target_logits, batch.draft_token_ids, batch.cu_drafts, batch.temperature,
                batch.seeds, batch.positions, max_drafts=batch.max_drafts,
                proposal=Proposal(probs=batch.draft_probs), plan=plan, workspace=workspace,
                coins=(batch.coins.accept, batch.coins.final),
            )  # fmt: skip
            found = disagreements(batch, Emission(*out), reference(batch))
            unlawful += sum(not one.lawful for one in found)
            unlawful += int(not workspace.clean)
    return unlawful == 0, f"{unlawful} beyond the budget or scratch left"


def chosen() -> tuple[bool, str]:
    """Every plan that the grid of samplers.py uses, on a batch larger than the GPU takes at once.

    Own coins: lengths as the reference's, all tokens for one-hot drafts, the same tokens in every
    repetition, and the scratch left as it was.
    """
    from tune import chosen as jobs

    generator = torch.Generator(device="cuda").manual_seed(21)
    differ = moved = dirty = 0
    found = {(plan, kind) for plan, kind, _logits, _vocab in jobs()}
    for kind in ("one-hot", "dense"):
        inputs = build(Case(48, 7, 128256, kind, 0.7), generator)
        fields = (inputs.target, inputs.drafts, inputs.cu, inputs.temperature, inputs.seeds,
                  inputs.positions)  # fmt: skip
        zeros = torch.zeros_like(inputs.seeds)
        batch = Batch(
            target_logits=inputs.target, draft_token_ids=inputs.drafts,
            draft_probs=inputs.draft_probs, cu_drafts=inputs.cu, temperature=inputs.temperature,
            top_k=zeros, top_p=torch.ones_like(inputs.temperature),
            min_p=torch.zeros_like(inputs.temperature), seeds=inputs.seeds.view(torch.uint64),
            positions=inputs.positions, check_values=False,
        )  # fmt: skip
        theirs = reference(batch)
        for plan in (plan for plan, form in found if form == kind):
            workspace = Workspace("cuda")
            outs = [
                verify_chain(
                    *fields, max_drafts=7, proposal=Proposal(probs=inputs.draft_probs), plan=plan,
                    workspace=workspace,
                )
                for _ in range(10)
            ]  # fmt: skip
            same = outs[0][1] == theirs.num_emitted
            if kind == "one-hot":
                same &= (outs[0][0] == theirs.token_ids).all(1)
            differ += int((~same).sum())
            moved += sum(not torch.equal(outs[0][0], out[0]) for out in outs)
            dirty += not workspace.clean
    return differ <= 2 and moved == dirty == 0, (
        f"{len(found)} plans, {48 * len(found)} requests, {differ} differ; {moved} repetitions "
        f"changed, {dirty} scratches left dirty"
    )


def wide() -> tuple[bool, str]:
    """More drafts than a request's word holds, and exactly as many."""
    generator = torch.Generator(device="cuda").manual_seed(15)
    unlawful = 0
    for most in (27, 28, 70):
        batch = random_batch(
            generator, 300, 40, most, torch.float32, dense=True, coins=True, spread=0.1, gaps=0.01
        )
        found = disagreements(batch, CHAIN(batch), reference(batch))
        unlawful += sum(not one.lawful for one in found)
    return unlawful == 0, f"{unlawful} beyond the budget"


def law() -> tuple[bool, str]:
    """Own streams: the first two tokens follow the target's law, at least 1e8 trials a case.

    As many as it takes to see a total variation of 0.001 in 4,096 cells, 999 times of 1,000.
    """
    from scipy.stats import chi2

    lines, good = [], True
    for vocab, kind, rounds in (
        (16, "dense", 100), (16, "one-hot", 100), (64, "dense", 190), (64, "one-hot", 190),
    ):  # fmt: skip
        generator = torch.Generator(device="cuda").manual_seed(vocab)
        requests = 1 << 20
        law_logits = torch.randn(3, vocab, device="cuda", generator=generator).mul_(1.5).bfloat16()
        p = torch.softmax(law_logits.double(), 1)
        q = torch.softmax(torch.randn(2, vocab, device="cuda", generator=generator).double(), 1)
        logits = law_logits.repeat(requests, 1)
        probs = q.float().repeat(requests, 1) if kind == "dense" else None
        cu = torch.arange(requests + 1, device="cuda") * 2
        ones = torch.ones(requests, device="cuda")
        counts = torch.zeros(vocab * vocab, dtype=torch.int64, device="cuda")
        workspace = Workspace("cuda")
        for turn in range(rounds):
            drafts = torch.stack([
                torch.multinomial(row, requests, replacement=True, generator=generator) for row in q
            ], 1).reshape(-1)  # fmt: skip
            seeds = torch.arange(requests, device="cuda") + turn * requests
            ids, emitted = verify_chain(
                logits, drafts, cu, ones, seeds, seeds % 7, max_drafts=2,
                proposal=Proposal(probs=probs), workspace=workspace,
            )  # fmt: skip
            rest = torch.multinomial(p[1], requests, replacement=True, generator=generator)
            second = torch.where(emitted > 1, ids[:, 1], rest)
            counts += torch.bincount(ids[:, 0] * vocab + second, minlength=vocab * vocab)
        n = rounds * requests
        expected = (p[0][:, None] * p[1][None, :]).reshape(-1) * n
        statistic = float(((counts - expected) ** 2 / expected).sum())
        tail = float(chi2.sf(statistic, vocab * vocab - 1))
        tv = float((counts / n - expected / n).abs().sum()) / 2
        good &= tail > 1e-9
        seen = evidence.detectable_tv(vocab * vocab, n, 1e-6, 0.999)
        lines.append(f"V={vocab} {kind} n={n:.1e} p={tail:.3g} TV={tv:.1e} (sees {seen:.1e})")
    return good, "; ".join(lines)


def many() -> tuple[bool, str]:
    """Injected coins at V = 151,936: a million rows against the float64 reference."""
    generator = torch.Generator(device="cuda").manual_seed(22)
    rows = requests = differ = beyond = 0
    while rows < _MANY:
        dtype = (torch.bfloat16, torch.float32)[requests // _AT_ONCE % 2]
        batch = random_batch(
            generator, 151936, _AT_ONCE, 6, dtype, dense=requests // _AT_ONCE % 4 < 2, coins=True
        )
        found = disagreements(batch, CHAIN(batch), reference(batch))
        rows += batch.target_logits.shape[0]
        requests += _AT_ONCE
        differ += len(found)
        beyond += sum(not one.lawful for one in found)
    return beyond == 0, f"{requests} requests, {rows} rows, {differ} differ, {beyond} beyond"


def _wrong_laws(row: torch.Tensor, p: torch.Tensor, q: torch.Tensor, kind: str) -> Bets:
    """Laws of the first token of samplers with a bug, by name."""
    if kind == "dense":
        kept = torch.minimum(p, q)
        again = kept + (1 - kept.sum()) * p
    else:
        again = q * p + (q * (1 - p)).sum() * p
    mild = torch.softmax(row / 1.01, 0)
    return {"recovered from p": again, "drafts kept": q, "temperature 1.01": mild}


def wide_law() -> tuple[bool, str]:
    """Large vocabularies: the first token, pooled into 513 cells by probability and by id.

    Beside the test of all directions a bet on each of some wrong laws: log e is what the counts
    would have won, and 20.7 (log 1e9) of one would be a failure.
    """
    parts = [_wide_law(vocab, kind) for vocab in (128256, 151936) for kind in ("dense", "one-hot")]
    return all(good for good, _ in parts), "; ".join(text for _, text in parts)


def _wide_law(vocab: int, kind: str) -> tuple[bool, str]:
    from scipy.stats import chi2

    generator = torch.Generator(device="cuda").manual_seed(3)
    row = torch.randn(1, vocab, device="cuda", generator=generator).mul_(2.5).bfloat16()
    p = torch.softmax(row[0].double(), 0)
    noise = torch.randn(vocab, device="cuda", generator=generator, dtype=torch.float64)
    q = torch.softmax(row[0].double() + noise, 0)
    cell = 256 + torch.arange(vocab, device="cuda") * 257 // vocab
    cell[p.topk(256).indices] = torch.arange(256, device="cuda")

    def pooled(law: torch.Tensor) -> torch.Tensor:
        return torch.zeros(513, dtype=torch.float64, device="cuda").index_add_(0, cell, law)

    requests, rounds = 1 << 16, 40
    cu = torch.arange(requests + 1, device="cuda")
    counts = torch.zeros(513, dtype=torch.int64, device="cuda")
    probs = q.float()[None].expand(requests, vocab) if kind == "dense" else None
    workspace = Workspace("cuda")
    for turn in range(rounds):
        drafts = torch.multinomial(q, requests, replacement=True, generator=generator)
        seeds = torch.arange(requests, device="cuda") + turn * requests
        ids, _ = verify_chain(
            row.expand(2 * requests, vocab), drafts, cu, torch.ones(requests, device="cuda"),
            seeds, seeds % 5, max_drafts=1, proposal=Proposal(probs=probs), workspace=workspace,
        )  # fmt: skip
        counts += torch.bincount(cell[ids[:, 0]], minlength=513)
    n, law = rounds * requests, pooled(p)
    statistic = float(((counts - law * n) ** 2 / (law * n)).sum())
    tail = float(chi2.sf(statistic, 512))
    bets = {
        name: float((counts * (pooled(wrong) / law).log()).sum())
        for name, wrong in _wrong_laws(row[0].double(), p, q, kind).items()
    }
    seen = evidence.detectable_tv(513, n, 1e-6, 0.999)
    won = ", ".join(f"{name} {log_e:.0f}" for name, log_e in bets.items())
    return tail > 1e-9 and max(bets.values()) < 20.7, (
        f"V={vocab} {kind} n={n:.1e} p={tail:.3g} (sees TV {seen:.1e}; log e: {won})"
    )


def large() -> tuple[bool, str]:
    """R x V beyond 2^31 elements: the last rows are read where they are."""
    vocab, requests = 151936, 7200
    rows = 2 * requests
    logits = torch.zeros(rows, vocab, dtype=torch.bfloat16, device="cuda")
    picks = torch.randint(vocab, (rows,), device="cuda")
    logits[torch.arange(rows, device="cuda"), picks] = 60.0
    cu = torch.arange(requests + 1, device="cuda")
    temperature = torch.ones(requests, device="cuda")
    seeds = torch.arange(requests, device="cuda")
    ids, emitted = verify_chain(
        logits, picks[::2].contiguous(), cu, temperature, seeds, seeds, max_drafts=1,
        proposal=Proposal(),
    )  # fmt: skip
    right = bool((emitted == 2).all()) and torch.equal(ids, picks.view(-1, 2))
    return right, f"{rows} rows x {vocab} = {rows * vocab / 2**31:.2f} x 2^31 elements"


def graph() -> tuple[bool, str]:
    """Capture, change the inputs in place, replay: as an eager call; on a side stream too."""
    generator = torch.Generator(device="cuda").manual_seed(16)
    first = random_batch(generator, 32000, 64, 4, torch.bfloat16, dense=True, coins=False)
    other = first.target_logits.flip(0).contiguous()
    workspace = Workspace("cuda")

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        return verify_chain(
            first.target_logits, first.draft_token_ids, first.cu_drafts, first.temperature,
            first.seeds, first.positions, max_drafts=first.max_drafts,
            proposal=Proposal(probs=first.draft_probs), workspace=workspace,
        )  # fmt: skip

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    stream.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, stream=stream):
        tokens, emitted = call()
    first.target_logits.copy_(other)
    captured.replay()
    torch.cuda.synchronize()
    again = call()
    torch.cuda.synchronize()
    same = torch.equal(tokens, again[0]) and torch.equal(emitted, again[1])
    return same, "replay equals an eager call"


CHECKS: dict[str, Callable[[], tuple[bool, str]]] = {
    check.__name__: check
    for check in (
        differential,
        streams,
        isolation,
        plans,
        chosen,
        wide,
        forms,
        law,
        wide_law,
        many,
        large,
        graph,
        filters,
        sequential,
        small,
        small_filtered,
        block,
        memory,
        soak,
        sanitize,
        suites,
    )
}

ONLY_NAMED = ("forms", "sanitize", "suites")
"""Checks that run only if they are named: one asks where a fault lies, one is for
compute-sanitizer, one takes minutes."""


def main() -> None:
    """Run the checks that are named, or all."""
    failed = 0
    for name in sys.argv[1:] or [name for name in CHECKS if name not in ONLY_NAMED]:
        start = time.time()
        good, text = CHECKS[name]()
        failed += not good
        print(
            f"{'ok  ' if good else 'FAIL'} {name:14s} {time.time() - start:6.1f} s  {text}",
            flush=True,
        )
        torch.cuda.empty_cache()
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
