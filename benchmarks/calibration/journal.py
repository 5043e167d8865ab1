"""Finished measurements on disk, so that an interrupted run loses none of them.

One line for each, appended and flushed when it is finished. What belongs to other code, other sizes
or another seed has another key and is not taken.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import json
import multiprocessing
import pickle
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import scipy

from calibration.rows import Row, Task
from specverify import evidence

Measured = tuple[list[Row], float]
"""The rows of a task and the seconds of a core that it took."""


def _code() -> str:
    """A digest of everything that the rows depend on but their tasks."""
    digest = hashlib.sha256(f"{np.__version__} {scipy.__version__}".encode())
    for folder in (Path(__file__).parent, Path(evidence.__file__).parent):
        for path in sorted(folder.glob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


class Journal:
    """Rows by task, in a file of JSON lines; without a file nothing is remembered."""

    def __init__(self, path: Path | None) -> None:
        """Read what an interrupted run left behind.

        Args:
            path: of the file; it need not exist.
        """
        self._path, self._code = path, _code()
        self._known: dict[str, Measured] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
        for line in lines:
            try:
                key, rows, seconds = json.loads(line)
            except ValueError:  # a last line that was cut off
                continue
            self._known[key] = [Row(**row) for row in rows], seconds

    def _key(self, task: Task) -> str:
        return hashlib.sha256(self._code.encode() + pickle.dumps(task)).hexdigest()

    def known(self, task: Task) -> Measured | None:
        """What is remembered of a task."""
        return self._known.get(self._key(task)) if self._known else None

    def keep(self, task: Task, found: Measured) -> None:
        """Append the rows of a finished task."""
        if self._path is None:
            return
        rows = [dataclasses.asdict(row) for row in found[0]]
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([self._key(task), rows, found[1]]) + "\n")

    def remove(self) -> None:
        """Forget everything: the page is written."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _call(task: Task) -> Measured:
    started = time.process_time()
    rows = [dataclasses.replace(row, ok=None if row.ok is None else bool(row.ok)) for row in task()]
    return rows, time.process_time() - started


def measured(tasks: Sequence[Task], workers: int, journal: Journal
             ) -> Iterator[tuple[int, list[Row], float]]:  # fmt: skip
    """Run the tasks that are not known yet.

    Args:
        tasks: measurements.
        workers: processes; one measures in this one.
        journal: of finished measurements.

    Yields:
        (number of the task, its rows, its seconds), as they are finished.
    """
    todo = []
    for index, task in enumerate(tasks):
        found = journal.known(task)
        if found is None:
            todo.append(index)
        else:
            yield index, *found
    if workers == 1:
        for index in todo:
            found = _call(tasks[index])
            journal.keep(tasks[index], found)
            yield index, *found
        return
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        futures = {pool.submit(_call, tasks[index]): index for index in todo}
        for future in concurrent.futures.as_completed(futures):
            index, found = futures[future], future.result()
            journal.keep(tasks[index], found)
            yield index, *found
