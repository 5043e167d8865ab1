"""Samplers with one real bug each; the harness must catch every one."""

from specverify.mutants import acceptance, emission, parameters, recovery, rows, slow
from specverify.mutants.mutant import Kind, Mutant

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for room in (recovery, acceptance, rows, emission, parameters, slow)
    for mutant in room.MUTANTS
}

__all__ = ["MUTANTS", "Kind", "Mutant"]
