"""Does a failure name the right branch?  Every mutant, what is said of it, and where its fault is.

    python benchmarks/diagnoses.py [--mutants NAME ...] [--workers 1] [--rows FILE]
        [--markdown docs/diagnoses.md]

Of each mutant the suites are run that it names (docs/samplers.md), until one of their cases fails;
that failure is shrunk and explained as in `specverify run`.  The place that it names (a branch of
the verification step; another request, call or round; the form of the emission; the drafts) is
held against the places whose decisions the mutant makes wrong, which are declared with it.  Exit
code 1 if fewer than 9 of 10 are right.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import multiprocessing
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from specverify.suites import all_suites

from specverify.checks.branches import first_fault
from specverify.checks.diagnosis import Branch
from specverify.checks.experiment import PROFILES, Experiment, Settings
from specverify.checks.shrink import Shrinking
from specverify.checks.statistical import budget
from specverify.checks.suspicion import branch_of
from specverify.checks.verdict import Family, Status, Verdict
from specverify.exam import FIRST_STAGE, layers_of
from specverify.mutants import MUTANTS, Kind, Mutant, Place
from specverify.registry import resolve
from specverify.subjects import Subject

BAR = 0.9
ALPHA = 1e-9
SEED = 0
SHRINK_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What was said of one mutant.

    Attributes:
        mutant: its name.
        where: places whose decisions it makes wrong.
        named: the place that the failure names, ``None`` if it names none.
        check: suite, case and check that failed.
        at: request and position.
        cause: the likely cause that was named.
        smallest: the smallest layout.
        seconds: processor time, from the first trial to the smallest layout.
    """

    mutant: str
    where: list[str]
    named: str | None
    check: str
    at: str
    cause: str
    smallest: str
    seconds: float

    @property
    def right(self) -> bool:
        """Whether the place that was named is one of the mutant's."""
        return self.named in self.where


COMPANY = frozenset({"seed-matters", "position-matters", "asked-again", "split", "permuted",
                     "batch-sizes"})  # fmt: skip
"""Relations of the metamorphic suite that concern other requests or calls, beside ``beside-*``."""


def place_of(verdict: Verdict) -> Place | None:
    """The place that one failure names.

    A branch where it has one; else what kind of check failed: pairs that are not independent, and
    relations between a request and its neighbours, say that requests are not apart; a count that
    cannot be says that the emission has the wrong form.
    """
    branch = (verdict.shrunk and verdict.shrunk.branch) or verdict.branch
    company = verdict.case in COMPANY or verdict.case.startswith("beside-")
    if verdict.suite == "metamorphic" and company:
        return Place.REQUEST
    apart = verdict.family is Family.INDEPENDENCE or verdict.suite == "independence"
    if apart and verdict.branch is not Branch.DRAFTED:
        return Place.REQUEST  # who is not apart matters, whatever the smallest layout is made of
    if branch is not None:
        return Place(branch.value)
    return Place.LAYOUT if "num_emitted" in verdict.reason else None


def in_turn(experiments: Sequence[Experiment]) -> list[Experiment]:
    """The cases of a suite; what is drafted is decided first, so the laws of drafts speak first."""
    return sorted(experiments, key=lambda one: getattr(one, "what", "") != "drafts")


def diagnose(name: str) -> Diagnosis:
    """Run the suites that a mutant names until one fails, and read what is said of it."""
    torch.set_num_threads(1)
    mutant, subject, suites = MUTANTS[name], resolve(f"mutant:{name}"), all_suites()
    started = time.process_time()
    settings = Settings(
        root_seed=SEED, alpha=ALPHA, tv=mutant.tv or 0.02, profile=PROFILES["quick"]
    )
    full = budget(settings, mutant.tv or 0.02)[1]
    for trials in (FIRST_STAGE, full):
        for experiment in (
            one for layer in layers_of(mutant) for one in in_turn(suites[layer].experiments)
        ):
            plan = experiment.plan(subject.capabilities)
            if plan.unsupported or (plan.tests == 0 and trials == full):
                continue
            asked = dataclasses.replace(settings, trials=trials if plan.tests else None)
            verdicts = experiment.run(subject, asked)
            if any(verdict.status is Status.FAIL for verdict in verdicts):
                said = _explained(experiment, subject, settings, verdicts)
                if all(place_of(one) is None for one in said if one.status is Status.FAIL):
                    said = [*_by_rule(subject, asked), *said]
                return _told(mutant, said, time.process_time() - started)
    return Diagnosis(name, _places(mutant), None, "not caught", "", "", "", 0.0)


def _explained(
    experiment: object, subject: Subject, settings: Settings, verdicts: list[Verdict]
) -> list[Verdict]:
    """As the command does it: the first failure of its kind is shrunk."""
    return Shrinking(seconds=SHRINK_SECONDS).explain(
        experiment,
        subject,
        settings,
        verdicts,
    )


def _by_rule(subject: Subject, settings: Settings) -> list[Verdict]:
    """What the acceptance suite says beside it: the first decision that breaks the declared rule.

    Text alone does not always tell which branch is wrong, and of a rule that is not declared
    nothing else can be asked.
    """
    for experiment in all_suites()["acceptance"].experiments:
        plan = experiment.plan(subject.capabilities)
        if plan.tests:
            fault = first_fault(experiment.run(subject, settings))
            if fault is not None:
                return [fault]
    return []


