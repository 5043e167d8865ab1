"""What is timed: our kernels and the samplers of other engines, each on the same inputs.

A contender turns :class:`Inputs` into a function without arguments that verifies them once and
returns (tokens, emitted) in its own layout.  What it needs prepared once (index maps, probabilities
where an engine takes probabilities) is prepared outside the timing, and the table says so.
"""

from __future__ import annotations

from collections.abc import Callable

import peers
import torch
from inputs import Inputs

Call = Callable[[], tuple[torch.Tensor, torch.Tensor]]


def ours(inputs: Inputs, *, logits: bool = False, plan: object = None) -> Call:
    """Our chain kernel; q as probabilities, or as draft logits as vLLM takes them."""
    from specverify.kernels import Proposal, Workspace, verify_chain

    if logits:
        proposal = Proposal(logits=inputs.draft_logits, temperature=inputs.temperature)
    else:
        proposal = Proposal(probs=inputs.draft_probs)
    workspace = Workspace(inputs.target.device)

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        return verify_chain(
            inputs.target, inputs.drafts, inputs.cu, inputs.temperature, inputs.seeds,
            inputs.positions, max_drafts=inputs.case.drafts, proposal=proposal,
            workspace=workspace, plan=plan,
        )  # fmt: skip

    return call


def vllm_verifier(
    inputs: Inputs,
) -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """VLLM's V2 ``rejection_sample`` as a function of target logits that carry the temperature."""
    module = peers.load("vllm", "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils")
    b, k, device = inputs.case.requests, inputs.case.drafts, inputs.target.device
    sampled = torch.zeros(b, k + 1, dtype=torch.int64, device=device)
    sampled[:, 1:] = inputs.drafts.view(b, k)
    index = torch.arange(b, dtype=torch.int32, device=device)
    local = torch.arange(k + 1, dtype=torch.int32, device=device).repeat(b)
    q = inputs.draft_logits
    arguments = (
        None if q is None else q.view(b, k, -1), sampled.view(-1),
        (inputs.cu + torch.arange(b + 1, device=device)).int(),
        (inputs.positions[:, None] + torch.arange(k + 1, device=device)).view(-1), index,
        index.repeat_interleave(k + 1), local, inputs.temperature, inputs.seeds, k,
    )  # fmt: skip
    return lambda target: module.rejection_sample(target, *arguments)


def vllm(inputs: Inputs) -> Call:
    """VLLM's V2 ``rejection_sample``; draft logits."""
    verify = vllm_verifier(inputs)
    return lambda: verify(inputs.target)


def sglang(inputs: Inputs) -> Call:
    """SGLang's Triton chain kernel; the softmax of the target is part of the call."""
    module = peers.load("sglang", "sglang.kernels.ops.speculative.reject_sampling")
    b, k, device = inputs.case.requests, inputs.case.drafts, inputs.target.device
    assert inputs.draft_probs is not None
    q = inputs.draft_probs.view(b, k, -1)
    candidates = torch.zeros(b, k + 1, dtype=torch.int64, device=device)
    candidates[:, 1:] = inputs.drafts.view(b, k)
    predicts = torch.zeros(b * (k + 1), dtype=torch.int32, device=device)
    index = torch.full((b, k + 1), -1, dtype=torch.int32, device=device)
    number = torch.zeros(b, dtype=torch.int32, device=device)
    slots = torch.arange(b * (k + 1), device=device).view(b, k + 1)

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        p = torch.softmax(inputs.target, -1, dtype=torch.float32).view(b, k + 1, -1)
        coins = torch.rand(b, k + 1, device=device)
        final = torch.rand(b, device=device)
        module.chain_speculative_sampling_triton(
            predicts, index, number, candidates, slots, slots, slots, coins, final, p, q,
            1.0, 1.0, True,
        )  # fmt: skip
        return predicts, number

    return call


