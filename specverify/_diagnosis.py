"""A verdict in plain sentences: what failed tests, replays and error messages print."""

from __future__ import annotations

from specverify.results import ErrorRecord, Outcome, VerdictRecord

_WORST_SHOWN = 5


def diagnosis(verdict: VerdictRecord) -> str:
    """Several lines of text: the check and the reason, the numbers, the worst cells, the replay."""
    lines = [f"{verdict.status.word} {verdict.name}: {verdict.reason}"]
    numbers = _numbers(verdict)
    if numbers:
        lines.append("  " + ", ".join(numbers))
    shown = verdict.worst[:_WORST_SHOWN]
    if shown:
        width = max(len(cell.label) for cell in shown)
        lines.append("  cells that deviate most (observed / expected):")
        lines += [f"    {c.label:<{width}}  {c.observed:,} / {c.expected:,.1f}" for c in shown]
    if verdict.status is Outcome.FAIL:
        lines += _explained(verdict)
    if verdict.account_trials is not None:
        lines.append("  all runs in the ledger: " + ", ".join(_account(verdict)))
    if verdict.replay:
        lines.append(f"  specverify replay {verdict.replay}")
    if verdict.snippet:
        lines.append("  or, in Python:")
        lines += [f"    {line}" for line in verdict.snippet.splitlines()]
    return "\n".join(lines)


def error_text(error: ErrorRecord) -> str:
    """An error of the harness with its traceback."""
    return f"ERROR {error.where}: {error.message}\n{error.detail}".rstrip()


def _explained(verdict: VerdictRecord) -> list[str]:
    """Where it fails, why, and the smallest layout; the reason of an exact check holds that."""
    lines = [f"  where: {verdict.place}"]
    if verdict.cause and verdict.cause not in verdict.reason:
        lines.append(f"  likely cause: {verdict.cause}")
    found = verdict.shrunk
    if found is not None and "smallest layout" not in verdict.reason:
        lines.append("  smallest layout that was found to fail still:")
        lines += [f"    {line}" for line in found.lines]
        lines += [
            f"      {c.label}: observed {c.observed:,}, expected {c.expected:,.1f}"
            for c in found.worst[:_WORST_SHOWN]
        ]
    return lines


def _numbers(verdict: VerdictRecord) -> list[str]:
    numbers = []
    if verdict.trials:
        numbers.append(f"n = {verdict.trials:,}")
    if verdict.statistic is not None and verdict.value is not None:
        numbers.append(f"{verdict.statistic} = {verdict.value:.6g}")
    if verdict.p_value is not None:
        numbers.append(f"p = {verdict.p_value:.3g}")
    if verdict.alpha:
        numbers.append(f"alpha = {verdict.alpha:.3g}")
    if verdict.cells is not None:
        numbers.append(f"cells = {verdict.cells}")
    for name, value in (
        ("observed TV", verdict.tv_observed),
        ("detectable TV", verdict.tv_detectable),
        ("requested TV", verdict.tv_requested),
        ("certified TV <=", verdict.tv_certified),
    ):
        if value is not None:
            numbers.append(f"{name} {value:.4g}")
    return numbers


def _account(verdict: VerdictRecord) -> list[str]:
    said = [f"n = {verdict.account_trials:,}"]
    if verdict.account_log_e is not None:
        said.append(f"log e = {verdict.account_log_e:.4g}")
    if verdict.account_certified is not None:
        said.append(f"certified TV <= {verdict.account_certified:.4g}")
    return said
