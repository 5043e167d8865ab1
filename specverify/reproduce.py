"""One failure once more, without the suites: what the snippet of a failed check calls.

Each function asks a sampler about one small case or one batch and returns a text with what came
out beside what was expected.
"""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING

from specverify.checks import layout_properties, relations
from specverify.checks.batch_text import batch
from specverify.checks.diagnosis import Problem
from specverify.checks.differential import differences
from specverify.checks.experiment import Settings
from specverify.checks.layout_experiment import LayoutExperiment
from specverify.checks.metamorphic import MetamorphicExperiment
from specverify.checks.small_cases import SmallCase, SmallRequest
from specverify.checks.small_experiments import small_experiment
from specverify.checks.verdict import Family, Status, Verdict
from specverify.contract import Batch, Capabilities
from specverify.subjects import Subject

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = [
    "SmallCase",
    "SmallRequest",
    "batch",
    "compare",
    "count",
    "holds",
    "inf",
    "nan",
    "relation",
]


def count(
    sampler: Subject,
    case: SmallCase,
    check: str,
    *,
    trials: int,
    tv: float,
    alpha: float = 1e-9,
    seed: int = 0,
    device: str = "cpu",
    what: str = "step",
) -> str:
    """Count one table of a small case and hold it against its law.

    Args:
        sampler: from :func:`specverify.registry.resolve`.
        case: the small case.
        check: family and name of the table, for example ``law/request 0: token 0``.
        trials: how many.
        tv: deviation that they were planned for.
        alpha: at which the table is rejected.
        seed: root of every random number.
        device: torch device type.
        what: ``step``, ``rounds`` or ``drafts``, as
            :func:`~specverify.checks.small_experiments.small_experiment`.

    Returns:
        the outcome, then observed and expected of the cells that deviate most.

    Raises:
        ValueError: if the case has no such check for this sampler.
    """
    settings = Settings(
        root_seed=seed, alpha=alpha, tv=tv, trials=trials, device=device, shrink=False
    )
    family = Family(check.partition("/")[0])
    experiment = small_experiment(case, what, (family,))
    verdicts = {v.check: v for v in experiment.run(sampler, settings)}
    if check not in verdicts:
        raise ValueError(f"check: got {check!r}; expected one of {', '.join(sorted(verdicts))}")
    return told(verdicts[check])


def compare(sampler: Subject, layout: Batch, *, seed: int, device: str = "cpu") -> str:
    """Hold an emission under injected coins against the reference, token for token.

    Args:
        sampler: from :func:`specverify.registry.resolve`.
        layout: with coins.
        seed: for torch's global generator.
        device: torch device type.
    """
    return _said(differences(sampler, layout, seed, device))


def holds(sampler: Subject, layout: Batch, name: str, *, seed: int, device: str = "cpu") -> str:
    """Ask for an exact property of one emission.

    Args:
        sampler: from :func:`specverify.registry.resolve`.
        layout: one batch.
        name: of the property, as in :mod:`specverify.checks.layout_properties`.
        seed: for torch's global generator.
        device: torch device type.
    """
    found = LayoutExperiment(
        suite="", case="", layouts=_none, holds=getattr(layout_properties, name)
    )
    return _said(found.asked(sampler, layout, seed=seed, device=device))


def relation(
    sampler: Subject,
    layout: Batch,
    name: str,
    *,
    case: str,
    copies: int = 1,
    coins: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> str:
    """Verify a batch twice, in other company or memory, and compare.

    Args:
        sampler: from :func:`specverify.registry.resolve`.
        layout: one batch.
        name: of the relation, as in :mod:`specverify.checks.relations`.
        case: of the suite, from which the seeds derive.
        copies: of the batch in a call.
        coins: whether they are injected.
        seed: of the run.
        device: torch device type.
    """
    experiment = MetamorphicExperiment(
        suite="metamorphic", case=case, layouts=_none, holds=getattr(relations, name), coins=coins
    )
    settings = Settings(root_seed=seed, device=device)
    return _said(experiment.problems(sampler, settings, layout, copies))


def _none(_capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Layouts are given here, so none are drawn."""
    raise NotImplementedError


def _said(problems: list[Problem]) -> str:
    if not problems:
        return "PASS: nothing is wrong with this layout"
    return "\n".join(f"FAIL {problem.text}" for problem in problems)


def told(verdict: Verdict) -> str:
    """A verdict with its cells, in lines."""
    lines = [f"{_WORDS[verdict.status]} {verdict.check}: {verdict.reason}"]
    lines += [
        f"  {cell.label}: observed {cell.observed:,}, expected {cell.expected:,.1f}"
        for cell in verdict.worst
    ]
    return "\n".join(lines)


_WORDS = {status: status.value.replace("-", " ").upper() for status in Status}
