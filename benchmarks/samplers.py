"""Times our samplers beside those of other engines, on one GPU and in one process.

    python benchmarks/samplers.py            # the whole grid
    python benchmarks/samplers.py --quick    # a few lines; says what it cannot time without a GPU
    python benchmarks/samplers.py --against vllm --grid all --json out.json
    python benchmarks/samplers.py --table filters       # what top-k, top-p and min-p cost
    python benchmarks/samplers.py --table temperature   # tokens a second over temperatures

Every line has two floors at the measured read bandwidth: every row of target logits read once (and
every row of draft logits for subjects that take logits), and only the rows up to the first
rejection.  Inputs rotate among sets that together exceed the cache.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import random
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

import filter_tables
from contenders import available
from inputs import KINDS, Case, Inputs, build
from timing import eager_us, graph_us, read_bandwidth

_ROTATED_BYTES = 200e6
_MOST_SETS = 48


def grid(name: str) -> Iterator[Case]:
    """The cases of a named grid."""
    requests, drafts, vocabs = (1, 8, 32, 128, 256), (3, 7), (128256, 32000, 151936)
    kinds, acceptances = KINDS, (0.7, 0.2)
    if name == "quick":
        requests, drafts, vocabs, acceptances = (1, 32, 256), (3,), (128256,), (0.7,)
    elif name == "small":
        requests, vocabs = (1, 32, 256), (128256,)
    for v, b, k, kind, rate in itertools.product(vocabs, requests, drafts, kinds, acceptances):
        yield Case(b, k, v, kind, rate)


def input_sets(case: Case, *, seed: int = 0) -> list[Inputs]:
    """As many sets of inputs as it takes to leave the cache."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    first = build(case, generator)
    count = min(_MOST_SETS, max(2, math.ceil(_ROTATED_BYTES / first.target.nbytes)))
    return [first, *(build(case, generator) for _ in range(count - 1))]


@dataclasses.dataclass
class Line:
    """The result of one case.

    Attributes:
        case: what was run.
        accepted: mean accepted drafts of a request.
        floor: microseconds to read every target row once; ``exit_floor``: the rows up to the first
            rejection; ``q_floor`` and ``q_exit_floor``: the same with rows of draft logits.
        graph, eager: microseconds by contender.
    """

    case: Case
    accepted: float
    floor: float
    exit_floor: float
    q_floor: float
    q_exit_floor: float
    graph: dict[str, float]
    eager: dict[str, float]


def measure(case: Case, bandwidth: float, only: Iterable[str], eager: bool) -> Line:
    """Time every contender on one case."""
    sets = input_sets(case)
    found = available(sets[0])
    wanted = list(only) or list(found)
    calls = {name: [found[name](one) for one in sets] for name in wanted if name in found}
    emitted = torch.stack([call()[1] for call in calls["ours"]]).double()
    row_us = sets[0].row_bytes / bandwidth * 1e6
    accepted = float(emitted.mean()) - 1
    q_rows = float(emitted.clamp(max=case.drafts).mean()) if case.kind == "dense" else 0.0
    line = Line(
        case, accepted,
        floor=case.rows * row_us,
        exit_floor=case.requests * (accepted + 1) * row_us,
        q_floor=(case.rows + (case.requests * case.drafts if case.kind == "dense" else 0)) * row_us,
        q_exit_floor=case.requests * (accepted + 1 + q_rows) * row_us,
        graph={}, eager={},
    )  # fmt: skip
    for name, some in calls.items():
        try:
            line.graph[name] = graph_us(some)
            if eager:
                line.eager[name] = eager_us(some)
        except Exception as error:  # a peer that fails must not end the table
            print(f"# {name} failed on {case}: {type(error).__name__}: {error}", file=sys.stderr)
    return line


def head(line: Line) -> str:
    """The columns that every line has."""
    c = line.case
    said = f"| {c.vocab:6d} | {c.requests:3d} | {c.drafts} | {c.kind:7s} | {line.accepted:4.2f}"
    return f"{said} | {line.floor:5.1f} | {line.exit_floor:5.1f} |"


