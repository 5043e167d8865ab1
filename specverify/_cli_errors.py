"""How the command ends when something is wrong: one clear sentence, and a traceback on request."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager

import typer

_USAGE, _INCONCLUSIVE = 2, 3  # specverify.gate.ExitCode, here without its imports


class BadInputError(Exception):
    """Something that the user gave cannot be used."""


@contextmanager
def user_input() -> Generator[None, None, None]:
    """Around code that only checks what the user gave: every ValueError there is the user's."""
    try:
        yield
    except ValueError as error:
        raise BadInputError(str(error)) from error


@contextmanager
def guarded(debug: bool) -> Generator[None, None, None]:
    """Around a whole command: turn exceptions into a sentence and an exit code.

    Bad input exits with 2; a fault of specverify itself, which says nothing about the sampler, and
    Ctrl-C with 3.
    """
    try:
        yield
    except BadInputError as error:
        _end(str(error), debug, _USAGE)
    except KeyboardInterrupt:
        _end("interrupted", debug=False, code=_INCONCLUSIVE)
    except Exception as error:
        hint = "" if debug else "; run it again with --debug for the traceback"
        said = f"{type(error).__name__}: {error}".rstrip(": ")
        _end(f"an error of specverify itself, {said}{hint}", debug, _INCONCLUSIVE)


def _end(message: str, debug: bool, code: int) -> None:
    if debug:
        traceback.print_exc()
    sys.stderr.write(f"specverify: {message}\n")
    raise typer.Exit(code)
