"""One search for all exact layers: a function of its seed, and of nothing else that is loaded."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from specverify.checks import layout_search
from specverify.checks.diagnosis import Problem
from specverify.checks.layout_search import every_layout_new, layouts_of_the_seed_alone, search
from specverify.contract import Batch
from specverify.layouts import batches


def shapes(seed: int, examples: int = 30) -> list[list[int]]:
    seen: list[list[int]] = []

    def keep(batch: Batch) -> list[Problem]:
        seen.append([batch.vocab_size, *batch.seeds.tolist(), *batch.positions.tolist()])
        return []

    search(batches(max_requests=3), keep, seed=seed, examples=examples)
    return seen


def load(folder: Path, name: str, first: int = 1000) -> None:
    """Load a module with constants of its own from outside of site-packages."""
    path = folder / f"{name}.py"
    path.write_text(f"VALUES = {[first + 7 * i for i in range(400)]}\n")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def test_layouts_do_not_depend_on_what_else_is_loaded(tmp_path: Path) -> None:
    before = shapes(5)
    load(tmp_path, "local_sampler_with_constants")
    assert shapes(5) == before
    assert shapes(6) != before


def test_the_guard_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the test above would fail, so it still guards something."""
    from hypothesis.internal.conjecture import providers

    if not hasattr(providers, "_get_local_constants"):
        pytest.skip("this version of hypothesis collects no constants")
    monkeypatch.setattr(layout_search, "layouts_of_the_seed_alone", contextlib.nullcontext)
    before = shapes(5)
    load(tmp_path, "another_local_sampler_with_constants", first=5003)
    assert shapes(5) != before


WHERE = """
import hashlib, specverify
from specverify.checks.layout_search import search
from specverify.layouts import batches
seen = []
keep = lambda batch: seen.append([batch.seeds.tolist(), batch.vocab_size]) or []
search(batches(max_requests=3), keep, seed=5, examples=40)
print(specverify.__file__, hashlib.sha256(repr(seen).encode()).hexdigest())
"""


@pytest.mark.slow
def test_layouts_are_the_same_from_a_wheel_and_from_a_checkout(tmp_path: Path) -> None:
    """A package in site-packages is not local to hypothesis; one elsewhere is."""
    import specverify

    said = []
    for folder in ("site-packages", "checkout"):
        root = tmp_path / folder
        source = Path(specverify.__file__).parent
        shutil.copytree(source, root / "specverify", ignore=shutil.ignore_patterns("__pycache__"))
        (tmp_path / "where.py").write_text(WHERE)
        done = subprocess.run(
            [sys.executable, str(tmp_path / "where.py")],
            capture_output=True, text=True, check=True, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(root)},
        )  # fmt: skip
        where, digest = done.stdout.split()
        assert where.startswith(str(root))
        said.append(digest)
    assert said[0] == said[1]


def test_a_users_own_tests_keep_their_constants() -> None:
    """What hypothesis finds is put back, also when something is raised."""
    from hypothesis.internal.conjecture import providers

    find = getattr(providers, "_get_local_constants", None)
    with layouts_of_the_seed_alone():
        assert find is None or len(providers._get_local_constants()) == 0
    with pytest.raises(RuntimeError, match="inside"), layouts_of_the_seed_alone():
        raise RuntimeError("inside")
    assert getattr(providers, "_get_local_constants", None) is find

    @hypothesis.given(st.integers())
    @hypothesis.settings(max_examples=5)
    def check(number: int) -> None:
        assert isinstance(number, int)

    check()


def different(seed: int) -> int:
    """Vocabularies among 60 layouts out of 300 possible ones."""
    return len({vocab for vocab, *_ in shapes(seed, 60)})


@pytest.mark.parametrize("seed", range(3))
def test_layouts_are_no_copies_of_one_another(seed: int) -> None:
    """54 draws of 299 show 49.5 on average; 40 is five standard deviations below."""
    assert different(seed) >= 40


def test_hypothesis_would_try_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_search, "every_layout_new", contextlib.nullcontext)
    assert different(0) < 30


def test_what_makes_the_copies_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from hypothesis.internal.conjecture.engine import ConjectureRunner

    mutate = ConjectureRunner.generate_mutations_from
    with every_layout_new():
        assert ConjectureRunner.generate_mutations_from is not mutate
    with pytest.raises(RuntimeError, match="inside"), every_layout_new():
        raise RuntimeError("inside")
    assert ConjectureRunner.generate_mutations_from is mutate
    monkeypatch.delattr(ConjectureRunner, "generate_mutations_from")
    with every_layout_new():
        assert not hasattr(ConjectureRunner, "generate_mutations_from")


def test_without_shrinking_the_first_failure_is_reported() -> None:
    calls: list[Batch] = []

    def odd(batch: Batch) -> list[Problem]:
        calls.append(batch)
        return [Problem(text="odd")] if batch.vocab_size % 2 else []

    quick = search(batches(vocab=(2, 50)), odd, seed=1, examples=50, shrink=False)
    assert quick.failure is not None
    assert quick.failure.startswith("odd\nsmallest layout that shows it:\n")
    tried = len(calls)
    small = search(batches(vocab=(2, 50)), odd, seed=1, examples=50)
    assert small.failure is not None
    assert "1 request, 0 drafts, V = 3" in small.failure
    assert len(calls) - tried > tried
    assert small.examples > quick.examples


def test_progress_stops_at_the_first_failure() -> None:
    told: list[tuple[int, int]] = []

    def progress(done: int, planned: int) -> None:
        told.append((done, planned))

    search(batches(), lambda batch: [], seed=1, examples=7, progress=progress)
    assert told == [(i, 7) for i in range(1, 8)]
    told.clear()
    search(batches(), lambda batch: [Problem(text="no")], seed=1, examples=7, progress=progress)
    assert told == [(1, 7)]
