"""Checks of ``gpu_checks.py`` for the kernel of small vocabularies and for block verification."""

from __future__ import annotations

import concurrent.futures
import itertools
import multiprocessing
from collections.abc import Callable

import torch
from kernel_batches import random_batch
from kernel_budget import disagreements
from kernel_filtering import in_turn
from scipy.stats import chisquare
from specverify.kernels import Proposal, TritonChain
from specverify.kernels._launch_block import triton_block, verify_block
from specverify.kernels._launch_small import verify_small

from specverify import evidence
from specverify.cases import Case, RequestSpec, make_case
from specverify.checks.oracle import reference_for
from specverify.checks.tables import tables_of
from specverify.checks.verdict import Family
from specverify.contract import Batch, Capabilities, Emission
from specverify.reference import reference
from specverify.reference.block import reference_block
from specverify.sampling import CONVENTIONS
from specverify.subjects import Subject
from specverify.trials import run_trials

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _small(batch: Batch) -> Emission:
    coins = batch.coins
    injected = None if coins is None or coins.final is None else (coins.accept, coins.final)
    return Emission(
        *verify_small(
            batch.target_logits, batch.draft_token_ids, batch.cu_drafts, batch.temperature,
            batch.seeds, batch.positions, max_drafts=batch.max_drafts,
            proposal=Proposal(probs=batch.draft_probs), coins=injected,
        )
    )  # fmt: skip


def _as_draft_logits(batch: Batch) -> Proposal:
    """Draft logits whose softmax at their own temperature is the batch's q."""
    assert batch.draft_probs is not None
    temperature = 0.5 + torch.arange(batch.num_requests, device=batch.device) % 3
    scaled = batch.draft_probs.double().log() * temperature[batch.draft_request][:, None]
    return Proposal(logits=scaled.float(), temperature=temperature.float())


def law(subject: Subject, vocab: int, drafts: int, trials: int, dense: bool) -> tuple[bool, str]:
    """Trials drawn and counted on the device; the joint law of all tokens of a request."""
    name = f"gpu law V={vocab} K={drafts} {dense}"
    case = make_case(name, vocab, (RequestSpec(drafts=drafts),), dense)
    return _law_of(subject, case, trials)


def _law_of(subject: Subject, case: Case, trials: int) -> tuple[bool, str]:
    tables = tables_of(case, (Family.LAW, Family.INDEPENDENCE), subject.capabilities)
    counts = run_trials(subject, case, tables, root_seed=5, trials=trials, device="cuda")
    lines, good = [], True
    for table in tables:
        table_counts, expected = counts[table.name], table.law() * counts[table.name].sum()
        possible = expected > 0
        p_value = float(chisquare(table_counts[possible], expected[possible]).pvalue)
        good &= p_value > 1e-9 and not table_counts[~possible].any()
        if table.name.startswith(("request 0: joint", "trials")):
            found = evidence.certificate(counts[table.name], table.law())
            lines.append(
                f"{table.cells} cells p={p_value:.3g} TV={found.tv_observed:.1e} "
                f"certified {found.tv_upper:.1e} sees "
                f"{evidence.detectable_tv(table.cells, int(table_counts.sum()), 1e-6, 0.999):.1e}"
            )
    kind = "dense" if case.dense else "one-hot"
    drafts = case.requests[0].num_drafts
    return good, f"V={case.vocab_size} K={drafts} {kind} n={trials:.1e}: {', '.join(lines)}"


def _laws(jobs: list[tuple[bool, str]]) -> tuple[bool, str]:
    return all(good for good, _ in jobs), "".join(f"\n       {text}" for _, text in jobs)


Part = tuple[torch.dtype, bool]


