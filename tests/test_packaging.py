"""What a user installs: the content of the wheel, its entry points, how light it is to import."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DISTRIBUTION = "specverify-harness"
MAPPED = {
    "kernels": "specverify/kernels",
    "reports": "specverify/reports",
    "suites": "specverify/suites",
}
NOT_SHIPPED = ("tests", "benchmarks", "docs", "kernels", "reports", "suites")


def installed() -> importlib.metadata.Distribution:
    """What pip installed; a build leaves metadata in the tree, too, which a test may put first."""
    every = importlib.metadata.distributions(name=DISTRIBUTION)
    return next(one for one in every if one.read_text("WHEEL") is not None)


def installed_names() -> set[str] | None:
    """The files of the installed wheel; ``None`` for an editable install, which lists none."""
    distribution = installed()
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        return None
    return {path.as_posix() for path in distribution.files or ()}


def built_names(folder: Path) -> set[str]:
    """The files of a wheel built from a copy of the tree, so that no stale build folder helps."""
    pytest.importorskip("build", reason="an editable install, and no `build` to make a wheel with")
    pytest.importorskip(
        "setuptools", minversion="77", reason="the wheel is built without isolation"
    )
    tree = folder / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    for name in ("specverify", *MAPPED):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run([*command, str(tree)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return installed_names() or built_names(tmp_path_factory.mktemp("wheel"))


def expected_names() -> set[str]:
    """Every module and data file of the tree, under the name that it has in the wheel."""
    names = set()
    for folder, target in {"specverify": "specverify", **MAPPED}.items():
        for path in (ROOT / folder).rglob("*"):
            inside = path.relative_to(ROOT / folder)
            if path.is_file() and "__pycache__" not in inside.parts:
                names.add(f"{target}/{inside.as_posix()}")
    return names


def test_every_file_of_the_tree_is_in_the_wheel(wheel_names: set[str]) -> None:
    assert expected_names() - wheel_names == set()


def test_the_wheel_holds_no_module_that_the_tree_lacks(wheel_names: set[str]) -> None:
    modules = {name for name in wheel_names if name.endswith(".py")}
    assert modules - expected_names() == set()


def test_the_wheel_is_typed_and_licensed(wheel_names: set[str]) -> None:
    assert "specverify/py.typed" in wheel_names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel_names)


def test_the_only_top_level_name_is_specverify(wheel_names: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names if not name.startswith("..")}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"specverify"}
    assert tops.isdisjoint(NOT_SHIPPED)


def test_every_package_of_the_tree_is_listed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    packages = {
        name.removesuffix("/__init__.py").replace("/", ".")
        for name in expected_names()
        if name.endswith("/__init__.py")
    }
    assert packages == set(settings["packages"])


def entry_points() -> list[importlib.metadata.EntryPoint]:
    return list(installed().entry_points)


def test_the_command_the_plugin_and_the_samplers_are_registered() -> None:
    registered = {(point.group, point.name) for point in entry_points()}
    assert ("console_scripts", "specverify") in registered
    assert ("pytest11", "specverify") in registered
    assert {name for group, name in registered if group == "specverify.samplers"} >= {
        "reference",
        "reference-match",
        "flashspec",
        "transformers",
    }


@pytest.mark.parametrize("point", entry_points(), ids=lambda point: f"{point.group}:{point.name}")
def test_an_entry_point_leads_somewhere(point: importlib.metadata.EntryPoint) -> None:
    assert point.load() is not None


def imported_by(statement: str, folder: Path) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a statement."""
    code = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_the_package_is_light(tmp_path: Path) -> None:
    loaded = imported_by("import specverify", tmp_path)
    assert loaded.isdisjoint({"torch", "numpy", "scipy", "hypothesis", "pytest", "pydantic"})


def test_importing_the_plugin_is_light(tmp_path: Path) -> None:
    loaded = imported_by("import specverify.pytest_plugin", tmp_path)
    assert loaded.isdisjoint({"torch", "numpy", "scipy", "hypothesis", "pydantic"})


def test_a_public_name_is_loaded_when_it_is_asked_for(tmp_path: Path) -> None:
    assert "torch" in imported_by("import specverify; specverify.target_probabilities", tmp_path)


def test_every_public_name_exists() -> None:
    import specverify

    assert {name for name in specverify.__all__ if not hasattr(specverify, name)} == set()
