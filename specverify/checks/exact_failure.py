"""The verdict of an exact check that searches layouts: where it fails, and the smallest layout."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from specverify.checks.diagnosis import Problem, Shrunk, ShrunkRequest
from specverify.checks.verdict import Asked, Status, Verdict, exact_verdict
from specverify.contract import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from specverify.checks.layout_search import Found


def answer(
    asked: Asked,
    *,
    unsupported: str | None,
    find: Callable[[], Found],
    snippet: Callable[[Found], str | None],
    holds: Callable[[Found], str],
) -> list[Verdict]:
    """The one verdict of an experiment that searches layouts.

    Args:
        asked: the experiment.
        unsupported: why the subject cannot be asked, ``None`` if it can; then nothing is searched.
        find: the search.
        snippet: lines of Python that show a failing layout, if there are any.
        holds: what is said of a search that found nothing.
    """
    started = time.perf_counter()
    if unsupported:
        return [
            exact_verdict(asked, asked.case, Status.NOT_SUPPORTED, unsupported, started=started)
        ]
    found = find()
    if found.problem is not None:
        return [failed_verdict(asked, found, snippet(found), started)]
    text = holds(found)
    return [
        exact_verdict(asked, asked.case, Status.PASS, text, trials=found.examples, started=started)
    ]


def failed_verdict(asked: Asked, found: Found, snippet: str | None, started: float) -> Verdict:
    """The FAIL of a search.

    Args:
        asked: the experiment.
        found: a search that ended with a failing layout.
        snippet: lines of Python that show it, if there are any.
        started: ``time.perf_counter()`` at the start.

    Raises:
        ValueError: if the search found nothing.
    """
    problem, batch, failure = found.problem, found.batch, found.failure
    if problem is None or batch is None or failure is None:
        raise ValueError("found: got a search without a failure; expected one that failed")
    verdict = exact_verdict(
        asked, asked.case, Status.FAIL, failure, trials=found.examples, started=started
    )
    return dataclasses.replace(
        verdict,
        request=problem.request,
        position=problem.position,
        branch=problem.branch,
        shrunk=shrunk_of(problem, batch, verdict.check, found.examples),
        snippet=snippet,
    )


def shrunk_of(problem: Problem, batch: Batch, check: str, tried: int) -> Shrunk:
    """A failing layout as a record.

    Args:
        problem: what is wrong with its answer.
        batch: the layout.
        check: name of the check.
        tried: layouts that were tried.
    """
    return Shrunk(
        requests=tuple(_request(batch, number) for number in range(batch.num_requests)),
        vocab=batch.vocab_size,
        dense=batch.draft_probs is not None,
        rows="as written down",
        check=check,
        reason=problem.text,
        request=problem.request,
        position=problem.position,
        branch=problem.branch,
        tried=tried,
    )


def _request(batch: Batch, number: int) -> ShrunkRequest:
    first, end = batch.cu_drafts[number : number + 2].tolist()
    tokens = tuple(batch.draft_token_ids[first:end].tolist())
    return ShrunkRequest(
        drafts=end - first,
        tokens=tokens,
        placeholders=tuple(slot for slot, token in enumerate(tokens) if token < 0),
        temperature=float(batch.temperature[number]),
        top_k=int(batch.top_k[number]),
        top_p=float(batch.top_p[number]),
        min_p=float(batch.min_p[number]),
    )
