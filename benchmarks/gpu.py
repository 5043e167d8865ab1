"""Everything that needs a GPU, one after the other, and one table of how it ended.

    python benchmarks/gpu.py                 # all of it: about half an hour on an H200
    python benchmarks/gpu.py checks suites   # some steps
    python benchmarks/gpu.py --list

``nox -s gpu`` runs this on the installed wheel.  Where nothing can be installed, run it from the
root of a checkout after ``ln -sfn ../kernels specverify/kernels`` (``suites`` and ``reports``
likewise) with ``PYTHONPATH=.``.  A step that cannot run here (no GPU, no compute-sanitizer) is
skipped with its reason and is no failure.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = Path(os.environ.get("OUT", str(HERE.parent / "specverify-out" / "gpu")))
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


@dataclasses.dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        name: what to name on the command line.
        command: what is run.
        needs: why it cannot run here, empty if it can.
    """

    name: str
    command: tuple[str, ...]
    needs: str = ""


def _python(script: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, str(HERE / script), *arguments)


def steps() -> list[Step]:
    """All steps in their order."""
    gpu = _no_gpu()
    wheels = "" if importlib.util.find_spec("pydantic") else "pydantic is not installed"
    tool = shutil.which("compute-sanitizer")
    lacking = gpu or ("" if tool else "compute-sanitizer is not on the PATH")
    checked = [
        # Fills Triton's cache: under a tool, compiling would take most of the time.
        Step("sanitize", _python("gpu_checks.py", "sanitize"), gpu),
        *(
            Step(name, (
                tool or "", "--tool", name, "--error-exitcode", "9",
                *_python("gpu_checks.py", "sanitize"),
            ), lacking)
            for name in TOOLS
        ),
    ]  # fmt: skip
    tables = [
        Step("grid", _python("samplers.py", "--quick", "--json", str(OUT / "grid.json")), gpu),
        *(
            Step(name, _python(
                "samplers.py", "--table", name, "--json", str(OUT / f"{name}.json")), gpu)
            for name in ("filters", "temperature")
        ),
    ]  # fmt: skip
    return [
        Step("checks", _python("gpu_checks.py"), gpu),
        Step("suites", _python("gpu_checks.py", "suites"), gpu or wheels),
        *checked,
        *tables,
    ]


def _no_gpu() -> str:
    import torch

    return "" if torch.cuda.is_available() else "no CUDA device"


def run(step: Step) -> tuple[str, float]:
    """How a step ended (``ok``, ``skipped: ...`` or its exit code) and its seconds."""
    if step.needs:
        return f"skipped: {step.needs}", 0.0
    start = time.monotonic()
    print(f"== {step.name}", flush=True)
    code = subprocess.run(step.command, check=False).returncode
    return ("ok" if code == 0 else f"exit code {code}"), time.monotonic() - start


def main() -> None:
    """Run the steps that are named, or all, and print the table."""
    known = steps()
    if "--list" in sys.argv[1:]:
        print(*(step.name for step in known), sep="\n")
        return
    names = sys.argv[1:] or [step.name for step in known]
    unknown = sorted(set(names) - {step.name for step in known})
    if unknown:
        raise SystemExit(f"no such step: {', '.join(unknown)}; see --list")
    OUT.mkdir(parents=True, exist_ok=True)
    ended = {step.name: run(step) for step in known if step.name in names}
    print("\n| step        | seconds | ended |\n| ----------- | ------- | ----- |")
    for name, (answer, seconds) in ended.items():
        print(f"| {name:11s} | {seconds:7.1f} | {answer} |")
    raise SystemExit(any(answer.startswith("exit") for answer, _ in ended.values()))


if __name__ == "__main__":
    main()
