"""Counts do not depend on how trials are cut; drafts and completions follow their laws; and every
kind of misbehaviour of a sampler becomes one readable fault."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specverify import laws
from specverify._blocks import BlockBuilder, Categorical
from specverify.cases import Case, RequestSpec, make_case
from specverify.checks.tables import tables_of
from specverify.checks.verdict import Family
from specverify.contract import Batch, Emission
from specverify.faults import SamplerFault, call
from specverify.reference import reference
from specverify.subjects import Subject
from specverify.trials import (
    IntArray,
    Outcomes,
    block_size,
    merge,
    run_block,
    run_trials,
    stream_of,
)

r = RequestSpec
SUBJECT = Subject.of(reference, "reference")
CASE = make_case("trials", 4, (r(drafts=2), r(drafts=0), r(drafts=1, temperature=0.75)), True)
ALL = (Family.LAW, Family.COUPLING, Family.INDEPENDENCE)
TABLES = tables_of(CASE, ALL, SUBJECT.capabilities)
SEED = 11


def global_sampler(batch: Batch) -> Emission:
    """Lossless, but all of its randomness is torch's and numpy's global state."""
    # Drawn from the back, so that a shorter call would give its first requests other numbers.
    seeds = torch.randint(0, 2**62, (batch.num_requests,)).flip(0) + np.random.randint(2**16)
    return reference(batch.replace(seeds=seeds.to(torch.uint64), check_values=False))


GENERATOR = Subject(
    "global", global_sampler, dataclasses.replace(SUBJECT.capabilities, per_request_seeds=False)
)


def same(left: dict[str, IntArray], right: dict[str, IntArray]) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[k], right[k]) for k in left)


def run(subject: Subject, trials: int, **keywords: Any) -> dict[str, IntArray]:
    case = keywords.pop("case", CASE)
    tables = keywords.pop("tables", TABLES)
    return run_trials(subject, case, tables, **{"root_seed": SEED, "trials": trials, **keywords})


WHOLE = run(SUBJECT, 600)


# --- how trials are cut ------------------------------------------------------------------------


@settings(max_examples=15)
@given(block=st.integers(1, 400).map(lambda half: 2 * half))
def test_counts_do_not_depend_on_the_block(block: int) -> None:
    assert same(run(SUBJECT, 600, block=block), WHOLE)


@settings(max_examples=15)
@given(cuts=st.lists(st.integers(1, 299), max_size=4, unique=True))
def test_merging_shards_is_adding(cuts: list[int]) -> None:
    ends = [0, *(2 * cut for cut in sorted(cuts)), 600]
    parts = [
        run(SUBJECT, end - start, first_trial=start) for start, end in itertools.pairwise(ends)
    ]
    assert same(merge(parts), WHOLE)
    assert same(merge(parts[::-1]), WHOLE)


def test_every_table_counts_every_trial() -> None:
    for table in TABLES:
        pairs = table.name.startswith("trials")
        assert int(WHOLE[table.name].sum()) == (300 if pairs else 600), table.name


def test_other_seeds_and_other_cases_draw_other_trials() -> None:
    assert not same(run(SUBJECT, 600, root_seed=SEED + 1), WHOLE)
    renamed = dataclasses.replace(CASE, name="trials again")
    assert not same(run(SUBJECT, 600, case=renamed), WHOLE)


def test_merge_of_nothing() -> None:
    assert merge([]) == {}


SMALL_BLOCK = make_case("small block", 16, (r(drafts=4),) * 8, True)


def test_block_size_is_even_and_bounded() -> None:
    assert block_size(CASE) == 8192
    assert block_size(SMALL_BLOCK) == (1 << 21) // (40 * 16)
    wide = Case(
        name="wide",
        requests=(dataclasses.replace(CASE.requests[1], target=(torch.zeros(1, 1 << 22),)),),
        dense=False,
    )
    assert block_size(wide) == 2


def test_generator_subjects_are_reproducible_and_prefix_stable() -> None:
    """A shorter last block is the head of the whole one, so a longer run only adds trials."""
    size = block_size(SMALL_BLOCK)
    tables = tables_of(SMALL_BLOCK, (Family.COUPLING,), GENERATOR.capabilities)

    def go(trials: int, first: int = 0) -> dict[str, IntArray]:
        return run(GENERATOR, trials, case=SMALL_BLOCK, tables=tables, first_trial=first)

    together = go(size + 100)
    assert {int(counts.sum()) for counts in together.values()} == {size + 100}
    assert same(together, go(size + 100))
    assert same(merge([go(size), go(100, size)]), together)
    assert not same(go(100), go(100, size))
    builder = BlockBuilder(
        SMALL_BLOCK, stream_of(SEED, SMALL_BLOCK), "cpu", 0, GENERATOR.capabilities
    )
    head = run_block(GENERATOR, builder, size, size).head(100)
    whole = {t.name: np.bincount(t.index(head), minlength=t.cells) for t in tables}
    assert same(go(100, size), whole)


@pytest.mark.parametrize(
    ("subject", "keywords", "message"),
    [
        (SUBJECT, {"trials": 0}, "trials: got 0; expected at least 1"),
        (SUBJECT, {"trials": 2, "first_trial": 3}, "first_trial: got 3; expected an even"),
        (SUBJECT, {"trials": 2, "first_trial": -2}, "first_trial: got -2; expected an even"),
        (SUBJECT, {"trials": 2, "block": 3}, "block: got 3; expected an even number >= 2"),
        (SUBJECT, {"trials": 2, "block": 0}, "block: got 0; expected an even number >= 2"),
        (GENERATOR, {"trials": 2, "block": 64}, "block: got 64; expected 8192: a sampler without"),
        (GENERATOR, {"trials": 2, "first_trial": 64}, "first_trial: got 64; expected a multiple"),
    ],
)
def test_bad_cuts(subject: Subject, keywords: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(subject, **keywords)


def test_progress() -> None:
    seen: list[tuple[int, int]] = []
    run(SUBJECT, 250, block=100, progress=lambda done, planned: seen.append((done, planned)))
    assert seen == [(100, 250), (200, 250), (250, 250)]
    seen.clear()
    run(SUBJECT, 40, first_trial=100, progress=lambda done, planned: seen.append((done, planned)))
    assert seen == [(40, 40)]


def test_global_random_state_is_untouched() -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    before, numpy_before = (
        torch.get_rng_state(),
        np.random.get_state(legacy=False)["state"]["key"].copy(),
    )
    run(GENERATOR, 100)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state(legacy=False)["state"]["key"], numpy_before)

    def raises(batch: Batch) -> Emission:
        torch.rand(3)
        np.random.rand(3)
        raise RuntimeError

    with pytest.raises(SamplerFault, match="the sampler raised RuntimeError: no message"):
        run(Subject.of(raises), 100)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state(legacy=False)["state"]["key"], numpy_before)


# --- misbehaviour ------------------------------------------------------------------------------


def spoiled(change: Callable[[Batch, torch.Tensor, torch.Tensor], object]) -> Subject:
    """The reference, whose emission is changed in place or replaced."""

    def sampler(batch: Batch) -> Emission:
        right = reference(batch)
        tokens, counts = right.token_ids, right.num_emitted
        found = change(batch, tokens, counts)
        return Emission(tokens, counts) if found is None else found  # type: ignore[return-value]

    return Subject("spoiled", sampler, SUBJECT.capabilities)


def _set(name: str, at: object, value: int) -> Callable[..., None]:
    def change(_batch: Batch, tokens: torch.Tensor, counts: torch.Tensor) -> None:
        {"tokens": tokens, "counts": counts}[name][at] = value  # type: ignore[index]

    return change


def _last(value: int) -> Callable[..., None]:
    def change(_batch: Batch, tokens: torch.Tensor, counts: torch.Tensor) -> None:
        tokens[0, int(counts[0]) - 1] = value

    return change


def _wrong_prefix(batch: Batch, tokens: torch.Tensor, counts: torch.Tensor) -> None:
    place = int(torch.nonzero(counts > 1)[0])
    tokens[place, 0] = (tokens[place, 0] + 1) % batch.vocab_size


def _hole(_batch: Batch, tokens: torch.Tensor, counts: torch.Tensor) -> None:
    tokens[int(torch.nonzero(counts > 1)[0]), 0] = -1


def _after_the_end(_batch: Batch, tokens: torch.Tensor, counts: torch.Tensor) -> None:
    tokens[int(torch.nonzero(counts == 1)[0]), 1] = 0


def _raise(_batch: Batch, _tokens: torch.Tensor, _counts: torch.Tensor) -> None:
    raise IndexError("index 7 is\n   out of bounds")


def _scribble(name: str) -> Callable[..., None]:
    def change(batch: Batch, _tokens: torch.Tensor, _counts: torch.Tensor) -> None:
        getattr(batch, name)[-1:] = 0

    return change


MISBEHAVIOUR = {
    "raises": (_raise, "the sampler raised IndexError: index 7 is out of bounds"),
    "returns None": (lambda b, t, c: (t, c), "the sampler returned tuple; expected a specverify"),
    "too narrow": (
        lambda b, t, c: Emission(t[:, :-1], c),
        "token_ids: got [1500, 2]; expected [B, max k + 1] = [1500, 3]",
    ),
    "too few rows": (
        lambda b, t, c: Emission(t[:-3], c[:-3]),
        "token_ids: got [1497, 3]; expected [B, max k + 1] = [1500, 3]",
    ),
    "float tokens": (
        lambda b, t, c: Emission(t.float(), c),
        "the sampler raised ValueError: token_ids: got [1500, 3] float32",
    ),
    "int32 counts": (
        lambda b, t, c: Emission(t, c.int()),
        "the sampler raised ValueError: num_emitted: got [1500] int32",
    ),
    "token = V": (_last(4), "token_ids: emitted the id 4; expected ids in [0, 4)"),
    "token = -2": (_last(-2), "token_ids: emitted the id -2"),
    "last token missing": (_last(-1), "token_ids: emitted the id -1"),
    "-1 inside": (_hole, "token_ids: emitted the id -1"),
    "something behind": (_after_the_end, "a slot after the last emitted token is not -1"),
    "wrong prefix": (_wrong_prefix, "request 0 emitted"),
    "none emitted": (_set("counts", 0, 0), "num_emitted: got 0 for request 0 with 2 drafts"),
    "too many": (_set("counts", 1, 2), "num_emitted: got 2 for request 1 with 0 drafts; expected"),
    "counts padding": (
        _set("counts", slice(2, None, 3), 3),
        "num_emitted: got 3 for request 2 with 1 drafts; expected 1 to 2",
    ),
    "changes logits": (_scribble("target_logits"), "changed its input: target_logits differs"),
    "changes ids": (_scribble("draft_token_ids"), "changed its input: draft_token_ids differs"),
    "changes q": (_scribble("draft_probs"), "changed its input: draft_probs differs"),
    "changes seeds": (_scribble("seeds"), "changed its input: seeds differs"),
}


@pytest.mark.parametrize("kind", MISBEHAVIOUR)
def test_misbehaviour_is_a_fault(kind: str) -> None:
    change, message = MISBEHAVIOUR[kind]
    with pytest.raises(SamplerFault) as caught:
        run(spoiled(change), 500)
    assert message in str(caught.value)


def test_a_good_sampler_is_no_fault() -> None:
    assert same(run(spoiled(lambda b, t, c: None), 500), run(SUBJECT, 500))


def test_placeholder_taken_for_a_draft_is_a_fault() -> None:
    case = make_case("faulty", 4, (r(drafts=2, placeholders=frozenset({0})),), True)
    from specverify.mutants import MUTANTS

    mutant = Subject.of(MUTANTS["placeholder-accepted"].build())
    with pytest.raises(SamplerFault, match="emitted"):
        run(mutant, 500, case=case, tables=())


def test_interrupting_is_no_fault_of_the_sampler() -> None:
    def interrupted(batch: Batch) -> Emission:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Subject.of(interrupted), 2)


def test_call_seeds_the_global_generators() -> None:
    batch = (
        BlockBuilder(CASE, stream_of(1, CASE), "cpu", 1, SUBJECT.capabilities).build(0, 50).batch
    )
    first, again = (call(GENERATOR, batch, 2**64 - 1) for _ in range(2))
    other = call(GENERATOR, batch, 3)
    assert torch.equal(first.token_ids, again.token_ids)
    assert not torch.equal(first.token_ids, other.token_ids)


# --- what a block holds ------------------------------------------------------------------------

ALPHA = 1e-6


def chi_square(counts: np.ndarray, law: np.ndarray) -> float:
    """The p-value of counts against a law without empty cells."""
    assert law.min() > 0
    expected = law / law.sum() * counts.sum()
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), counts.shape[0] - 1))


def outcomes_of(case: Case, trials: int, horizon: int = 3, subject: Subject = SUBJECT) -> Outcomes:
    builder = BlockBuilder(case, stream_of(SEED, case), "cpu", horizon, subject.capabilities)
    return run_block(subject, builder, 0, trials)


TRIALS = 20_000
OUTCOMES = outcomes_of(CASE, TRIALS)


def test_drafts_follow_q_given_the_prefix() -> None:
    """Both drafts of request 0 jointly; a law of other drafts of the same shape is rejected."""
    tables = CASE.requests[0].draft_tables()
    joint = (tables[0][0][:, None] * tables[1]).reshape(-1)
    drafts = OUTCOMES.drafts[0]
    counts = np.bincount(drafts[:, 0] * 4 + drafts[:, 1], minlength=16)
    assert chi_square(counts, joint) > ALPHA
    wrong = (tables[0][0][:, None] * np.roll(tables[1], 1, axis=0)).reshape(-1)
    assert chi_square(counts, wrong) < ALPHA
    uniform = np.full(16, 1 / 16)
    assert chi_square(counts, uniform) < ALPHA


def test_completion_follows_the_target() -> None:
    """Behind a rejection stand the harness's own draws, each from the row of its prefix."""
    targets = CASE.requests[0].target_tables("reference")
    law = laws.completed_law(targets).reshape(-1)
    done = OUTCOMES.completed[0]
    counts = np.bincount(done[:, 0] * 16 + done[:, 1] * 4 + done[:, 2], minlength=64)
    assert chi_square(counts, law) > ALPHA
    short = OUTCOMES.accepted[:, 0] == 0
    given_first = np.bincount(done[short, 0] * 4 + done[short, 1], minlength=16).reshape(4, 4)
    recovered = [token for token in range(4) if given_first[token].sum() > 0]
    assert len(recovered) >= 2
    for token in recovered:
        assert chi_square(given_first[token], targets[1][token]) > ALPHA
        assert chi_square(given_first[token], targets[1][(token + 1) % 4]) < ALPHA
    assert chi_square(given_first.sum(0), targets[2].mean(0)) < ALPHA


