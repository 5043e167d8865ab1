"""The metamorphic layer: company does not matter, seeds do, and memory is written before read."""

from __future__ import annotations

import dataclasses
import itertools

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from specverify.suites.test_acceptance import SUITE as ACCEPTANCE
from specverify.suites.test_metamorphic import SUITE
from torch.utils import deterministic

from specverify.checks.diagnosis import Branch
from specverify.checks.experiment import PROFILES, Settings, Side
from specverify.checks.metamorphic import Asked, MetamorphicExperiment
from specverify.checks.poison import poisoned_memory
from specverify.checks.random_rows import random_batch
from specverify.checks.rebatch import changed_requests, join, pad_vocabulary, select, stranger
from specverify.checks.relation_layouts import dense_drafts, flat_rows
from specverify.checks.verdict import Status, Verdict
from specverify.contract import AcceptanceRule, Batch, Capabilities, Coins, Emission
from specverify.layouts import batches
from specverify.reference import reference
from specverify.reference.coins import coins_of
from specverify.registry import resolve
from specverify.subjects import Subject

RELATIONS: dict[str, MetamorphicExperiment] = {e.case: e for e in SUITE.experiments}
SCALED: MetamorphicExperiment = next(
    e for e in ACCEPTANCE.experiments if e.case == "scaled-draft-law"
)


def run(subject: Subject, case: str, settings: Settings) -> Verdict:
    experiment = SCALED if case == SCALED.case else RELATIONS[case]
    (verdict,) = experiment.run(subject, settings)
    return verdict


STREAMS = ("seed-matters", "position-matters", "streams-apart")
"""What only a sampler with seeds can be asked."""


@pytest.mark.parametrize("case", [*RELATIONS, SCALED.case])
@pytest.mark.parametrize("name", ["reference", "lawful:float32", "lawful:gumbel-max"])
def test_correct_samplers_pass(name: str, case: str) -> None:
    """With seeds of their own, in float32, and with injected coins only."""
    verdict = run(resolve(name), case, Settings(root_seed=2, trials=6))
    if name == "lawful:gumbel-max" and case in STREAMS:
        assert verdict.reason == "the sampler does not declare per_request_seeds"
        return
    assert verdict.status is Status.PASS, verdict.reason
    assert verdict.alpha == 0


@pytest.mark.parametrize(
    ("mutant", "case"),
    [
        ("seed-ignored", "permuted"),
        ("coin-same-all-rows", "split"),
        ("shared-parameters", "permuted"),
        ("bonus-from-first-request", "beside-idle"),
        ("seed-ignored", "beside-excluded"),
        ("greedy-batch-leak", "beside-greedy"),
        ("greedy-batch-shifts-coins", "beside-greedy"),
        ("zero-draft-shift", "beside-idle"),
        ("draft-row-of-neighbour", "beside-longer"),
        ("nan-poisons-batch", "beside-nan"),
        ("state-leaks-between-calls", "asked-again"),
        ("uninitialised-scratch", "unwritten-memory"),
        ("stride-ignored", "memory-layout"),
        ("position-ignored", "position-matters"),
        ("seed-ignored", "seed-matters"),
        ("coin-same-all-rows", "seed-matters"),
        ("reject-q-above-one", "scaled-draft-law"),
    ],
)
def test_mutants_are_caught(mutant: str, case: str) -> None:
    """Each by the relation that it breaks, within the layouts of a quick run."""
    verdict = run(resolve(f"mutant:{mutant}"), case, Settings(root_seed=3, shrink=False))
    assert verdict.status is Status.FAIL, verdict.reason


def in_batches_of_eight(batch: Batch) -> Emission:
    """Another result from 8 requests on: a split reduction that is not the same sum."""
    shift = 1 if batch.num_requests >= 8 else 0
    return reference(batch.replace(positions=batch.positions + shift))


def unstable_exponential(batch: Batch) -> Emission:
    """No maximum is subtracted, in half precision: exp overflows where logits are large."""
    weights = batch.target_logits.half().exp().nan_to_num(posinf=6e4)
    return reference(batch.replace(target_logits=weights.log().clamp(min=-30).float()))


