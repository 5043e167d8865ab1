"""flashspec behind the contract: ``rejection_step``, ``rejection_step_onehot`` and ``greedy_step``.

Its dense step takes a rectangle of drafts, so requests are grouped by draft count; its one-hot and
greedy steps take a ``draft_len`` for each request and see all of theirs in one padded call. A
request without drafts is a one-column proposal of length 0, which that engine defines as a plain
decoding step. A placeholder ends the proposal of its request. Temperature and filters are applied
before, as its own engine does.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

import torch

from specverify._optional import require
from specverify.adapters._packing import (
    MULTINOMIAL,
    Padded,
    call_seed,
    processed_log_probs,
    requires,
    target_rows,
)
from specverify.contract import Batch, Capabilities, Emission, sampler

_Step = Callable[..., torch.Tensor]


@requires("flashspec")
@sampler(Capabilities(placeholders=True, filtering=True, exclusion=True, arithmetic=MULTINOMIAL))
def flashspec(batch: Batch) -> Emission:
    """Verify a batch with the installed flashspec.

    Source: Leviathan et al. 2023, Algorithm 1, as implemented by flashspec.

    Raises:
        ValueError: if flashspec is absent or too old.
    """
    drafts = Padded.of(batch)
    result = torch.empty((batch.num_requests, 2), dtype=torch.int64, device=batch.device)
    hot = batch.temperature > 0
    if not bool(hot.all()):
        _greedy(batch, drafts, torch.nonzero(~hot).flatten(), result)
    if bool(hot.any()):
        _random(batch, drafts, hot, result)
    return drafts.emission(result[:, 0], result[:, 1])


def _greedy(batch: Batch, drafts: Padded, requests: torch.Tensor, result: torch.Tensor) -> None:
    width = max(batch.max_drafts, 1)
    argmax = batch.target_logits.argmax(dim=-1)[target_rows(batch, requests, width + 1)]
    result[requests] = _step("greedy", "greedy_step")(
        drafts.proposals(requests, width), argmax, drafts.usable[requests]
    )


def _random(batch: Batch, drafts: Padded, hot: torch.Tensor, result: torch.Tensor) -> None:
    generator = torch.Generator(batch.device).manual_seed(call_seed(batch, "flashspec"))
    target = processed_log_probs(batch)
    if batch.draft_probs is None:
        groups = [torch.nonzero(hot).flatten()]
    else:
        counts = torch.unique(drafts.usable[hot]).tolist()
        groups = [torch.nonzero(hot & (drafts.usable == count)).flatten() for count in counts]
    for requests in groups:
        width = int(drafts.usable[requests].max())
        if batch.draft_probs is None or width == 0:
            step = _one_hot(batch, drafts, target, requests, max(width, 1), generator)
        else:
            step = _dense(batch, drafts, target, requests, width, generator)
        result[requests] = step


def _one_hot(
    batch: Batch,
    drafts: Padded,
    target: torch.Tensor,
    requests: torch.Tensor,
    width: int,
    generator: torch.Generator,
) -> torch.Tensor:
    return _step("rejection", "rejection_step_onehot")(
        drafts.proposals(requests, width),
        target[target_rows(batch, requests, width + 1)],
        drafts.usable[requests],
        generator=generator,
    )


def _dense(
    batch: Batch,
    drafts: Padded,
    target: torch.Tensor,
    requests: torch.Tensor,
    width: int,
    generator: torch.Generator,
) -> torch.Tensor:
    assert batch.draft_probs is not None
    slots = batch.cu_drafts[requests, None] + torch.arange(width, device=batch.device)
    return _step("rejection", "rejection_step")(
        drafts.proposals(requests, width),
        batch.draft_probs[slots].to(torch.float32).log_(),
        target[target_rows(batch, requests, width + 1)],
        generator=generator,
    )


@functools.cache
def _step(module: str, name: str) -> _Step:
    """A step function of the installed flashspec, loaded at the first call."""
    found = getattr(require(f"flashspec.sampling.{module}", "engines"), name, None)
    needed = "draft_len" if name == "greedy_step" else "generator"
    if found is None or needed not in inspect.signature(found).parameters:
        raise ValueError(
            f"flashspec: found no {name} with an argument {needed}; expected flashspec >= 0.3.1"
        )
    step: _Step = found
    return step
