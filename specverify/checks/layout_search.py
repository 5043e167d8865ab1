"""A hypothesis search over layouts: try many, and shrink the first that has a problem.

The search knows nothing of what is asked of a layout; it is given a function from a batch to a
list of problems, so every exact layer (structure, support, differential, metamorphic) shares one
way of drawing layouts, shrinking them and writing the smallest down for a person.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from specverify.checks.diagnosis import Problem
from specverify.checks.experiment import Progress
from specverify.contract import Batch

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Problems = Callable[[Batch], list[Problem]]
"""What is wrong with the answer to one layout; empty if nothing is."""


@dataclasses.dataclass(frozen=True)
class Found:
    """What a search came to.

    Attributes:
        examples: layouts that were tried, those of the shrinking included.
        problem: of the smallest failing layout; ``None`` if all passed.
        batch: that layout, or the part of it that shows the problem.
        remark: what else there is to say.
    """

    examples: int
    problem: Problem | None = None
    batch: Batch | None = None
    remark: str = ""

    @property
    def failure(self) -> str | None:
        """The problem with the layout, in lines; ``None`` if all passed."""
        if self.problem is None or self.batch is None:
            return None
        from specverify.layouts import describe

        shown = f"smallest layout that shows it:\n{describe(self.batch)}"
        return "\n".join(filter(None, (self.problem.text, shown, self.remark)))


def search(
    strategy: SearchStrategy[Batch],
    problems: Problems,
    *,
    seed: int,
    examples: int,
    shrink: bool = True,
    progress: Progress | None = None,
) -> Found:
    """Try layouts until one has a problem, then look for the smallest that still has one.

    Args:
        strategy: where the layouts come from.
        problems: a function of the layout alone, or the shrunk layout may not fail again.
        seed: fixes the layouts.
        examples: how many to try.
        shrink: False stops at the first failing layout (exams, which only count).
        progress: called with (tried, planned) until something fails.
    """
    return _Search(problems, examples, progress).run(strategy, seed, shrink)


class _Search:
    """Remembers the last failing layout, which is the smallest."""

    def __init__(self, problems: Problems, planned: int, progress: Progress | None) -> None:
        self.problems, self.planned, self.progress = problems, planned, progress
        self.examples = 0
        self.problem: Problem | None = None
        self.batch: Batch | None = None

    def run(self, strategy: SearchStrategy[Batch], seed: int, shrink: bool) -> Found:
        import hypothesis

        phases = (hypothesis.Phase.generate, hypothesis.Phase.shrink)
        attempt: Any = hypothesis.seed(seed)(hypothesis.given(strategy)(self._example))
        attempt = hypothesis.settings(
            max_examples=self.planned,
            database=None,
            deadline=None,
            derandomize=False,
            phases=phases if shrink else phases[:1],
            suppress_health_check=list(hypothesis.HealthCheck),
            verbosity=hypothesis.Verbosity.quiet,
            print_blob=False,
            report_multiple_bugs=False,
        )(attempt)
        try:
            with layouts_of_the_seed_alone(), every_layout_new():
                attempt()
        except _ProblemError:
            return Found(self.examples, self.problem, self.batch)
        except hypothesis.errors.Flaky:
            if self.problem is None:
                raise
            again = "asked again, the sampler answered otherwise: it keeps a state"
            return Found(self.examples, self.problem, self.batch, again)
        return Found(self.examples)

    def _example(self, batch: Batch) -> None:
        self.examples += 1
        found = self.problems(batch)
        if self.progress is not None and self.problem is None:
            self.progress(min(self.examples, self.planned), self.planned)
        if found:
            self.problem = found[0]
            self.batch = batch if found[0].batch is None else found[0].batch
            raise _ProblemError


@contextmanager
def layouts_of_the_seed_alone() -> Generator[None, None, None]:
    """Keep hypothesis from drawing constants that it finds in the source of local modules.

    Newer versions collect them from every module that is loaded from outside of site-packages: a
    user's sampler, or this package in an editable install.  Layouts would then change with an edit
    of the sampler that they test, and a replay would not repeat a run.  There is no setting for it;
    versions without the feature are left alone.
    """
    from hypothesis.internal.conjecture import providers

    find = getattr(providers, "_get_local_constants", None)
    cache = getattr(getattr(providers, "CONSTANTS_CACHE", None), "cache", None)
    if find is None or cache is None:
        yield
        return
    nothing = type(find())()
    providers._get_local_constants = lambda: nothing
    cache.clear()
    try:
        yield
    finally:
        providers._get_local_constants = find
        cache.clear()


@contextmanager
def every_layout_new() -> Generator[None, None, None]:
    """Keep hypothesis from trying each layout again with one part of it copied over another.

    From the eleventh layout on five of six are such copies, all of one vocabulary and nearly of one
    batch: of the 40 of a quick run about 16 were new.  What engines get wrong lies in the sizes,
    and two requests that share something are no rare luck here, since layouts are drawn from a few
    words.  There is no setting for it; versions without the feature are left alone.
    """
    from hypothesis.internal.conjecture import engine

    runner: Any = engine.ConjectureRunner
    mutate = getattr(runner, "generate_mutations_from", None)
    if mutate is None:
        yield
        return
    runner.generate_mutations_from = lambda _runner, _data: None
    try:
        yield
    finally:
        runner.generate_mutations_from = mutate


class _ProblemError(AssertionError):
    """Raised inside the search so that hypothesis shrinks."""
