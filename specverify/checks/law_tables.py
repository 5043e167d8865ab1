"""Tables of the emitted text: what every lossless method must follow.

The emission, completed to a fixed horizon by the target's own draws, follows the target's product
law (the validity notion of Sun et al. 2024, Block Verification).  Marginals, adjacent pairs and,
where it is small, the whole joint law are counted; a wrong row shows in the joint only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np

from specverify import laws
from specverify._cells import Cells, Seen, Term
from specverify.cases import Case, FloatArray, TableRequest
from specverify.checks import suspicion
from specverify.checks.tables import JOINT_CELLS, Table
from specverify.checks.verdict import Family

Tables = Callable[[], list[FloatArray]]


def law_tables(case: Case, convention: str) -> list[Table]:
    """The tables of every request of a case."""
    return [
        table
        for number, request in enumerate(case.requests)
        for table in _request_tables(number, request, case.vocab_size, convention, case.dense)
    ]


def _request_tables(
    number: int, request: TableRequest, vocab: int, convention: str, dense: bool
) -> Iterator[Table]:
    target: Tables = functools.cache(functools.partial(request.target_tables, convention))
    length = request.num_drafts + 1
    for j in range(length):
        if request.target[j].shape[0] == 1 and j > 0:
            break  # a row that ignores the prefix is recorded, not a law of the next token
        yield Table(
            name=f"request {number}: token {j}",
            family=Family.LAW,
            shape=(vocab,),
            index=_tokens(number, j, 1, vocab),
            law=functools.partial(_marginal, target, j),
            axes=("token",),
            suspects=functools.partial(suspicion.of_token, request, j, dense, convention),
            horizon=j + 1,
            request=number,
            position=j,
        )
    for first, count in _windows(length, vocab, request):
        yield Table(
            name=_window_name(number, first, count, length),
            family=Family.LAW,
            shape=(vocab,) * count,
            index=_tokens(number, first, count, vocab),
            law=functools.partial(_joint if count == length else _pair, target, first),
            axes=("token", *["then"] * (count - 1)),
            horizon=first + count,
            request=number,
            position=None if count == length else first,
        )


def _windows(length: int, vocab: int, request: TableRequest) -> Iterator[tuple[int, int]]:
    """(first, count) of the joint tables: adjacent pairs, then everything if it is small."""
    if any(table.shape[0] == 1 for table in request.target[1:]):
        return
    if length > 2 and vocab**2 <= JOINT_CELLS:
        yield from ((first, 2) for first in range(length - 1))
    if length > 1 and vocab**length <= JOINT_CELLS:
        yield 0, length


def _window_name(number: int, first: int, count: int, length: int) -> str:
    if count == length:
        return f"request {number}: joint of {length} tokens"
    return f"request {number}: tokens {first}-{first + count - 1}"


def _marginal(target: Tables, j: int) -> FloatArray:
    return laws.completed_marginal(target(), j)


def _pair(target: Tables, first: int) -> FloatArray:
    return laws.completed_pair(target(), first).reshape(-1)


def _joint(target: Tables, _first: int) -> FloatArray:
    return laws.completed_law(target()).reshape(-1)


def _tokens(number: int, first: int, count: int, base: int) -> Cells:
    """The number that ``count`` completed tokens form, the first most significant."""
    return Cells(
        tuple(Term(base ** (count - 1 - j), Seen.TEXT, number, first + j) for j in range(count))
    )


def independence_tables(case: Case, convention: str) -> list[Table]:
    """Pairs that must not know of each other: neighbouring requests, and neighbouring trials."""
    vocab = case.vocab_size
    if vocab**2 > JOINT_CELLS:
        return []
    first = [functools.partial(_first_row, request, convention) for request in case.requests]
    tables = [
        Table(
            name=f"requests {i} and {i + 1}: first tokens",
            family=Family.INDEPENDENCE,
            shape=(vocab, vocab),
            index=_beside(i, vocab),
            law=functools.partial(_product, first[i], first[i + 1]),
            axes=("token", "beside"),
            horizon=1,
            request=i,
            position=0,
        )
        for i in range(len(case.requests) - 1)
    ]
    tables.append(
        Table(
            name="trials t and t + 1: first tokens of request 0",
            family=Family.INDEPENDENCE,
            shape=(vocab, vocab),
            index=_next_trial(vocab),
            law=functools.partial(_product, first[0], first[0]),
            axes=("token", "next trial"),
            horizon=1,
            request=0,
            position=0,
        )
    )
    return tables


def _first_row(request: TableRequest, convention: str) -> FloatArray:
    return np.asarray(request.target_tables(convention)[0][0])


def _product(left: Callable[[], FloatArray], right: Callable[[], FloatArray]) -> FloatArray:
    return np.asarray(np.outer(left(), right()).reshape(-1))


def _beside(number: int, base: int) -> Cells:
    return Cells((Term(base, Seen.TEXT, number), Term(1, Seen.TEXT, number + 1)))


def _next_trial(base: int) -> Cells:
    """Pairs (t, t + 1) of even t, half as many as there are trials."""
    return Cells((Term(1, Seen.TEXT, 0),), pairs=base)
