"""The command ``specverify replay``: one check again, alone, from its token."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from specverify import gate
from specverify._cli_errors import user_input
from specverify._cli_run import load_suites
from specverify._diagnosis import diagnosis, error_text
from specverify._options import announced_cases, open_subject
from specverify.replay import ReplayToken, find, rerun


def replay(text: str, cases: Path | None) -> int:
    """Run the check of a token and say whether it came out as it did before.

    Args:
        text: the token.
        cases: where the file of recorded rows is now, if it has moved.

    Returns:
        The exit code, as of a run.

    Raises:
        BadInputError: if the token, the file, or what the token names cannot be used here.
    """
    with user_input():
        token = ReplayToken.decode(text)
        options = token.options(cases)
    with announced_cases(options.cases):
        with user_input():
            suites = load_suites()
            find(suites, token.suite, token.case)
            open_subject(options)
        with Console(stderr=True).status(Text(f"running {token.suite}/{token.case}")):
            answer = rerun(token, options, suites)
    if answer.error is not None:
        sys.stderr.write(error_text(answer.error) + "\n")
    verdict = answer.verdicts[0]
    console = Console()
    console.print(Text(diagnosis(verdict)), soft_wrap=True)
    console.print(Text(_comparison(token, verdict.status.value, verdict.trials)))
    return int(gate.exit_code(verdict.status))


def _comparison(token: ReplayToken, outcome: str, trials: int) -> str:
    if (outcome, trials) == (token.outcome, token.n):
        return "Reproduced: the same verdict from the same number of trials."
    return (
        f"Not reproduced: the token was made by specverify {token.made_by} for the verdict "
        f"{token.outcome!r} after {token.n:,} trials. Something has changed since: the sampler, "
        "the harness, a package, or the machine (specverify doctor lists versions)."
    )
