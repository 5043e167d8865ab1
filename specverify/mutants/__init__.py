"""Samplers with one real bug each; the harness must catch every one."""

from specverify.mutants import (
    acceptance,
    batching,
    block,
    drafters,
    emission,
    lossy,
    numerics,
    parameters,
    precision,
    recovery,
    rows,
    slow,
)
from specverify.mutants.mutant import Kind, Mutant, Need, Place

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for room in (
        recovery,
        acceptance,
        rows,
        emission,
        parameters,
        numerics,
        precision,
        batching,
        drafters,
        block,
        lossy,
        slow,
    )
    for mutant in room.MUTANTS
}

__all__ = ["MUTANTS", "Kind", "Mutant", "Need", "Place"]
