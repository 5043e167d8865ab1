"""The command ``specverify accuracy``: do two benchmark scores differ, and could they have?

Either two accuracies and a number of questions, or two files of per-question results. A file is
JSON lines, one object a line with ``id`` and ``correct``, or CSV with those columns.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specverify.evidence import accuracies
from specverify.evidence import accuracy_power as planning
from specverify.evidence.barnard import MISS

_TRUE, _FALSE = ("1", "true", "yes"), ("0", "false", "no")
_MOST = 10**7


def accuracy(
    *,
    a: float | None = None,
    b: float | None = None,
    n: int | None = None,
    files: tuple[Path, Path] | None = None,
    discordance: float | None = None,
    alpha: float = 0.05,
    power: float = 0.9,
    confidence: float = 0.95,
) -> None:
    """Print whether two accuracies differ, and how many questions would be needed.

    Args:
        a: accuracy of A in [0, 1], with ``b`` and ``n``.
        b: accuracy of B.
        n: number of questions asked of each.
        files: per-question results of A and of B, instead of the three.
        discordance: share of questions answered differently, to plan paired comparisons with.
        alpha: false-alarm probability.
        power: probability of finding the difference.
        confidence: of the interval.

    Raises:
        ValueError: if an argument or a file cannot be used; says which and why.
    """
    if files is not None:
        if any(value is not None for value in (a, b, n)):
            raise ValueError("--files: got --a, --b or --n as well; expected either")
        found = compare_files(*files, alpha=alpha, power=power, confidence=confidence)
        stated = (found.accuracy_a, found.accuracy_b)
        names = (str(files[0]), str(files[1]))
    elif a is None or b is None or n is None:
        raise ValueError("accuracy: got too little; expected --a, --b and --n, or --files A B")
    else:
        found = _from_accuracies(a, b, n, alpha=alpha, power=power, confidence=confidence)
        stated, names = (a, b), ("A", "B")
    plan = questions_needed(found, stated, discordance)
    console = Console(highlight=False, soft_wrap=True)
    console.print(sentence(found, stated, plan), markup=False)
    console.print(_table(_rows(found, names)))
    if plan:
        console.print(f"Questions that would find this difference with power {power:g}:")
        console.print(_table([(what, f"{needed:,}") for what, needed in plan]))


def _table(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _from_accuracies(a: float, b: float, n: int, *, alpha: float, power: float, confidence: float
                     ) -> accuracies.AccuracyComparison:  # fmt: skip
    for name, value in (("--a", a), ("--b", b)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name}: got {value}; expected an accuracy from 0 to 1, such as 0.79")
    if not 1 <= n <= _MOST:
        raise ValueError(f"--n: got {n}; expected a number of questions from 1 to {_MOST:,}")
    return accuracies.compare_unpaired(
        round(a * n), n, round(b * n), n, alpha=alpha, power=power, confidence=confidence
    )


def compare_files(
    first: Path, second: Path, *, alpha: float, power: float, confidence: float
) -> accuracies.AccuracyComparison:
    """Pair two files of per-question results by question and compare them.

    Args:
        first: results of A.
        second: results of B, on the same questions in any order.
        alpha: false-alarm probability.
        power: of the promise.
        confidence: of the interval.

    Returns:
        The paired comparison.

    Raises:
        ValueError: naming the file, the line and what was expected.
    """
    right_a, right_b = read_results(first), read_results(second)
    for path, here, other, there in (
        (second, right_b, first, right_a),
        (first, right_a, second, right_b),
    ):
        missing = [question for question in there if question not in here]
        if missing:
            raise ValueError(
                f"{path}: got no result for {len(missing)} of the {len(there)} questions of "
                f"{other}, for example {missing[0]!r}; expected the same questions in both"
            )
    pairs = [(right_a[question], right_b[question]) for question in right_a]
    return accuracies.compare_paired(
        pairs.count((True, True)),
        pairs.count((True, False)),
        pairs.count((False, True)),
        len(pairs),
        alpha=alpha,
        power=power,
        confidence=confidence,
    )


def read_results(path: Path) -> dict[str, bool]:
    """Read per-question results.

    Args:
        path: a file that ends in .csv (columns id and correct), otherwise JSON lines.

    Returns:
        Whether the answer was right, by question, in the order of the file.

    Raises:
        ValueError: naming the file, the line and what was expected.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as text ({error})") from error
    rows = _csv_rows(path, text) if path.suffix.lower() == ".csv" else _json_rows(path, text)
    results: dict[str, bool] = {}
    for line, row in rows:
        question, correct = _result(f"{path}, line {line}", row)
        if question in results:
            raise ValueError(f"{path}, line {line}: got question {question!r} again; expected one "
                             "result for each")  # fmt: skip
        results[question] = correct
    if not results:
        raise ValueError(f"{path}: got no results; expected one for each question")
    return results


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(text.splitlines())
    columns = reader.fieldnames or []
    if not {"id", "correct"} <= set(columns):
        raise ValueError(f"{path}: got the columns {', '.join(columns) or 'none'}; expected id and "
                         "correct among them")  # fmt: skip
    for row in reader:
        yield reader.line_num, row


