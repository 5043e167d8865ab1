"""transformers behind the contract: the verification step of its assisted generation.

``_speculative_sampling`` takes one request a call, logits that temperature and filters have already
been applied to, and torch's global random state. It is private and its signature moves between
releases, so it is inspected when first used. One-hot drafts go in as rows of 0 and -inf. At
temperature 0 ``generate()`` takes another path, hence no greedy requests here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from specverify._optional import require, version_of
from specverify.adapters._packing import MULTINOMIAL, call_seed, processed_log_probs, requires
from specverify.contract import PLACEHOLDER, Batch, Capabilities, Emission, sampler

_Verify = Callable[..., tuple[torch.Tensor, torch.Tensor]]
_GIVEN = ("candidate_input_ids", "candidate_logits", "candidate_length", "new_logits")
# What releases ask for beyond the four tensors: whether generation has ended (5.17 and before).
_ALSO: dict[str, Any] = {"is_done_candidate": False}


@requires("transformers")
@sampler(
    Capabilities(
        greedy=False,
        filtering=True,
        exclusion=True,
        arithmetic=MULTINOMIAL,
        batched=False,
    )
)
def transformers(batch: Batch) -> Emission:
    """Verify a batch with the installed transformers, one request after the other.

    Source: Leviathan et al. 2023, Algorithm 1, as implemented by transformers.

    Raises:
        ValueError: if transformers is absent, its function has changed beyond what is known here,
            or the batch holds greedy requests or placeholders.
    """
    _refuse(batch)
    verify = _verify()
    target, draft = processed_log_probs(batch)[None], _draft_logits(batch)[None]
    ids = batch.draft_token_ids[None]
    emitted = []
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: that would reseed GPUs too, which the fork does not restore.
        torch.default_generator.manual_seed(call_seed(batch, "transformers"))
        start = 0
        for request, count in enumerate(batch.draft_counts.tolist()):
            stop, row = start + count, start + request
            emitted.append(
                verify(
                    candidate_input_ids=ids[:, start:stop],
                    candidate_logits=draft[:, start:stop],
                    candidate_length=count,
                    new_logits=target[:, row : row + count + 1],
                )[0]
            )
            start = stop
    return _emission(batch, emitted)


def _refuse(batch: Batch) -> None:
    if bool((batch.temperature == 0).any()):
        raise ValueError("temperature: got 0; expected > 0, transformers' step is random only")
    if bool((batch.draft_token_ids < 0).any()):
        raise ValueError("draft_token_ids: got a placeholder; expected none, as in transformers")


def _draft_logits(batch: Batch) -> torch.Tensor:
    """[D, V] float32: log q, for one-hot drafts 0 at the draft and -inf elsewhere."""
    if batch.draft_probs is not None:
        return batch.draft_probs.to(torch.float32).log()
    shape = (batch.num_drafts, batch.vocab_size)
    one_hot = torch.full(shape, -torch.inf, device=batch.device)
    return one_hot.scatter_(1, batch.draft_token_ids[:, None], 0.0)


def _emission(batch: Batch, emitted: list[torch.Tensor]) -> Emission:
    """Pack the emitted tokens of each request, [1, n] int64 each, into one emission."""
    num_emitted = torch.tensor([tokens.shape[1] for tokens in emitted], device=batch.device)
    token_ids = num_emitted.new_full((batch.num_requests, batch.max_drafts + 1), PLACEHOLDER)
    column = torch.arange(token_ids.shape[1], device=batch.device)
    token_ids[column < num_emitted[:, None]] = torch.cat(emitted, dim=1)[0]
    return Emission(token_ids, num_emitted)


@functools.cache
def _verify() -> _Verify:
    """The verification step of the installed transformers, loaded at the first call."""
    module = require("transformers.generation.utils", "engines")
    found: _Verify | None = getattr(module, "_speculative_sampling", None)
    version = version_of("transformers")
    if found is None:
        raise ValueError(f"transformers {version} has no generation.utils._speculative_sampling")
    parameters = inspect.signature(found).parameters
    wanted = {name for name, value in parameters.items() if value.default is value.empty}
    if not set(_GIVEN) <= set(parameters) or wanted - {*_GIVEN, *_ALSO}:
        raise ValueError(
            f"transformers {version}: _speculative_sampling takes {', '.join(parameters)}; "
            f"expected {', '.join(_GIVEN)} and nothing unknown"
        )
    return functools.partial(found, **{name: _ALSO[name] for name in wanted & set(_ALSO)})
