"""Work done in a forked child: what it found comes back through a pipe, however the child ends."""

from __future__ import annotations

import os
import pickle
import resource
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MEMORY = 4 << 30  # bytes; a test that asks for so many more is stopped by its MemoryError


def forked(work: Callable[..., Any], *arguments: Any) -> tuple[int, int]:
    """Do this work in a child, silently; its process id, and a pipe that brings the result."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    status = 1
    try:
        _limit_memory()
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(work(*arguments), pipe)
        status = 0
    finally:
        os._exit(status)


def received(pid: int, pipe: int) -> tuple[Any, int]:
    """What the child sent, ``None`` if it died first, and its exit status."""
    with os.fdopen(pipe, "rb") as stream:
        data = stream.read()
    status = os.waitpid(pid, 0)[1]
    return (pickle.loads(data) if data else None), status


def ready(pipes: list[int]) -> list[int]:
    """Those that can be read, after half a second at most."""
    return select.select(pipes, [], [], 0.5)[0] if pipes else []


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def say(text: str) -> None:
    """Print at once, past pytest's own reporting."""
    print(text, file=sys.__stdout__, flush=True)
