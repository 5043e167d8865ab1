"""The law that every lossless method must have, whatever its rule.

Complete each emission to k + 1 tokens by sampling the missing ones from the target. Then the
tokens must have exactly the target's own law. This is the validity notion of Sun et al. 2024
(Block Verification, arXiv:2403.10444); it needs no knowledge of the rule, so chain, block and
tree verification all answer to it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike

from specverify.laws import _fields
from specverify.laws._fields import Floats
from specverify.laws.prefixes import extend, over_prefixes, prefix_law
from specverify.laws.steps import Step, one_hot_step, ratio_step


def completed_law(target_tables: Sequence[ArrayLike]) -> Floats:
    """Joint law of the k + 1 completed tokens: the target's own law.

    Args:
        target_tables: k + 1 tables, table j [V**j, V] or [1, V].

    Returns:
        [V**(k + 1)] float64; the index is the base-V number of the tokens, the first token most
        significant.

    Raises:
        ValueError: if a table has the wrong shape or holds no distributions, or if the law has
            more than ``2**27`` cells.

    Source: the chain rule; Sun et al. 2024 (arXiv:2403.10444).
    """
    tables = _fields.target_tables(target_tables)
    return prefix_law("target_tables", tables, len(tables))


def completed_marginal(target_tables: Sequence[ArrayLike], j: int) -> Floats:
    """Law of completed token j alone.

    Args:
        target_tables: k + 1 tables, table j [V**j, V] or [1, V].
        j: position in [0, k].

    Returns:
        [V] float64.

    Raises:
        ValueError: if a table or j is wrong, or a table that depends on the prefix has more than
            ``2**27`` prefixes.

    Source: :func:`completed_law` summed over the other tokens, by the law of prefixes up to j.
    """
    tables = _fields.target_tables(target_tables)
    j = _fields.index("j", j, len(tables))
    return over_prefixes(_mass_before(tables, j, tables[j]), tables[j])


def completed_pair(target_tables: Sequence[ArrayLike], j: int) -> Floats:
    """Joint law of completed tokens j and j + 1.

    Args:
        target_tables: k + 1 tables, table j [V**j, V] or [1, V].
        j: position in [0, k), of the first token of the pair.

    Returns:
        [V, V] float64, the first token along the rows.

    Raises:
        ValueError: if a table or j is wrong, or the law has more than ``2**27`` cells.

    Source: :func:`completed_law` summed over the other tokens, by the law of prefixes up to j.
    """
    tables = _fields.target_tables(target_tables)
    j = _fields.index("j", j, len(tables) - 1)
    first, second = tables[j], tables[j + 1]
    vocab = first.shape[1]
    _fields.affordable("completed_pair", vocab**2)
    if second.shape[0] == 1:
        return completed_marginal(tables, j)[:, None] * second
    mass = extend(_mass_before(tables, j, second), first).reshape(-1, vocab)
    return np.asarray(np.einsum("xa,xab->ab", mass, second.reshape(-1, vocab, vocab)))


def completed_law_of_rule(
    target_tables: Sequence[ArrayLike],
    draft_tables: Sequence[ArrayLike],
    *,
    one_hot: bool,
    placeholders: Collection[int] = (),
    step: Step | None = None,
) -> Floats:
    """Joint law of the completed emission, computed from a rule branch by branch.

    Nothing is assumed about losslessness: for a lossless rule the result equals
    :func:`completed_law`, for another it does not, and the difference is that rule's bias.

    Args:
        target_tables: k + 1 tables, table j [V**j, V] or [1, V].
        draft_tables: k tables alike, the law that drafts are drawn from.
        one_hot: True for the rule that is not shown q. Ignored if ``step`` is given.
        placeholders: slots in [0, k) that are never proposed; the first one ends verification.
        step: another rule, for example a wrong or a lossy one.

    Returns:
        [V**(k + 1)] float64; the index is the base-V number of the tokens, the first token most
        significant.

    Raises:
        ValueError: if a table has the wrong shape or holds no distributions, if the numbers of
            tables do not fit, a placeholder is outside [0, k), or the law has more than
            ``2**27`` cells.

    Source: Leviathan et al. 2023, Algorithm 1; completion of Sun et al. 2024.
    """
    targets = _fields.target_tables(target_tables)
    drafts = _fields.draft_tables(draft_tables, targets)
    slots = min(_fields.placeholders(placeholders, len(drafts)), default=len(drafts))
    _fields.affordable("target_tables", targets[0].shape[1] ** len(targets))
    rule = step or (one_hot_step if one_hot else ratio_step)
    alive, ended = np.ones(1), np.zeros(1)  # of each prefix, by whether verification goes on
    for p, q in zip(targets[:slots], drafts[:slots], strict=True):
        law = rule(p, q)
        ended = extend(ended, p) + extend(alive, law.recovered)
        alive = extend(alive, law.accepted)
    # From here on the target draws: the bonus or placeholder token, then the completion.
    both = alive + ended
    for p in targets[slots:]:
        both = extend(both, p)
    return both


def _mass_before(tables: tuple[Floats, ...], j: int, table: Floats) -> Floats:
    """Law of the prefixes of length j; just their total, 1, if ``table`` is the same for all."""
    return np.ones(1) if table.shape[0] == 1 else prefix_law("target_tables", tables, j)