def _json_rows(path: Path, text: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
    for line, content in enumerate(text.splitlines(), 1):
        if not content.strip():
            continue
        try:
            row = json.loads(content)
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {line}: got {content.strip()[:40]}; expected an object "
                             'such as {"id": "q1", "correct": true}')  # fmt: skip
        yield line, row


def _result(where: str, row: Mapping[str, Any]) -> tuple[str, bool]:
    question, correct = row.get("id"), row.get("correct")
    if not isinstance(question, str | int) or isinstance(question, bool) or question == "":
        raise ValueError(f"{where}: got id {question!r}; expected a text or a whole number")
    said = str(correct).strip().lower() if isinstance(correct, bool | int | str) else ""
    if said not in _TRUE + _FALSE:
        raise ValueError(f"{where}: got correct {correct!r}; expected true or false, or 1 or 0")
    return str(question), said in _TRUE


def _rows(found: accuracies.AccuracyComparison, names: tuple[str, str]) -> list[tuple[str, str]]:
    sizes = (found.questions_a, found.questions_b)
    rows = [
        (f"accuracy of {name}", f"{value:.4f} ({round(value * size):,} of {size:,})")
        for name, value, size in zip(
            names, (found.accuracy_a, found.accuracy_b), sizes, strict=True
        )
    ]
    if found.only_a is not None:
        rows.append(("right only in the first, only in the second",
                     f"{found.only_a:,}, {found.only_b:,}"))  # fmt: skip
    told = f"{found.detectable:.4f}" if found.detectable < 1 else "none"
    return [
        *rows,
        ("difference", f"{found.difference:+.4f}"),
        (f"interval, confidence {found.confidence:g}", f"{found.low:+.4f} to {found.high:+.4f}"),
        (f"p-value, exact ({found.test})", _p(found).removeprefix("p = ").removeprefix("p ")),
        (f"difference that is found with power {found.power:g}", told),
    ]


def _p(found: accuracies.AccuracyComparison) -> str:
    # an unpaired p-value is not resolved below what Barnard's test adds to each
    unresolved = not found.paired and found.p_value < 10 * MISS
    return f"p < {10 * MISS:.0e}" if unresolved else f"p = {found.p_value:.3g}"


Plan = list[tuple[str, int]]


def sentence(found: accuracies.AccuracyComparison, stated: tuple[float, float], plan: Plan) -> str:
    """What the comparison says, for a person.

    Args:
        found: the comparison.
        stated: both accuracies as the user named them.
        plan: from :func:`questions_needed`, for the same design first.

    Returns:
        One to three sentences.
    """
    a, b = (f"{value:.4g}" for value in stated)
    n = f"{found.questions_a:,} {'question' if found.questions_a == 1 else 'questions'}"
    verdict = "tell" if found.rejected else "cannot tell"
    design = "exact paired test" if found.paired else "exact unpaired test"
    said = f"{n} {verdict} {a} from {b}: {_p(found)} ({design}, alpha {found.alpha:g})"
    if plan and not found.rejected:
        said += f"; {plan[0][1]:,} would be needed for power {found.power:g}"
    return said + "." + ("" if found.paired else _pairing(found))


def _pairing(found: accuracies.AccuracyComparison) -> str:
    """What the same questions could have told, were the single answers known."""
    n = found.questions_a
    gap = abs(round(found.accuracy_a * n) - round(found.accuracy_b * n))
    most = accuracies.most_discordant(gap, n, found.alpha) if gap else None
    if most is None or found.rejected:
        return ""
    return (
        f" If both got the same questions, compare the single answers (--files): the paired test "
        f"finds this difference when at most {most:,} of the {n:,} answers differ."
    )


def questions_needed(
    found: accuracies.AccuracyComparison,
    stated: tuple[float, float],
    discordance: float | None = None,
) -> Plan:
    """Questions needed to find a difference, by design; that of the comparison comes first.

    Args:
        found: the comparison.
        stated: the two accuracies to tell apart.
        discordance: share of questions answered differently, instead of the observed one (paired)
            or of independent errors and half of them (unpaired).

    Returns:
        What would be asked, and how often; empty if the accuracies are equal, 0 or 1.

    Raises:
        ValueError: if no two such accuracies have this discordance.
    """
    (a, b), level, power = stated, found.alpha, found.power
    size, independent = abs(a - b), planning.independent_discordance(a, b)
    if discordance is not None and not size - 1e-12 <= discordance <= 1:
        raise ValueError(f"--discordance: got {discordance}; expected a share from {size:.4g}, the "
                         "difference itself, to 1")  # fmt: skip
    if size == 0 or not (0 < a < 1 and 0 < b < 1):
        return []
    shares = {"independent errors": independent, "half of that": max(size, independent / 2)}
    if discordance is not None:
        shares = {"as asked": discordance}
    elif found.only_a is not None and found.only_b is not None:
        shares = {"as observed": (found.only_a + found.only_b) / found.questions_a}
    rows = [("other questions for each", planning.unpaired_questions_needed(a, b, level, power))]
    for name, share in shares.items():
        needed = planning.paired_questions_needed(size, share, level, power)
        rows.append((f"the same questions, {share:.1%} answered differently ({name})", needed))
    return rows[::-1] if found.paired else rows
