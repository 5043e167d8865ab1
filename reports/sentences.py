"""What a run came to, in plain sentences that claim no more than its records do."""

from __future__ import annotations

from specverify.reports.digest import digest, powered

from specverify.results import Outcome, RunResults, RunStatus


def headline(results: RunResults) -> str:
    """The verdict of the run and what it means, in one line."""
    say = {
        Outcome.PASS: _passed,
        Outcome.FAIL: _failed,
        Outcome.NOT_SUPPORTED: _not_supported,
    }.get(results.verdict, _inconclusive)
    return f"{results.verdict.word}: {say(results)}."


def paragraph(results: RunResults) -> str:
    """The numbers behind the verdict: alpha spent, trials, worst p-value, certificates."""
    sums, settings = digest(results.verdicts), results.settings
    parts = [f"{count(sums.checks, 'check')} on {count(results.cases_finished, 'case')}"]
    if settings.tests:
        parts.append(
            f"alpha {sums.alpha_spent:.3g} spent of {settings.alpha:.3g} "
            f"({settings.alpha_per_test:.3g} for each of {count(settings.tests, 'test')})"
        )
    if sums.trials:
        parts.append(f"{sums.trials:,} trials")
    if sums.worst is not None:
        parts.append(f"smallest p-value {sums.worst.p_value:.3g} ({sums.worst.name})")
    if sums.certified is not None:
        low, high = sums.certified
        bound = f"{low:.4f}" if low == high else f"{low:.4f} to {high:.4f}"
        parts.append(f"certified bounds on the TV {bound}, each with confidence "
                     f"{settings.confidence:g}")  # fmt: skip
    parts.append(f"{results.seconds:.1f} s")
    return "; ".join(parts) + "."


def count(number: int, noun: str) -> str:
    """The number with its noun, in the plural unless it is one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _passed(results: RunResults) -> str:
    sums = digest(results.verdicts)
    said = count(sums.count(Outcome.PASS), "check")
    if results.settings.tests:
        said += f", false-alarm probability of the whole run at most {results.settings.alpha:.3g}"
    else:
        said += ", all of them exact; no statistical test was run"
    said += _power(results)
    if sums.count(Outcome.NOT_SUPPORTED):
        said += (
            f"; {count(sums.count(Outcome.NOT_SUPPORTED), 'other check')} not supported by the "
            "sampler, so not verified"
        )
    return said


def _power(results: RunResults) -> str:
    reach = powered(results)
    if reach is None:
        return ""
    chance = f"with probability {reach.power:g}"
    if reach.beyond is None:
        return (
            f"; every law was powered to catch TV {reach.tv:.3f} in tables of up to "
            f"{count(reach.cells, 'cell')} {chance}"
        )
    if reach.cells:
        return (
            f"; every law was powered to catch TV {reach.tv:.3f} in tables of up to "
            f"{count(reach.cells, 'cell')}, and TV {reach.beyond:.3f} in larger ones (up to "
            f"{count(reach.largest, 'cell')}), {chance}"
        )
    return (
        f"; every law was powered to catch TV {reach.beyond:.3f} {chance}, which is more than "
        f"the {reach.tv:.3f} asked for"
    )


def _failed(results: RunResults) -> str:
    sums = digest(results.verdicts)
    said = f"{sums.count(Outcome.FAIL)} of {count(sums.checks, 'check')} reject the sampler"
    if results.settings.tests:
        said += (
            "; a run like this one rejects a correct sampler with probability at most "
            f"{results.settings.alpha:.3g}"
        )
    return said + _unfinished(results)


def _not_supported(results: RunResults) -> str:
    total = digest(results.verdicts).checks
    return (
        f"none of {count(total, 'check')} could be asked of this sampler, so nothing was "
        "verified; this is not a pass"
    )


def _inconclusive(results: RunResults) -> str:
    sums = digest(results.verdicts)
    why = []
    if sums.count(Outcome.INCONCLUSIVE):
        why.append(
            f"{sums.count(Outcome.INCONCLUSIVE)} of {count(sums.checks, 'check')} ended before "
            "the promised power was reached"
        )
    said = "; ".join(why) + _unfinished(results)
    return said.removeprefix("; ") + "; this is not a pass"


def _unfinished(results: RunResults) -> str:
    said = ""
    if results.errors:
        said += f"; {count(len(results.errors), 'error')} of the harness itself"
    missing = results.cases_planned - results.cases_finished
    if missing > 0:
        how = "was interrupted" if results.status is RunStatus.INTERRUPTED else "broke off"
        said += (
            f"; the run {how}, and {missing} of {count(results.cases_planned, 'case')} were not run"
        )
    return said