def reads_padding(batch: Batch) -> Emission:
    """The number of tokens takes part: a mean over the padded vocabulary."""
    shifted = batch.coins.final * (1 - 1 / batch.vocab_size)  # type: ignore[union-attr]
    return reference(batch.replace(coins=Coins(accept=batch.coins.accept, final=shifted)))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("sampler", "case"),
    [
        (in_batches_of_eight, "batch-sizes"),
        (unstable_exponential, "added-constant"),
        (reads_padding, "padded-vocabulary"),
    ],
)
def test_other_faults_are_caught(sampler: object, case: str) -> None:
    declared = dataclasses.replace(reference.capabilities, dtypes=("float32",))
    subject = Subject("bad", sampler, declared)  # type: ignore[arg-type]
    # Faults of few layouts: the gate profile tries ten times as many as the quick one.
    settings = Settings(root_seed=3, shrink=False, profile=PROFILES["gate"])
    verdict = run(subject, case, settings)
    assert verdict.status is Status.FAIL, verdict.reason
    assert "raised" not in verdict.reason


def test_a_failure_is_small() -> None:
    verdict = run(resolve("mutant:greedy-batch-shifts-coins"), "beside-greedy", Settings())
    problem, shown = verdict.reason.split("\nsmallest layout that shows it:\n")
    assert problem.startswith("request 0: emitted [")
    assert shown.startswith("1 request, 0 drafts, V = 2,")


def test_acceptance_is_where_a_slow_sampler_is_found() -> None:
    assert (SUITE.side, ACCEPTANCE.side) == (Side.LAW, Side.COUPLING)
    subject = resolve("mutant:reject-q-above-one")
    for case in RELATIONS:
        assert run(subject, case, Settings(trials=3)).status is Status.PASS, case
    assert run(subject, SCALED.case, Settings(trials=20)).branch is Branch.ACCEPTED
    undeclared = dataclasses.replace(reference.capabilities, acceptance=AcceptanceRule.UNDECLARED)
    assert SCALED.plan(undeclared).unsupported == "the sampler declares no acceptance rule"


# --- subjects that cannot be asked everything --------------------------------------------------


def test_without_seeds_or_coins_only_structure_is_asked() -> None:
    bare = Capabilities()
    for case, experiment in RELATIONS.items():
        reason = experiment.plan(bare).unsupported
        assert (reason is None) == (case in ("beside-nan", "unwritten-memory")), case
    subject = resolve("lawful:global-generator")
    for case in ("beside-nan", "unwritten-memory"):
        assert run(subject, case, Settings(trials=4)).status is Status.PASS


@pytest.mark.parametrize(
    ("case", "changes", "words"),
    [
        ("beside-greedy", {"greedy": False}, "does not declare greedy"),
        ("beside-excluded", {"exclusion": False}, "does not declare exclusion"),
        ("padded-vocabulary", {"final_coin": None}, "takes no injected coins"),
        ("permuted", {"final_coin": None, "per_request_seeds": False}, "lawfully emit something"),
    ],
)
def test_not_supported(case: str, changes: dict[str, object], words: str) -> None:
    declared = dataclasses.replace(reference.capabilities, **changes)  # type: ignore[arg-type]
    verdict = run(Subject("s", reference, declared), case, Settings())
    assert verdict.status is Status.NOT_SUPPORTED
    assert words in verdict.reason


def test_refusing_nan_is_lawful_and_answering_is_watched() -> None:
    """The reference raises; a sampler that emits id V beside NaN does not get away with it."""
    nan = stranger(random_batch(counts=[1], vocab=4, dense=True, entropy=0), drafts=0)
    nan.target_logits[:] = torch.nan
    with pytest.raises(ValueError, match="expected a finite logit in every row"):
        reference(nan)
    assert run(resolve("reference"), "beside-nan", Settings(trials=4)).status is Status.PASS

    def past_the_end(batch: Batch) -> Emission:
        broken = batch.target_logits.isnan().any(dim=1)[batch.first_row]
        clean = reference(batch.replace(target_logits=batch.target_logits.nan_to_num(0.0)))
        first = torch.where(broken, batch.vocab_size, clean.token_ids[:, 0])
        tokens = torch.where(broken[:, None], -1, clean.token_ids)
        tokens[:, 0] = first
        return Emission(tokens, torch.where(broken, 1, clean.num_emitted))

    subject = Subject("bad", past_the_end, reference.capabilities)
    verdict = run(subject, "beside-nan", Settings())
    assert verdict.status is Status.FAIL
    assert "outside of the vocabulary" in verdict.reason


