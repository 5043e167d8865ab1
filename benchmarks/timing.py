"""Device timings: medians of CUDA-graph replays and of eager calls, and the read bandwidth."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

Call = Callable[[], object]


def graph_us(calls: Sequence[Call], *, replays: int = 11) -> float:
    """Median microseconds of one call, all calls captured one behind the other in one graph.

    The calls should work on different inputs that together do not fit into the cache.
    """
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    graph.replay()
    times = []
    for _ in range(replays):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / len(calls))
    return statistics.median(times)


def eager_us(calls: Sequence[Call], *, rounds: int = 15) -> float:
    """Median microseconds of one call launched from Python, the device drained every round."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for call in calls:
            call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6 / len(calls))
    return statistics.median(times)


def read_bandwidth() -> float:
    """Bytes per second at which one reduction reads 4 GB."""
    data = torch.ones(2**30, dtype=torch.float32, device="cuda")
    out = torch.empty((), device="cuda")
    seconds = graph_us([lambda: torch.amax(data, dim=0, out=out)]) * 1e-6
    return data.nbytes / seconds
