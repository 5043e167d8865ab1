"""Exact suites find their mutants, shrink them to something readable, and never raise."""

from __future__ import annotations

import dataclasses
import itertools

import hypothesis
import pytest
import torch

from specverify.checks.experiment import PROFILES, Settings
from specverify.checks.layout_experiment import LayoutExperiment, Property
from specverify.checks.layout_properties import (
    any_layout,
    anything,
    excluded_layout,
    filtered_layout,
    greedy_drafts_all_pass,
    greedy_layout,
    greedy_text_is_exact,
    inside_the_support,
    tied_layout,
)
from specverify.checks.structural import Violation
from specverify.checks.verdict import Family, Status, Verdict
from specverify.contract import AcceptanceRule, Batch, Capabilities, Emission
from specverify.layouts import batches, batches_for
from specverify.mutants import MUTANTS
from specverify.reference import reference, reference_match
from specverify.reference.coins import coins_of
from specverify.replicate import replicate
from specverify.streams import Stream
from specverify.subjects import Subject

SETTINGS = Settings(root_seed=3, trials=40)


SMALL: dict[str, object] = {"max_requests": 3, "max_drafts": 2, "vocab": (2, 9)}
LAYOUTS: dict[str, dict[str, object]] = {
    "any": {},
    "greedy": {"greedy_only": True},
    "filtered": {"filters": "any"},
    "excluded": {"filters": "zero-draft"},
    "tied": {"filters": "any", "targets": ("flat", "ties")},
}


def small(which: str, holds: Property, copies: int = 1) -> LayoutExperiment:
    """The layouts of the suites, kept small so that shrinking takes no time."""
    return LayoutExperiment(
        suite="toy",
        case=which,
        layouts=lambda capabilities: batches_for(capabilities, **{**SMALL, **LAYOUTS[which]}),
        holds=holds,
        copies=copies,
    )


def greedy() -> LayoutExperiment:
    return dataclasses.replace(small("greedy", greedy_text_is_exact), needs=("greedy",))


def greedy_length() -> LayoutExperiment:
    return dataclasses.replace(small("greedy", greedy_drafts_all_pass), coupling=True)


def structure() -> LayoutExperiment:
    return small("any", anything)


def support(which: str) -> LayoutExperiment:
    return small(which, inside_the_support, copies=16)


OF_THE_SUITES = [
    LayoutExperiment(suite="toy", case="greedy", layouts=greedy_layout, holds=greedy_text_is_exact),
    LayoutExperiment(suite="toy", case="length", layouts=any_layout, holds=greedy_drafts_all_pass),
    LayoutExperiment(suite="toy", case="masked", layouts=any_layout, holds=inside_the_support),
    LayoutExperiment(
        suite="toy", case="filtered", layouts=filtered_layout, holds=inside_the_support, copies=8
    ),
    LayoutExperiment(
        suite="toy", case="excluded", layouts=excluded_layout, holds=inside_the_support, copies=8
    ),
    LayoutExperiment(
        suite="toy", case="tied", layouts=tied_layout, holds=inside_the_support, copies=8
    ),
]


def run(name: str, experiment: LayoutExperiment, settings: Settings = SETTINGS) -> Verdict:
    (verdict,) = experiment.run(subject_of(name), settings)
    return verdict


def subject_of(name: str) -> Subject:
    known = {"reference": reference, "reference-match": reference_match}
    return Subject.of(known[name] if name in known else MUTANTS[name].build(), name)


@pytest.mark.parametrize("name", ["reference", "reference-match"])
@pytest.mark.parametrize("experiment", OF_THE_SUITES, ids=lambda e: str(e.case))
def test_correct_samplers_pass(name: str, experiment: LayoutExperiment) -> None:
    verdict = run(name, experiment)
    assert verdict.status is Status.PASS, verdict.reason
    assert verdict.trials == 40
    assert verdict.reason.startswith("40 layouts")
    assert verdict.family is Family.EXACT
    assert verdict.check == f"exact/{experiment.case}"
    assert verdict.alpha == 0