def test_completion_keeps_what_was_emitted() -> None:
    for number, request in enumerate(CASE.requests):
        done, accepted = OUTCOMES.completed[number], OUTCOMES.accepted[:, number]
        assert done.shape == (TRIALS, request.num_drafts + 1)
        assert np.array_equal(done[np.arange(TRIALS), accepted], OUTCOMES.last[:, number])
        for j in range(request.num_drafts):
            kept = accepted > j
            assert np.array_equal(done[kept, j], OUTCOMES.drafts[number][kept, j])


def test_completion_of_a_filtered_target_stays_in_the_filter() -> None:
    case = make_case("filtered trials", 5, (r(drafts=2, top_k=2),), True)
    done = outcomes_of(case, 2000).completed[0]
    tables = case.requests[0].target_tables("reference")
    assert bool((tables[0][0][done[:, 0]] > 0).all())
    assert bool((tables[1][done[:, 0], done[:, 1]] > 0).all())
    assert bool((tables[2][done[:, 0] * 5 + done[:, 1], done[:, 2]] > 0).all())


def test_horizon_limits_what_is_completed() -> None:
    assert [d.shape[1] for d in outcomes_of(CASE, 10, horizon=2).completed] == [2, 1, 2]
    assert [d.shape[1] for d in outcomes_of(CASE, 10, horizon=0).completed] == [0, 0, 0]


