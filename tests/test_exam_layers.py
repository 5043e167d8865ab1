"""The suites that a mutant names: one of them must catch it, and a wrong formula soon."""

from __future__ import annotations

import dataclasses

from test_exam import ACCEPTANCE, SIDES, FakeExperiment

from specverify.checks.experiment import PROFILES, Settings, Side, Suite
from specverify.exam import FIRST_STAGE, LAYERS, SHORT_BUDGET, Role, Row, examine
from specverify.mutants import MUTANTS, Kind, Mutant, Need, Place
from specverify.reference import reference
from specverify.subjects import Subject


def named(needs: tuple[Need, ...], tv: float | None = None) -> Mutant:
    return Mutant(
        name="m", summary="s", seen_at="x", needs=needs, where=frozenset({Place.BONUS}),
        kind=Kind.LOSSY, build=lambda: reference, tv=tv,
    )  # fmt: skip


def sit_named(mutant: Mutant, *experiments: FakeExperiment) -> Row:
    profile = dataclasses.replace(PROFILES["quick"], max_trials=100_000)
    suites = [Suite(one.suite, "", (one,), SIDES.get(one.suite, Side.LAW)) for one in experiments]
    settings = Settings(alpha=1e-9, tv=0.01, profile=profile)
    return examine(
        Subject.of(reference, "m"), Role.LOSSY, suites, settings, thorough=False, mutant=mutant
    )


def test_every_property_is_checked_by_a_suite_that_there_is() -> None:
    from specverify.suites import NAMES

    assert {*LAYERS} == {*Need}
    assert {suite for suites in LAYERS.values() for suite in suites} <= {*NAMES}
    for mutant in MUTANTS.values():
        assert mutant.needs, mutant.name
        assert mutant.where, mutant.name


def test_a_mutant_must_be_caught_by_a_suite_that_it_names() -> None:
    mutant = named((Need.STREAMS,))
    elsewhere = sit_named(mutant, FakeExperiment("random", fails_at=1))
    assert not elsewhere.named
    assert not elsewhere.right
    both = FakeExperiment("random", fails_at=1), FakeExperiment("independence", fails_at=9_000)
    row = sit_named(mutant, *both)
    assert row.right
    assert row.detected == 100_000
    assert both[1].asked == [FIRST_STAGE, 100_000]  # though another suite had caught it


def test_a_wrong_formula_must_be_caught_in_time() -> None:
    mutant = named((Need.MARGINAL,))
    assert sit_named(mutant, FakeExperiment("random", fails_at=8_000)).right
    late = sit_named(mutant, FakeExperiment("random", fails_at=50_000))
    assert late.named
    assert late.late
    assert not late.right
    by_power = named((Need.MARGINAL,), tv=0.005)
    assert sit_named(by_power, FakeExperiment("random", fails_at=50_000)).right


def test_where_power_is_needed_only_named_suites_get_it() -> None:
    mutant = named((Need.ACCEPTANCE,), tv=0.005)
    law = FakeExperiment("random", fails_at=1)
    rule = FakeExperiment(ACCEPTANCE, fails_at=50_000)
    assert sit_named(mutant, law, rule).right
    assert law.asked == [FIRST_STAGE]
    assert rule.asked == [FIRST_STAGE, 100_000]


# --- quick exams --------------------------------------------------------------------------------


def asked(name: str, role: Role, *, thorough: bool, fails: bool = False) -> dict[str, list[int]]:
    """The trials that each suite was asked for, by a base suite and a deep one."""
    made = {
        suite: FakeExperiment(suite, fails_at=1 if fails else None) for suite in ("random", "tail")
    }
    suites = [Suite(suite, "", (made[suite],)) for suite in ("tail", "random")]
    subject = Subject.of(reference, name)
    examine(subject, role, suites, Settings(tv=0.02), thorough=thorough)
    return {suite: [n for n in found.asked if n is not None] for suite, found in made.items()}


def test_a_quick_exam_asks_deep_suites_only_where_it_must() -> None:
    assert asked("m", Role.LOSSY, thorough=False, fails=True)["tail"] == []
    assert asked("m", Role.LOSSY, thorough=False)["tail"]
    assert asked("m", Role.CORRECT, thorough=False)["tail"] == []
    assert asked("m", Role.CORRECT, thorough=True)["tail"]


def test_a_quick_exam_stops_early_for_those_who_must_not_be_rejected() -> None:
    assert max(asked("m", Role.CORRECT, thorough=False)["random"]) == SHORT_BUDGET
    assert max(asked("lawful:x", Role.CORRECT, thorough=False)["random"]) == FIRST_STAGE
    assert max(asked("m", Role.LOSSY, thorough=False)["random"]) > SHORT_BUDGET