def show_one(line: Line) -> None:
    """Print a line as soon as it is measured, so that a run that is killed leaves it behind."""
    cells = ", ".join(f"{name} {us:.1f}" for name, us in line.graph.items())
    print(f"{head(line)} {cells}", flush=True)


def show(lines: list[Line]) -> None:
    """Print the table and the geometric means against each peer."""
    names = list(dict.fromkeys(name for line in lines for name in line.graph))
    print("|   V    |  B  | K | drafts  | acc. | floor | exit | " + " | ".join(names) + " |")
    for line in lines:
        cells = " | ".join(f"{line.graph.get(name, float('nan')):7.1f}" for name in names)
        print(f"{head(line)} {cells} |")
    for label, mode in (("graph", "graph"), ("eager", "eager")):
        for peer, mine in itertools.product(names, ("ours", "ours, draft logits")):
            ratios = [
                getattr(line, mode)[peer] / getattr(line, mode)[mine]
                for line in lines
                if peer in getattr(line, mode) and mine in getattr(line, mode)
            ]
            if ratios and not peer.startswith("ours"):
                mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
                spread = f"least {min(ratios):.2f}, most {max(ratios):.2f}, {len(ratios)} lines"
                print(f"{label}: {peer} / {mine}: geometric mean {mean:.2f}, {spread}")


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grid", choices=("quick", "small", "all"), default="all")
    parser.add_argument("--quick", action="store_true", help="the same as --grid quick")
    parser.add_argument("--against", nargs="*", default=[], help="time only these beside ours")
    parser.add_argument("--eager", action="store_true", help="eager calls too")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after as many")
    parser.add_argument("--json", type=Path, help="write every number here")
    parser.add_argument("--table", choices=("grid", "filters", "temperature"), default="grid")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        could_not(options)
        return
    bandwidth = read_bandwidth()
    name = torch.cuda.get_device_name()
    print(f"{name}, read bandwidth {bandwidth / 1e12:.2f} TB/s", flush=True)
    if options.table != "grid":
        write(options.json, bandwidth, TABLES[options.table](options.quick))
        return
    only = ["ours", "ours, draft logits", *options.against] if options.against else []
    cases = list(grid("quick" if options.quick else options.grid))
    lines: list[Line] = []
    signal.signal(signal.SIGTERM, stop)
    try:
        for line in measured(cases, bandwidth, only, options):
            lines.append(line)
            show_one(line)
    finally:  # also where the run is cut short
        lines.sort(key=lambda line: cases.index(line.case))
        show(lines)
        write(options.json, bandwidth, lines)


def measured(
    cases: list[Case], bandwidth: float, only: list[str], options: argparse.Namespace
) -> Iterator[Line]:
    """The lines one by one, until the seconds are used up.

    In a fixed random order, so that a run that is cut short is a sample of the whole grid.
    """
    start = time.monotonic()
    for case in random.Random(0).sample(cases, len(cases)):
        if time.monotonic() - start > options.seconds:
            print(f"stopped after {options.seconds:.0f} s, before {case}")
            return
        yield measure(case, bandwidth, only, options.eager)
        torch.cuda.empty_cache()


def stop(number: int, _frame: object) -> None:
    """End as after an error, with the table of what was measured."""
    raise SystemExit(f"stopped by signal {number}")


TABLES = {"filters": filter_tables.show_filters, "temperature": filter_tables.show_temperatures}


def could_not(options: argparse.Namespace) -> None:
    """Say what would have been timed."""
    cases = {
        "grid": lambda quick: grid("quick" if quick else options.grid),
        "filters": filter_tables.filter_cases,
        "temperature": filter_tables.temperature_cases,
    }
    print("no CUDA device: nothing was timed. The cases would be:")
    for case in cases[options.table](options.quick):
        print(f"  {case}")


def write(path: Path | None, bandwidth: float, lines: list[Any]) -> None:
    """Every number as JSON, if a file was named."""
    if path:
        payload: dict[str, Any] = {
            "device": torch.cuda.get_device_name(), "bandwidth": bandwidth,
            "lines": [dataclasses.asdict(line) for line in lines],
        }  # fmt: skip
        path.write_text(json.dumps(payload, indent=1))


if __name__ == "__main__":
    main()
