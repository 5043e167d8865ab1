"""Experiments on recorded rows: the reference passes, bugs of a single step are found."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from specverify import laws
from specverify.checks.experiment import PROFILES, Settings
from specverify.checks.recorded import RecordedExperiment, recorded_experiments
from specverify.checks.verdict import Family, Status, Verdict
from specverify.contract import PLACEHOLDER, AcceptanceRule, Capabilities
from specverify.mutants import MUTANTS
from specverify.recorded import RecordedRows
from specverify.reference import reference, reference_match
from specverify.subjects import Subject

VOCAB = 12
SETTINGS = Settings(
    root_seed=5, alpha=1e-7, tv=0.1, profile=dataclasses.replace(PROFILES["quick"], tv_cells=24)
)


def rows(
    *, dense: bool = True, placeholders: tuple[int, ...] = (), **changes: torch.Tensor
) -> RecordedRows:
    """Three steps with 3, 0 and 2 drafts; the numbers of a fixed generator."""
    rng = np.random.default_rng(20)
    logits = torch.from_numpy(rng.normal(0, 1.5, (8, VOCAB))).float()
    probs = torch.softmax(torch.from_numpy(rng.normal(0, 1.0, (5, VOCAB))), dim=1).float()
    ids = torch.tensor([int(rng.integers(VOCAB)) for _ in range(5)])
    ids[list(placeholders)] = PLACEHOLDER
    fields = {
        "target_logits": logits,
        "draft_token_ids": ids,
        "draft_probs": probs if dense else None,
        "cu_drafts": torch.tensor([0, 3, 3, 5]),
        "temperature": torch.tensor([1.0, 0.7, 1.0]),
        "top_k": torch.zeros(3, dtype=torch.int64),
        "top_p": torch.ones(3),
        "min_p": torch.zeros(3),
        **changes,
    }
    return RecordedRows(**fields)  # type: ignore[arg-type]


def subject_of(name: str) -> Subject:
    known = {"reference": reference, "reference-match": reference_match}
    return Subject.of(known[name] if name in known else MUTANTS[name].build(), name)


def run(name: str, recorded: RecordedRows, settings: Settings = SETTINGS) -> dict[str, Verdict]:
    """The only verdict of each case."""
    found = {}
    for experiment in recorded_experiments(recorded):
        (found[experiment.case],) = experiment.run(subject_of(name), settings)
    return found


def failed(verdicts: dict[str, Verdict]) -> set[str]:
    return {case for case, verdict in verdicts.items() if verdict.status is Status.FAIL}


CASES = [
    "step-0-first-token",
    "step-0-recorded-drafts",
    "step-1-first-token",
    "step-2-first-token",
    "step-2-recorded-drafts",
]


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
@pytest.mark.parametrize("name", ["reference", "reference-match"])
@pytest.mark.parametrize("placeholders", [(), (1, 3), (0,)], ids=str)
def test_correct_samplers_pass(name: str, dense: bool, placeholders: tuple[int, ...]) -> None:
    verdicts = run(name, rows(dense=dense, placeholders=placeholders))
    assert list(verdicts) == CASES
    assert {verdict.status for verdict in verdicts.values()} == {Status.PASS}
    for case, verdict in verdicts.items():
        assert verdict.suite == "recorded"
        first = case.endswith("first-token")
        assert verdict.family is (Family.LAW if first else Family.COUPLING)


@pytest.mark.parametrize(
    ("mutant", "where"),
    [
        ("row-plus-one", {"step-0-first-token", "step-0-recorded-drafts"}),
        ("bonus-from-last-row", {"step-0-recorded-drafts"}),
        ("recover-from-target", {"step-0-first-token", "step-2-recorded-drafts"}),
        ("target-ignores-temperature", {"step-1-first-token"}),
        ("accept-all", {"step-0-first-token", "step-0-recorded-drafts"}),
    ],
)
def test_mutants_fail(mutant: str, where: set[str]) -> None:
    verdicts = run(mutant, rows())
    assert where <= failed(verdicts)
    for case in failed(verdicts):
        assert verdicts[case].worst
        if case.endswith("recorded-drafts"):
            assert verdicts[case].worst[0].label.startswith("accepted ")


def test_bonus_from_the_wrong_row_is_a_law_of_the_step_alone() -> None:
    """The first token cannot show it; a step of one draft could."""
    verdicts = run("bonus-from-last-row", rows())
    assert "step-1-first-token" not in failed(verdicts)


def test_residual_at_a_placeholder_is_found() -> None:
    holes = rows(placeholders=(0, 3))
    assert "step-0-first-token" in failed(run("residual-at-placeholder", holes))


def test_slow_mutants_break_only_the_coupling() -> None:
    verdicts = run("q-dropped", rows())
    assert failed(verdicts) <= {"step-0-recorded-drafts", "step-2-recorded-drafts"}
    assert failed(verdicts)


@pytest.mark.parametrize("rubbish", [0.0, 7.0, float("nan")])
def test_row_of_a_placeholder_may_hold_anything(rubbish: float) -> None:
    """A recorder writes no law for a slot that was never proposed."""
    ids, probs = rows().draft_token_ids.clone(), rows().draft_probs
    assert probs is not None
    probs = probs.clone()
    for slot in (0, 4):
        ids[slot], probs[slot] = PLACEHOLDER, rubbish
    verdicts = run("reference", rows(draft_token_ids=ids, draft_probs=probs))
    assert {verdict.status for verdict in verdicts.values()} == {Status.PASS}


def test_rows_in_16_bits_are_read_as_stored() -> None:
    low = rows(target_logits=rows().target_logits.bfloat16())
    probs = rows().draft_probs
    assert probs is not None
    verdicts = run("reference", dataclasses.replace(low, draft_probs=probs.bfloat16()))
    assert {verdict.status for verdict in verdicts.values()} == {Status.PASS}


def test_filters_of_a_step_are_applied() -> None:
    filtered = rows(top_k=torch.tensor([3, 4, 0]), top_p=torch.tensor([1.0, 0.9, 0.8]))
    assert {v.status for v in run("reference", filtered).values()} == {Status.PASS}
    assert failed(run("mask-missing-on-verified", filtered))
    bare = Capabilities()
    unsupported = {e.case: e.plan(bare).unsupported for e in recorded_experiments(filtered)}
    assert unsupported["step-0-first-token"] == "the sampler does not declare filtering"
    assert unsupported["step-1-first-token"] == "the sampler does not declare exclusion"


def experiments() -> dict[str, RecordedExperiment]:
    return {experiment.case: experiment for experiment in recorded_experiments(rows())}


def test_plans() -> None:
    undeclared = Capabilities(acceptance=AcceptanceRule.UNDECLARED)
    for case, experiment in experiments().items():
        assert experiment.plan(Capabilities()).tests == 1
        plan = experiment.plan(undeclared)
        if case.endswith("first-token"):
            assert plan.tests == 1
        else:
            assert plan.tests == 0
            assert plan.unsupported is not None
            assert "no acceptance rule" in plan.unsupported


def test_requested_deviation_is_that_of_recorded_rows() -> None:
    experiment = experiments()[CASES[0]]
    assert experiment.requested_tv(Settings(), Capabilities()) == PROFILES["quick"].tv_recorded
    assert experiment.requested_tv(Settings(tv=0.2), Capabilities()) == 0.2


def test_step_law_is_the_conditional_law() -> None:
    recorded = rows()
    experiment = experiments()["step-0-recorded-drafts"]
    (table,) = experiment.tables(experiment.make(), Capabilities())
    p = torch.softmax(recorded.target_logits[:4].double(), dim=1).numpy()
    assert recorded.draft_probs is not None
    want = laws.conditional_law(
        p, recorded.draft_token_ids[:3].numpy(), recorded.draft_probs[:3].double().numpy()
    )
    assert np.allclose(table.law(), want.reshape(-1), rtol=0, atol=1e-12)
    (bare,) = experiment.tables(experiment.make(), Capabilities(acceptance=AcceptanceRule.MATCH))
    assert not np.allclose(bare.law(), table.law(), rtol=0, atol=1e-3)


def test_first_token_law_is_the_recorded_row() -> None:
    experiment = experiments()["step-1-first-token"]
    (table,) = experiment.tables(experiment.make(), Capabilities())
    p = torch.softmax(rows().target_logits[4].double() / float(np.float32(0.7)), dim=0).numpy()
    assert np.allclose(table.law(), p, rtol=0, atol=1e-12)


def test_other_rows_draw_other_trials() -> None:
    """The digest of the rows is in the name of the case, and the name is the stream."""
    changed = rows(temperature=torch.tensor([1.0, 0.7, 1.1]))
    names = [
        {experiment.make().name for experiment in recorded_experiments(recorded)}
        for recorded in (rows(), rows(), changed)
    ]
    assert names[0] == names[1]
    assert not names[0] & names[2]


def test_verdicts_are_reproducible() -> None:
    one, two = (
        {case: dataclasses.replace(v, seconds=0) for case, v in run("reference", rows()).items()}
        for _ in range(2)
    )
    assert one == two


def test_too_few_trials_are_inconclusive() -> None:
    short = dataclasses.replace(SETTINGS, trials=100)
    statuses = {verdict.status for verdict in run("reference", rows(), short).values()}
    assert statuses == {Status.INCONCLUSIVE}
