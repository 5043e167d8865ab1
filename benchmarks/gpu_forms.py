"""Which forms of the chain kernel are wrong, where one is: the same batches under every plan.

`differential` and `wide` say that something is wrong; this says where.  One batch of every kind (V,
dtype, form of q, injected or own coins) is verified under plans that differ from a plain one in a
single choice, twice each, and every form in which anything is amiss is a line of its own:

* beyond: requests that differ from the float64 reference by more than the float budget allows
  (with own coins and a full q only the lengths are compared: thinned draws are others);
* outside: tokens that are not in the vocabulary;
* unequal: requests that two identical calls gave different tokens, which is a race;
* scratch: words that must be zero between launches and are not.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import multiprocessing
from collections.abc import Iterator

import torch
from kernel_batches import random_batch
from kernel_budget import disagreements
from specverify.kernels import Plan, Proposal, Workspace, verify_chain
from specverify.kernels.sampler import interpreted

from specverify.contract import Batch, Emission
from specverify.reference import reference

VOCABS = (257, 300, 1025, 4099)
REQUESTS = 256
DTYPES = (torch.float32, torch.bfloat16)

PLAIN = Plan(1024, 1, num_warps=4, lanes=4)
VARIED: dict[str, dict[str, object]] = {
    "plain": {},
    "one warp": {"num_warps": 1},
    "two warps": {"num_warps": 2},
    "eight lanes": {"lanes": 8},
    "96 registers": {"max_registers": 96},
    "128 registers": {"max_registers": 128},
    "two tiles": {"group": 2},
    "four tiles": {"group": 4},
    "anchored": {"group": 2, "steps": 2, "stages": 2},
    "early exit": {"group": 2, "later": 1},
    "tiles of 64": {"tile": 64, "group": 2},
    "tiles of 256": {"tile": 256, "group": 2},
    "rounds": {"group": 2, "stages": 2, "later": 2, "wait": 64, "rounds": True},
}
"""Choices of a plan, each away from the plain one."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is amiss in one form.

    Attributes:
        beyond, outside, unequal, scratch: counts, as the module says.
    """

    beyond: int
    outside: int
    unequal: int
    scratch: int

    def __bool__(self) -> bool:
        return any(dataclasses.astuple(self))

    def __str__(self) -> str:
        return ", ".join(f"{value} {name}" for name, value in vars(self).items() if value)


def verified(batch: Batch, plan: Plan, workspace: Workspace) -> Emission:
    """One call of the chain kernel under a plan."""
    coins = batch.coins
    tokens, emitted = verify_chain(
        batch.target_logits, batch.draft_token_ids, batch.cu_drafts, batch.temperature,
        batch.seeds, batch.positions, max_drafts=batch.max_drafts,
        proposal=Proposal(probs=batch.draft_probs), plan=plan, workspace=workspace,
        coins=None if coins is None else (coins.accept, coins.final),
    )  # fmt: skip
    return Emission(tokens, emitted)


def fault_of(batch: Batch, right: Emission, plan: Plan) -> Fault:
    """What two calls under a plan get wrong."""
    workspace = Workspace(batch.device)
    once, again = verified(batch, plan, workspace), verified(batch, plan, workspace)
    tokens = once.token_ids
    inside = (tokens >= -1) & (tokens < batch.vocab_size)
    if batch.coins is None and batch.draft_probs is not None:
        beyond = int((once.num_emitted != right.num_emitted).sum())
    else:
        beyond = sum(not one.lawful for one in disagreements(batch, once, right))
    return Fault(
        beyond=beyond,
        outside=int((~inside).sum()),
        unequal=int((tokens != again.token_ids).any(1).sum()),
        scratch=int(not workspace.clean),
    )


def kinds(device: str, requests: int) -> Iterator[tuple[str, Batch]]:
    """A name and a batch of every kind."""
    generator = torch.Generator(device=device).manual_seed(16)
    for vocab, dtype, dense, coins in itertools.product(
        VOCABS, DTYPES, (True, False), (True, False)
    ):
        name = (
            f"V={vocab} {str(dtype).removeprefix('torch.')} {'full q' if dense else 'one-hot'} "
            f"{'injected' if coins else 'own'} coins"
        )
        yield name, random_batch(generator, vocab, requests, 5, dtype, dense=dense, coins=coins)


def wrong_kinds(job: tuple[str, str, int]) -> tuple[list[str], int]:
    """The kinds of batches on which one form is wrong, as lines, and how many were tried."""
    form, device, requests = job
    plan = dataclasses.replace(PLAIN, **VARIED[form])
    lines, tried = [], 0
    for name, batch in kinds(device, requests):
        tried += 1
        fault = fault_of(batch, reference(batch), plan)
        if fault:
            lines.append(f"  {name}, {form}: {fault}")
    return lines, tried


def forms(device: str | None = None, requests: int = REQUESTS) -> tuple[bool, str]:
    """Every form on every kind of batch; prints those that are wrong.

    On a GPU every form has a process of its own, so that kernels compile side by side.

    Args:
        device: where; a GPU unless the interpreter is on.
        requests: B of each batch.
    """
    device = device or ("cpu" if interpreted() else "cuda")
    jobs = [(form, device, requests) for form in VARIED]
    if device == "cpu":
        parts = list(map(wrong_kinds, jobs))
    else:
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(len(jobs), mp_context=context) as pool:
            parts = list(pool.map(wrong_kinds, jobs))
    for lines, _ in parts:
        print(*lines, sep="\n", end="\n" if lines else "", flush=True)
    wrong, tried = sum(len(lines) for lines, _ in parts), sum(count for _, count in parts)
    return wrong == 0, f"{wrong} of {tried} forms are wrong"
