"""The commands ``specverify ledger show``, ``verify`` and ``export``: what a ledger holds.

Nothing here loads a subject: the ledger stores the laws, so an account can be judged for as long
as the file exists.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specverify._ledger_certificate import account_certificate
from specverify.ledger import Account, Ledger, SeedRange, verify_file

_SHORT = 8  # digits of a digest: enough to tell two laws of one check apart
_RANGES = 4  # seed ranges that are spelled out


def show(
    path: Path, subject: str | None = None, case: str | None = None, confidence: float = 0.999
) -> None:
    """Print the accounts: trials, seed ranges, the total variation and its certificate.

    Args:
        path: of the ledger.
        subject: only subjects of this name.
        case: only this case, named ``case`` or ``suite/case``.
        confidence: of the certificates.

    Raises:
        ValueError: if the file is not a sound ledger, ``confidence`` is not inside (0, 1), or the
            filters leave nothing.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: got {confidence}; expected a number between 0 and 1")
    console = Console(highlight=False)
    with Ledger.open(path, read_only=True) as ledger:
        every = ledger.accounts()
        accounts = [account for account in every if _wanted(account, subject, case)]
        if every and not accounts:
            asked = {"subject": subject, "case": case}
            said = " and ".join(f"{name} {wanted!r}" for name, wanted in asked.items() if wanted)
            raise ValueError(f"ledger {path}: no account of {said}")
        for named, group in itertools.groupby(accounts, _subject):
            console.print(Text(named, style="bold"), _table(ledger, group, confidence))
    console.print(
        f"{len(accounts)} accounts. Each certificate bounds the true total variation with "
        f"confidence {confidence:g}, however often one looks."
    )


def verify(path: Path) -> int:
    """Recompute everything that can be recomputed, and print what does not hold.

    Returns:
        Exit code: 0 if the ledger is exact, 1 if not.

    Raises:
        ValueError: if the file is not a ledger or cannot be read.
    """
    console = Console(highlight=False)
    problems = verify_file(path)
    for problem in problems:
        console.print(Text(problem, style="red"))
    if problems:
        console.print(f"{len(problems)} problems in {path}")
        return 1
    with Ledger.open(path, read_only=True, check=False) as ledger:
        accounts = ledger.accounts()
    console.print(f"{path}: {len(accounts)} accounts, exact")
    return 0


def export(path: Path, out: Path, format: str | None = None, what: str = "shards") -> None:
    """Write the ledger as a flat table.

    Args:
        path: of the ledger.
        out: the file to write.
        format: ``csv`` or ``parquet``; by the name of ``out`` if not given.
        what: ``shards`` or ``cells``.

    Raises:
        ValueError: if the file is not a sound ledger, an argument is wrong, pyarrow is absent or
            ``out`` cannot be written.
    """
    chosen = format or out.suffix.removeprefix(".").lower()
    with Ledger.open(path, read_only=True) as ledger:
        rows = ledger.export(out, chosen, what)
    Console(highlight=False).print(f"{rows:,} rows of {what} in {out}")


def _wanted(account: Account, subject: str | None, case: str | None) -> bool:
    group = account.group
    return subject in (None, group.subject) and case in (
        None,
        group.case,
        f"{group.suite}/{group.case}",
    )


def _subject(account: Account) -> str:
    group = account.group
    return f"{group.subject} {group.version} on {group.device}"


def _table(ledger: Ledger, accounts: Iterable[Account], confidence: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("case", "check", "law"):
        table.add_column(name, overflow="fold")
    for name in ("shards", "trials"):
        table.add_column(name, justify="right")
    table.add_column("seed: trials", no_wrap=True)
    for name in ("TV", "certified TV <=", "log e"):
        table.add_column(name, justify="right")
    for account in accounts:
        table.add_row(*map(Text, _row(ledger, account, confidence)))
    return table


def _row(ledger: Ledger, account: Account, confidence: float) -> tuple[str, ...]:
    totals = ledger.totals(account)
    found = account_certificate(totals.counts, ledger.law(account), confidence)
    return (
        f"{account.group.suite}/{account.group.case}",
        account.table,
        account.law[:_SHORT],
        f"{totals.shards:,}",
        f"{totals.trials:,}",
        ranges(totals.ranges),
        f"{found.tv_observed:.5f}",
        f"{found.tv_upper:.5f}",
        "" if totals.log_e is None else f"{totals.log_e:.2f}",
    )


def ranges(parts: tuple[SeedRange, ...]) -> str:
    """Seed ranges, one a line: ``0: 0-999``."""
    said = [f"{part.root_seed}: {part.first_trial}-{part.stop - 1}" for part in parts[:_RANGES]]
    if len(parts) > _RANGES:
        said.append(f"and {len(parts) - _RANGES} more")
    return "\n".join(said)
