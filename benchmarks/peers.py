"""The samplers of other engines, loaded from files of their own wheels.

Nothing of theirs is kept here.  ``python benchmarks/peers.py vllm-*.whl sglang-*.whl ...`` copies
the few files that a sampler needs into ``.peers/`` (ignored by git); at run time they are imported
under their own names, with empty packages around them and the least stand-ins for what they import
from the rest of their engine.
"""

from __future__ import annotations

import importlib
import sys
import types
import zipfile
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

    utils: Any = types.ModuleType("vllm.triton_utils")
    utils.tl, utils.triton, utils.tldevice, utils.HAS_TRITON = tl, triton, libdevice, True
    sys.modules.setdefault("vllm.triton_utils", utils)


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        print(path.name, *extract(path), sep="\n  ")