def lmdeploy(inputs: Inputs) -> Call:
    """LMDeploy's CUDA rejection sampler on target logits; bonus tokens by its race outside."""
    module = peers.load("lmdeploy", "lmdeploy.pytorch.backends.cuda.rejection_sampling")
    sampler = module.CudaRejectionSamplingImpl()
    b, k = inputs.case.requests, inputs.case.drafts
    target = inputs.target.view(b, k + 1, -1)
    drafts = inputs.drafts.view(b, k)
    q = None if inputs.draft_probs is None else inputs.draft_probs.view(b, k, -1)

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        bonus_logits = target[:, -1].float()
        bonus = (bonus_logits.softmax(-1) / torch.empty_like(bonus_logits).exponential_()).argmax(1)
        out = sampler.forward(
            target[:, :-1].contiguous(), drafts, bonus, is_greedy=None, draft_probs=q
        )
        return out[0], out[1]

    return call


def plain_torch(inputs: Inputs) -> Call:
    """The chain rule in plain torch operations, fp32, no host synchronisation."""
    b, k = inputs.case.requests, inputs.case.drafts
    device = inputs.target.device
    drafts = inputs.drafts.view(b, k)
    q = None if inputs.draft_probs is None else inputs.draft_probs.view(b, k, -1)
    columns = torch.arange(k + 1, device=device)
    greedy = inputs.case.kind == "greedy"

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        if greedy:
            best = inputs.target.argmax(1).view(b, k + 1)
            length = (best[:, :k] == drafts).long().cumprod(1).sum(1)
            return torch.where(columns <= length[:, None], best, -1), length + 1
        p = torch.softmax(inputs.target, -1, dtype=torch.float32).view(b, k + 1, -1)
        at = p[:, :k].gather(2, drafts[:, :, None]).squeeze(2)
        q_at = 1.0 if q is None else q.gather(2, drafts[:, :, None]).squeeze(2)
        passed = torch.rand(b, k, device=device) * q_at < at
        length = passed.long().cumprod(1).sum(1)
        rows = p.gather(1, length[:, None, None].expand(-1, 1, p.shape[2])).squeeze(1)
        slot = length.clamp(max=k - 1)
        if q is None:
            gone = drafts.gather(1, slot[:, None])
            weight = rows.scatter(1, gone, 0.0)
        else:
            taken = q.gather(1, slot[:, None, None].expand(-1, 1, q.shape[2])).squeeze(1)
            weight = (rows - taken).clamp_(min=0)
        weight = torch.where((length < k)[:, None], weight, rows)
        last = (weight / torch.empty_like(weight).exponential_()).argmax(1)
        padded = torch.nn.functional.pad(drafts, (0, 1), value=-1)
        tokens = torch.where(columns < length[:, None], padded, -1)
        return torch.where(columns == length[:, None], last[:, None], tokens), length + 1

    return call


def transformers(inputs: Inputs) -> Call:
    """Transformers' ``_speculative_sampling``: one request, processed logits, synchronises."""
    from transformers.generation import utils

    k, v = inputs.case.drafts, inputs.case.vocab
    assert inputs.draft_logits is not None
    q = inputs.draft_logits.float().view(1, k, v)
    p = inputs.target.float().view(1, k + 1, v)
    ids = inputs.drafts.view(1, k)

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        try:
            return utils._speculative_sampling(ids, q, k, p, False)
        except TypeError:
            return utils._speculative_sampling(ids, q, k, p)

    return call


def available(inputs: Inputs) -> dict[str, Callable[[Inputs], Call]]:
    """The contenders that this machine has and that take this kind of drafts."""
    kind = inputs.case.kind
    found: dict[str, Callable[[Inputs], Call]] = {"ours": ours}
    if kind == "dense":
        found["ours, draft logits"] = lambda one: ours(one, logits=True)
    if peers.version("vllm"):
        found["vllm"] = vllm
    if peers.version("sglang") and kind == "dense":
        found["sglang"] = sglang
    if peers.version("lmdeploy") and kind != "greedy":
        found["lmdeploy"] = lmdeploy
    found["torch"] = plain_torch
    return found
