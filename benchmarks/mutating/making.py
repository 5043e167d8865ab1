"""The mutants of the package: mutmut's, written to a copy of it, in the order they are tried."""

from __future__ import annotations

import collections
import dataclasses
import difflib
import hashlib
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libcst as cst
from mutmut.configuration import config
from mutmut.mutation.data import read_line_spans
from mutmut.mutation.file_mutation import mutate_file_contents

ROOT = Path(__file__).parents[2].resolve()
PLAIN = ("staticmethod", "classmethod", "overload")


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One changed function: mutmut's name for it, and what was changed."""

    name: str
    module: str
    function: str
    diff: str

    @property
    def key(self) -> str:
        """What makes a stored result valid: the name and the change."""
        return f"{self.name} {hashlib.sha256(self.diff.encode()).hexdigest()[:12]}"

    @property
    def called(self) -> str:
        """The name under which mutmut's trampoline reports a call of the function."""
        return self.name.partition("__mutmut_")[0]


class _Undecorate(cst.CSTTransformer):
    """Turn ``@decorator def f`` into ``def f`` and ``f = decorator(f)``.

    mutmut leaves decorated functions alone, because it cannot know what a decorator does when it
    is called for every copy.  Ours cache or make a property: they can be applied afterwards.
    """

    def leave_FunctionDef(  # noqa: N802 - the name that libcst calls
        self, _original: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> Any:
        """Called for every function, from the inside out."""
        if len(updated_node.decorators) != 1:
            return updated_node
        decorator, name = updated_node.decorators[0].decorator, updated_node.name
        if isinstance(decorator, cst.Name) and decorator.value in PLAIN:
            return updated_node
        wrapped = cst.Assign([cst.AssignTarget(name)], cst.Call(decorator, [cst.Arg(name)]))
        plain = updated_node.with_changes(decorators=())
        return cst.FlattenSentinel([plain, cst.SimpleStatementLine([wrapped])])


def write_mutants(tree: Path, modules: list[str] | None) -> list[Mutant]:
    """Copy the package into ``tree`` with the mutants of these modules built in; return them."""
    mutants: list[Mutant] = []
    os.chdir(ROOT)  # where mutmut looks for its table in pyproject.toml
    for source in sorted(Path("specverify").rglob("*.py")):
        target = tree / source
        target.parent.mkdir(parents=True, exist_ok=True)
        module = ".".join(source.with_suffix("").parts).removesuffix(".__init__")
        wanted = not modules or module.removeprefix("specverify.") in modules
        if not (wanted and config().should_mutate(source)):
            shutil.copy(source, target)
            continue
        plain = cst.parse_module(source.read_text(encoding="utf-8")).visit(_Undecorate()).code
        made = mutate_file_contents(str(source), plain)
        target.write_text(made.code, encoding="utf-8")
        mutants += _described(module, target, made)
    return mutants


def _described(module: str, target: Path, made: Any) -> Iterator[Mutant]:
    """The mutants of one file, each with its difference from the original function."""
    spans = made.line_span_by_function_name
    texts = dict(zip(spans, read_line_spans(target, list(spans.values())), strict=True))
    for name in made.mutant_names:
        start = name.partition("__mutmut_")[0]
        before = texts[f"{start}__mutmut_orig"].replace(f"{start}__mutmut_orig", start)
        after = texts[name].replace(name, start)
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
        changes = [line for line in lines if line[:3] not in ("---", "+++") and line[:2] != "@@"]
        function = start.removeprefix("x_").replace("ǁ", ".").removeprefix("x.")
        yield Mutant(f"{module}.{name}", module, function, "\n".join(changes))


def in_turns(mutants: list[Mutant]) -> list[Mutant]:
    """One mutant of every function, then a second of each, ..: any prefix covers everything."""
    ranked: list[tuple[int, int, Mutant]] = []
    functions: dict[tuple[str, str], list[Mutant]] = collections.defaultdict(list)
    for one in mutants:
        functions[one.module, one.function].append(one)
    dice = random.Random(0)
    for number, group in enumerate(functions.values()):
        dice.shuffle(group)
        ranked += [(turn, number, one) for turn, one in enumerate(group)]
    return [one for _, _, one in sorted(ranked, key=lambda entry: entry[:2])]
