"""The commands ``specverify ledger ...``; as thin as the other commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specverify._cli_errors import guarded, user_input

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="A ledger: the evidence of all runs with `--ledger FILE`.",
)

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
LedgerFile = Annotated[Path, typer.Argument(metavar="FILE", help="The ledger.")]
Confidence = Annotated[float, typer.Option(help="Of the certificates.")]


@app.command("show")
def show(
    file: LedgerFile,
    sampler: Annotated[str | None, typer.Option(help="Only samplers of this name.")] = None,
    case: Annotated[str | None, typer.Option(help="Only this case: CASE or SUITE/CASE.")] = None,
    confidence: Confidence = 0.999,
    debug: Debug = False,
) -> None:
    """What the runs found together: trials, seed ranges, deviation and its certificate.

    Example: `specverify ledger show nightly.ledger --case random/dense-V4-K2`
    """
    with guarded(debug), user_input():
        from specverify import _cli_ledger

        _cli_ledger.show(file, sampler, case, confidence)


@app.command("verify")
def verify(file: LedgerFile, debug: Debug = False) -> None:
    """Recompute checksums, digests, sums and ranges; exit with 1 if one does not hold.

    Example: `specverify ledger verify nightly.ledger`
    """
    with guarded(debug), user_input():
        from specverify import _cli_ledger

        code = _cli_ledger.verify(file)
    raise typer.Exit(code)


@app.command("export")
def export(
    file: LedgerFile,
    out: Annotated[Path, typer.Argument(help="The file to write: .csv or .parquet.")],
    format: Annotated[
        str | None, typer.Option(help="csv or parquet; by the name of OUT if not given.")
    ] = None,
    what: Annotated[str, typer.Option(help="shards, or cells with their counts.")] = "shards",
    debug: Debug = False,
) -> None:
    """Write a ledger as a flat table, CSV or Parquet.

    Example: `specverify ledger export nightly.ledger cells.csv --what cells`
    """
    with guarded(debug), user_input():
        from specverify import _cli_ledger

        _cli_ledger.export(file, out, format, what)
