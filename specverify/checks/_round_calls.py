"""Calling a drafter that may do anything, and reading what a sampler made of its drafts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from specverify.contract import PLACEHOLDER
from specverify.drafting import Contexts, Drafter, Proposal, check_fits
from specverify.faults import SamplerFault, seed_torch
from specverify.trials import IntArray

_FIELDS = ("tokens", "lengths", "counts", "temperature", "seeds", "positions")


def proposal_of(drafter: Drafter, contexts: Contexts, seed: int) -> Proposal:
    """Ask a drafter with the global random generators seeded, and check what comes back.

    Args:
        drafter: the harness's own, or the subject's.
        contexts: what it is told.
        seed: for torch's and numpy's global generators; their state is restored afterwards.

    Raises:
        SamplerFault: if it raises, answers something malformed, or changes its input.
    """
    before = {name: getattr(contexts, name).clone() for name in _FIELDS}
    device = contexts.tokens.device
    numpy_state = np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            seed_torch(seed, device)
            np.random.seed(seed & 0xFFFFFFFF)
            proposal = drafter.propose(contexts)
    except Exception as error:
        text = " ".join(str(error).split()) or "no message"
        raise SamplerFault(f"the drafter raised {type(error).__name__}: {text}") from error
    finally:
        np.random.set_state(numpy_state)
    for name, old in before.items():
        if not torch.equal(getattr(contexts, name), old):
            raise SamplerFault(f"the drafter changed its input: {name} differs after the call")
    if not isinstance(proposal, Proposal):
        raise SamplerFault(f"the drafter returned {type(proposal).__name__}; expected a Proposal")
    try:
        check_fits(proposal, contexts, reports_q=drafter.reports_q)
    except ValueError as error:
        raise SamplerFault(f"the drafter's proposal does not fit: {error}") from error
    return proposal


def emitted_tokens(
    token_ids: torch.Tensor,
    num_emitted: torch.Tensor,
    proposal: Proposal,
    vocab: int,
    requests: int,
) -> tuple[IntArray, IntArray]:
    """Tokens [N, K + 1] and counts [N] of an emission, checked against the drafts.

    Args:
        token_ids: [N, k + 1] of the emission, k the most drafts of this call.
        num_emitted: [N].
        proposal: what was verified.
        vocab: V.
        requests: B, requests of one copy of the batch (for messages).

    Raises:
        SamplerFault: if a length or a token is out of range, if what stands before the last token
            is not the drafts, or if something stands behind it.
    """
    tokens, emitted = token_ids.cpu().numpy(), num_emitted.cpu().numpy()
    counts = proposal.counts.cpu().numpy()
    _first_bad(
        np.asarray((emitted < 1) | (emitted > counts + 1)),
        lambda i: (
            f"num_emitted: got {int(emitted[i])} for request {i % requests} with "
            f"{int(counts[i])} drafts; expected 1 to {int(counts[i]) + 1}"
        ),
    )
    column = np.arange(tokens.shape[1])
    inside = column < emitted[:, None]
    _first_bad(
        np.asarray((inside & ((tokens < 0) | (tokens >= vocab))).any(axis=1)),
        lambda i: (
            f"token_ids: request {i % requests} emitted {tokens[i].tolist()}; "
            f"expected ids in [0, {vocab})"
        ),
    )
    _first_bad(
        np.asarray((~inside & (tokens != PLACEHOLDER)).any(axis=1)),
        lambda i: (
            f"token_ids: request {i % requests}: a slot after the last emitted token is not -1"
        ),
    )
    drafts = proposal.tokens.cpu().numpy()[:, : tokens.shape[1] - 1]
    kept = column[:-1] < emitted[:, None] - 1
    _first_bad(
        np.asarray((kept & (tokens[:, :-1] != drafts)).any(axis=1)),
        lambda i: (
            f"token_ids: request {i % requests} emitted {tokens[i].tolist()} where the "
            f"drafts are {drafts[i].tolist()}; emitted tokens are accepted drafts and then one "
            "recovered or bonus token"
        ),
    )
    return tokens, emitted


def _first_bad(bad: NDArray[np.bool_], message: Callable[[int], str]) -> None:
    if bad.any():
        raise SamplerFault(message(int(np.argmax(bad))))
