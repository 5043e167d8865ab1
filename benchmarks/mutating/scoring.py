"""What the results file says: the score of the tests, and the survivors that nobody explained.

``benchmarks/equivalent_mutants.json`` explains the others: a list of reasons, each with the
changes that it excuses, as the text that was replaced and what replaced it, and where.  A change
is looked for inside the line, so an excuse holds when the rest of the line becomes another.
"""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from scipy import stats

from mutating.children import say

EXCUSES = Path(__file__).parents[1] / "equivalent_mutants.json"

Record = dict[str, Any]


def stored(path: Path) -> dict[str, Record]:
    """The last result of every mutant in the file."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines if line.strip()]
    return {record["key"]: record for record in records}


def excuses() -> list[Record]:
    """The reasons that somebody gave."""
    return list(json.loads(EXCUSES.read_text(encoding="utf-8")))


def excuse(record: Record, reasons: list[Record]) -> str:
    """Why no test can notice this mutant; an empty text if nobody knows."""
    name = f"{record['module'].removeprefix('specverify.')}.{record['function']}"
    before, after = _sides(record["diff"])
    for reason in reasons:
        for change in reason["changes"]:
            if any(fnmatchcase(name, where) for where in change["where"]) and any(
                result == after for result in _replaced(before, change["from"], change["to"])
            ):
                return str(reason["why"])
    return ""


def _sides(diff: str) -> tuple[str, str]:
    """The removed and the added text, without what is spacing only."""
    lines = diff.split("\n")
    sides = ("\n".join(line[1:] for line in lines if line[:1] == sign) for sign in "-+")
    before, after = (_plain(side) for side in sides)
    return before, after


def _plain(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _replaced(text: str, old: str, new: str) -> Iterator[str]:
    """``text`` with one occurrence of ``old`` replaced, for each of them."""
    old, new = _plain(old), _plain(new)
    for found in re.finditer(re.escape(old), text):
        yield text[: found.start()] + new + text[found.end() :]


def report(records: list[Record], total: int) -> int:
    """Print the score of every module and of all, then the survivors that nobody has explained.

    Returns:
        How many those are.
    """
    reasons = excuses()
    excused: collections.Counter[str] = collections.Counter()
    for record in records:
        why = excuse(record, reasons) if record["status"] == "survived" else ""
        if why:
            record["status"] = "equivalent"
            excused[why] += 1
    rows: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for record in records:
        rows[record["module"].removeprefix("specverify.")][record["status"]] += 1
        rows["all"][record["status"]] += 1
    _print_scores(rows)
    say("\n| equivalent | why |\n|--:|---|")
    for why, count in excused.most_common():
        say(f"| {count} | {why} |")
    say(f"\n{len(records)} of {total} mutants have a result; all: {dict(rows['all'])}")
    if 0 < len(records) < total:
        sample = stats.binomtest(rows["all"]["survived"], len(records)).proportion_ci(0.95)
        say(f"unexplained among all, at 95 %: {sample.low:.2%} to {sample.high:.2%}")
        say("(a sample no longer, once tests were written for its survivors)")
    survivors = [record for record in records if record["status"] == "survived"]
    for record in survivors:
        say(f"\n{record['name']}\n{record['diff']}")
    return len(survivors)


def _print_scores(rows: dict[str, collections.Counter[str]]) -> None:
    say(f"| {'module':<30} | tried | noticed | equivalent | unexplained | score |")
    say("|---|--:|--:|--:|--:|--:|")
    for name, counts in sorted(rows.items()):
        tried, same, left = counts.total(), counts["equivalent"], counts["survived"]
        score = (tried - same - left) / max(1, tried - same)
        say(f"| {name:<30} | {tried} | {tried - same - left} | {same} | {left} | {score:.1%} |")
