"""Lines of Python that show one failure without the suites: pasted anywhere, they run.

They call :mod:`specverify.reproduce`, which asks the sampler once more and prints what it emitted
beside what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from specverify.checks import batch_text
from specverify.checks.experiment import Settings
from specverify.checks.small_cases import SmallCase
from specverify.checks.verdict import Verdict
from specverify.subjects import Subject

if TYPE_CHECKING:
    from specverify.checks.layout_search import Found
    from specverify.checks.metamorphic import MetamorphicExperiment

_IMPORTS = "from specverify import registry\nfrom specverify.reproduce import "


def statistical_snippet(
    subject: Subject, small: SmallCase, verdict: Verdict, settings: Settings, what: str = "step"
) -> str:
    """The lines that count one table of a small case again.

    Args:
        subject: that fails.
        small: the case.
        verdict: of the table.
        settings: with which it was counted.
        what: the kind of experiment, as of
            :func:`~specverify.checks.small_experiments.small_experiment`.
    """
    told = [f"trials={settings.trials}", f"tv={settings.tv}", f"alpha={settings.alpha:.17g}"]
    told += [f"seed={settings.root_seed}"] if settings.root_seed else []
    told += [f"device={settings.device!r}"] if settings.device != "cpu" else []
    told += [f"what={what!r}"] if what != "step" else []
    return (
        f"{_IMPORTS}SmallCase, SmallRequest, count\n"
        f"sampler = registry.resolve({subject.name!r})\n"
        f"case = {small.literal}\n"
        f"print(count(sampler, case, {verdict.check!r}, {', '.join(told)}))\n"
    )


def property_snippet(
    subject: Subject, found: Found, holds: Callable[..., object], seed: int, device: str
) -> str | None:
    """The lines that ask for an exact property of one layout again.

    Args:
        subject: that fails.
        found: the search, with its smallest layout.
        holds: the property, out of :mod:`~specverify.checks.layout_properties`.
        seed: for torch's global generator.
        device: torch device type.

    Returns:
        ``None`` if the property has no name there, or the layout is too large to be written down.
    """
    from specverify.checks import layout_properties

    name = getattr(holds, "__name__", "")
    if getattr(layout_properties, name, None) is not holds:
        return None
    return _of_layout(subject, found, "holds", f"{name!r}, {_place(seed, device)}")


def differential_snippet(subject: Subject, found: Found, seed: int, device: str) -> str | None:
    """The lines that compare one layout with the reference again; as :func:`property_snippet`."""
    return _of_layout(subject, found, "compare", _place(seed, device))


def relation_snippet(
    subject: Subject, found: Found, experiment: MetamorphicExperiment, settings: Settings
) -> str | None:
    """The lines that try a relation on one layout again; as :func:`property_snippet`."""
    from specverify.checks import relations

    name = getattr(experiment.holds, "__name__", "")
    if getattr(relations, name, None) is not experiment.holds:
        return None
    told = [repr(name), f"case={experiment.case!r}"]
    copies = settings.copies(subject.capabilities, experiment.copies)
    told += [f"copies={copies}"] if copies > 1 else []
    told += ["coins=True"] if experiment.coins else []
    told.append(_place(settings.root_seed, settings.device))
    return _of_layout(subject, found, "relation", ", ".join(told))


def _of_layout(subject: Subject, found: Found, function: str, arguments: str) -> str | None:
    if found.batch is None:
        return None
    layout = batch_text.literal(found.batch)
    if layout is None:
        return None
    names = ["batch", function, *(name for name in ("inf", "nan") if _written(name, layout))]
    return (
        f"{_IMPORTS}{', '.join(names)}\n"
        f"sampler = registry.resolve({subject.name!r})\n"
        f"layout = {layout}\n"
        f"print({function}(sampler, layout, {arguments}))\n"
    )


def _written(name: str, layout: str) -> bool:
    """Whether a number of that name stands in the text; packed words hold no brackets."""
    return re.search(rf"[\[ -]{name}[,\]]", layout) is not None


def _place(seed: int, device: str) -> str:
    return f"seed={seed}" + (f", device={device!r}" if device != "cpu" else "")
