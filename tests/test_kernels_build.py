"""Every kernel compiles for real devices, without one: what the interpreter cannot show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEVICE_KERNELS = Path(__file__).with_name("build_device_kernels.py")

pytest.importorskip("triton", reason="the kernels need triton: pip install specverify-harness[gpu]")


def build(architecture: int, *only: str) -> list[str]:
    """The lines that the builder prints, from a process of its own (no interpreter there)."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, "-m", "specverify.kernels.precompile", str(architecture), *only],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.splitlines()


def listed() -> list[str]:
    """The names of all forms."""
    from specverify.kernels.precompile import forms

    return [form[0] for form in forms()]


SOME = {
    80: ("chain bf16 q=0 coins=0", "filter decide bf16 q=0", "block last fp32 q=1"),
    90: ("chain bf16 q=1 coins=0", "rounds bf16 q=0", "small bf16 q=1 V=16"),
}
"""A form of every kernel; ``test_every_form_compiles`` (slow) takes all on both."""


@pytest.mark.parametrize("architecture", [80, 90])
def test_compiles(architecture: int) -> None:
    lines = build(architecture, *SOME[architecture])
    assert len(lines) >= len(SOME[architecture])
    assert all("cubin" in line for line in lines)
    assert all(line.endswith("conditional reductions: none") for line in lines)


def test_a_reduction_under_a_condition_is_seen() -> None:
    from specverify.kernels._machine_code import conditional_collectives

    code = """
        /*4a40*/  REDUX.MIN.S32 UR45, R46 ;               /* 0x000000002e2d73c4 */
        /*d580*/ @!P2 REDUX.MAX.S32 UR5, R6 ;             /* 0x000000000605a3c4 */
        /*d590*/ @!P2 IMAD.U32 R3, RZ, RZ, UR5 ;          /* 0x00000005ff03ae24 */
        /*d330*/  SHFL.UP PT, R22, R20, 0x1, RZ ;         /* 0x0420000014167989 */
    """
    assert conditional_collectives(code) == ["REDUX.MAX.S32 UR5, R6"]


@pytest.mark.parametrize("architecture", [pytest.param(80, marks=pytest.mark.slow), 90])
def test_the_trial_loop_compiles(architecture: int) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, str(DEVICE_KERNELS), str(architecture)],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    lines = run.stdout.splitlines()
    assert len(lines) == 9
    assert all(line.endswith("conditional reductions: none") for line in lines)


def test_every_chosen_plan_is_among_the_forms() -> None:
    """A plan for small vocabularies in large batches once compiled nowhere but here."""
    names = [name for name in listed() if name.startswith("plan ")]
    assert {"plan q=1 V=16 R=1", "plan q=1 V=151936 R=2000"} <= set(names)
    assert len(names) == len(set(names)) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
def test_every_form_compiles(architecture: int) -> None:
    lines = build(architecture)
    assert [line.rpartition(" cubin ")[0].strip() for line in lines] == listed()
    assert all(line.endswith("conditional reductions: none") for line in lines)
