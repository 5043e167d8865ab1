"""What to look for in the machine code of a kernel, without a GPU.

A reduction over a warp (``redux.sync``) needs all of its threads.  In a short branch ptxas may give
it the condition of the branch instead of a jump around it (``@!P2 REDUX.MAX``); kernels in which it
did that drew tokens outside the vocabulary on an H200 when the branch was taken, and none without
did (docs/kernels.md, known fault).  So kernels compute such reductions always.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import triton

_COLLECTIVE = re.compile(r"@!?U?P\d+ +((?:REDUX|SHFL|VOTE|MATCH)[^;]*?) *;")


def conditional_collectives(machine_code: str) -> list[str]:
    """Instructions over a whole warp that each thread executes under a condition of its own.

    Args:
        machine_code: what ``cuobjdump -sass`` prints.
    """
    return [one.group(1) for one in _COLLECTIVE.finditer(machine_code)]


def machine_code(cubin: bytes) -> str:
    """The machine code of a compiled kernel as text, by the ``cuobjdump`` that Triton brings.

    Raises:
        FileNotFoundError: if this Triton brings none.
        subprocess.CalledProcessError: if it cannot read the kernel.
    """
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = subprocess.run(
            [tool, "-sass", file.name], capture_output=True, text=True, check=True
        )  # fmt: skip
    return run.stdout
