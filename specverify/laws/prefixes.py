"""Tables of rows that depend on the prefix, and the law of the prefixes themselves.

A table language model gives position j a row for every prefix of j tokens: ``tables[j]`` is
[V**j, V], or [1, V] where the row is the same for all of them. Row r belongs to the prefix whose
tokens are the base-V digits of r, the first token the most significant. So a [V**j, V] table of
joint probabilities, flattened, is the [V**(j + 1)] law of the prefixes one token longer: forward
dynamic programming is multiply and reshape.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from specverify.laws import _fields
from specverify.laws._fields import Floats


def draft_path_law(draft_tables: Sequence[ArrayLike]) -> Floats:
    """Joint law of the whole draft path of a drafter given by prefix tables.

    Args:
        draft_tables: k tables, table j of shape [V**j, V] or [1, V].

    Returns:
        float64 of k axes, each of length V: entry (d0, .., d_{k-1}) is the probability of that
        path. For k = 0 the scalar array 1.

    Raises:
        ValueError: if a table has the wrong shape or holds no distributions, or if the joint law
            has more than ``2**27`` cells.

    Source: the chain rule.
    """
    tables = _fields.tables("draft_tables", draft_tables)
    shape = tuple(table.shape[1] for table in tables)
    return prefix_law("draft_tables", tables, len(tables)).reshape(shape)


def prefix_law(field: str, tables: Sequence[Floats], length: int) -> Floats:
    """[V**length] float64: law of the first ``length`` tokens of checked tables."""
    law = np.ones(1)
    if length:
        _fields.affordable(field, tables[0].shape[1] ** length)
    for table in tables[:length]:
        law = extend(law, table)
    return law


def extend(mass: Floats, table: Floats) -> Floats:
    """[N] mass of prefixes by [N or 1, V] rows: the [N * V] mass of prefixes one token longer."""
    return (mass[:, None] * table).reshape(-1)


def over_prefixes(mass: Floats, rows: Floats) -> Floats:
    """[V]: the [N or 1, V] rows summed over prefixes with weights ``mass`` [N or 1].

    One row for all prefixes needs only their total mass; this is what keeps [1, V] tables cheap
    at any V.
    """
    if rows.shape[0] == 1:
        return np.asarray(mass.sum() * rows[0])
    return np.asarray(mass @ rows)