def test_batch_holds_the_rows_of_its_drafts() -> None:
    """Row by row, slowly: logits, q, parameters and drafts of 20 trials."""
    block = BlockBuilder(CASE, stream_of(SEED, CASE), "cpu", 3, SUBJECT.capabilities).build(0, 20)
    batch, row, slot = block.batch, 0, 0
    for trial in range(20):
        for number, request in enumerate(CASE.requests):
            place = trial * 3 + number
            assert float(batch.temperature[place]) == request.temperature
            prefix = 0
            for j in range(request.num_drafts + 1):
                assert torch.equal(batch.target_logits[row], request.target[j][prefix])
                row += 1
                if j < request.num_drafts:
                    assert batch.draft_probs is not None
                    assert torch.equal(batch.draft_probs[slot], request.draft[j][prefix])
                    token = int(block.drafts[number][trial, j])
                    assert int(batch.draft_token_ids[slot]) == token
                    prefix, slot = prefix * 4 + token, slot + 1
    assert (row, slot) == (batch.target_logits.shape[0], batch.num_drafts)
    assert batch.seeds.unique().shape[0] == 60


def test_placeholders_and_rows_that_ignore_the_prefix() -> None:
    case = make_case("holes", 3, (r(drafts=2, placeholders=frozenset({0})),), False)
    block = BlockBuilder(case, stream_of(SEED, case), "cpu", 3, SUBJECT.capabilities).build(0, 30)
    assert block.batch.draft_probs is None
    assert set(block.drafts[0][:, 0].tolist()) == {-1}
    assert block.drafts[0][:, 1].min() >= 0
    request = case.requests[0]
    shared = dataclasses.replace(
        request,
        target=tuple(table[:1] for table in request.target),
        draft=tuple(table[:1] for table in request.draft),
        placeholders=frozenset(),
    )
    flat = Case(name="flat", requests=(shared,), dense=True)
    batch = (
        BlockBuilder(flat, stream_of(SEED, flat), "cpu", 3, SUBJECT.capabilities).build(0, 5).batch
    )
    assert torch.equal(batch.target_logits, torch.cat(shared.target).repeat(5, 1))


