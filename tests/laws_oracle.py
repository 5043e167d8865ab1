"""The laws again, by enumeration in exact fractions and plain Python: slow, and independent.

Every draft path is walked, every coin is integrated as a branch with its probability, and nothing
is shared with the code under test but the meaning of a table.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product

import numpy as np

Row = list[Fraction]
Tables = list[list[Row]]
Outcomes = dict[tuple[tuple[int, ...], int, int], Fraction]
Residual = Callable[[Row, Row, int], Row]


def row_of(weights: list[int]) -> Row:
    return [Fraction(w, sum(weights)) for w in weights]


def random_row(rng: random.Random, vocab: int, lowest: int) -> Row:
    weights = [max(rng.randint(lowest, 9), 0) for _ in range(vocab)]
    weights[rng.randrange(vocab)] += 1  # at least one token is possible
    return row_of(weights)


def one_hot_row(rng: random.Random, vocab: int) -> Row:
    token = rng.randrange(vocab)
    return [Fraction(int(t == token)) for t in range(vocab)]


def half_row(rng: random.Random, vocab: int, upper: int) -> Row:
    return row_of([rng.randint(1, 9) * int((2 * t >= vocab) == upper) for t in range(vocab)])


def table_lm(
    vocab: int, count: int, shared: Callable[[int], bool], row: Callable[[], Row]
) -> Tables:
    return [[row() for _ in range(1 if shared(j) else vocab**j)] for j in range(count)]


KINDS = ("random", "zeros", "shared", "mixed", "late", "equal", "disjoint", "greedy")


def case(kind: str, vocab: int, k: int) -> tuple[Tables, Tables]:
    """Target and draft tables of one kind, reproducible."""
    rng = random.Random(f"{kind} {vocab} {k}")
    lowest = -6 if kind == "zeros" else 1

    def target() -> Row:
        if kind == "greedy":
            return one_hot_row(rng, vocab)
        return half_row(rng, vocab, 0) if kind == "disjoint" else random_row(rng, vocab, lowest)

    def draft() -> Row:
        return half_row(rng, vocab, 1) if kind == "disjoint" else random_row(rng, vocab, lowest)

    def shared(parity: int) -> Callable[[int], bool]:
        # "late": nothing but the bonus row depends on the prefix.
        by_kind = {"shared": range(k + 1), "mixed": range(parity, k + 1, 2), "late": range(k)}
        return by_kind.get(kind, ()).__contains__

    targets = table_lm(vocab, k + 1, shared(0), target)
    drafts = targets[:k] if kind == "equal" else table_lm(vocab, k, shared(1), draft)
    return targets, drafts


def arrays(tables: Tables) -> list[np.ndarray]:
    return [np.array([[float(x) for x in row] for row in table]) for table in tables]


def row(tables: Tables, prefix: tuple[int, ...]) -> Row:
    table = tables[len(prefix)]
    vocab = len(table[0])
    number = sum(t * vocab ** (len(prefix) - 1 - i) for i, t in enumerate(prefix))
    return table[number if len(table) > 1 else 0]


def paths(drafts: Tables, length: int, vocab: int) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    for path in product(range(vocab), repeat=length):
        weight = Fraction(1)
        for j in range(length):
            weight *= row(drafts, path[:j])[path[j]]
        yield path, weight


def scaled(weights: Row) -> Row:
    return [w / sum(weights) for w in weights]


def right_residual(p: Row, q: Row, _draft: int) -> Row:
    return scaled([max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)])


def target_as_residual(p: Row, _q: Row, _draft: int) -> Row:
    return p


def only_draft_removed(p: Row, _q: Row, draft: int) -> Row:
    return scaled([Fraction(0) if t == draft else x for t, x in enumerate(p)])


def verify(
    p: Row, q: Row, draft: int, one_hot: bool, residual: Residual
) -> tuple[Fraction, Row | None]:
    """Probability that one draft is accepted, and the law of the token that replaces it."""
    accept = p[draft] if one_hot else min(Fraction(1), p[draft] / q[draft])
    if accept == 1:
        return accept, None
    return accept, (only_draft_removed if one_hot else residual)(p, q, draft)


def outcomes(
    targets: Tables,
    drafts: Tables,
    one_hot: bool,
    placeholders: tuple[int, ...] = (),
    residual: Residual = right_residual,
) -> Outcomes:
    """P(draft path before the first placeholder, accepted length, last token)."""
    vocab = len(targets[0][0])
    slots = min(placeholders, default=len(drafts))
    law: Outcomes = defaultdict(Fraction)
    for path, weight in paths(drafts, slots, vocab):
        if weight == 0:
            continue
        for j in range(slots):
            prefix = path[:j]
            accept, recovered = verify(
                row(targets, prefix), row(drafts, prefix), path[j], one_hot, residual
            )
            for y, x in enumerate(recovered or []):
                law[path, j, y] += weight * (1 - accept) * x
            weight *= accept
        for y, x in enumerate(row(targets, path)):
            law[path, slots, y] += weight * x
    return law


def outcomes_of_match(targets: Tables, drafts: Tables) -> Outcomes:
    """The same for accept-iff-equal: draw y from p at each position, stop when it is no draft."""
    vocab = len(targets[0][0])
    law: Outcomes = defaultdict(Fraction)
    for path, weight in paths(drafts, len(drafts), vocab):
        for j in range(len(drafts)):
            p = row(targets, path[:j])
            for y in range(vocab):
                if y != path[j]:
                    law[path, j, y] += weight * p[y]
            weight *= p[path[j]]
        for y, x in enumerate(row(targets, path)):
            law[path, len(drafts), y] += weight * x
    return law


def completed(targets: Tables, law: Outcomes) -> dict[tuple[int, ...], Fraction]:
    """The outcomes' emissions, completed by the target to as many tokens as it has tables."""
    alive: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for (path, length, y), weight in law.items():
        alive[(*path[:length], y)] += weight
    for j in range(1, len(targets)):
        for prefix in [p for p in alive if len(p) == j]:
            weight = alive.pop(prefix)
            for y, x in enumerate(row(targets, prefix)):
                alive[(*prefix, y)] += weight * x
    return alive


def flat(law: dict[tuple[int, ...], Fraction], vocab: int, length: int) -> np.ndarray:
    """Flattened in base-V order of the tokens."""
    cells = product(range(vocab), repeat=length)
    return np.array([float(law.get(cell, Fraction(0))) for cell in cells])
