"""The differential layer: rounding is excused, everything else is found and explained."""

from __future__ import annotations

import dataclasses
import math
import re

import hypothesis
import pytest
import torch
from specverify.suites.test_differential import SUITE

from specverify.checks.audit import Audit
from specverify.checks.differential import DifferentialExperiment, compare
from specverify.checks.experiment import Settings, Side
from specverify.checks.float_budget import (
    FLOAT32,
    TINY,
    accept_allowance,
    batch_errors,
    cdf_allowance,
    expected_differences,
    row_error,
)
from specverify.checks.oracle import reference_for
from specverify.checks.random_rows import random_batch, random_rows
from specverify.checks.threshold_coins import ENDS, with_threshold_coins
from specverify.checks.verdict import Family, Status, Verdict
from specverify.contract import AcceptanceRule, Batch, Capabilities, Coins, Emission, FinalCoin
from specverify.layouts import batches
from specverify.reference import reference, reference_match
from specverify.registry import resolve
from specverify.sampling import batch_probabilities
from specverify.subjects import Subject

LAYOUTS, NUMBERS, LONG, WIDE, *_ = SUITE.experiments


def run(name: str, experiment: DifferentialExperiment, settings: Settings) -> Verdict:
    (verdict,) = experiment.run(resolve(name), settings)
    return verdict


# --- whole experiments -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "reference",
        "reference-match",
        "lawful:less-or-equal",
        "lawful:float32",
        "lawful:gumbel-max",
        "lawful:exponential-race",
        "lawful:shared-noise-row",
        "lawful:other-convention",
    ],
)
def test_correct_samplers_pass(name: str) -> None:
    for experiment in SUITE.experiments:
        verdict = run(name, experiment, Settings(root_seed=11, trials=8))
        assert verdict.status is Status.PASS, verdict.reason
        assert verdict.family is Family.EXACT
        assert verdict.check == f"exact/{experiment.case}"
        assert verdict.alpha == 0
        assert verdict.trials == 8


def test_rounding_is_counted() -> None:
    """A sampler in float32 parts from the reference at thresholds, and that is said."""
    exact = run("reference", NUMBERS, Settings(trials=20)).reason
    rounded = run("lawful:float32", NUMBERS, Settings(trials=20)).reason
    assert "as the reference does, 0 of them up to the float budget" in exact
    assert "as the reference does, 0 of them" not in rounded


