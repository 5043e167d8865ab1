"""Record rows of a real language model: draft, verify, write down, go on.

Each step drafts after a text, runs the target once over the text and its drafts, keeps the raw
logits with the drafts and their rows q, and continues the text by the rule of the method itself
(accept, recover or bonus), so that rows come from texts that speculative decoding would produce.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

from specverify._optional import require, version_of
from specverify._record_drafters import make_drafter, parse_drafter
from specverify._record_loop import RecordedStep, RecordingLoop, SamplingParameters, pack
from specverify._record_model import LanguageModel, load_model
from specverify.recorded import RecordedRows, save
from specverify.sampling import CONVENTIONS, batch_probabilities


@dataclasses.dataclass(frozen=True)
class Recording:
    """What was recorded.

    Attributes:
        path: the file.
        rows: what it holds.
        planned: verification steps asked for; fewer were recorded if ``interrupted``.
        overlap: mean over the drafts of sum min(p, q), the expected acceptance rate of a draft
            (for one-hot drafts p of the draft); ``None`` without drafts.
        seconds: wall time after the model was loaded.
        interrupted: whether Ctrl-C ended it early.
    """

    path: Path
    rows: RecordedRows
    planned: int
    overlap: float | None
    seconds: float
    interrupted: bool

    def sentence(self) -> str:
        """The recording in one sentence, for a person."""
        steps, drafts = self.rows.num_requests, self.rows.draft_token_ids.shape[0]
        early = f"interrupted after {steps} of {self.planned} steps: " if self.interrupted else ""
        mean = "" if self.overlap is None else f", mean acceptance probability {self.overlap:.3f}"
        return (
            f"{early}{self.path} holds {steps} steps with {drafts} drafts over "
            f"{self.rows.vocab_size} tokens{mean}"
        )


def main(
    model: str,
    prompts: Path,
    drafter: str,
    out: Path,
    drafts: int = 4,
    steps: int = 16,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Recording:
    """Record verification steps of a model into a file.

    Args:
        model: ``smollm2``, or a directory that holds a transformers model.
        prompts: text file, one prompt a line; empty lines and lines that begin with # are skipped.
        drafter: ``early-exit:N`` (the first N layers of the model) or ``prompt-lookup``.
        out: the file to write.
        drafts: drafts a step; prompt lookup may find fewer.
        steps: verification steps in all, taken by the prompts in turn.
        temperature: of every request, 0 is greedy. Early-exit drafts are drawn at it too.
        top_k: of every request, 0 is off. Filters apply to the target, not to the drafter.
        top_p: of every request, 1 is off.
        seed: of all drafts and of the continuation.
        progress: called with (steps done, steps planned).

    Returns:
        What was recorded. After Ctrl-C the steps so far are written and ``interrupted`` is True.

    Raises:
        ValueError: naming the argument that is wrong and what was expected.
        KeyboardInterrupt: after Ctrl-C before the first step was complete; nothing is written.
    """
    layers = parse_drafter(drafter)
    _check_numbers(drafts, steps, temperature, top_k, top_p, seed)
    texts = _read_prompts(prompts)
    _check_writable(out)
    require("safetensors", "real")
    loaded = load_model(model)
    loop = RecordingLoop(
        loaded,
        make_drafter(layers, loaded, temperature),
        SamplingParameters(temperature, top_k, top_p),
        drafts,
        torch.Generator().manual_seed(seed),
    )
    start = time.perf_counter()
    recorded, interrupted = _collect(loop, _encode(loaded, texts, drafts), steps, progress)
    metadata = {
        "model": model,
        "drafter": drafter,
        "description": f"{len(recorded)} verification steps, at most {drafts} drafts each",
        "seed": str(seed),
        "transformers": version_of("transformers") or "unknown",
    }
    rows = pack(recorded, loop.parameters, metadata)
    save(out, rows, metadata)
    seconds = time.perf_counter() - start
    return Recording(out, rows, steps, overlap(rows), seconds, interrupted)


def overlap(rows: RecordedRows) -> float | None:
    """Mean over the drafts of sum min(p, q): the expected acceptance rate (Leviathan et al. 2023).

    For one-hot drafts it is p of the draft. ``None`` when there is no draft at all.
    """
    batch = rows.batch()
    if batch.num_drafts == 0:
        return None
    # The target row of draft slot d: one bonus row lies before it for each earlier request.
    row = torch.arange(batch.num_drafts) + batch.draft_request
    p = batch_probabilities(batch, CONVENTIONS["reference"])[row]
    if rows.draft_probs is None:
        return float(p.gather(1, rows.draft_token_ids[:, None]).mean())
    return float(torch.minimum(p, rows.draft_probs.double()).sum(dim=1).mean())


def _collect(
    loop: RecordingLoop,
    prompts: list[list[int]],
    steps: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[RecordedStep], bool]:
    """The steps, and whether Ctrl-C cut them short; without a single step it is raised again."""
    recorded: list[RecordedStep] = []
    try:
        for step in loop.steps(prompts, steps):
            recorded.append(step)
            if progress is not None:
                progress(len(recorded), steps)
    except KeyboardInterrupt:
        if not recorded:
            raise
        return recorded, True
    return recorded, False


def _check_numbers(
    drafts: int, steps: int, temperature: float, top_k: int, top_p: float, seed: int
) -> None:
    wanted = {
        "drafts": (drafts, 1 <= drafts <= 64, "a number from 1 to 64"),
        "steps": (steps, steps >= 1, "at least 1"),
        "temperature": (temperature, 0 <= temperature < float("inf"), "a number >= 0"),
        "top_k": (top_k, top_k >= 0, "an integer >= 0 (0 is off)"),
        "top_p": (top_p, 0 < top_p <= 1, "a number in (0, 1] (1 is off)"),
        "seed": (seed, 0 <= seed < 2**63, "an integer from 0 to 2**63 - 1"),
    }
    for name, (got, good, expected) in wanted.items():
        if not good:
            raise ValueError(f"{name}: got {got}; expected {expected}")


def _read_prompts(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"prompts: {path} cannot be read: {error}; expected UTF-8 text, one prompt a line"
        ) from error
    texts = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not texts:
        raise ValueError(f"prompts: {path} holds no prompt; expected one a line")
    return texts


def _check_writable(path: Path) -> None:
    """Find out before the model is loaded, not after the recording."""
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(
            f"out: got {path}; expected a file in a folder that exists and can be written"
        )


def _encode(model: LanguageModel, texts: list[str], drafts: int) -> list[list[int]]:
    encoded = [model.encode(text) for text in texts]
    for text, tokens in zip(texts, encoded, strict=True):
        if not 0 < len(tokens) < model.max_context - drafts:
            raise ValueError(
                f"prompts: {text[:40]!r} is {len(tokens)} tokens; expected at least one and fewer "
                f"than {model.max_context - drafts}, so that the drafts fit the model's context"
            )
    return encoded