@pytest.mark.parametrize(
    ("mutant", "experiment", "words"),
    [
        ("greedy-flag-inverted", small("any", greedy_text_is_exact), "temperature 0"),
        ("row-plus-one", greedy(), "temperature 0"),
        ("bonus-missing", greedy_length(), "yet verification stopped"),
        ("always-reject-recover-p", greedy_length(), "yet verification stopped"),
        ("bonus-from-last-row", greedy(), "temperature 0"),
        ("placeholder-accepted", structure(), "placeholder"),
        ("counts-padding", structure(), "num_emitted is"),
        ("bonus-after-rejection", structure(), "counts as accepted"),
        ("mask-missing-on-verified", support("filtered"), "has target probability 0"),
        ("min-p-ignored", support("filtered"), "has target probability 0"),
        ("mask-missing-on-bonus", support("excluded"), "has target probability 0"),
        ("top-k-keeps-ties", support("tied"), "has target probability 0"),
    ],
)
def test_mutants_fail_with_a_small_layout(
    mutant: str, experiment: LayoutExperiment, words: str
) -> None:
    verdict = run(mutant, experiment, Settings(root_seed=3, trials=200))
    assert verdict.status is Status.FAIL
    problem, shown = verdict.reason.split("\nsmallest layout that shows it:\n")
    assert problem.startswith("request ")
    assert words in problem
    assert len(shown.splitlines()) <= 12  # a person reads this: one to three requests
    assert verdict.trials > 0


def test_short_greedy_text_is_no_fault_of_the_text() -> None:
    """Only the rule that a sampler declares says how long an emission is."""
    assert run("bonus-missing", greedy()).status is Status.PASS
    undeclared = Capabilities(acceptance=AcceptanceRule.UNDECLARED)
    plan = greedy_length().plan(undeclared)
    assert (plan.tests, plan.unsupported) == (0, "the sampler declares no acceptance rule")
    assert greedy().plan(undeclared).unsupported is None


def test_shrinking_ends_at_what_the_bug_needs() -> None:
    """Requests without drafts shift the rows behind them: no draft, and one row that matters."""
    seen: list[Batch] = []

    def keep(batch: Batch, emission: Emission, capabilities: Capabilities) -> list[Violation]:
        found = greedy_text_is_exact(batch, emission, capabilities)
        if found:
            seen.append(batch)
        return found

    experiment = dataclasses.replace(greedy(), holds=keep)
    assert run("zero-draft-shift", experiment, Settings(trials=200)).status is Status.FAIL
    smallest = seen[-1]
    assert smallest.num_requests in (2, 3)
    assert smallest.num_drafts == 0
    assert smallest.vocab_size == 2
    assert bool((smallest.target_logits[:-1] == 0).all())


def test_a_run_is_a_function_of_its_seed() -> None:
    def seen_by(seed: int) -> list[list[int]]:
        shapes: list[list[int]] = []

        def keep(batch: Batch, emission: Emission, capabilities: Capabilities) -> list[Violation]:
            shapes.append([batch.num_requests, batch.vocab_size, *emission.num_emitted.tolist()])
            return []

        run(
            "reference",
            dataclasses.replace(structure(), holds=keep),
            Settings(root_seed=seed, trials=15),
        )
        return shapes

    assert seen_by(1) == seen_by(1)
    assert seen_by(1) != seen_by(2)
    one, two = (run("counts-padding", structure()) for _ in range(2))
    assert dataclasses.replace(one, seconds=0) == dataclasses.replace(two, seconds=0)


def test_cases_of_a_suite_see_different_layouts() -> None:
    def vocabularies(case: str) -> list[int]:
        sizes: list[int] = []

        def keep(batch: Batch, emission: Emission, capabilities: Capabilities) -> list[Violation]:
            sizes.append(batch.vocab_size)
            return []

        experiment = dataclasses.replace(structure(), case=case, holds=keep)
        run("reference", experiment, Settings(trials=8))
        return sizes

    assert vocabularies("one") != vocabularies("two")


def test_global_seed_makes_subjects_without_their_own_reproducible() -> None:
    def sampler(batch: Batch) -> Emission:
        seeds = torch.randint(0, 2**62, (batch.num_requests,)).to(torch.uint64)
        wrong = reference(batch.replace(seeds=seeds, check_values=False))
        odd = wrong.token_ids[:, :1] % 2
        return Emission(torch.where(odd == 1, 10**6, wrong.token_ids), wrong.num_emitted)

    first, again = (structure().run(Subject.of(sampler), SETTINGS)[0] for _ in range(2))
    assert first.status is Status.FAIL
    assert first.reason == again.reason


# --- faults ------------------------------------------------------------------------------------


def raises(batch: Batch) -> Emission:
    if batch.num_requests > 2:
        raise RuntimeError("three is\n a crowd")
    return reference(batch)


def scribbles(batch: Batch) -> Emission:
    emission = reference(batch)
    batch.temperature.fill_(9.0)
    return emission


