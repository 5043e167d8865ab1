"""The command ``specverify record``: the recording module with a progress bar around it."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import Progress


def record(
    *,
    model: str,
    prompts: Path,
    drafter: str,
    out: Path,
    drafts: int,
    steps: int,
    temperature: float,
    seed: int,
) -> None:
    """Record verification steps and say what was recorded.

    Raises:
        ValueError: if an argument is wrong or a package is missing; see
            :func:`specverify.record.main`.
    """
    from specverify import record as recording

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("loading the model", total=steps)
        done = recording.main(
            model=model, prompts=prompts, drafter=drafter, out=out, drafts=drafts, steps=steps,
            temperature=temperature, seed=seed,
            progress=lambda n, total: bar.update(
                task, completed=n, total=total, description="steps"
            ),
        )  # fmt: skip
    Console().print(f"Written: {done.sentence()}", markup=False, highlight=False, soft_wrap=True)
