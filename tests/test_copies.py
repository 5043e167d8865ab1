"""Samplers of one request a call are asked fewer copies of a layout, and the verdict says so."""

from __future__ import annotations

import contextlib
import dataclasses
import io

import pytest
from hypothesis import strategies as st
from specverify.suites.test_metamorphic import SUITE

from specverify.checks import relations
from specverify.checks.differential import DifferentialExperiment
from specverify.checks.experiment import PROFILES, Experiment, Settings
from specverify.checks.layout_experiment import LayoutExperiment
from specverify.checks.layout_properties import inside_the_support
from specverify.checks.metamorphic import MetamorphicExperiment
from specverify.checks.random_rows import random_batch
from specverify.checks.verdict import Status
from specverify.contract import Batch, Capabilities, Emission
from specverify.reference import reference
from specverify.registry import resolve
from specverify.subjects import Subject

BATCH = random_batch(counts=[2, 0, 1], vocab=6, dense=True, entropy=5)
SHARES = [("quick", (8, 2, 1, 1)), ("gate", (32, 8, 2, 1)), ("nightly", (64, 16, 4, 1))]


@pytest.mark.parametrize(("profile", "asked"), SHARES)
def test_the_share_of_a_profile(profile: str, asked: tuple[int, ...]) -> None:
    settings = Settings(profile=PROFILES[profile])
    for declared, count in zip((64, 16, 4, 1), asked, strict=True):
        assert settings.copies(Capabilities(batched=False), declared) == count
        assert settings.copies(Capabilities(), declared) == declared


def given(_capabilities: Capabilities) -> st.SearchStrategy[Batch]:
    return st.just(BATCH)


LAYOUTS = LayoutExperiment(
    suite="toy", case="toy", layouts=given, holds=inside_the_support, copies=32
)
EXPERIMENTS: dict[str, Experiment] = {
    "layout": LAYOUTS,
    "differential": DifferentialExperiment(suite="toy", case="toy", layouts=given, copies=32),
    "metamorphic": MetamorphicExperiment(
        suite="toy", case="toy", layouts=given, holds=relations.asked_again, copies=32
    ),
}


@pytest.mark.parametrize("kind", EXPERIMENTS)
@pytest.mark.parametrize(("batched", "copies"), [(True, 32), (False, 4)])
def test_calls_hold_as_many(kind: str, batched: bool, copies: int) -> None:
    seen: set[int] = set()

    def watched(batch: Batch) -> Emission:
        seen.add(batch.num_requests)
        return reference(batch)

    declared = dataclasses.replace(reference.capabilities, batched=batched)
    settings = Settings(trials=1)
    (verdict,) = EXPERIMENTS[kind].run(Subject("watched", watched, declared), settings)
    assert verdict.status is Status.PASS
    assert copies * BATCH.num_requests in seen
    assert max(seen) <= copies * BATCH.num_requests + 1  # the relation adds a request once
    if kind == "layout":
        assert f"{copies} calls' worth of draws each" in verdict.reason


def test_one_copy_is_one_call() -> None:
    single = dataclasses.replace(LAYOUTS, copies=1)
    (verdict,) = single.run(resolve("reference"), Settings(trials=1))
    assert "one call's worth of draws each" in verdict.reason


@pytest.mark.parametrize(("batched", "copies"), [(True, 8), (False, 1)])
def test_the_snippet_asks_as_the_run_did(batched: bool, copies: int) -> None:
    whole = resolve("mutant:stride-ignored")
    declared = dataclasses.replace(whole.capabilities, batched=batched)
    subject = dataclasses.replace(whole, capabilities=declared)
    experiment = next(e for e in SUITE.experiments if e.case == "memory-layout")
    (verdict,) = experiment.run(subject, Settings(root_seed=3))
    assert verdict.status is Status.FAIL
    snippet = verdict.snippet
    assert snippet is not None
    assert (f"copies={copies}," in snippet) is (copies > 1)
    assert ("copies=" in snippet) is (copies > 1)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(snippet, {})
    assert out.getvalue().splitlines()[0] == f"FAIL {verdict.shrunk.reason}"