def test_a_state_is_named_and_not_raised() -> None:
    calls = itertools.count()

    def drifts(batch: Batch) -> Emission:
        return reference(batch.replace(positions=batch.positions + next(calls) // 7))

    subject = Subject("drifts", drifts, reference.capabilities)
    verdict = run(subject, "asked-again", Settings())
    assert verdict.status is Status.FAIL
    assert "the same call emitted something else" in verdict.reason


# --- what differences are excused --------------------------------------------------------------


def differing(share: float) -> Subject:
    """Changes the last token of a share of the requests when the logits lie elsewhere."""

    def sampler(batch: Batch) -> Emission:
        emission = reference(batch)
        if batch.target_logits.is_contiguous():
            return emission
        tokens = emission.token_ids.clone()
        few = torch.arange(round(share * batch.num_requests))
        last = emission.num_emitted[few] - 1
        tokens[few, last] = (tokens[few, last] + 1) % batch.vocab_size
        return Emission(tokens, emission.num_emitted)

    return Subject("differs", sampler, reference.capabilities)


@pytest.mark.parametrize(("changed", "excused"), [(1, True), (12, False), (400, False)])
def test_a_rounding_difference_is_excused_and_many_are_not(changed: int, excused: bool) -> None:
    batch = random_batch(counts=[2] * 400, vocab=12, dense=True, entropy=3)
    asked = Asked(differing(changed / 400), Settings(), 5, 400)
    moved = batch.replace(target_logits=batch.target_logits.t().contiguous().t())
    found = asked.same(batch, moved, rounding=True)
    assert (found == []) is excused
    assert asked.same(batch, moved)  # without rounding one is enough


# --- batches -----------------------------------------------------------------------------------


@hypothesis.given(batches(max_requests=5, vocab=(2, 12)), st.randoms(use_true_random=False))
@hypothesis.settings(max_examples=40, deadline=None)
def test_selecting_and_joining_lose_nothing(batch: Batch, random) -> None:  # type: ignore[no-untyped-def]
    batch = batch.replace(coins=coins_of(batch))
    order = list(range(batch.num_requests))
    random.shuffle(order)
    back = [order.index(b) for b in range(len(order))]
    again = select(select(batch, order), back)
    twice = select(join(batch, batch), range(batch.num_requests))
    for other in (again, twice):
        for field in dataclasses.fields(batch):
            old, new = getattr(batch, field.name), getattr(other, field.name)
            if isinstance(old, torch.Tensor):
                assert torch.equal(old, new), field.name
        assert torch.equal(batch.coins.accept, other.coins.accept)
        assert torch.equal(batch.coins.final, other.coins.final)
        other.replace()  # valid


def test_padding_and_strangers_are_valid_batches() -> None:
    for dense in (True, False):
        batch = random_batch(counts=[2, 1], vocab=5, dense=dense, entropy=4)
        batch = batch.replace(coins=Coins(accept=torch.rand(3), noise=torch.ones(2, 5)))
        wide = pad_vocabulary(batch, 3).replace()
        assert wide.vocab_size == 8
        joined = join(batch, stranger(batch, drafts=3, temperature=0.0)).replace()
        assert joined.draft_counts.tolist() == [2, 1, 3]


def test_changed_requests_compares_whatever_the_width() -> None:
    short = Emission(torch.tensor([[1, -1], [2, 3]]), torch.tensor([1, 2]))
    long = Emission(torch.tensor([[2, 3, -1], [1, -1, -1]]), torch.tensor([2, 1]))
    assert changed_requests(short, long, [(0, 1), (1, 0)]) == []
    assert changed_requests(short, long, [(0, 0), (1, 0)]) == [(0, 0)]


def test_layouts_of_relations_are_valid() -> None:
    for layouts in (dense_drafts, flat_rows):

        @hypothesis.given(layouts(reference.capabilities))
        @hypothesis.settings(max_examples=10, deadline=None)
        def check(batch: Batch) -> None:
            batch.replace()

        check()


# --- memory ------------------------------------------------------------------------------------


def test_poisoned_memory_is_full_of_nan_and_restored() -> None:
    before = (
        torch.are_deterministic_algorithms_enabled(),
        deterministic.fill_uninitialized_memory,
    )
    with poisoned_memory():
        assert bool(torch.empty(1000).isnan().all())
        assert int(torch.empty(10, dtype=torch.int64).min()) == 2**63 - 1
    with pytest.raises(RuntimeError, match="inside"), poisoned_memory():
        raise RuntimeError("inside")
    after = torch.are_deterministic_algorithms_enabled(), deterministic.fill_uninitialized_memory
    assert after == before
