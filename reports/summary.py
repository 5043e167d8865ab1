"""Results as Markdown, fit for the job summary of a CI system."""

from __future__ import annotations

import html
import itertools
import math
import re
from collections.abc import Iterable, Sequence

from specverify.reports.digest import digest
from specverify.reports.sentences import headline, paragraph

from specverify.results import Outcome, RunResults, VerdictRecord

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~&$])")
_BLANK = "-"
_NAMED = 10
_SHOWN = 5


def markdown(results: RunResults) -> str:
    """The whole report: verdict first, then what did not pass, then every suite."""
    settings = results.settings
    facts = [
        ("sampler", f"{settings.sampler.name} {settings.sampler.version or ''}".strip()),
        ("profile", settings.profile),
        ("seed", str(settings.seed)),
        ("device", settings.device),
        *([("ledger", settings.ledger)] if settings.ledger else []),
        ("run", f"{results.status.value}, {results.started}"),
        ("specverify", results.environment.packages.get("specverify-harness", "unknown")),
    ]
    parts = [
        f"## specverify: {escape(settings.sampler.name)}",
        f"**{results.verdict.word}**{escape(headline(results).removeprefix(results.verdict.word))}",
        escape(paragraph(results)),
        _table(("", ""), ((escape(name), escape(value)) for name, value in facts)),
        _problems(results),
        _smallest(results),
        _evidence(results),
        *_suites(results.verdicts),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Text as Markdown shows it literally, in one line: names come from the user's own code."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _problems(results: RunResults) -> str:
    bad = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE)
    rows = [verdict for status in bad for verdict in results.verdicts if verdict.status is status]
    strangers = [error for error in results.errors if error.where == "pytest"]
    lines = [f"- {escape(error.where)}: {escape(error.message)}" for error in strangers]
    if rows:
        lines.append(_table(
            ("check", "verdict", "where", "reason", "n", "p", "alpha", "replay"),
            ((escape(v.name), v.status.word, escape(_where(v)), escape(v.reason), _count(v.trials),
              _number(v.p_value),
              _number(v.alpha or None), f"`specverify replay {v.replay}`" if v.replay else _BLANK)
             for v in rows),
        ))  # fmt: skip
    return "\n\n".join(["### Not passed", *lines]) if lines else ""


def _where(verdict: VerdictRecord) -> str:
    return verdict.place if verdict.status is Outcome.FAIL else _BLANK


def _smallest(results: RunResults) -> str:
    """The smallest layouts that were found to fail still, each with lines that show it."""
    found = [v for v in results.verdicts if v.shrunk is not None and v.status is Outcome.FAIL]
    parts = []
    for verdict in found[:_SHOWN]:
        assert verdict.shrunk is not None
        lines = "\n".join(f"- {escape(line)}" for line in verdict.shrunk.lines)
        parts.append(f"**{escape(verdict.name)}**\n\n{lines}")
        if verdict.snippet:
            parts.append(_code(verdict.snippet))
    return "\n\n".join(["### Smallest failing layouts", *parts]) if parts else ""


def _code(text: str) -> str:
    """A fenced block that no text inside can end."""
    runs = re.findall(r"`+", text)
    fence = "`" * max(3, 1 + max(map(len, runs), default=0))
    return f"{fence}python\n{text.rstrip()}\n{fence}"


def _evidence(results: RunResults) -> str:
    """One line: the culprits, and the e-value of the whole run."""
    said = []
    if results.culprits:
        names = [escape(culprit.check) for culprit in results.culprits[:_NAMED]]
        more = len(results.culprits) - len(names)
        rest = f" and {more:,} more" if more else ""
        level = f"{results.settings.alpha:.3g}"
        said.append(f"**Culprits** (Holm's rule, alpha {level}): {', '.join(names)}{rest}.")
    if results.global_log_e is not None:
        said.append(
            f"All laws together: log e = {results.global_log_e:.4g}, where ln(1 / alpha) is "
            f"{math.log(1 / results.settings.alpha):.3g}."
        )
    return " ".join(said)


def _suites(verdicts: Sequence[VerdictRecord]) -> Iterable[str]:
    for suite, group in itertools.groupby(verdicts, key=lambda verdict: verdict.suite):
        rows = list(group)
        sums = digest(rows)
        counts = ", ".join(f"{n} {o.value}" for o, n in sorted(sums.counts.items()))
        title = f"<details><summary>{html.escape(suite)}: {counts}</summary>"
        body = _table(
            ("case", "check", "verdict", "n", "p", "detectable TV", "certified TV"),
            ((escape(v.case), escape(v.check), v.status.word, _count(v.trials), _number(v.p_value),
              _number(v.tv_detectable), _number(v.tv_certified)) for v in rows),
        )  # fmt: skip
        yield f"{title}\n\n{body}\n\n</details>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _count(number: int) -> str:
    return f"{number:,}" if number else _BLANK


def _number(value: float | None) -> str:
    return _BLANK if value is None else f"{value:.3g}"