def _told(mutant: Mutant, verdicts: Sequence[Verdict], seconds: float) -> Diagnosis:
    """The failure that was shrunk speaks for all if it names a place, else the first that does."""
    failed = [verdict for verdict in verdicts if verdict.status is Status.FAIL]
    failed.sort(key=lambda verdict: (place_of(verdict) is None, verdict.shrunk is None))
    spoken = failed[0]
    place = place_of(spoken)
    shrunk = spoken.shrunk
    at = (shrunk or spoken).request, (shrunk or spoken).position
    words = [f"{what} {number}" for what, number in zip(("request", "position"), at, strict=True)
             if number is not None]  # fmt: skip
    causes = [
        verdict.cause
        for verdict in (spoken, *failed)
        if verdict.cause and branch_of(verdict.cause) in (None, place)
    ]
    return Diagnosis(
        mutant=mutant.name,
        where=_places(mutant),
        named=None if place is None else place.value,
        check=f"{spoken.suite}/{spoken.case}: {spoken.check}",
        at=", ".join(words),
        cause=causes[0] if causes else "",
        smallest=""
        if shrunk is None
        else f"B = {len(shrunk.requests)}, V = {shrunk.vocab}, "
        f"k = {', '.join(str(request.drafts) for request in shrunk.requests)}; {shrunk.rows}",
        seconds=round(seconds, 1),
    )


def _places(mutant: Mutant) -> list[str]:
    return sorted(place.value for place in mutant.where)


def score(found: Sequence[Diagnosis]) -> float:
    """Share of the mutants whose place was named right."""
    return sum(one.right for one in found) / max(1, len(found))


def markdown(found: Sequence[Diagnosis]) -> str:
    """The table of docs/diagnoses.md."""
    single = [one for one in found if len(one.where) == 1]
    caused = sum(bool(one.cause) for one in found)
    lines = [
        "# What failures say",
        "",
        "Of every mutant the failure of a suite that it names (docs/samplers.md), shrunk and",
        "explained as `specverify run` does it: the place that it names, against the places whose",
        "decisions the bug makes wrong. *accepted*, *recovered* and *bonus* are the branches of a",
        "verification step (*bonus*: the token drawn when nothing is left to verify), *drafted* is",
        "the drafter's side, *request* says that a request depends on another one, on another call",
        "or on another round, *layout* that the emission has the wrong form.",
        "",
        f"**{sum(one.right for one in found)} of {len(found)} name the right place**"
        f"; of the {len(single)} whose fault lies in one place alone, "
        f"{sum(one.right for one in single)}. A likely cause is named in {caused}.",
        "",
        "| mutant | fault lies in | named | | check that failed | where | likely cause | "
        "smallest layout |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        cells = (
            f"`{one.mutant}`", ", ".join(one.where), one.named or "nothing",
            "right" if one.right else "**wrong**", one.check, one.at, one.cause, one.smallest,
        )  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines += ["", "Written by `python benchmarks/diagnoses.py --markdown docs/diagnoses.md`."]
    return "\n".join(lines) + "\n"


def sentence(one: Diagnosis) -> str:
    """One line."""
    word = "right" if one.right else "WRONG"
    kind = "" if MUTANTS[one.mutant].kind is Kind.LOSSY else f" ({Kind.SLOW})"
    return (
        f"{one.mutant}{kind}: {word}: {one.named} of {', '.join(one.where)}; {one.check}; "
        f"{one.at}; {one.cause or 'no cause'}; {one.smallest} ({one.seconds} s)"
    )


def load(path: Path | None) -> list[Diagnosis]:
    """What is known already; nothing without a file."""
    if path is None or not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Diagnosis(**json.loads(line)) for line in lines if line]


def keep(path: Path | None, one: Diagnosis) -> None:
    """Add a line to the file, if there is one."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(one)) + "\n")


def _result(future: concurrent.futures.Future[Diagnosis]) -> Diagnosis:
    return future.result()


def main(given: Sequence[str] | None = None) -> int:
    """Diagnose everybody, write the table, and hold the score against the bar."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutants", nargs="+", default=sorted(MUTANTS), choices=sorted(MUTANTS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rows", type=Path, help="JSON lines; mutants that it holds are not asked")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    options = parser.parse_args(given)
    known = {one.mutant: one for one in load(options.rows)}
    todo = [name for name in options.mutants if name not in known]
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.workers, mp_context=spawn) as pool:
        tasks = [pool.submit(diagnose, name) for name in todo]
        for one in map(_result, concurrent.futures.as_completed(tasks)):
            known[one.mutant] = one
            keep(options.rows, one)
            print(sentence(one), flush=True)
    found = [known[name] for name in options.mutants]
    if options.markdown is not None:
        options.markdown.write_text(markdown(found), encoding="utf-8")
    reached = score(found)
    print(f"{sum(one.right for one in found)} of {len(found)} name the right place: {reached:.0%}, "
          f"bar {BAR:.0%}")  # fmt: skip
    return 0 if reached >= BAR else 1


if __name__ == "__main__":
    raise SystemExit(main())