def test_shown_q_is_what_the_sampler_sees() -> None:
    request = make_case("shown", 3, (r(drafts=1),), True).requests[0]
    shown = (torch.tensor([[0.25, 0.25, 0.5]]),)
    case = Case(name="shown", requests=(dataclasses.replace(request, shown=shown),), dense=True)
    block = BlockBuilder(case, stream_of(SEED, case), "cpu", 1, SUBJECT.capabilities).build(0, 9000)
    assert torch.equal(block.batch.draft_probs, shown[0].repeat(9000, 1))  # type: ignore[arg-type]
    counts = np.bincount(block.drafts[0][:, 0], minlength=3)
    assert chi_square(counts, request.draft_tables()[0][0]) > ALPHA


def test_categorical_never_draws_a_token_without_mass() -> None:
    table = np.array([[0.0, 0.25, 0.0, 0.75, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]])
    edges = torch.tensor([0.0, 2.0**-53, 0.25 - 2.0**-54, 0.25, 1 - 2.0**-53], dtype=torch.float64)
    zeros = torch.zeros(5, dtype=torch.int64)
    want = [1, 1, 1, 3, 3]
    assert Categorical(table).draw(zeros, edges).tolist() == want
    assert Categorical(table).draw(zeros + 1, edges).tolist() == [0] * 5
    assert Categorical(table[:1]).draw(zeros, edges).tolist() == want
    # A cumulative sum that ends below 1: the last coin still falls on the last token with mass.
    thirds = np.array([[1 / 3, 1 / 3, 1 / 3 - 1e-9, 0.0]])
    assert int(Categorical(thirds).draw(zeros[:1], edges[-1:])) == 2


def test_head_is_a_prefix() -> None:
    head = OUTCOMES.head(7)
    assert head.accepted.shape == (7, 3)
    assert [d.shape[0] for d in (*head.drafts, *head.completed)] == [7] * 6
    assert OUTCOMES.head(TRIALS) is OUTCOMES
