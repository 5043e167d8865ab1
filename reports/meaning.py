"""What a verdict means for whoever owns the sampler, told from the families of its checks."""

from __future__ import annotations

from specverify.reports.digest import digest
from specverify.reports.sentences import count

from specverify.results import Outcome, RunResults, VerdictRecord


def meaning(results: RunResults) -> str:
    """One sentence that follows the verdict; it claims no more than the families can say."""
    if results.verdict is Outcome.FAIL:
        return _failed(results)
    return {
        Outcome.PASS: "As far as these checks can see, the sampler keeps its promise.",
        Outcome.NOT_SUPPORTED: "Nothing is known about the sampler.",
    }.get(results.verdict, "More trials, or a run that ends, are needed before anything is said.")


def _of_drafts(verdict: VerdictRecord) -> bool:
    """Whether a check of a law looks at what a drafter proposes, not at what is emitted."""
    return verdict.family == "law" and ": draft " in verdict.check


def _law(results: RunResults) -> str:
    """What is known of the emitted law, which may be right though the rule is broken."""
    sums = digest(v for v in results.verdicts if v.family == "law" and not _of_drafts(v))
    passed = sums.count(Outcome.PASS)
    if passed and passed == sums.checks:
        return f"every check of the emitted law passed ({passed:,})"
    if passed:
        return f"{passed:,} of {count(sums.checks, 'check')} of the emitted law passed"
    return "no check of the emitted law was completed, so that may be wrong as well"


def _failed(results: RunResults) -> str:
    failed = [verdict for verdict in results.verdicts if verdict.status is Outcome.FAIL]
    failing = {verdict.family for verdict in failed}
    if failing == {"coupling"}:
        return f"The acceptance rule that the sampler declares is broken; {_law(results)}."
    if failing == {"independence"}:
        return "Requests or trials share randomness that they must not share."
    if failing == {"law"} and all(map(_of_drafts, failed)):
        return "The drafts do not have the distribution q that their drafter reports."
    if any(verdict.family == "law" and not _of_drafts(verdict) for verdict in failed):
        return "The emitted tokens do not have the distribution of the target."
    if failing == {"exact"}:
        return "A property that every single emission must have is violated."
    return "Several kinds of property are violated; begin with the exact ones."
