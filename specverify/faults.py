"""Calling a sampler that may do anything: raise, return nonsense, or scribble on its input."""

from __future__ import annotations

import random

import numpy as np
import torch

from specverify.contract import Batch, Emission
from specverify.subjects import Subject


class SamplerFault(Exception):  # noqa: N818 - the word of the docs, and not an error of ours
    """The subject broke the contract; the text is the diagnosis."""


def call(subject: Subject, batch: Batch, seed: int, *, watch_input: bool = False) -> Emission:
    """Call a subject with the global random generators seeded, and check what comes back.

    Args:
        subject: the sampler under test.
        batch: its input.
        seed: for the global generators of torch, numpy and Python, which a sampler may draw from;
            their state is restored afterwards.
        watch_input: also compare every field of the batch with a copy made before the call.

    Raises:
        SamplerFault: naming what the subject did.
    """
    before = _snapshot(batch) if watch_input else {}
    devices = [batch.device] if batch.device.type == "cuda" else []
    states = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=devices):
            seed_torch(seed, batch.device)
            np.random.seed(seed & 0xFFFFFFFF)
            random.seed(seed)
            emission = subject.sampler(batch)
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split()) or "no message"
        raise SamplerFault(f"the sampler raised {type(error).__name__}: {text}") from error
    finally:
        np.random.set_state(states[0])
        random.setstate(states[1])
    _check_input(batch, before)
    _check_emission(batch, emission)
    return emission


def seed_torch(seed: int, device: torch.device) -> None:
    """Seed torch's global generators of the CPU and of the device of a batch.

    Not ``torch.manual_seed``: that formats the call stack at every call where there is no GPU, some
    tenth of the time of a small call, and reseeds other GPUs, whose states nobody restores.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _snapshot(batch: Batch) -> dict[str, torch.Tensor]:
    names = ("target_logits", "draft_token_ids", "draft_probs", "cu_drafts", "temperature", "top_k",
             "top_p", "min_p", "seeds", "positions")  # fmt: skip
    fields = {name: getattr(batch, name) for name in names}
    return {name: value.clone() for name, value in fields.items() if value is not None}


def _check_input(batch: Batch, before: dict[str, torch.Tensor]) -> None:
    for name, old in before.items():
        new = getattr(batch, name)
        same = new == old
        if new.is_floating_point():
            same |= new.isnan() & old.isnan()
        if not bool(same.all()):
            raise SamplerFault(f"the sampler changed its input: {name} differs after the call")


def _check_emission(batch: Batch, emission: object) -> None:
    """Type and shapes; the values are the structural check's business."""
    if not isinstance(emission, Emission):
        raise SamplerFault(
            f"the sampler returned {type(emission).__name__}; expected a specverify.Emission"
        )
    want = (batch.num_requests, batch.max_drafts + 1)
    if tuple(emission.token_ids.shape) != want:
        raise SamplerFault(
            f"token_ids: got {list(emission.token_ids.shape)}; "
            f"expected [B, max k + 1] = {list(want)}"
        )
