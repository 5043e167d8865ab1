from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from specverify import evidence


@pytest.mark.parametrize("name", evidence.__all__)
def test_every_public_name_is_there_and_comes_from_its_module(name):
    found = getattr(evidence, name)
    assert found is getattr(importlib.import_module(found.__module__), name)
    assert found.__module__.startswith("specverify.evidence.")


def test_a_type_checker_is_told_the_same_names():
    source = Path(evidence.__file__).read_text(encoding="utf-8")
    told = {
        alias.name: node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("specverify.")
        for alias in node.names
    }
    assert sorted(told) == evidence.__all__
    assert told == {name: getattr(evidence, name).__module__ for name in told}


def test_what_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        evidence.nope  # noqa: B018
    assert {"holm", "validate"} <= set(dir(evidence))


def test_importing_the_package_loads_no_scipy():
    code = "import sys, specverify.evidence; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
