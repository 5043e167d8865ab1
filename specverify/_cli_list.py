"""The commands ``specverify list`` and ``specverify doctor``: what there is and what can run."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

_FAMILIES = (
    ("exact", "layout, support and greedy equality; no alpha, one violation fails"),
    ("independence", "no randomness is used twice; runs beside the laws"),
    ("law", "the emitted text follows the target; must hold for every lossless method"),
    ("coupling", "acceptance and residuals; must hold for the rule that a method declares"),
)


def samplers() -> None:
    """Print the registered samplers and why some cannot run here."""
    from specverify import registry

    table = _table("sampler", "version", "here", "registered as")
    for entry in registry.available():
        here = "yes" if entry.available else f"no: {entry.reason}"
        table.add_row(*map(Text, (entry.name, entry.version or "", here, entry.origin)))
    Console().print(table)
    Console().print("A sampler of your own: --sampler my_file:my_sampler", highlight=False)


def mutants() -> None:
    """Print the samplers with one known bug."""
    from specverify.mutants import MUTANTS

    table = _table("sampler", "kind", "needs", "wrong at", "bug", "seen at")
    for name, mutant in sorted(MUTANTS.items()):
        needs = " ".join(need.value for need in mutant.needs)
        where = ", ".join(sorted(place.value for place in mutant.where))
        row = (f"mutant:{name}", mutant.kind.value, needs, where, mutant.summary, mutant.seen_at)
        table.add_row(*map(Text, row))
    Console().print(table)


def lawful() -> None:
    """Print the correct samplers that are not the reference."""
    from specverify.mutants.lawful import LAWFUL

    table = _table("sampler", "what it does differently")
    for name, variant in sorted(LAWFUL.items()):
        table.add_row(Text(f"lawful:{name}"), Text(variant.summary))
    Console().print(table)


def suites() -> None:
    """Print the suites."""
    from specverify.suites import all_suites

    table = _table("suite", "cases", "what it verifies")
    for name, suite in all_suites().items():
        table.add_row(Text(name), str(len(suite.experiments)), Text(suite.summary))
    Console().print(table)


def checks(sampler: str) -> None:
    """Print every case with the number of statistical tests it would run on a sampler.

    Raises:
        ValueError: if there is no such sampler.
    """
    from specverify import registry
    from specverify.suites import all_suites

    subject = registry.resolve(sampler)
    families = _table("family", "what its checks ask")
    for row in _FAMILIES:
        families.add_row(*row)
    table = _table("suite", "case", f"statistical tests on {sampler}")
    for suite in all_suites().values():
        for experiment in suite.experiments:
            plan = experiment.plan(subject.capabilities)
            said = str(plan.tests) if plan.tests else "0: exact"
            if plan.unsupported is not None:
                said = f"not supported: {plan.unsupported}"
            table.add_row(Text(suite.name), Text(experiment.case), Text(said))
    Console().print(families, table)


def doctor() -> None:
    """Print versions, devices, and which samplers can run here."""
    import torch

    from specverify import environment

    found = environment.collect()
    table = _table("what", "found")
    table.add_row("Python", f"{found.implementation} {found.python}")
    table.add_row("platform", Text(found.platform))
    table.add_row("processors", str(found.cpu_count))
    for name in environment.PACKAGES:
        table.add_row(name, found.packages.get(name, "not installed"))
    cuda = range(torch.cuda.device_count())
    names = [f"cuda:{index} ({torch.cuda.get_device_name(index)})" for index in cuda]
    table.add_row("devices", Text(", ".join(["cpu", *names])))
    Console().print(table)
    samplers()


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(Text(name), overflow="fold")
    return table
