"""Imported first by the tests of the kernels: the interpreter where there is no GPU.

Triton decides when a function is decorated, its own library's functions included, so the variable
must be set before anybody imports triton.
"""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip(
        "the kernels need triton: pip install specverify-harness[gpu]", allow_module_level=True
    )

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction

    if not isinstance(tl.philox, InterpretedFunction):
        pytest.skip(
            "triton was imported for a GPU already: set TRITON_INTERPRET=1", allow_module_level=True
        )

    import kernel_memory

    kernel_memory.install()
