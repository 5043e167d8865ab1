"""Every kernel compiles for real devices, without one: what the interpreter cannot show."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="the kernels need triton: pip install specverify-harness[gpu]")


def build(architecture: int, only: str) -> list[str]:
    """The lines that the builder prints, from a process of its own (no interpreter there)."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, "-m", "specverify.kernels.precompile", str(architecture), only],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.splitlines()


@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("form", ["bf16 q=0 coins=0", "bf16 q=1 coins=0", "filter bf16"])
def test_compiles(architecture: int, form: str) -> None:
    lines = build(architecture, form)
    assert lines
    assert all("cubin" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
def test_every_form_compiles(architecture: int) -> None:
    assert len(build(architecture, "")) == 22