def _in_parallel(part: Callable[[Part], tuple[int, int, int]]) -> tuple[int, ...]:
    """A part for every dtype and form of q, in processes, so that kernels compile side by side."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(6, mp_context=context) as pool:
        parts = list(pool.map(part, itertools.product(DTYPES, (True, False))))
    return tuple(map(sum, zip(*parts, strict=True)))


_SETTINGS = ((3, 1.0, 0.0), (0, 0.5, 0.0), (2, 0.9, 0.01), (0, 1.0, 0.2), (0, 1.0, 0.0))


def _filtered_part(job: Part) -> tuple[int, int, int]:
    """Requests of which most filter, those that differ, those beyond the budget."""
    generator = torch.Generator(device="cuda").manual_seed(23)
    differ = beyond = total = 0
    for vocab, convention in itertools.product((3, 16, 31, 64, 200), ("reference", "vllm")):
        batch = random_batch(generator, vocab, 2000, 4, job[0], dense=job[1], coins=True)
        batch = in_turn(batch, _SETTINGS)
        sampler = TritonChain(convention=convention)
        right = reference_for(sampler.capabilities)(batch)
        found = disagreements(batch, sampler(batch), right, CONVENTIONS[convention])
        total += 2000
        differ += len(found)
        beyond += sum(not one.lawful for one in found)
    return total, differ, beyond


def small_filtered() -> tuple[bool, str]:
    """Small vocabularies with filters: token for token, and the law of a filtered case."""
    total, differ, beyond = _in_parallel(_filtered_part)
    specs = [
        RequestSpec(drafts=2, top_k=3), RequestSpec(drafts=1, top_p=0.7),
        RequestSpec(drafts=1, min_p=0.1),
    ]  # fmt: skip
    jobs = []
    for number, spec in enumerate(specs):
        case = make_case(f"gpu filtered law {number}", 7, (spec,), True)
        jobs.append(_law_of(Subject.of(TritonChain(), "triton"), case, 20_000_000))
    good, text = _laws(jobs)
    return good and beyond <= 3, (
        f"{total} requests, {differ} differ, {beyond} beyond the budget of an unfiltered row{text}"
    )


def _small_part(job: Part) -> tuple[int, int, int]:
    """Requests, those that differ, those beyond the budget."""
    generator = torch.Generator(device="cuda").manual_seed(19)
    differ = beyond = total = 0
    for vocab, coins in itertools.product((3, 16, 31, 64, 200), (True, False)):
        batch = random_batch(generator, vocab, 5000, 6, job[0], dense=job[1], coins=coins)
        found = disagreements(batch, _small(batch), reference(batch))
        total += 5000
        differ += len(found)
        beyond += sum(not one.lawful for one in found)
    return total, differ, beyond


def _block_part(job: Part) -> tuple[int, int, int]:
    """Requests, those that differ, 0."""
    generator = torch.Generator(device="cuda").manual_seed(20)
    differ = total = 0
    for vocab, coins in itertools.product((3, 257, 1025, 32000), (True, False)):
        requests = 500 if vocab < 2000 else 24
        batch = random_batch(generator, vocab, requests, 6, job[0], dense=job[1], coins=coins)
        ours, theirs = triton_block(batch), reference_block(batch)
        total += requests
        differ += int((ours.token_ids != theirs.token_ids).any(1).sum())
    return total, differ, 0


def small() -> tuple[bool, str]:
    """Small vocabularies: injected coins and own streams token for token, then the law."""
    generator = torch.Generator(device="cuda").manual_seed(19)
    total, differ, beyond = _in_parallel(_small_part)
    batch = random_batch(
        generator, 31, 5000, 4, torch.float32, dense=True, coins=True, greedy=0.0
    )  # fmt: skip
    assert batch.coins is not None
    ids, emitted = verify_small(
        batch.target_logits, batch.draft_token_ids, batch.cu_drafts, batch.temperature,
        batch.seeds, batch.positions, max_drafts=batch.max_drafts,
        proposal=_as_draft_logits(batch), coins=(batch.coins.accept, batch.coins.final),
    )  # fmt: skip
    logits_differ = len(disagreements(batch, Emission(ids, emitted), reference(batch)))
    subject = Subject("small", _small, Capabilities(per_request_seeds=True, devices=("cuda",)))
    good, text = _laws([
        law(subject, 16, 1, 100_000_000, True), law(subject, 16, 1, 100_000_000, False),
        law(subject, 64, 1, 200_000_000, True), law(subject, 64, 1, 200_000_000, False),
        law(subject, 16, 4, 100_000_000, True),
    ])  # fmt: skip
    return good and beyond == 0 and logits_differ <= 1, (
        f"{total} requests, {differ} differ, {beyond} beyond the budget; from draft logits "
        f"{logits_differ} of 5000{text}"
    )


def block() -> tuple[bool, str]:
    """Block verification: token for token, broken rows, and the law of the text."""
    generator = torch.Generator(device="cuda").manual_seed(20)
    total, differ, _ = _in_parallel(_block_part)
    batch = random_batch(generator, 300, 500, 4, torch.float32, dense=True, coins=True, greedy=0.0)
    assert batch.coins is not None
    proposal = _as_draft_logits(batch)
    assert proposal.logits is not None
    assert proposal.temperature is not None
    scaled = proposal.logits.double() / proposal.temperature.double()[batch.draft_request][:, None]
    batch = batch.replace(draft_probs=torch.softmax(scaled, 1), check_values=False)
    ids, _ = verify_block(
        batch.target_logits, batch.draft_token_ids, batch.cu_drafts, batch.temperature,
        batch.seeds, batch.positions, max_drafts=batch.max_drafts, proposal=proposal,
        coins=(batch.coins.accept, batch.coins.final),
    )  # fmt: skip
    logits_differ = int((ids != reference_block(batch).token_ids).any(1).sum())
    clean = triton_block(batch).token_ids
    logits = batch.target_logits.clone()
    logits[batch.first_row[7]] = float("nan")
    logits[batch.first_row[9]] = float("-inf")
    broken = triton_block(batch.replace(target_logits=logits, check_values=False)).token_ids
    others = torch.ones(500, dtype=torch.bool, device="cuda")
    others[[7, 9]] = False
    touched = int(((broken != clean).any(1) & others).sum())
    subject = Subject.of(triton_block, "triton-block")
    good, text = _laws([
        law(subject, 16, 2, 20_000_000, True), law(subject, 16, 2, 20_000_000, False),
        law(subject, 4, 4, 20_000_000, True),
    ])  # fmt: skip
    return good and differ == logits_differ == touched == 0, (
        f"{total} requests, {differ} differ; from draft logits {logits_differ} of 500; "
        f"{touched} touched by broken rows{text}"
    )
