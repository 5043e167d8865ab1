"""What a run ran on: read from the interpreter and package metadata, importing nothing heavy."""

from __future__ import annotations

import importlib.metadata
import os
import platform

from specverify.results import Environment

PACKAGES = (
    "specverify-harness",
    "torch",
    "numpy",
    "scipy",
    "hypothesis",
    "pytest",
    "pytest-xdist",
    "triton",
    "transformers",
    "flashspec",
)
"""Distributions whose version can change a verdict; absent ones are left out of the record."""


def version_of(distribution: str) -> str | None:
    """The installed version of a distribution, ``None`` if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def usable_cpus() -> int:
    """Logical processors that this process may be scheduled on, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def collect() -> Environment:
    """Describe the interpreter, the machine and the packages that matter."""
    versions = {name: version_of(name) for name in PACKAGES}
    return Environment(
        python=platform.python_version(),
        implementation=platform.python_implementation(),
        platform=platform.platform(),
        cpu_count=usable_cpus(),
        packages={name: version for name, version in versions.items() if version is not None},
    )
