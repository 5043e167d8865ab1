"""Every mutant is a real change of the reference, says what it is, and a small exam finds it."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest
import torch

from specverify._blocks import BlockBuilder
from specverify.cases import Case, RequestSpec, make_case
from specverify.checks.experiment import PROFILES, Settings, Side, Suite
from specverify.checks.layout_experiment import LayoutExperiment
from specverify.checks.layout_properties import any_layout, greedy_layout, greedy_text_is_exact
from specverify.checks.layout_properties import anything as structure
from specverify.checks.statistical import StatisticalExperiment
from specverify.checks.verdict import Family
from specverify.contract import Batch, Emission, capabilities_of
from specverify.exam import Role, examine
from specverify.faults import SamplerFault, call
from specverify.mutants import (
    MUTANTS,
    Kind,
    Need,
    Place,
    acceptance,
    emission,
    lossy,
    parameters,
    recovery,
    rows,
    slow,
)
from specverify.mutants.lawful import LAWFUL
from specverify.reference import reference
from specverify.reference.chain import CAPABILITIES
from specverify.registry import resolve
from specverify.subjects import Subject
from specverify.trials import stream_of

ACCEPTANCE = "acceptance"
r = RequestSpec
RAGGED = (
    r(drafts=0),
    r(drafts=3, temperature=0.75, placeholders=frozenset({2})),
    r(drafts=2, top_k=3, top_p=0.9, min_p=0.05),
    r(drafts=2, temperature=0.0),
    r(drafts=0, top_k=2),
    r(drafts=1),
    r(drafts=2, temperature=2.0),
)
CASES = (
    make_case("mutants/dense", 5, RAGGED, True),
    make_case("mutants/one-hot", 5, RAGGED, False),
    make_case("mutants/filtered", 5, (r(drafts=2, min_p=0.3), r(drafts=2, top_k=2)), True),
    make_case("mutants/plain", 5, (r(drafts=2), r(drafts=2)), True),
)


@lru_cache
def batch_of(case: Case) -> Batch:
    """500 trials of a case in one call."""
    return BlockBuilder(case, stream_of(1, case), "cpu", 1, CAPABILITIES).build(0, 500).batch


def answer(subject: Subject, batch: Batch) -> Emission | str:
    """What a subject emits, or the fault it commits."""
    try:
        return call(subject, batch, 1, watch_input=True)
    except SamplerFault as fault:
        return str(fault)


def differs(subject: Subject, case: Case) -> bool:
    right = reference(batch_of(case))
    got = answer(subject, batch_of(case))
    if isinstance(got, str):
        return True
    return not (
        torch.equal(got.token_ids, right.token_ids)
        and torch.equal(got.num_emitted, right.num_emitted)
    )


IN_TABLES = [
    mutant.name
    for room in (recovery, acceptance, rows, emission, parameters, lossy, slow)
    for mutant in room.MUTANTS
]
"""Mutants that ordinary coins and rows show; the others need layouts or drafters of their own."""


@pytest.mark.parametrize("name", IN_TABLES)
def test_mutant_is_not_the_reference(name: str) -> None:
    """Under the same seeds, drafts and layout, something else comes out."""
    subject = resolve(f"mutant:{name}")
    assert any(differs(subject, case) for case in CASES)


@pytest.mark.parametrize("name", IN_TABLES)
def test_mutant_returns_instead_of_crashing(name: str) -> None:
    """Its bug is the one it names, and not that it raises or scribbles on its input."""
    for case in CASES:
        assert not isinstance(answer(resolve(f"mutant:{name}"), batch_of(case)), str)


@pytest.mark.parametrize("name", MUTANTS)
def test_metadata(name: str) -> None:
    mutant = MUTANTS[name]
    assert mutant.name == name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert 15 <= len(mutant.summary) <= 100
    assert mutant.summary[-1] not in ".\n"
    assert mutant.seen_at
    assert mutant.kind in Kind
    assert mutant.needs
    assert set(mutant.needs) <= set(Need)
    assert mutant.where
    assert mutant.where <= set(Place)
    assert (mutant.kind is Kind.SLOW) <= (mutant.needs[0] in (Need.ACCEPTANCE, Need.LAYOUT))


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_has_a_name_for_the_command(name: str) -> None:
    subject = resolve(f"mutant:{name}")
    assert subject.name == f"mutant:{name}"
    assert subject.capabilities == capabilities_of(subject.sampler)
    assert type(subject.sampler) is type(MUTANTS[name].build())


def test_there_is_one_mutant_for_each_name() -> None:
    rooms = [mutant.build for mutant in MUTANTS.values()]
    assert len(set(rooms)) == len(MUTANTS) >= 35
    assert {mutant.kind for mutant in MUTANTS.values()} == set(Kind)
    assert len({mutant.summary for mutant in MUTANTS.values()}) == len(MUTANTS)


def test_unknown_mutant_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'mutant:accept-all'"):
        resolve("mutant:accept-al")


# --- a small exam ------------------------------------------------------------------------------


def small_suites() -> list[Suite]:
    plain = make_case("mutants/exam", 4, (r(drafts=2), r(drafts=1), r(drafts=0)), True)
    holes = make_case("mutants/holes", 4, (r(drafts=2, placeholders=frozenset({1})),), True)

    def ask(case: Case, suite: str, *families: Family) -> StatisticalExperiment:
        return StatisticalExperiment(
            suite=suite, case=case.name, make=lambda: case, families=families
        )

    return [
        Suite(
            "greedy",
            "greedy text",
            (
                LayoutExperiment(
                    suite="greedy",
                    case="greedy",
                    layouts=greedy_layout,
                    holds=greedy_text_is_exact,
                ),
            ),
        ),
        Suite(
            "random",
            "law",
            (
                LayoutExperiment(
                    suite="random", case="layouts", layouts=any_layout, holds=structure
                ),
                ask(plain, "random", Family.INDEPENDENCE, Family.LAW),
                ask(holes, "random", Family.LAW),
            ),
        ),
        Suite(ACCEPTANCE, "rule", (ask(plain, ACCEPTANCE, Family.COUPLING),), Side.COUPLING),
    ]


SETTINGS = Settings(root_seed=2, alpha=1e-9, tv=0.05, profile=PROFILES["quick"])


@pytest.mark.parametrize(
    ("name", "role", "caught"),
    [
        ("reference", Role.CORRECT, set()),
        ("mutant:recover-from-target", Role.LOSSY, {"random", ACCEPTANCE}),
        ("mutant:residual-at-placeholder", Role.LOSSY, {"random"}),
        ("mutant:counts-padding", Role.LOSSY, {"greedy", "random", ACCEPTANCE}),
        ("mutant:q-dropped", Role.SLOW, {ACCEPTANCE}),
    ],
)
def test_small_exam(name: str, role: Role, caught: set[str]) -> None:
    row = examine(resolve(name), role, small_suites(), SETTINGS)
    assert row.right
    assert {suite for suite, mark in row.marks.items() if mark.caught} == caught


def test_the_exam_tells_a_mutant_from_what_it_pretends_to_be() -> None:
    """A lossy mutant presented as correct, and a correct sampler presented as a mutant."""
    lossy = resolve("mutant:recover-from-target")
    assert not examine(lossy, Role.CORRECT, small_suites(), SETTINGS).right
    assert not examine(resolve("reference"), Role.LOSSY, small_suites(), SETTINGS).right


def test_the_docs_list_every_mutant_and_every_lawful_variant() -> None:
    """Name, needs, places and public reference of each; docs/samplers.md is not generated."""
    path = Path(__file__).parent.parent / "docs" / "samplers.md"
    if not path.exists():
        pytest.skip("the docs are not beside the tests")
    lines = path.read_text(encoding="utf-8").splitlines()
    for name, mutant in MUTANTS.items():
        line = next((line for line in lines if line.startswith(f"| `{name}`")), "")
        needs = " ".join(need.value for need in mutant.needs)
        where = ", ".join(sorted(place.value for place in mutant.where))
        assert f"| {needs} | {where} | {mutant.seen_at} |" in line, name
        assert ("*(slow)*" in line) is (mutant.kind is Kind.SLOW)
    for name, variant in LAWFUL.items():
        assert f"| `{name}` | {variant.summary} |" in lines
