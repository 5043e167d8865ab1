"""The samplers of other engines, loaded from files of their own wheels.

Nothing of theirs is kept here.  ``python benchmarks/peers.py vllm-*.whl sglang-*.whl ...`` copies
the few files that a sampler needs into ``.peers/`` (ignored by git); at run time they are imported
under their own names, with empty packages around them and the least stand-ins for what they import
from the rest of their engine.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / ".peers"

FILES = {
    "vllm": (
        "vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py",
        "vllm/v1/worker/gpu/sample/gumbel.py",
        "vllm/v1/worker/gpu/sample/watermark.py",
        "vllm/v1/spec_decode/fly.py",
        "vllm/v1/watermarking/prfs/philox.py",
        "vllm/v1/watermarking/prfs/base.py",
        "vllm/v1/sample/ops/topk_topp_triton.py",
    ),
    "sglang": ("sglang/kernels/ops/speculative/reject_sampling.py",),
    "lmdeploy": (
        "lmdeploy/pytorch/kernels/cuda/rejection_sampling.py",
        "lmdeploy/pytorch/backends/rejection_sampling.py",
        "lmdeploy/pytorch/backends/cuda/rejection_sampling.py",
    ),
}


def extract(wheel: Path) -> list[str]:
    """Copy the files of one wheel into ``.peers/``; their names, the version written beside."""
    name, version = wheel.name.split("-")[:2]
    with zipfile.ZipFile(wheel) as archive:
        for file in FILES[name]:
            target = FOLDER / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(file))
    (FOLDER / name / "VERSION").write_text(version + "\n")
    return list(FILES[name])


def version(name: str) -> str | None:
    """The version of a peer that is at hand, else ``None``."""
    file = FOLDER / name / "VERSION"
    return file.read_text().strip() if file.exists() else None


def load(name: str, module: str) -> types.ModuleType:
    """Import one module of a peer.

    Raises:
        FileNotFoundError: if its files were never extracted.
    """
    if version(name) is None:
        raise FileNotFoundError(f"{name}: no files in {FOLDER.name}/; see benchmarks/peers.py")
    _packages(FOLDER / name)
    if name == "vllm":
        _vllm_stand_ins()
    if name == "lmdeploy":
        base: Any = types.ModuleType("lmdeploy.pytorch.backends.base")
        base.BuildSpec = type("BuildSpec", (), {"__class_getitem__": classmethod(lambda c, _: c)})
        sys.modules.setdefault(base.__name__, base)
    return importlib.import_module(module)


def _packages(folder: Path) -> None:
    """An empty package for every folder, so that no ``__init__`` of the engine runs."""
    for path in [folder, *sorted(p for p in folder.rglob("*") if p.is_dir())]:
        name = ".".join(path.relative_to(FOLDER).parts)
        if name not in sys.modules and "__pycache__" not in name:
            package = types.ModuleType(name)
            package.__path__ = [str(path)]
            sys.modules[name] = package


def _vllm_stand_ins() -> None:
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    _stand_in("vllm.triton_utils", tl=tl, triton=triton, tldevice=libdevice, HAS_TRITON=True)
    # What the filter kernels import: nothing of it does anything but launch them.
    warmup = "vllm.model_executor.warmup.jit_warmup"
    _stand_in(warmup, WarmupChoices=None, WarmupIntRange=None, _when=None)
    _stand_in(
        f"{warmup}_triton_helper", DispatchSpec=None, TritonWarmupTensor=None,
        triton_kernel_dispatcher_with_warmup=_dispatcher,
    )  # fmt: skip
    _stand_in("vllm.platforms", current_platform=types.SimpleNamespace(is_cuda_alike=lambda: True))
    _stand_in("vllm.utils.gpu_sync_debug", gpu_sync_allowed=contextlib.nullcontext)
    _stand_in("vllm.utils.math_utils", next_power_of_2=triton.next_power_of_2)
    _stand_in("vllm.utils.platform_utils", num_compute_units=_multiprocessors)


def _stand_in(name: str, **attributes: Any) -> None:
    """A module, and empty packages above it, unless they are there."""
    parts = name.split(".")
    for end in range(1, len(parts)):
        package = types.ModuleType(".".join(parts[:end]))
        package.__path__ = []
        sys.modules.setdefault(package.__name__, package)
    module = types.ModuleType(name)
    vars(module).update(attributes)
    sys.modules.setdefault(name, module)


def _multiprocessors(index: int | None = None) -> int:
    import torch

    return torch.cuda.get_device_properties(index or 0).multi_processor_count


def _dispatcher(
    *,
    kernel: Any,
    warmup_inputs: object,  # noqa: ARG001
) -> Callable[[Callable[..., Any]], Any]:
    """Launch a kernel with its dispatcher's grid, and its arguments by their names in capitals."""

    def decorate(choose: Callable[..., Any]) -> Callable[..., None]:
        names = list(inspect.signature(choose).parameters)

        def launch(*values: Any) -> None:
            grid, options = choose(*values)
            arguments = {
                name.upper(): value for name, value in zip(names, values, strict=True)
                if name.upper() in kernel.arg_names
            }  # fmt: skip
            arguments |= options
            if "LOGITS_STRIDE_0" in kernel.arg_names:
                arguments["LOGITS_STRIDE_0"] = arguments["LOGITS"].stride(0)
            kernel[grid](**arguments)

        return launch

    return decorate


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        print(path.name, *extract(path), sep="\n  ")
