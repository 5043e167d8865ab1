"""The commands ``specverify corpus ...``; as thin as the other commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specverify._cli_errors import guarded, user_input

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="A corpus: replay tokens that `run --corpus FILE` runs first.",
)

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="The corpus.")]


@app.command("add")
def add(
    file: File,
    tokens: Annotated[list[str], typer.Argument(metavar="TOKEN...", help="Replay tokens.")],
    debug: Debug = False,
) -> None:
    """Append tokens that the file does not hold yet; it is made if absent.

    Example: `specverify corpus add failures.corpus sv2.pJ3...`
    """
    with guarded(debug), user_input():
        from specverify import _cli_corpus

        _cli_corpus.add(file, tokens)


@app.command("show")
def show(file: File, debug: Debug = False) -> None:
    """The tokens of a corpus, in words.

    Example: `specverify corpus show failures.corpus`
    """
    with guarded(debug), user_input():
        from specverify import _cli_corpus

        _cli_corpus.show(file)
