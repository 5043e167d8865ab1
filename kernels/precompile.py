"""Compile every kernel to machine code without a GPU: ``python -m specverify.kernels.precompile``.

A kernel that runs in the interpreter may still not compile.  This builds each one for an
architecture and every form of its compile-time arguments, and returns what it costs.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import functools
import multiprocessing
from collections.abc import Iterator
from typing import Any

import triton
from specverify.kernels._forms import forms as small_and_block_forms
from specverify.kernels._forms_chain import forms as chain_forms
from specverify.kernels._forms_filtered import forms as filter_forms
from specverify.kernels._machine_code import conditional_collectives, machine_code
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

OPTIONS: dict[str, Any] = {}
"""More compiler options, for experiments."""


@dataclasses.dataclass(frozen=True)
class Built:
    """One compiled kernel.

    Attributes:
        name: kernel and form.
        bytes: size of the cubin.
        shared: bytes of shared memory a program needs.
        conditional: reductions over a warp that run under a condition; there should be none
            (:mod:`._machine_code`).
    """

    name: str
    bytes: int
    shared: int
    conditional: tuple[str, ...]


def forms() -> Iterator[tuple[str, Any, dict[str, str], dict[str, Any]]]:
    """Name, kernel, types of the pointers, constants (and, as at a launch, options).

    Every kernel once more for rows whose tokens are not adjacent, with each form of q.
    """
    kernels: set[tuple[Any, int]] = set()
    for form in (*chain_forms(), *filter_forms(), *small_and_block_forms()):
        yield form
        name, kernel, pointers, constants = form
        kind = kernel, constants.get("Q", 0)
        if kind not in kernels and "stride_v" in kernel.arg_names:
            kernels.add(kind)
            yield f"{name}, strided", kernel, pointers, constants


def build(architecture: int = 90, *only: str) -> Iterator[Built]:
    """Compile for ``sm_<architecture>``: all, or the names that contain one of ``only``."""
    for form in forms():
        if not only or any(part in form[0] for part in only):
            yield _built(architecture, *form)


def _built(
    architecture: int, name: str, kernel: Any, pointers: dict[str, str], given: dict[str, Any]
) -> Built:
    constants = {arg: value for arg, value in given.items() if arg in kernel.arg_names}
    options = {arg: value for arg, value in given.items() if arg not in constants}
    signature = {
        arg: pointers.get(arg, "constexpr" if arg in constants else "i64")
        for arg in kernel.arg_names
    }
    # Strides of one token, and rows that start at a multiple of 16, are what a caller mostly has.
    strided = name.endswith("strided")
    fixed = {
        **constants,
        **{arg: 1 for arg in signature if arg.endswith("stride_v") and not strided},
    }
    signature.update(dict.fromkeys(fixed, "constexpr"))
    places = {(kernel.arg_names.index(arg),): value for arg, value in fixed.items()}
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, arg in enumerate(kernel.arg_names)
        if arg in pointers or arg == "vocab" or arg.endswith("stride_r")
    }
    built = triton.compile(
        ASTSource(kernel, signature, places, aligned),
        target=GPUTarget("cuda", architecture, 32),
        options={"num_warps": 4, **options, **OPTIONS},
    )
    cubin = built.asm["cubin"]
    conditional = tuple(conditional_collectives(machine_code(cubin)))
    return Built(name, len(cubin), built.metadata.shared, conditional)


def _line(architecture: int, name: str) -> str:
    """What is printed of one form; of one that does not compile, why."""
    form = next(form for form in forms() if form[0] == name)
    try:
        one = _built(architecture, *form)
    except Exception as error:
        return f"{name:32s} FAILED: {type(error).__name__}: {str(error)[:200]}"
    return (
        f"{name:32s} cubin {one.bytes:8d} B  shared {one.shared:6d} B"
        f"  conditional reductions: {', '.join(one.conditional) or 'none'}"
    )


def main() -> None:
    """Print a line for every form, compiled in ``--jobs`` processes."""
    parser = argparse.ArgumentParser(prog="python -m specverify.kernels.precompile")
    parser.add_argument("architecture", type=int, nargs="?", default=90, help="80, 90, ...")
    parser.add_argument("only", nargs="*", help="parts of the names to compile; all if none")
    parser.add_argument("--jobs", type=int, default=1, help="processes that compile side by side")
    options = parser.parse_args()
    names = [
        form[0] for form in forms()
        if not options.only or any(part in form[0] for part in options.only)
    ]  # fmt: skip
    failed = False
    for line in _lines(options.architecture, names, options.jobs):
        failed |= " FAILED: " in line
        print(line, flush=True)  # noqa: T201
    raise SystemExit(failed)


def _lines(architecture: int, names: list[str], jobs: int) -> Iterator[str]:
    one = functools.partial(_line, architecture)
    if jobs == 1:
        yield from map(one, names)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        yield from pool.map(one, names)


if __name__ == "__main__":
    main()
