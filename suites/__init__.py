"""What is verified, declared: one pytest module for each suite.

``pytest --pyargs specverify.suites --specverify-sampler NAME`` runs them all; the command
``specverify run`` does the same and prints a verdict.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specverify.checks.experiment import Suite

NAMES = (
    "greedy",
    "support",
    "differential",
    "metamorphic",
    "independence",
    "random",
    "mixed",
    "exclusion",
    "acceptance",
    "tail",
    "drafting",
    "recorded",
)
"""The suites, cheapest first; ``recorded`` is empty unless a file of rows is named."""


def all_suites() -> dict[str, Suite]:
    """Every declared suite by name, in the order of :data:`NAMES`."""
    return {name: importlib.import_module(f"specverify.suites.test_{name}").SUITE for name in NAMES}
