"""Memory that shows when it is read before it is written.

With deterministic algorithms on, PyTorch fills every uninitialised tensor (``torch.empty``,
``empty_like``, ``resize_``) with NaN or the largest integer.  Fresh memory mostly holds zeros or
old numbers, and hides a read of it.  Memory that a kernel takes by other means is not reached.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch.utils import deterministic


@contextmanager
def poisoned_memory() -> Generator[None, None, None]:
    """Fill what ``torch.empty`` returns for a while, and restore the settings afterwards."""
    enabled = torch.are_deterministic_algorithms_enabled()
    only_warn = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        # An operation without a deterministic form warns; that is not what is asked here.
        warnings.simplefilter("ignore", UserWarning)
        torch.use_deterministic_algorithms(True, warn_only=True)
        deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
        try:
            yield
        finally:
            deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
            torch.use_deterministic_algorithms(enabled, warn_only=only_warn)
