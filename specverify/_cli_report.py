"""The ``report`` command: show a results.json again, in the terminal or as one HTML file."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from specverify._cli_errors import user_input
from specverify.exam_results import ExamResults, load_exam
from specverify.results import RunResults, load, write_text


def report(results: Path, html: Path | None, exam: Path | None) -> None:
    """Read results and show them.

    Args:
        results: a file that ``specverify run`` wrote.
        html: file to write; ``None`` prints the tables of the terminal instead.
        exam: file that ``specverify mutants`` wrote, for the heat map of the HTML file.

    Raises:
        BadInputError: if a file cannot be read or written, or holds something else.
    """
    with user_input():
        if exam is not None and html is None:
            raise ValueError("exam: the matrix is part of the HTML file; name one with --html")
        found, matrix = _read(results), None if exam is None else _read_exam(exam)
        if html is not None:
            prepare(html)
    if html is None:
        from specverify.reports.terminal import failures
        from specverify.reports.terminal import report as tables

        console = Console()
        # soft_wrap: a replay line that is broken into two cannot be copied.
        console.print(failures(found), soft_wrap=True)
        console.print(tables(found))
    else:
        write(found, html, matrix)


def prepare(html: Path) -> None:
    """Make sure before a long run that its report can be written.

    Raises:
        ValueError: if that is not possible.
    """
    from specverify._options import prepare_out

    if html.is_dir():
        raise ValueError(f"html: got {str(html)!r}, which is a folder; expected a file to write")
    try:
        prepare_out(html.parent)
    except ValueError as error:
        raise ValueError(str(error).replace("out:", "html:", 1)) from None


def write(results: RunResults, html: Path, exam: ExamResults | None = None) -> None:
    """Write the HTML report and say where it is."""
    from specverify.reports.html import html as page

    write_text(html, page(results, exam))
    Console().print(f"Report written to {html}", markup=False, highlight=False, soft_wrap=True)


def _read(path: Path) -> RunResults:
    try:
        return load(path)
    except OSError as error:
        raise ValueError(_unreadable("results", path, error)) from None


def _read_exam(path: Path) -> ExamResults:
    try:
        return load_exam(path)
    except OSError as error:
        raise ValueError(_unreadable("exam", path, error)) from None


def _unreadable(field: str, path: Path, error: OSError) -> str:
    return f"{field}: got {str(path)!r}, which cannot be read ({error.strerror or error})"
