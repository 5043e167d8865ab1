"""Run a corpus before everything else; add tokens to one, show one."""

from __future__ import annotations

import dataclasses
import datetime
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from specverify import corpus, environment, replay
from specverify._diagnosis import error_text
from specverify._options import RunOptions, announced_cases
from specverify.checks.experiment import Suite
from specverify.corpus import Entry
from specverify.results import (
    Outcome,
    RunResults,
    RunSettings,
    RunStatus,
    SamplerRecord,
    VerdictRecord,
)
from specverify.subjects import Subject

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class First:
    """What became of a corpus.

    Attributes:
        outcome: FAIL if a token failed again, INCONCLUSIVE if one could not be decided.
        verdicts: one for each token that was run, those behind the first failure left out.
        failed: the token that failed again.
        alpha: what the suites may still spend.
    """

    outcome: Outcome
    verdicts: tuple[VerdictRecord, ...]
    failed: Entry | None
    alpha: float


def chosen(options: RunOptions) -> tuple[list[Entry], list[Entry]]:
    """The tokens that a run replays, and those that it leaves out.

    Raises:
        ValueError: as :func:`specverify.corpus.read`.
    """
    if options.corpus is None:
        return [], []
    entries = corpus.read(options.corpus)
    if options.corpus_all:
        return entries, []
    return corpus.of_sampler(entries, options.sampler)


def alpha_left(options: RunOptions) -> float:
    """What the suites of a run may spend: alpha less the shares of its corpus.

    Raises:
        ValueError: as :func:`specverify.corpus.read`.
    """
    entries, _ = chosen(options)
    return options.alpha - sum(corpus.shares(entries, options.alpha))


def run_first(options: RunOptions, say: Say) -> First:
    """Replay the corpus of a run, token by token, until one fails.

    Args:
        options: of the run, with a corpus.
        say: prints a line.

    Raises:
        ValueError: naming the line of a token that cannot be run here.
    """
    from specverify.suites import all_suites

    entries, others = chosen(options)
    if others:
        names = sorted({entry.token.sampler for entry in others})
        say(
            f"corpus: {len(others)} of {len(entries) + len(others)} tokens were made for "
            f"{', '.join(names)} and are left out; --corpus-all runs them on {options.sampler}"
        )
    suites, verdicts = all_suites(), []
    for entry, alpha in zip(entries, corpus.shares(entries, options.alpha), strict=True):
        verdict = _replayed(entry, alpha, options, suites)
        verdicts.append(verdict)
        if verdict.status is Outcome.FAIL:
            say(f"corpus: line {entry.line} of {options.corpus} FAILS AGAIN: {entry.name}")
            return First(Outcome.FAIL, tuple(verdicts), entry, alpha_left(options))
        say(f"corpus: line {entry.line}: {verdict.status.word} {entry.name}")
    return First(_worst(verdicts), tuple(verdicts), None, alpha_left(options))


def results_of(options: RunOptions, subject: Subject, first: First) -> RunResults:
    """The record of a run that ended with its corpus.

    Args:
        options: of the run.
        subject: the sampler.
        first: what became of the corpus.
    """
    verdicts = {verdict.name: verdict for verdict in first.verdicts}  # a failure is the last
    tested = [verdict.alpha for verdict in verdicts.values() if verdict.alpha]
    settings = RunSettings(
        sampler=SamplerRecord(name=subject.name, version=subject.version),
        suites=tuple(sorted({verdict.suite for verdict in verdicts.values()})),
        seed=options.seed, alpha=options.alpha, alpha_per_test=max(tested, default=options.alpha),
        tests=len(tested), power=options.power, tv=options.tv,
        confidence=options.settings(options.alpha).confidence, profile=options.profile,
        device=options.device, command=("specverify", *sys.argv[1:]),
    )  # fmt: skip
    return RunResults(
        status=RunStatus.FINISHED,
        verdict=first.outcome,
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seconds=sum(verdict.seconds for verdict in first.verdicts),
        cases_planned=len(verdicts),
        cases_finished=len(verdicts),
        settings=settings,
        environment=environment.collect(),
        verdicts=tuple(verdicts[name] for name in sorted(verdicts)),
    )


def _replayed(
    entry: Entry, alpha: float, options: RunOptions, suites: Mapping[str, Suite]
) -> VerdictRecord:
    token = entry.token.model_copy(update={"alpha": alpha, "sampler": options.sampler})
    try:
        own = token.options(options.cases if token.cases_path is not None else None)
        own = dataclasses.replace(own, device=options.device)
        with announced_cases(own.cases):
            answer = replay.rerun(token, own, suites)
    except ValueError as error:
        raise ValueError(f"corpus: {options.corpus}, line {entry.line}: {error}") from None
    if answer.error is not None:
        raise ValueError(f"corpus: {options.corpus}, line {entry.line}: {error_text(answer.error)}")
    return answer.verdicts[0]


def _worst(verdicts: list[VerdictRecord]) -> Outcome:
    from specverify import gate

    return gate.overall(v.status for v in verdicts) if verdicts else Outcome.PASS


def add(file: Path, tokens: list[str]) -> None:
    """Append tokens to a corpus and say what was new.

    Raises:
        ValueError: as :func:`specverify.corpus.add`.
    """
    added = corpus.add(file, tokens)
    for token in added:
        typer.echo(f"added {token.suite}/{token.case}/{token.check} ({token.sampler})")
    known = len(tokens) - len(added)
    if known:
        typer.echo(f"{known} already there")


def show(file: Path) -> None:
    """Print the tokens of a corpus in words.

    Raises:
        ValueError: as :func:`specverify.corpus.read`.
    """
    console = Console()
    for entry in corpus.read(file):
        token = entry.token
        said = f"{entry.line}: {entry.name} ({token.sampler}, seed {token.seed}): {token.outcome}"
        console.print(Text(said), soft_wrap=True)