@pytest.mark.parametrize(
    ("mutant", "experiment"),
    [
        ("zero-coin-accepts", LAYOUTS),
        ("coin-reaches-one", NUMBERS),
        ("noise-floor-24-bit", LAYOUTS),
        ("log1p-missing", NUMBERS),
        ("top-k-keeps-ties", LAYOUTS),
        ("sequential-filter", LAYOUTS),
        ("small-probabilities-cut", LAYOUTS),
        ("stride-ignored", LAYOUTS),
        ("accept-2-percent", NUMBERS),
        ("temperature-5-percent", NUMBERS),
        ("coin-reused", NUMBERS),
        ("coin-same-all-positions", NUMBERS),
        ("q-dropped", NUMBERS),
        ("row-plus-one", NUMBERS),
        ("greedy-flag-inverted", LAYOUTS),
        ("bonus-from-last-row", NUMBERS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mutants_are_caught(mutant: str, experiment: DifferentialExperiment) -> None:
    """Within the layouts of a quick run, and without a statistical test."""
    settings = Settings(root_seed=3, shrink=False)
    verdict = run(f"mutant:{mutant}", experiment, settings)
    assert verdict.status is Status.FAIL, verdict.reason
    assert verdict.trials <= settings.profile.examples * experiment.share
    assert verdict.p_value is None


@pytest.mark.parametrize("mutant", ["reject-q-above-one", "state-leaks-between-calls"])
def test_what_other_layers_must_find(mutant: str) -> None:
    """With coins given and q at most 1 these are the reference, token for token."""
    assert run(f"mutant:{mutant}", NUMBERS, Settings(trials=20)).status is Status.PASS


def test_a_failure_is_small_and_says_everything() -> None:
    verdict = run("mutant:zero-coin-accepts", LAYOUTS, Settings(root_seed=3))
    problem, shown = verdict.reason.split("\nsmallest layout that shows it:\n")
    # Of a greedy request the audit names no decision: the emission tells its branch.
    assert re.match(r"request [01], position 0: (accepted|greedy): emitted \[", problem)
    assert (verdict.position, verdict.branch) == (0, "accepted")
    for words in ("the reference [", "p = 0, q = ", "accept coin ", "no rounding leads there"):
        assert words in problem
    size = re.match(r"(\d) requests?, \d drafts?, V = (\d),", shown)
    assert size is not None
    assert int(size[1]) <= 2
    assert int(size[2]) <= 4


def test_a_run_is_a_function_of_its_seed() -> None:
    first = Settings(root_seed=4, shrink=False)
    one, two = (run("mutant:log1p-missing", NUMBERS, first) for _ in range(2))
    assert dataclasses.replace(one, seconds=0) == dataclasses.replace(two, seconds=0)
    other = run("mutant:log1p-missing", NUMBERS, dataclasses.replace(first, root_seed=5))
    assert other.reason != one.reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"final_coin": None}, "takes no injected coins"),
        ({"acceptance": AcceptanceRule.UNDECLARED}, "declares no acceptance rule"),
        ({"topology": "tree"}, "declares tree"),
    ],
)
def test_not_supported_is_said_and_nothing_is_called(
    changes: dict[str, object], words: str
) -> None:
    def never(batch: Batch) -> Emission:
        raise AssertionError

    declared = dataclasses.replace(reference.capabilities, **changes)  # type: ignore[arg-type]
    (verdict,) = LAYOUTS.run(Subject("never", never, declared), Settings())
    assert verdict.status is Status.NOT_SUPPORTED
    assert words in verdict.reason
    assert LAYOUTS.plan(declared).tests == 0
    assert LAYOUTS.plan(declared).unsupported == verdict.reason


def test_without_coins_the_cost_is_named() -> None:
    reason = LAYOUTS.plan(Capabilities()).unsupported
    assert reason is not None
    assert "after about 299,700 trials there" in reason


def test_faults_and_scribbles_are_failures() -> None:
    def raises(batch: Batch) -> Emission:
        raise RuntimeError("no")

    def scribbles(batch: Batch) -> Emission:
        emission = reference(batch)
        batch.temperature.fill_(9.0)
        return emission

    for sampler, words in ((raises, "raised RuntimeError: no"), (scribbles, "changed its input")):
        subject = Subject("bad", sampler, reference.capabilities)
        (verdict,) = NUMBERS.run(subject, Settings())
        assert verdict.status is Status.FAIL
        assert words in verdict.reason


def test_the_suite_may_reject_what_is_lossless() -> None:
    assert SUITE.side is Side.EITHER


# --- the audit ---------------------------------------------------------------------------------


def one_draft(coin: float, final: float = 0.5, *, dense: bool = True) -> Batch:
    """p = (.5, .3, .2), q = (.25, .25, .5), draft 2: ratio .4; residual (.25, .05, 0)."""
    return Batch(
        target_logits=torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]]).log(),
        draft_token_ids=torch.tensor([2]),
        draft_probs=torch.tensor([[0.25, 0.25, 0.5]]) if dense else None,
        cu_drafts=torch.tensor([0, 1]),
        temperature=torch.ones(1),
        top_k=torch.zeros(1, dtype=torch.int64),
        top_p=torch.ones(1),
        min_p=torch.zeros(1),
        seeds=torch.zeros(1, dtype=torch.uint64),
        positions=torch.zeros(1, dtype=torch.int64),
        coins=Coins(
            accept=torch.tensor([coin], dtype=torch.float64),
            final=torch.tensor([final], dtype=torch.float64),
        ),
    )


