"""Inputs of the timings: random logits with a chosen acceptance, several sets of them.

The drafts are drawn from q, whose logits are those of the target plus Gaussian noise; for noise of
deviation s the acceptance 1 - TV(p, q) is about 2 Phi(-s / 2).  One-hot drafts are random tokens
whose logit is raised until p is the acceptance; greedy drafts are the argmax of the target with the
probability that was asked for.
"""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist

import torch

KINDS = ("dense", "one-hot", "greedy")


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of the table: B requests of K drafts over V tokens, in bf16.

    ``fixed``: the drafter is the one that would have the acceptance at temperature 1, and its
    greedy drafts are its own argmax, so that what is accepted follows from the temperature.
    """

    requests: int
    drafts: int
    vocab: int
    kind: str
    acceptance: float
    temperature: float = 1.0
    fixed: bool = False

    @property
    def rows(self) -> int:
        """R."""
        return self.requests * (self.drafts + 1)


@dataclasses.dataclass(eq=False)
class Inputs:
    """One set of tensors, in every layout that a subject wants.

    Attributes:
        target: [R, V] bf16; ``draft_logits``: [B * K, V] bf16, ``None`` unless dense.
        draft_probs: [B * K, V] fp32, the softmax of the draft logits at the temperature.
        drafts: [B * K] int64.
        cu: [B + 1] int64; ``temperature``: [B] fp32; ``seeds``, ``positions``: [B] int64.
    """

    case: Case
    target: torch.Tensor
    draft_logits: torch.Tensor | None
    draft_probs: torch.Tensor | None
    drafts: torch.Tensor
    cu: torch.Tensor
    temperature: torch.Tensor
    seeds: torch.Tensor
    positions: torch.Tensor

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of target logits."""
        return self.target.shape[1] * self.target.element_size()


def build(case: Case, generator: torch.Generator, *, probs: bool = True) -> Inputs:
    """Draw one set on the generator's device."""
    device = generator.device
    b, k, v = case.requests, case.drafts, case.vocab
    target = torch.randn(case.rows, v, device=device, generator=generator).mul_(2.5)
    target = target.to(torch.bfloat16)
    rows = torch.arange(case.rows, device=device).view(b, k + 1)[:, :k].reshape(-1)
    deviation = -2 * NormalDist().inv_cdf(case.acceptance / 2)
    q_logits = probabilities = None
    unit = 1.0 if case.fixed else case.temperature
    if case.kind == "greedy" and not case.fixed:
        hit = torch.rand(b * k, device=device, generator=generator) < case.acceptance
        drafts = torch.where(hit, target[rows].float().argmax(1), 0)
    elif case.kind == "one-hot":
        drafts = torch.randint(v, (b * k,), device=device, generator=generator)
        odds = math.log(case.acceptance / (1 - case.acceptance))
        for part, ids in zip(rows.split(256), drafts.split(256), strict=True):
            mass = torch.logsumexp(target[part].float() / case.temperature, 1)
            target[part, ids] = ((mass + odds) * case.temperature).bfloat16()
    else:
        draw, q_rows = [], []
        for part in rows.split(256):  # a part at a time: no large fp32 scratch
            noise = torch.randn(len(part), v, device=device, generator=generator)
            logits = (target[part].float() + deviation * unit * noise).bfloat16()
            if case.kind == "greedy":
                draw.append(logits.argmax(1))
                continue
            q = torch.softmax(logits.float() / case.temperature, 1)
            draw.append(torch.multinomial(q, 1, generator=generator).squeeze(1))
            q_rows.append(logits)
        drafts = torch.cat(draw)
        if case.kind == "dense":
            q_logits = torch.cat(q_rows)
            if probs:
                probabilities = torch.softmax(q_logits.float() / case.temperature, 1)
    temperature = 0.0 if case.kind == "greedy" else case.temperature
    return Inputs(
        case, target, q_logits, probabilities, drafts,
        torch.arange(b + 1, device=device) * k,
        torch.full((b,), temperature, device=device),
        torch.randint(2**62, (b,), device=device, generator=generator),
        torch.randint(2**20, (b,), device=device, generator=generator),
    )  # fmt: skip
