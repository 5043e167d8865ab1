"""Packages that specverify can use and does not require: which are here, how to get the rest.

Nothing in this module imports the package in question, so asking costs next to nothing.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from types import ModuleType

DISTRIBUTION = "specverify-harness"


def is_installed(package: str) -> bool:
    """Whether a top-level package could be imported, without importing it."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # a half-removed package, or one blocked in sys.modules
        return False


def version_of(distribution: str) -> str | None:
    """The installed version of a distribution, ``None`` when there is none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def how_to_install(package: str, extra: str) -> str:
    """One sentence for a person who lacks a package."""
    return f"{package} is not installed: pip install '{DISTRIBUTION}[{extra}]'"


def require(module: str, extra: str) -> ModuleType:
    """Import a module of an optional package.

    Args:
        module: dotted name; its first part is the package.
        extra: the extra of this distribution that brings the package.

    Raises:
        ValueError: if the package is absent (how to get it) or does not import (why).
    """
    package = module.partition(".")[0]
    if not is_installed(package):
        raise ValueError(how_to_install(package, extra))
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise ValueError(
            f"{package} {version_of(package) or '(version unknown)'} is installed, but importing "
            f"{module} failed: {type(error).__name__}: {error}"
        ) from error