def emitted(*tokens: int) -> Emission:
    padded = [*tokens, -1][:2]
    return Emission(torch.tensor([padded]), torch.tensor([len(tokens)]))


def lawful(batch: Batch, emission: Emission, rule: AcceptanceRule = AcceptanceRule.RATIO) -> bool:
    target = batch_probabilities(batch)
    oracle = reference_match if rule is AcceptanceRule.MATCH else reference
    found = Audit(batch, target, rule).disagreements(emission, oracle(batch))
    return all(one.decision.lawful for one in found)


@pytest.mark.parametrize(
    ("offset", "accepts", "right"),
    [
        (-3, True, True),
        (-3, False, False),
        (-0.5, False, True),
        (0.5, True, True),
        (3, True, False),
    ],
)
def test_an_accept_is_lawful_within_its_budget(offset: float, accepts: bool, right: bool) -> None:
    """Offsets in units of the budget, relative to the exact threshold p / q = 0.4."""
    batch = one_draft(0.0)
    p = float(batch_probabilities(batch)[0, 2])
    allowed = accept_allowance(p, float(batch_errors(batch)[0]))
    batch = one_draft((p + offset * allowed) / 0.5, final=0.5)
    assert lawful(batch, emitted(2, 2) if accepts else emitted(0)) is right


def test_an_accept_is_followed_on_its_own_path() -> None:
    """Past a lawful disagreement the rest must still be right."""
    p = float(batch_probabilities(one_draft(0.0))[0, 2])
    batch = one_draft(p / 0.5, final=0.5)  # exactly at the threshold: either way is lawful
    assert lawful(batch, emitted(2, 2))
    assert not lawful(batch, emitted(2, 0))


@pytest.mark.parametrize(("token", "right"), [(0, True), (1, True), (2, False)])
def test_the_last_draw_at_an_edge(token: int, right: bool) -> None:
    """5/6 is the edge between the two tokens of the residual; token 2 has no weight at all."""
    assert lawful(one_draft(0.9, final=5 / 6), emitted(token)) is right


def test_the_last_draw_away_from_edges() -> None:
    step = 3 * cdf_allowance(3, float(batch_errors(one_draft(0.0))[0])) / 0.3
    assert lawful(one_draft(0.9, final=5 / 6 - step), emitted(0))
    assert not lawful(one_draft(0.9, final=5 / 6 - step), emitted(1))
    assert not lawful(one_draft(0.9, final=5 / 6 + step), emitted(0))


def test_a_one_hot_draft_is_never_recovered() -> None:
    """Its weight is zero in every precision, wherever the coin lies."""
    assert not lawful(one_draft(0.9, final=1 - 2.0**-53, dense=False), emitted(2))


def test_equal_laws_recover_anything_possible() -> None:
    """With p = q a rejection is float noise, and so is its residual."""
    batch = one_draft(1 - 2.0**-53)
    batch = batch.replace(draft_probs=batch_probabilities(batch)[:1].float())
    assert lawful(batch, emitted(0))
    assert lawful(batch, emitted(2))
    masked = batch.target_logits.clone()
    masked[0, 1] = -torch.inf
    batch = batch.replace(target_logits=masked)
    batch = batch.replace(draft_probs=batch_probabilities(batch)[:1].float())
    assert not lawful(batch, emitted(1))


def test_accept_iff_equal_is_audited_by_its_own_rule() -> None:
    rule = AcceptanceRule.MATCH
    assert lawful(one_draft(0.9), emitted(2, 2), rule)
    assert not lawful(one_draft(0.9), emitted(2), rule)  # stopped at its own draft
    assert not lawful(one_draft(0.9), emitted(0), rule)
    assert lawful(one_draft(0.1), emitted(0), rule)
    assert not lawful(one_draft(0.1), emitted(2, 2), rule)
    edge = float(batch_probabilities(one_draft(0.0))[0, 0])
    assert lawful(one_draft(edge), emitted(0), rule)
    assert lawful(one_draft(edge), emitted(1), rule)


