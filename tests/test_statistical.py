"""A statistical experiment answers every check: pass, fail, inconclusive or not supported."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import torch

from specverify import evidence
from specverify.cases import Case, RequestSpec, make_case
from specverify.checks.experiment import PROFILES, Profile, Settings
from specverify.checks.judge import SMALL_TABLE, Question, judge_table
from specverify.checks.statistical import StatisticalExperiment, budget
from specverify.checks.tables import tables_of
from specverify.checks.verdict import Family, Status, Verdict
from specverify.contract import (
    AcceptanceRule,
    Batch,
    Capabilities,
    Emission,
    Guarantee,
)
from specverify.mutants import MUTANTS
from specverify.reference import reference
from specverify.subjects import Subject

r = RequestSpec
LAW = (Family.INDEPENDENCE, Family.LAW)
ALPHA = 1e-8
SMALL = dataclasses.replace(PROFILES["quick"], tv_cells=16, max_trials=200_000)
SETTINGS = Settings(root_seed=7, alpha=ALPHA, tv=0.1, profile=SMALL)


def experiment(
    name: str = "plain",
    vocab: int = 4,
    *specs: RequestSpec,
    dense: bool = True,
    families: tuple[Family, ...] = LAW,
) -> StatisticalExperiment:
    requests = specs or (r(drafts=1), r(drafts=1))
    return StatisticalExperiment(
        suite="toy",
        case=name,
        make=functools.partial(make_case, f"toy/{name}", vocab, requests, dense),
        families=families,
    )


def subject_of(name: str) -> Subject:
    return Subject.of(reference if name == "reference" else MUTANTS[name].build(), name)


def run(name: str, found: StatisticalExperiment, settings: Settings = SETTINGS) -> list[Verdict]:
    return found.run(subject_of(name), settings)


def statuses(verdicts: list[Verdict]) -> set[Status]:
    return {verdict.status for verdict in verdicts}


@pytest.mark.parametrize("families", [LAW, (Family.COUPLING,)], ids=["law", "coupling"])
def test_reference_passes_at_the_planned_trials(families: tuple[Family, ...]) -> None:
    found = experiment(families=families)
    verdicts = run("reference", found)
    assert statuses(verdicts) == {Status.PASS}
    planned = found.plan(subject_of("reference").capabilities)
    assert planned.unsupported is None
    assert planned.tests == len(verdicts)
    assert len({verdict.check for verdict in verdicts}) == len(verdicts)
    needed = budget(SETTINGS, 0.1)[0]
    for verdict in verdicts:
        assert (verdict.suite, verdict.case) == ("toy", "plain")
        assert verdict.check.startswith(f"{verdict.family}/")
        assert verdict.family in families
        assert verdict.alpha == ALPHA
        assert verdict.power == 0.999
        assert verdict.trials == (needed // 2 if "trials t" in verdict.check else needed)
        assert verdict.p_value is not None
        assert verdict.p_value > ALPHA
        assert verdict.tv_detectable is not None
        assert verdict.tv_requested is not None
        assert verdict.tv_detectable <= verdict.tv_requested * (1 + 1e-6)
        assert verdict.tv_certified is not None
        assert verdict.tv_observed is not None
        assert verdict.tv_observed < verdict.tv_certified
        assert len(verdict.worst) <= SMALL_TABLE  # larger ones that pass show no cells


@pytest.mark.parametrize("mutant", ["recover-from-target", "row-plus-one", "accept-all"])
def test_mutants_fail_with_the_cells_that_show_it(mutant: str) -> None:
    settings = dataclasses.replace(SETTINGS, tv=0.03)
    verdicts = run(mutant, experiment(), settings)
    failed = [v for v in verdicts if v.status is Status.FAIL]
    assert failed
    for verdict in failed:
        assert verdict.p_value is not None
        assert verdict.p_value <= ALPHA
        assert "p = " in verdict.reason
        assert verdict.worst
        assert verdict.worst[0].label.startswith("token ")
    assert {v.family for v in failed} == {Family.LAW}
    # A clear bug does not wait for the full budget, and nothing else passes by default.
    assert max(v.trials for v in verdicts) < budget(settings, 0.03)[1] / 4
    assert statuses(verdicts) == {Status.FAIL, Status.INCONCLUSIVE}


def test_a_subtle_bug_takes_more_trials_than_a_gross_one() -> None:
    """5 % of the recovered tokens come from q, against all of them."""
    settings = dataclasses.replace(SETTINGS, trials=150_000)
    trials = {}
    for mutant in ("leak-5-percent", "recover-from-draft"):
        verdicts = run(mutant, experiment(), settings)
        assert Status.FAIL in statuses(verdicts)
        trials[mutant] = max(verdict.trials for verdict in verdicts)
    assert trials["leak-5-percent"] > 4 * trials["recover-from-draft"]


def test_margin_of_a_wrong_law_is_not_called_dependence() -> None:
    """A wrong first token is the business of the law family alone."""
    alone = experiment(families=(Family.INDEPENDENCE,))
    verdicts = run("recover-from-target", alone)
    assert len(verdicts) == 2
    assert statuses(verdicts) == {Status.PASS}


def twin_trials(batch: Batch) -> Emission:
    """A real bug: every second trial of two requests repeats the coins of the one before it."""
    pairs = batch.seeds.reshape(-1, 2, 2)
    twins = torch.stack([pairs[:, 0], pairs[:, 0]], dim=1).reshape(-1)
    return reference(batch.replace(seeds=twins, check_values=False))


def test_dependence_is_found_where_the_law_is_right() -> None:
    subject = Subject("twins", twin_trials, subject_of("reference").capabilities)
    verdicts = experiment().run(subject, SETTINGS)
    (failed,) = [v for v in verdicts if v.status is Status.FAIL]
    assert failed.check == "independence/trials t and t + 1: first tokens of request 0"
    assert failed.reason.startswith("pairs are not independent, p = ")
    assert failed.worst[0].label.startswith("token ")


def test_one_stream_for_all_rows_is_found() -> None:
    """Within one call the coin is a constant, so it is the law that looks wrong."""
    assert Status.FAIL in statuses(run("coin-same-all-rows", experiment()))


def test_slow_mutants_pass_the_law_and_fail_the_coupling() -> None:
    assert statuses(run("q-dropped", experiment())) == {Status.PASS}
    coupling = experiment(families=(Family.COUPLING,))
    assert Status.FAIL in statuses(run("q-dropped", coupling))


def test_too_few_trials_are_inconclusive() -> None:
    capped = dataclasses.replace(SETTINGS, profile=dataclasses.replace(SMALL, max_trials=500))
    verdicts = run("reference", experiment(), capped)
    assert statuses(verdicts) == {Status.INCONCLUSIVE}
    for verdict in verdicts:
        assert verdict.trials in (250, 500)
        assert verdict.tv_detectable is not None
        assert verdict.tv_requested is not None
        assert verdict.tv_detectable > verdict.tv_requested
        assert "was asked for" in verdict.reason
    # The promise is that of the plan, whatever was run.
    full = {v.check: v.tv_requested for v in run("reference", experiment())}
    assert {v.check: v.tv_requested for v in verdicts} == pytest.approx(full, rel=0.02)


def test_a_failure_is_a_failure_whatever_the_budget() -> None:
    capped = dataclasses.replace(SETTINGS, profile=dataclasses.replace(SMALL, max_trials=2000))
    assert Status.FAIL in statuses(run("accept-all", experiment(), capped))


def test_more_trials_than_planned_pass() -> None:
    needed, _ = budget(SETTINGS, 0.1)
    more = dataclasses.replace(SETTINGS, trials=2 * needed + 1)
    verdicts = run("reference", experiment(), more)
    assert statuses(verdicts) == {Status.PASS}
    assert max(verdict.trials for verdict in verdicts) == 2 * needed + 1


@pytest.mark.parametrize("trials", [1, 2, 3])
def test_a_handful_of_trials_is_inconclusive_and_never_an_error(trials: int) -> None:
    tiny = dataclasses.replace(SETTINGS, trials=trials)
    assert statuses(run("reference", experiment(), tiny)) == {Status.INCONCLUSIVE}


def test_budget() -> None:
    capped = dataclasses.replace(SETTINGS, profile=dataclasses.replace(SMALL, max_trials=100))
    needed, run_ = budget(SETTINGS, 0.1)
    assert needed == run_
    assert needed % 2 == 0
    # Looking early is paid for out of alpha, so the test at the full budget has less of it.
    assert evidence.trials_needed(16, 0.1, ALPHA, 0.999) < needed
    assert needed <= evidence.trials_needed(16, 0.1, ALPHA / 4, 0.999)
    assert budget(capped, 0.1) == (needed, 100)
    assert budget(dataclasses.replace(capped, trials=300), 0.1) == (needed, 300)
    assert budget(SETTINGS, 0.05)[0] > 3 * needed


def test_requested_deviation() -> None:
    batched, slow = Capabilities(), Capabilities(batched=False)
    found = experiment()
    assert found.requested_tv(SETTINGS, slow) == 0.1
    default = dataclasses.replace(SETTINGS, tv=None)
    assert found.requested_tv(default, batched) == SMALL.tv
    assert found.requested_tv(default, slow) == SMALL.tv_unbatched


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_plan_within_their_own_budget(name: str) -> None:
    """A profile whose default deviation needs more trials than it allows could never pass."""
    profile: Profile = PROFILES[name]
    for tv in (profile.tv, profile.tv_unbatched, profile.tv_recorded):
        needed, trials = budget(Settings(alpha=1e-6 / 400, profile=profile), tv)
        assert needed == trials, (name, tv)


@pytest.mark.parametrize(
    ("changes", "families", "reason"),
    [
        ({"guarantee": Guarantee.LOSSY}, LAW, "the sampler declares itself lossy, so no law is"),
        ({"dense": False}, LAW, "the sampler does not declare dense"),
        ({"dtypes": ("float16",)}, LAW, "the sampler does not read float32 logits"),
        (
            {"acceptance": AcceptanceRule.UNDECLARED},
            (Family.COUPLING,),
            "the sampler declares no acceptance rule",
        ),
    ],
)
def test_not_supported(
    changes: dict[str, object], families: tuple[Family, ...], reason: str
) -> None:
    called = []

    def never(batch: Batch) -> Emission:
        called.append(batch)
        raise AssertionError

    declared = dataclasses.replace(Capabilities(), **changes)  # type: ignore[arg-type]
    found = experiment(families=families)
    plan = found.plan(declared)
    assert plan.tests == 0
    assert plan.unsupported is not None
    assert plan.unsupported.startswith(reason)
    (verdict,) = found.run(Subject("never", never, declared), SETTINGS)
    assert verdict.status is Status.NOT_SUPPORTED
    assert verdict.reason == plan.unsupported
    assert verdict.alpha == 0
    assert not called


def test_undeclared_rules_are_still_asked_for_the_law() -> None:
    undeclared = Capabilities(acceptance=AcceptanceRule.UNDECLARED)
    assert experiment().plan(undeclared).tests > 0


@pytest.mark.parametrize(
    ("mutant", "specs", "words"),
    [
        ("placeholder-accepted", (r(drafts=2, placeholders=frozenset({0})),), "emitted the id -1"),
        ("bonus-after-rejection", (r(drafts=2),), "request 0 emitted"),
        ("counts-padding", (r(drafts=2), r(drafts=0)), "num_emitted: got 3 for request 1 with 0"),
    ],
)
def test_a_fault_is_one_readable_failure(
    mutant: str, specs: tuple[RequestSpec, ...], words: str
) -> None:
    verdicts = run(mutant, experiment(mutant, 4, *specs))
    (verdict,) = verdicts
    assert verdict.status is Status.FAIL
    assert verdict.check == "exact/contract"
    assert verdict.family is Family.EXACT
    assert verdict.alpha == 0
    assert words in verdict.reason


def test_raising_is_a_failure_and_not_an_error() -> None:
    def broken(batch: Batch) -> Emission:
        raise ZeroDivisionError("nothing left\nto divide")

    (verdict,) = experiment().run(Subject.of(broken), SETTINGS)
    assert verdict.status is Status.FAIL
    assert verdict.reason == "the sampler raised ZeroDivisionError: nothing left to divide"


def test_same_seed_same_verdicts() -> None:
    def text(seed: int) -> str:
        settings = dataclasses.replace(SETTINGS, root_seed=seed)
        verdicts = run("reference", experiment(), settings)
        return repr([dataclasses.replace(verdict, seconds=0.0) for verdict in verdicts])

    assert text(7) == text(7)
    assert text(7) != text(8)


def test_progress_is_passed_on() -> None:
    seen: list[tuple[int, int]] = []
    settings = dataclasses.replace(SETTINGS, trials=20_000)
    experiment().run(subject_of("reference"), settings, lambda *pair: seen.append(pair))
    assert seen[-1] == (20_000, 20_000)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) > 1


@pytest.mark.parametrize("vocab", [2, 3])
def test_greedy_requests_have_laws_of_one_outcome(vocab: int) -> None:
    """Cells of probability 0 and 1, down to tables of two cells, are judged too."""
    specs = (r(drafts=1, temperature=0.0), r(drafts=1, temperature=0.0, drafting="greedy"))
    for families in (LAW, (Family.COUPLING,)):
        found = experiment(f"greedy {vocab}", vocab, *specs, families=families)
        assert statuses(run("reference", found)) == {Status.PASS}


def test_greedy_requests_that_are_sampled_fail_at_once() -> None:
    found = experiment("greedy", 3, r(drafts=1, temperature=0.0), r(drafts=1))
    failed = [v for v in run("greedy-flag-inverted", found) if v.status is Status.FAIL]
    assert any("fell where the law has probability 0" in verdict.reason for verdict in failed)


def test_equal_laws_are_judged() -> None:
    """With q = p nothing is ever rejected, and the coupling tables have one outcome."""
    plain = make_case("toy/equal", 5, (r(drafts=1),), True).requests[0]
    draft = (torch.from_numpy(plain.target_tables("reference")[0]),)
    case = Case(name="equal", requests=(dataclasses.replace(plain, draft=draft),), dense=True)
    found = StatisticalExperiment(
        suite="toy", case="equal", make=lambda: case, families=(Family.COUPLING, Family.LAW)
    )
    assert statuses(found.run(subject_of("reference"), SETTINGS)) == {Status.PASS}


def test_judge_counts_one_impossible_outcome() -> None:
    case = make_case("toy/impossible", 3, (r(drafts=1, temperature=0.0),), True)
    (table,) = [
        t for t in tables_of(case, (Family.LAW,), Capabilities()) if t.name == "request 0: token 0"
    ]
    certain = int(table.law().argmax())

    def judged(hits: int) -> Verdict:
        counts = np.zeros(3, dtype=np.int64)
        counts[certain], counts[(certain + 1) % 3] = 10_000, hits
        question = Question(
            suite="s",
            case="c",
            settings=SETTINGS,
            planned=10_000,
            trials=10_000 + hits,
            requested_tv=0.1,
        )
        return judge_table(table, counts, question)

    assert judged(0).status is Status.PASS
    assert judged(1).status is Status.FAIL
    assert judged(1).reason == "1 of 10001 trials fell where the law has probability 0"
