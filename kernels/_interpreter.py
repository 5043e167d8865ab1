"""Triton's interpreter, made quick enough for whole runs of the harness.

When a kernel starts, the interpreter replaces the functions of ``triton.language`` by its own; it
does so anew at every call of a device function, which finds all of them replaced.  Looking at some
hundred members each time takes half of the time of kernels that are made of many small functions.
Here a call within a kernel passes over what that kernel, or a call before, has replaced.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import triton.language as tl


class _Scope:
    """What an outermost call hands back: undoes the replacements when the kernel ends."""

    def __init__(self, inner: Any, ended: Callable[[], None]) -> None:
        self._inner, self._ended = inner, ended

    def restore(self) -> None:
        """Put the functions of the language back."""
        self._ended()
        self._inner.restore()


class PatchOnce:
    """Replaces the functions that a jit'd function sees, unless this kernel has done so.

    Args:
        patch: what the interpreter calls with a Python function; it returns a scope with a
            method ``restore``.
    """

    def __init__(self, patch: Callable[[Any], Any]) -> None:
        self._patch = patch
        self._seen: dict[Any, tuple[int, ...]] = {}
        self._done: set[tuple[int, ...]] = set()

    def __call__(self, fn: Any) -> Any:
        """Patch for one function; the interpreter keeps the scope of a kernel alone."""
        languages = self._languages(fn)
        if languages in self._done:
            return None
        outermost = not self._done
        scope = self._patch(fn)
        self._done.add(languages)
        return _Scope(scope, self._done.clear) if outermost else scope

    def _languages(self, fn: Any) -> tuple[int, ...]:
        """Which modules of the language a function sees: on these alone a patch depends."""
        known = self._seen.get(fn)
        if known is None:
            modules = (value for value in fn.__globals__.values() if inspect.ismodule(value))
            known = self._seen[fn] = tuple(id(m) for m in modules if m in (tl, tl.core))
        return known


def patch_once() -> None:
    """Let the interpreter of this process patch once a kernel; a Triton without that is left."""
    from triton.runtime import interpreter

    patch = getattr(interpreter, "_patch_lang", None)
    if patch is not None and not isinstance(patch, PatchOnce):
        interpreter._patch_lang = PatchOnce(patch)
