"""Two more tables of ``samplers.py``: what filters cost, and tokens a second by temperature.

Both time our kernels beside vLLM's own path: its sampler makes a fp32 copy of the logits, divides
by the temperature, filters in place (``topk_topp_triton.py``) and hands that to
``rejection_sample``; all of it is in its time.  Its filters mean almost what ours mean (top-p is
counted on what top-k left), so the two draw from nearly the same law.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator

import contenders
import peers
import torch
from contenders import vllm_verifier
from inputs import Case, Inputs, build
from timing import graph_us

Call = Callable[[], tuple[torch.Tensor, torch.Tensor]]

SETTINGS = {
    "off": (0, 1.0, 0.0),
    "k 50, p 0.9": (50, 0.9, 0.0),
    "k 50": (50, 1.0, 0.0),
    "p 0.9": (0, 0.9, 0.0),
    "min-p 0.05": (0, 1.0, 0.05),
    "k 1000": (1000, 1.0, 0.0),
    "k 50, p 0.9, every other": (50, 0.9, 0.0),
}
"""Names of filters: top-k, top-p, min-p."""

TEMPERATURES = (0.0, 0.3, 0.7, 1.0, 1.3)
_ROTATED_BYTES = 200e6


def fields(requests: int, setting: str, device: str = "cuda") -> tuple[torch.Tensor, ...]:
    """Top-k, top-p and min-p of every request."""
    k, p, m = SETTINGS[setting]
    on = torch.ones(requests, dtype=torch.bool, device=device)
    if setting.endswith("every other"):
        on = torch.arange(requests, device=device) % 2 == 0
    off = torch.ones(requests, device=device)
    return torch.where(on, k, 0), torch.where(on, off * p, off), torch.where(on, off * m, 0.0)


def ours(inputs: Inputs, setting: str) -> Call:
    """Filters, acceptance and the last draw in one launch; without filters the plain kernel."""
    from specverify.kernels import Filters, FilterWorkspace, Proposal, verify_filtered

    if setting == "off":
        return contenders.ours(inputs)
    filters = Filters(*fields(inputs.case.requests, setting))
    workspace = FilterWorkspace(inputs.target.device)
    proposal = Proposal(probs=inputs.draft_probs)
    return lambda: verify_filtered(
        inputs.target, inputs.drafts, inputs.cu, inputs.temperature, inputs.seeds, inputs.positions,
        filters, max_drafts=inputs.case.drafts, proposal=proposal, workspace=workspace,
    )  # fmt: skip


def vllm(inputs: Inputs, setting: str) -> Call:
    """Copy, temperature, filters and ``rejection_sample``; min-p as a mask of plain torch."""
    verify = vllm_verifier(inputs)
    module = peers.load("vllm", "vllm.v1.sample.ops.topk_topp_triton")
    width, t = inputs.case.drafts + 1, inputs.case.temperature
    vocab = inputs.case.vocab
    top_k, top_p, min_p = (field.repeat_interleave(width) for field in fields(
        inputs.case.requests, setting))  # fmt: skip
    top_k = torch.where(top_k == 0, vocab, top_k).int()
    k = top_k if bool((top_k < vocab).any()) else None
    p = top_p if bool((top_p < 1).any()) else None
    floor = min_p.log()[:, None] if bool((min_p > 0).any()) else None
    only_p = bool(((top_p < 1) & (top_k == vocab)).any())

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        x = inputs.target.float()
        if inputs.case.kind != "greedy" and t != 1:
            x.div_(t)
        if floor is not None:
            x.masked_fill_(x < x.amax(1, keepdim=True) + floor, float("-inf"))
        if k is not None or p is not None:
            x = module.apply_top_k_top_p_triton(x, k, p, has_topp_only_rows=only_p)
        return verify(x)

    return call


def _sets(case: Case) -> list[Inputs]:
    generator = torch.Generator(device="cuda").manual_seed(0)
    first = build(case, generator)
    count = min(24, max(2, math.ceil(_ROTATED_BYTES / first.target.nbytes)))
    return [first, *(build(case, generator) for _ in range(count - 1))]


@dataclasses.dataclass
class Row:
    """One line: microseconds of a call and tokens a request emits, ``None`` if it was not timed."""

    case: Case
    setting: str
    ours: float
    theirs: float | None
    tokens: float
    their_tokens: float | None


def _time(case: Case, setting: str, sets: list[Inputs]) -> Row:
    row = Row(case, setting, 0.0, None, 0.0, None)
    calls = [ours(one, setting) for one in sets]
    row.tokens = float(torch.stack([call()[1] for call in calls]).double().mean())
    row.ours = graph_us(calls, replays=7)
    if peers.version("vllm"):
        try:
            calls = [vllm(one, setting) for one in sets]
            row.their_tokens = float(torch.stack([call()[1] for call in calls]).double().mean())
            row.theirs = graph_us(calls, replays=7)
        except Exception as error:  # a peer that fails must not end the table
            print(f"# vllm failed on {case}, {setting}: {error!r}"[:300], file=sys.stderr)
    return row


def filter_cases(quick: bool) -> Iterator[Case]:
    """Batches of the table of filters."""
    for requests, drafts in ((1, 3), (32, 3), (256, 3)) if not quick else ((32, 3),):
        for kind in ("one-hot", "dense"):
            yield Case(requests, drafts, 128256, kind, 0.7)


def temperature_cases(quick: bool) -> Iterator[Case]:
    """One drafter and one target at five temperatures."""
    for requests in (32,) if quick else (32, 256):
        for t in TEMPERATURES:
            yield Case(requests, 3, 128256, "dense" if t else "greedy", 0.7, t or 1.0, True)


def show_filters(quick: bool) -> list[Row]:
    """What a call costs with each setting, and beside vLLM."""
    rows = []
    print("|  B  | K | drafts  | filters                  | ours us | / off | vllm us | / ours |")
    for case in filter_cases(quick):
        sets, base = _sets(case), float("nan")
        for setting in SETTINGS:
            row = _time(case, setting, sets)
            base = row.ours if setting == "off" else base
            theirs = row.theirs if row.theirs is not None else float("nan")
            print(
                f"| {case.requests:3d} | {case.drafts} | {case.kind:7s} | {setting:24s} |"
                f" {row.ours:7.1f} | {row.ours / base:5.2f} | {theirs:7.1f} |"
                f" {theirs / row.ours:6.2f} |", flush=True,
            )  # fmt: skip
            rows.append(row)
        del sets
        torch.cuda.empty_cache()
    return rows


def show_temperatures(quick: bool) -> list[Row]:
    """Tokens a second that verification alone would allow, by temperature."""
    rows = []
    print("|  B  |  T  | filters     | tokens | ours Mtok/s | vllm Mtok/s | vllm tokens |")
    for case in temperature_cases(quick):
        sets = _sets(case)
        for setting in ("off", "k 50, p 0.9"):
            row = _time(case, setting, sets)
            rate = case.requests * row.tokens / row.ours
            theirs = float("nan")
            if row.theirs is not None and row.their_tokens is not None:
                theirs = case.requests * row.their_tokens / row.theirs
            t = 0.0 if case.kind == "greedy" else case.temperature
            print(
                f"| {case.requests:3d} | {t:3.1f} | {setting:11s} | {row.tokens:6.2f} |"
                f" {rate:11.2f} | {theirs:11.2f} | {row.their_tokens or float('nan'):11.2f} |",
                flush=True,
            )  # fmt: skip
            rows.append(row)
        del sets
        torch.cuda.empty_cache()
    return rows
