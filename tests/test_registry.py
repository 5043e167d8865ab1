"""Every kind of name resolves, and everything that can go wrong with one is a clear sentence."""

from __future__ import annotations

import dataclasses
import sys
from importlib import metadata
from pathlib import Path

import pytest

from specverify import registry
from specverify.contract import Capabilities, Emission, sampler
from specverify.registry import available, resolve

MY_SAMPLER = """
import torch
from specverify import Batch, Capabilities, Emission, sampler

@sampler(Capabilities(greedy=False))
def my_sampler(batch: Batch) -> Emission:
    first = torch.zeros(batch.num_requests, batch.max_drafts + 1, dtype=torch.int64)
    return Emission(first, torch.ones(batch.num_requests, dtype=torch.int64))

class Box:
    inner = staticmethod(my_sampler)

class Instance:
    def __call__(self, batch):
        return my_sampler(batch)

class NeedsArguments:
    def __init__(self, size):
        self.size = size
    def __call__(self, batch):
        return my_sampler(batch)

class NotCallable:
    pass

def factory():
    return my_sampler

def odd(batch):
    return my_sampler(batch)

odd.capabilities = {"greedy": False}
number = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with a sampler file, forgotten again afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "registry_case.py").write_text(MY_SAMPLER)
    monkeypatch.delitem(sys.modules, "registry_case", raising=False)
    return tmp_path


def install(monkeypatch: pytest.MonkeyPatch, **entry_points: str) -> None:
    found = [
        metadata.EntryPoint(name, value, registry.GROUP) for name, value in entry_points.items()
    ]
    monkeypatch.setattr(registry.metadata, "entry_points", lambda group: found)


@pytest.mark.parametrize("attribute", ["my_sampler", "Box.inner", "Instance"])
def test_a_path_resolves(here: Path, attribute: str) -> None:
    subject = resolve(f"registry_case:{attribute}")
    assert subject.name == f"registry_case:{attribute}"
    assert callable(subject.sampler)
    assert subject.version is None
    if attribute != "Instance":
        assert not subject.capabilities.greedy


def test_a_path_into_an_installed_package_has_its_version() -> None:
    subject = resolve("json:loads")
    assert subject.version is None  # the standard library is no distribution
    assert resolve("numpy:asarray").version == metadata.version("numpy")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("registry_case:my_sample", r"registry_case has no attribute 'my_sample'; did you mean"),
        ("registry_case:Box.missing", r"Box has no attribute 'missing'"),
        ("registry_case:number", r"got int, which is not callable"),
        ("registry_case:NotCallable", r"got NotCallable, which is not callable"),
        ("registry_case:NeedsArguments", r"instantiated without arguments: TypeError: .*'size'"),
        ("registry_case:factory", r"takes \(\); expected a callable that takes one Batch"),
        ("registry_case:odd", r"sampler 'registry_case:odd': capabilities: .* got dict"),
        ("registry_case:", r"expected package.module:attribute"),
        (":my_sampler", r"expected package.module:attribute"),
        ("registry_case.py:my_sampler", r"for example registry_case:my_sampler"),
        ("./registry_case:my_sampler", r"for example registry_case:my_sampler"),
        ("no_such_module_at_all:x", r"there is no module 'no_such_module_at_all'"),
        ("registry_case.deeper:x", r"there is no module 'registry_case.deeper'|not a package"),
    ],
)
def test_what_a_path_can_get_wrong(here: Path, name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        resolve(name)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def broken(:\n", r"failed: SyntaxError: "),
        ("1 / 0\n", r"failed: ZeroDivisionError: division by zero"),
        ("import no_such_thing\n", r"failed: ModuleNotFoundError: .*no_such_thing"),
        ("raise SystemExit('stop here')\n", r"failed: SystemExit: stop here"),
    ],
)
def test_a_module_that_does_not_import_says_why(here: Path, source: str, said: str) -> None:
    (here / "registry_broken.py").write_text(source)
    with pytest.raises(ValueError, match=f"importing registry_broken {said}"):
        resolve("registry_broken:x")


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(ValueError, match="did you mean 'flashspec'") as caught:
        resolve("flashspek")
    for part in ("Registered: ", "transformers", "my_file:my_sampler", "mutant:NAME"):
        assert part in str(caught.value)
    with pytest.raises(ValueError, match=r"is registered\. Registered"):
        resolve("zzzzzz")


def test_an_absent_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "is_installed", lambda package: False)
    said = r"flashspec is not installed: pip install 'specverify-harness\[engines\]'"
    with pytest.raises(ValueError, match=said):
        resolve("flashspec")
    entries = {entry.name: entry for entry in available()}
    assert not entries["flashspec"].available
    assert "is not installed" in (entries["flashspec"].reason or "")


def test_an_entry_point_that_does_not_load(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "registry_raises.py").write_text("raise RuntimeError('no licence')\n")
    sys.path.insert(0, str(here))
    install(monkeypatch, broken="registry_raises:x", gone="registry_gone:x", good="numpy:asarray")
    with pytest.raises(
        ValueError, match=r"registered as registry_raises:x, .* RuntimeError: no li"
    ):
        resolve("broken")
    entries = available()
    assert [entry.name for entry in entries] == ["broken", "gone", "good"]
    assert [entry.available for entry in entries] == [False, False, True]
    assert "registry_gone" in (entries[1].reason or "")
    assert entries[2].origin == "numpy:asarray"


def test_registered_samplers_carry_the_version_of_what_is_tested() -> None:
    for entry in available():
        if entry.available and entry.name in ("flashspec", "transformers"):
            assert entry.version == metadata.version(entry.name)
            assert resolve(entry.name).version == entry.version


def test_mutants_resolve_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    @sampler(Capabilities(placeholders=True))
    def accept_all(batch: object) -> Emission:
        raise NotImplementedError

    @dataclasses.dataclass
    class Mutant:
        def build(self) -> object:
            return accept_all

    mutants = {"accept-all": Mutant(), "ratio-inverted": Mutant()}
    monkeypatch.setattr("specverify.mutants.MUTANTS", mutants, raising=False)
    subject = resolve("mutant:accept-all")
    assert (subject.name, subject.sampler) == ("mutant:accept-all", accept_all)
    assert subject.capabilities.placeholders
    with pytest.raises(ValueError, match="no such mutant; did you mean 'mutant:accept-all'"):
        resolve("mutant:acept-all")