@pytest.mark.parametrize(("factor", "right"), [(1 + 1e-9, True), (1.01, False)])
def test_a_race_is_lawful_where_arrivals_tie(factor: float, right: bool) -> None:
    batch = one_draft(0.9)
    noise = torch.tensor([[0.25, 0.05 * factor, 1.0]], dtype=torch.float64)
    batch = batch.replace(coins=Coins(accept=batch.coins.accept, noise=noise))
    assert lawful(batch, emitted(1)) is right
    assert lawful(batch, emitted(0))
    assert not lawful(batch, emitted(2))


def test_greedy_ties_are_lawful_and_nothing_else() -> None:
    batch = one_draft(0.0).replace(temperature=torch.zeros(1))
    tied = batch.replace(target_logits=torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    assert lawful(tied, emitted(1))
    assert not lawful(tied, emitted(2, 2))
    agreed = tied.replace(draft_token_ids=torch.tensor([1]))
    assert lawful(agreed, emitted(1, 2))
    assert not lawful(agreed, emitted(1))  # stopped at a draft that it then emits


def test_an_audit_needs_coins() -> None:
    batch = one_draft(0.0).replace(coins=None)
    with pytest.raises(ValueError, match=r"batch.coins: got None; expected the coins"):
        Audit(batch, batch_probabilities(batch), AcceptanceRule.RATIO)


# --- the float budget --------------------------------------------------------------------------


@hypothesis.given(batches(max_requests=3, filters="off", placeholders=False))
@hypothesis.settings(max_examples=60, deadline=None)
def test_a_float32_softmax_stays_within_its_budget(batch: Batch) -> None:
    temperature = batch.temperature[batch.row_request, None]
    hot = (temperature > 0).squeeze(1)
    scaled = batch.target_logits.float()[hot] / temperature[hot]
    rounded = torch.softmax(scaled, dim=1).double()
    exact = batch_probabilities(batch)[hot]
    allowed = batch_errors(batch)[hot, None]
    known = allowed < 1
    assert bool(((rounded - exact).abs() <= allowed * exact + TINY)[known.expand_as(exact)].all())


def test_the_budget_is_no_blanket() -> None:
    """An ordinary row is known to a few parts in a million; bfloat16 arithmetic is outside."""
    assert row_error(64, 6.0, 1.0) < 2e-5 < 2.0**-9
    assert row_error(64, 6.0, 0.0) == 0
    assert row_error(64, 6.0, 1.0, torch.float64) < 1e-13
    assert row_error(64, 64.0, 1e-6) == 1
    assert math.isclose(row_error(10, 3.0, 0.5), FLOAT32 * (48 + 20 + 16))
    with pytest.raises(ValueError, match=r"arithmetic: got torch.bfloat16; expected"):
        row_error(64, 6.0, 1.0, torch.bfloat16)


def test_batch_errors_are_the_errors_of_the_rows() -> None:
    batch = random_batch(counts=[2, 0, 1], vocab=9, dense=True, entropy=5)
    errors = batch_errors(batch)
    for row, request in enumerate(batch.row_request.tolist()):
        largest = float(batch.target_logits[row].abs().max())
        want = row_error(9, largest, float(batch.temperature[request]))
        assert math.isclose(float(errors[row]), want, rel_tol=1e-6)


def test_expected_differences_bound_what_float32_does() -> None:
    """Own coins, float64 against float32: of 20,000 decisions hardly any differ, as bounded."""
    batch = random_batch(counts=[2] * 4000, vocab=12, dense=True, entropy=1)
    rounded = resolve("lawful:float32").sampler(batch)
    differ = int((rounded.token_ids != reference(batch).token_ids).any(dim=1).sum())
    assert differ <= expected_differences(batch) < 12_000 * 0.01
    assert expected_differences(batch.replace(temperature=torch.zeros(4000))) == 0


# --- coins and random rows ---------------------------------------------------------------------


@pytest.mark.parametrize("final", list(FinalCoin))
@pytest.mark.parametrize("oracle", [reference, reference_match])
def test_threshold_coins(oracle: object, final: FinalCoin) -> None:
    """All in range; the ends and the exact thresholds are among them."""
    capabilities = dataclasses.replace(oracle.capabilities, final_coin=final)  # type: ignore[attr-defined]
    batch = random_batch(counts=[3, 0, 2] * 60, vocab=7, dense=True, entropy=2)
    asked = with_threshold_coins(
        batch, reference_for(capabilities), capabilities, torch.Generator().manual_seed(1)
    )
    asked.replace()  # valid, values and all
    coins = asked.coins
    assert coins is not None
    for end in ENDS:
        assert end in coins.accept.tolist()
        assert coins.final is None or end in coins.final.tolist()
    if final is FinalCoin.RACE:
        assert coins.noise is not None
        assert float(coins.noise.min()) == 2.0**-60
    if oracle is reference:
        step = reference.begin(asked)
        ratio = reference.target_at_drafts(step) / reference.draft_at_drafts(step)
        assert bool((coins.accept == ratio).any())


def test_random_rows_ask_only_for_what_is_declared() -> None:
    declared = dataclasses.replace(
        reference.capabilities, one_hot=False, zero_drafts=False, dtypes=("bfloat16",)
    )

    @hypothesis.given(random_rows(declared))
    @hypothesis.settings(max_examples=20, deadline=None)
    def check(batch: Batch) -> None:
        batch.replace()
        assert batch.draft_probs is not None
        assert int(batch.draft_counts.min()) >= 1
        assert batch.target_logits.dtype == torch.bfloat16

    check()


def test_compare_names_the_worst_request_first() -> None:
    batch = random_batch(counts=[1] * 6, vocab=5, dense=True, entropy=8)
    capabilities = reference.capabilities
    oracle = reference_for(capabilities)
    asked = with_threshold_coins(batch, oracle, capabilities, torch.Generator().manual_seed(0))
    right = reference(asked)
    assert compare(asked, right, oracle, AcceptanceRule.RATIO) == []
    tokens = right.token_ids.clone()
    last = right.num_emitted[3] - 1
    tokens[3, last] = (tokens[3, last] + 1) % 5
    wrong = compare(asked, Emission(tokens, right.num_emitted), oracle, AcceptanceRule.RATIO)
    assert all(problem.request == 3 for problem in wrong)


def test_gumbel_max_takes_what_is_left_however_little_it_is() -> None:
    """A residual of 1e-109 is nothing in float32, and an argmax of nothing is token 0."""
    low = -250.0
    row = torch.tensor([[-6000.0, 0.0, low, low, 0.0]])
    more = torch.tensor([[0.0, 0.5001, 0.0, 0.0, 0.5001]])  # as an engine may round it
    batch = Batch(
        target_logits=torch.cat([row, row]), draft_token_ids=torch.tensor([1]), draft_probs=more,
        cu_drafts=torch.tensor([0, 1]), temperature=torch.ones(1), top_k=torch.zeros(1).long(),
        top_p=torch.ones(1), min_p=torch.zeros(1), seeds=torch.zeros(1, dtype=torch.uint64),
        positions=torch.zeros(1, dtype=torch.int64),
        check_values=False,
        coins=Coins(
            accept=torch.tensor([0.9999], dtype=torch.float64),
            noise=torch.full((1, 5), 0.25, dtype=torch.float64),
        ),
    )  # fmt: skip
    for name in ("lawful:gumbel-max", "lawful:exponential-race", "lawful:shared-noise-row"):
        assert resolve(name).sampler(batch).token_ids[0].tolist() in ([2, -1], [3, -1]), name
