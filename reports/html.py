"""Results as one self-contained HTML file: no network, no script, light and dark, fit to print.

Every drawing is inline SVG written by the templates from places computed here in Python, so a
report needs no plotting library and the same results give the same bytes.  Names come from the
user's own code: all values are escaped by the template engine, and the page forbids scripts and
requests to itself by a content security policy besides.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path

import jinja2
from specverify.reports import checks, numbers
from specverify.reports.acceptance import Acceptance, acceptance
from specverify.reports.digest import Digest, digest
from specverify.reports.heat import Heat, heat
from specverify.reports.looks import path
from specverify.reports.meaning import meaning
from specverify.reports.sentences import headline, paragraph
from specverify.reports.strips import PAxis

from specverify.exam_results import ExamResults
from specverify.results import Outcome, RunResults

_TEMPLATES = Path(__file__).with_name("templates")

Facts = list[tuple[str, str, str]]
"""Name, value and a remark."""


@dataclasses.dataclass(frozen=True)
class Page:
    """What the template shows.

    Attributes:
        results: of the run.
        sentence: the verdict with its numbers, without its first word.
        meaning: what it means for the owner of the sampler.
        numbers: the numbers behind it.
        sums: of all checks.
        facts: what was decided before anything ran.
        first: the checks to look at first.
        suites: all checks.
        axes: of the p-values, each of which is drawn once.
        acceptance: by request.
        heat: matrix of the exam, ``None`` if none was given.
        command: the command line.
    """

    results: RunResults
    sentence: str
    meaning: str
    numbers: str
    sums: Digest
    facts: Facts
    first: list[checks.Check]
    suites: tuple[checks.Suite, ...]
    axes: list[PAxis]
    acceptance: tuple[Acceptance, ...]
    heat: Heat | None
    command: str

    @property
    def statuses(self) -> list[Outcome]:
        """Outcomes that occur, in a fixed order."""
        return [outcome for outcome in Outcome if self.sums.count(outcome)]


def html(results: RunResults, exam: ExamResults | None = None) -> str:
    """The report of a run, with the matrix of an exam if one is given."""
    suites = checks.by_suite(results.verdicts)
    word = results.verdict.word
    page = Page(
        results=results,
        sentence=headline(results).removeprefix(f"{word}: "),
        meaning=meaning(results),
        numbers=paragraph(results),
        sums=digest(results.verdicts),
        facts=_facts(results),
        first=checks.look_first(suites),
        suites=suites,
        axes=_axes(suites),
        acceptance=acceptance(results.verdicts),
        heat=None if exam is None else heat(exam),
        command=shlex.join(results.settings.command),
    )
    return _environment().get_template("report.html.jinja").render(page=page, Outcome=Outcome)


def _axes(suites: Sequence[checks.Suite]) -> list[PAxis]:
    strips = (check.p for suite in suites for case in suite.cases for check in case.checks)
    return list(dict.fromkeys(strip.axis for strip in strips if strip is not None))


def _facts(results: RunResults) -> Facts:
    settings = results.settings
    tests = f"{numbers.number(settings.alpha_per_test)} for each of {settings.tests:,} tests"
    cases = f"on {results.cases_finished:,} of {results.cases_planned:,} cases"
    facts = [
        ("checks", f"{len(results.verdicts):,}", cases),
        ("alpha", numbers.number(settings.alpha), tests if settings.tests else "no test spent any"),
        ("power", f"{settings.power:g}", _deviation(results)),
        ("seed", str(settings.seed), f"profile {settings.profile}"),
        ("device", settings.device, _workers(settings.workers)),
        ("specverify", results.environment.packages.get("specverify-harness", "unknown"),
         f"results schema {results.schema_version}"),
        ("started", results.started.replace("T", " ")[:16],
         f"{results.status.value} after {results.seconds:,.1f} s"),
        ("sampler version", settings.sampler.version or "unknown", ""),
    ]  # fmt: skip
    if settings.cases_file is not None:
        remark = f"SHA-256 {settings.cases_file.digest}"
        facts.append(("recorded rows", settings.cases_file.path, remark))
    return facts


def _deviation(results: RunResults) -> str:
    tv = results.settings.tv
    return "to catch the profile's TV" if tv is None else f"to catch TV {numbers.number(tv)}"


def _workers(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        number=numbers.number, count=numbers.count, p_value=numbers.p_value, path=path
    )
    return environment