def nothing(batch: Batch) -> Emission:
    return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (raises, "the sampler raised RuntimeError: three is a crowd\nsmallest layout"),
        (scribbles, "the sampler changed its input: temperature differs after the call"),
        (nothing, "the sampler returned NoneType; expected a specverify.Emission"),
    ],
)
def test_faults_are_failures(sampler: object, words: str) -> None:
    (verdict,) = structure().run(Subject.of(sampler), SETTINGS)  # type: ignore[arg-type]
    assert verdict.status is Status.FAIL
    assert words in verdict.reason
    assert verdict.check == "exact/any"


def test_a_fault_that_does_not_come_back_is_reported_and_not_raised() -> None:
    """A sampler with a state answers otherwise when the layout is tried again."""
    calls = itertools.count(1)

    def now_and_then(batch: Batch) -> Emission:
        if next(calls) == 7:
            raise RuntimeError("the seventh call")
        return reference(batch)

    (verdict,) = structure().run(Subject.of(now_and_then), SETTINGS)
    assert verdict.status is Status.FAIL
    assert "the sampler raised RuntimeError: the seventh call" in verdict.reason
    assert "asked again, the sampler answered otherwise" in verdict.reason


def test_an_error_of_the_harness_is_raised() -> None:
    def broken(batch: Batch, emission: Emission, capabilities: Capabilities) -> list[Violation]:
        raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        run("reference", dataclasses.replace(structure(), holds=broken))


# --- plan, progress, copies --------------------------------------------------------------------


def test_not_supported() -> None:
    bare = Capabilities(greedy=False, zero_drafts=False)
    plan = greedy().plan(bare)
    assert (plan.tests, plan.unsupported) == (0, "the sampler does not declare greedy")
    (verdict,) = greedy().run(Subject("bare", reference, bare), SETTINGS)
    assert verdict.status is Status.NOT_SUPPORTED
    assert verdict.trials == 0
    two = dataclasses.replace(greedy(), needs=("greedy", "zero_drafts"))
    assert two.plan(bare).unsupported == "the sampler does not declare greedy and zero_drafts"
    assert greedy().plan(Capabilities()).unsupported is None


def test_examples_come_from_the_profile_unless_told() -> None:
    profile = dataclasses.replace(PROFILES["quick"], examples=7)
    assert run("reference", structure(), Settings(profile=profile)).trials == 7
    assert run("reference", structure(), Settings(profile=profile, trials=3)).trials == 3


def test_progress() -> None:
    seen: list[tuple[int, int]] = []
    structure().run(subject_of("reference"), SETTINGS, lambda *pair: seen.append(pair))
    assert seen == [(i, 40) for i in range(1, 41)]


def test_the_request_of_a_copy_is_the_request_of_the_layout() -> None:
    def second_copy(
        batch: Batch, emission: Emission, capabilities: Capabilities
    ) -> list[Violation]:
        return [Violation(batch.num_requests // 2, 1, "here")]

    doubled = dataclasses.replace(structure(), holds=second_copy, copies=2)
    assert run("reference", doubled).reason.startswith("request 0, position 1: here\n")


def test_copies_have_the_layout_and_seeds_of_their_own() -> None:
    @hypothesis.given(batches(max_requests=4, vocab=(2, 20)))
    @hypothesis.settings(max_examples=30)
    def check(batch: Batch) -> None:
        many = replicate(batch, 3, Stream.derive(1, "copies"))
        n, rows = batch.num_requests, batch.target_logits.shape[0]
        assert many.draft_counts.tolist() == batch.draft_counts.tolist() * 3
        assert torch.equal(many.target_logits[2 * rows :], batch.target_logits)
        assert torch.equal(many.top_p[n : 2 * n], batch.top_p)
        assert torch.equal(many.seeds[:n], batch.seeds)
        fresh = many.seeds[n:].tolist()
        assert len(set(fresh)) == 2 * n
        many.replace()  # valid, values and all

    check()


def test_replicate_refuses() -> None:
    @hypothesis.given(batches(max_requests=2, vocab=(2, 4)))
    @hypothesis.settings(max_examples=5)
    def check(batch: Batch) -> None:
        stream = Stream.derive(1, "copies")
        assert replicate(batch, 1, stream) is batch
        with pytest.raises(ValueError, match="copies: got 0; expected at least 1"):
            replicate(batch, 0, stream)
        with pytest.raises(ValueError, match="coins: got injected coins"):
            replicate(batch.replace(coins=coins_of(batch)), 2, stream)

    check()
