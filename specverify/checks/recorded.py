"""Experiments on recorded rows of a real model.

Two questions for every recorded step.  *First token* (law): a fresh draft is drawn from the
recorded q at the first position and verified; whatever the rule, the first emitted token follows
the recorded p.  *Step* (coupling): the recorded drafts are verified again and again; accepted
length and last token follow the exact conditional law of the declared rule.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

import numpy as np
import torch

from specverify import laws
from specverify.cases import Case, FloatArray, TableRequest
from specverify.checks.experiment import Settings
from specverify.checks.law_tables import law_tables
from specverify.checks.statistical import StatisticalExperiment
from specverify.checks.tables import Table, allowing
from specverify.checks.verdict import Family
from specverify.contract import PLACEHOLDER, AcceptanceRule, Capabilities
from specverify.recorded import RecordedRows
from specverify.trials import IntArray, Outcomes

SUITE = "recorded"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedExperiment(StatisticalExperiment):
    """One question about one recorded step; real rows are wide, so the deviation is a wider one."""

    question: Callable[[Case, Capabilities], tuple[Table, ...]]

    def tables(self, case: Case, capabilities: Capabilities) -> tuple[Table, ...]:
        """The tables of the question."""
        found = self.question(case, capabilities)
        return tuple(allowing(table, capabilities.arithmetic, case.vocab_size) for table in found)

    def requested_tv(self, settings: Settings, capabilities: Capabilities) -> float:  # noqa: ARG002
        """The run's deviation if it names one, else the profile's for recorded rows."""
        return settings.profile.tv_recorded if settings.tv is None else settings.tv


def recorded_experiments(rows: RecordedRows) -> tuple[RecordedExperiment, ...]:
    """Both questions for every step of a file."""
    return tuple(
        experiment for step in range(rows.num_requests) for experiment in _of_step(rows, step)
    )


def _of_step(rows: RecordedRows, step: int) -> Iterator[RecordedExperiment]:
    yield RecordedExperiment(
        suite=SUITE,
        case=f"step-{step}-first-token",
        make=functools.cache(functools.partial(_first_token_case, rows, step)),
        question=_first_token_tables,
    )
    if int(rows.cu_drafts[step + 1] - rows.cu_drafts[step]) > 0:
        yield RecordedExperiment(
            suite=SUITE,
            case=f"step-{step}-recorded-drafts",
            make=functools.cache(functools.partial(_step_case, rows, step)),
            question=_step_tables,
        )


def _request(rows: RecordedRows, step: int, length: int) -> TableRequest:
    """The first ``length`` drafts of a recorded step, drawn as they were recorded."""
    first = int(rows.cu_drafts[step])
    row = first + step
    ids = rows.draft_token_ids[first : first + length]
    one_hot = torch.nn.functional.one_hot(ids.clamp(min=0), rows.vocab_size).float()
    shown = rows.draft_probs
    if shown is not None:  # the row of a placeholder may hold anything: nobody reads it
        proposed = (ids != PLACEHOLDER)[:, None]
        shown = torch.where(proposed, shown[first : first + length], one_hot.to(shown.dtype))
    return TableRequest(
        target=_rows(rows.target_logits[row : row + length + 1]),
        draft=_rows(one_hot),
        shown=None if shown is None else _rows(shown),
        temperature=float(rows.temperature[step]),
        top_k=int(rows.top_k[step]),
        top_p=float(rows.top_p[step]),
        min_p=float(rows.min_p[step]),
        placeholders=frozenset(int(j) for j in torch.nonzero(ids == PLACEHOLDER).squeeze(1)),
    )


def _rows(table: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The rows of a table as tables of one row each."""
    return tuple(table[i : i + 1] for i in range(table.shape[0]))


def _first_token_case(rows: RecordedRows, step: int) -> Case:
    """A fresh draft from the recorded q (or the recorded one-hot draft) at the first position."""
    count = int(rows.cu_drafts[step + 1] - rows.cu_drafts[step])
    request = _request(rows, step, min(count, 1))
    if request.shown:
        request = dataclasses.replace(request, draft=request.shown, shown=None)
    return _case(rows, f"step-{step}-first-token", request)


def _step_case(rows: RecordedRows, step: int) -> Case:
    count = int(rows.cu_drafts[step + 1] - rows.cu_drafts[step])
    return _case(rows, f"step-{step}-recorded-drafts", _request(rows, step, count))


def _case(rows: RecordedRows, name: str, request: TableRequest) -> Case:
    # The digest is in the name: other rows draw from other streams.
    full = f"{SUITE}/{_digest(rows)[:16]}/{name}"
    dense = rows.draft_probs is not None and request.num_drafts > 0
    return Case(name=full, requests=(request,), dense=dense)


@functools.lru_cache(maxsize=2)
def _digest(rows: RecordedRows) -> str:
    return rows.digest()


@functools.lru_cache(maxsize=8)
def _cached_law_tables(case: Case, convention: str) -> tuple[Table, ...]:
    return tuple(
        dataclasses.replace(table, law=functools.cache(table.law))
        for table in law_tables(case, convention)[:1]
    )


def _first_token_tables(case: Case, capabilities: Capabilities) -> tuple[Table, ...]:
    return _cached_law_tables(case, capabilities.convention)


@functools.lru_cache(maxsize=8)
def _cached_step_table(case: Case, convention: str, one_hot: bool) -> Table:
    request = case.requests[0]
    return Table(
        name="accepted length and last token, given the recorded drafts",
        family=Family.COUPLING,
        shape=(request.num_drafts + 1, case.vocab_size),
        index=functools.partial(_length_and_last, vocab=case.vocab_size),
        law=functools.cache(functools.partial(_conditional, request, convention, one_hot)),
        axes=("accepted", "last token"),
        request=0,
    )


def _step_tables(case: Case, capabilities: Capabilities) -> tuple[Table, ...]:
    if capabilities.acceptance is AcceptanceRule.UNDECLARED:
        return ()
    one_hot = capabilities.acceptance is AcceptanceRule.MATCH or not case.dense
    return (_cached_step_table(case, capabilities.convention, one_hot),)


def _length_and_last(outcomes: Outcomes, *, vocab: int) -> IntArray:
    return np.asarray(outcomes.accepted[:, 0] * vocab + outcomes.last[:, 0])


def _conditional(request: TableRequest, convention: str, one_hot: bool) -> FloatArray:
    target = np.concatenate(request.target_tables(convention))
    drafts = np.array([int(table.argmax()) for table in request.draft])
    drafts[sorted(request.placeholders)] = PLACEHOLDER
    shown = None
    if not one_hot and request.shown is not None:
        shown = torch.cat(request.shown).double().numpy()
    return laws.conditional_law(target, drafts, shown).reshape(-1)
