"""specverify: evidence that a speculative-decoding rejection sampler keeps its promise.

The names below are loaded on first use, so that ``import specverify`` costs neither torch,
hypothesis nor pytest.  ``docs/architecture.md`` is the map of the package.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "AcceptanceRule": "contract",
    "Batch": "contract",
    "Capabilities": "contract",
    "Coins": "contract",
    "Emission": "contract",
    "FinalCoin": "contract",
    "Guarantee": "contract",
    "Sampler": "contract",
    "sampler": "contract",
    "FilterConvention": "sampling",
    "target_probabilities": "sampling",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    """Import a public name from its module the first time somebody asks for it (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'specverify' has no attribute {name!r}")
    return getattr(importlib.import_module(f"specverify.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
