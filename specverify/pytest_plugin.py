"""The part of the pytest plugin that every pytest run of the environment loads: kept thin.

It imports pytest and the standard library alone.  Torch, hypothesis and the rest of specverify are
loaded only when ``--specverify-sampler`` is given or a suite's test is collected; until then the
plugin does nothing and prints nothing.  A suite's test is any test with the fixture ``verify`` and
a parameter ``experiment`` that follows :class:`specverify.checks.experiment.Experiment`::

    @pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
    def test_random(experiment, verify):
        verify(experiment)
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

_OPTIONS: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    ("sampler", str, "name of the sampler to verify, or package.module:attribute"),
    ("alpha", float, "false-alarm probability of the whole run (default 1e-6)"),
    ("power", float, "probability of catching the requested deviation (default 0.999)"),
    ("tv", float, "total variation to catch (default: the profile's)"),
    ("profile", str, "how much work: quick (default), gate or nightly"),
    ("seed", int, "root of every random number (default 0)"),
    ("device", str, "torch device that the sampler runs on (default cpu)"),
    ("trials", int, "run exactly this many trials a case instead of planning them"),
    ("out", Path, "folder for results.json and summary.md (default: write no files)"),
    ("cases", Path, "file of recorded rows for the suite of recorded cases"),
    ("only-check", str, "report this check alone"),
    ("ledger", Path, "file in which the evidence of all runs adds up; created if absent"),
    ("corpus", Path, "file of replay tokens that are run before the suites"),
    ("first-trial", int, "begin at this trial, as a run with a ledger did (to reproduce it)"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options; those not given stay None, so that defaults live in one place."""
    group = parser.getgroup("specverify", "specverify: verify rejection samplers")
    for name, kind, text in _OPTIONS:
        group.addoption(
            f"--specverify-{name}",
            dest=f"specverify_{name.replace('-', '_')}",
            type=kind,
            default=None,
            help=text,
        )
    group.addoption(
        "--specverify-corpus-all",
        dest="specverify_corpus_all",
        action="store_true",
        default=None,
        help="run the tokens of other samplers in the corpus, too",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check the options before anything is collected, and start recording results."""
    if config.getoption("specverify_sampler") is not None:
        from specverify import _plugin_impl

        _plugin_impl.configure(config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Split alpha over what will really run: last, after every other plugin has deselected."""
    yield
    suite_items = [item for item in items if _is_suite_item(item)]
    if suite_items:
        from specverify import _plugin_impl

        _plugin_impl.activate(config, suite_items)


@pytest.fixture
def verify(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    """Run one experiment on the sampler under test and fail, skip or pass by its verdicts."""
    from specverify import _plugin_impl

    return _plugin_impl.verifier(request)


def _is_suite_item(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    experiment = parameters.get("experiment")
    return (
        "verify" in getattr(item, "fixturenames", ())
        and isinstance(getattr(experiment, "suite", None), str)
        and isinstance(getattr(experiment, "case", None), str)
        and callable(getattr(experiment, "plan", None))
        and callable(getattr(experiment, "run", None))
    )
