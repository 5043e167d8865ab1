"""Results for a terminal: rich tables.

Names come from the user's own code, so they are put into :class:`rich.text.Text`, which knows no
markup, and never into strings that rich would interpret.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from specverify.reports.digest import digest
from specverify.reports.sentences import headline, paragraph

from specverify.results import Outcome, RunResults, VerdictRecord

STYLES = {
    Outcome.PASS: "bold green",
    Outcome.FAIL: "bold red",
    Outcome.INCONCLUSIVE: "bold yellow",
    Outcome.NOT_SUPPORTED: "cyan",
    Outcome.ERROR: "bold magenta",
}
"""The colour of each outcome, always beside its word."""

_BLANK = "-"
_SHOWN = 5


def report(results: RunResults) -> RenderableType:
    """The table of suites, the verdict and the numbers behind it."""
    word = results.verdict.word
    verdict = Text(word, style=STYLES[results.verdict])
    verdict.append(headline(results).removeprefix(word), style="default")
    return Group(suite_table(results), Text(), verdict, Text(paragraph(results)))


def failures(results: RunResults) -> RenderableType:
    """Where the first failures lie, with their smallest layouts; nothing if all passed."""
    bad = [verdict for verdict in results.verdicts if verdict.status is Outcome.FAIL]
    bad.sort(key=lambda verdict: (verdict.shrunk is None, verdict.cause is None))
    lines = []
    for verdict in bad[:_SHOWN]:
        lines.append(Text(f"{verdict.name}", style="bold"))
        lines.append(Text(f"  where: {verdict.place}"))
        if verdict.cause:
            lines.append(Text(f"  likely cause: {verdict.cause}"))
        if verdict.shrunk is not None:
            lines.append(Text("  smallest layout that was found to fail still:"))
            lines += [Text(f"    {line}") for line in verdict.shrunk.lines]
        if verdict.replay:
            lines.append(Text(f"  specverify replay {verdict.replay}", no_wrap=True))
    return Group(*lines)


def suite_table(results: RunResults) -> Table:
    """One line for each suite."""
    title = Text(f"sampler {results.settings.sampler.name}")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    present = {verdict.status for verdict in results.verdicts}
    shown = [o for o in Outcome if o in present or o in (Outcome.PASS, Outcome.FAIL)]
    table.add_column("suite")
    words = [outcome.value.replace("-", "\n") for outcome in shown]
    for name in (*words, "trials", "smallest\np", "detects\nTV", "certified\nTV"):
        table.add_column(name, justify="right")
    for suite, group in itertools.groupby(results.verdicts, key=lambda verdict: verdict.suite):
        table.add_row(Text(suite), *_suite_row(group, shown))
    return table


def _suite_row(verdicts: Iterable[VerdictRecord], shown: Iterable[Outcome]) -> list[RenderableType]:
    sums = digest(verdicts)
    counts: list[RenderableType] = [
        Text(str(sums.count(outcome)), style=STYLES[outcome])
        if sums.count(outcome)
        else Text(_BLANK, style="dim")
        for outcome in shown
    ]
    p_value = None if sums.worst is None else sums.worst.p_value
    return [
        *counts,
        f"{sums.trials:,}" if sums.trials else _BLANK,
        _BLANK if p_value is None else f"{p_value:.2g}",
        _largest(sums.detectable),
        _largest(sums.certified),
    ]


def _largest(bounds: tuple[float, float] | None) -> str:
    return _BLANK if bounds is None else f"<= {bounds[1]:.4f}"
