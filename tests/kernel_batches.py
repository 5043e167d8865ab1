"""Random ragged batches for the kernels, on any device."""

from __future__ import annotations

import torch

from specverify.contract import Batch, Coins


def random_batch(
    generator: torch.Generator, vocab: int, requests: int, most: int, dtype: torch.dtype,
    *, dense: bool, coins: bool, greedy: float = 0.2, gaps: float = 0.1, spread: float = 1.0,
) -> Batch:  # fmt: skip
    """A ragged batch on the generator's device: placeholders, greedy and zero-draft requests."""
    device = generator.device

    def rand(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, device=device, generator=generator, dtype=torch.float64)

    counts = (rand(requests) * (most + 1)).long()
    cu = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    d = int(cu[-1])
    rows = d + requests
    logits = torch.randn(rows, vocab, device=device, generator=generator).mul_(3).to(dtype)
    owner = torch.repeat_interleave(torch.arange(requests, device=device), counts)
    draft_rows = torch.arange(d, device=device) + owner
    temperature = torch.tensor([1.0, 0.7, 1.5, 0.2], device=device)[(rand(requests) * 4).long()]
    temperature = torch.where(rand(requests) < greedy, 0.0, temperature)
    noisy = logits[draft_rows].float() + spread * torch.randn(
        d, vocab, device=device, generator=generator)  # fmt: skip
    q = torch.softmax(noisy / temperature[owner].clamp(min=0.2)[:, None], 1)
    drafts = torch.multinomial(q, 1, generator=generator).squeeze(1) if d else owner
    best = logits[draft_rows].float().argmax(1)
    drafts = torch.where((temperature[owner] == 0) & (rand(d) < 0.7), best, drafts)
    drafts = torch.where(rand(d) < gaps, -1, drafts)
    seeds = torch.randint(2**62, (requests,), device=device, generator=generator)
    return Batch(
        target_logits=logits, draft_token_ids=drafts, draft_probs=q if dense else None,
        cu_drafts=cu, temperature=temperature,
        top_k=torch.zeros(requests, dtype=torch.int64, device=device),
        top_p=torch.ones(requests, device=device), min_p=torch.zeros(requests, device=device),
        seeds=seeds.view(torch.uint64),
        positions=torch.randint(2**20, (requests,), device=device, generator=generator),
        coins=Coins(accept=rand(d), final=rand(requests)) if coins else None,
        check_values=False,
    )  # fmt: skip
