"""Exact failures: small, placed, and shown again by lines that stand alone."""

from __future__ import annotations

import functools
import subprocess
import sys
from math import inf

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from specverify.suites import test_differential, test_greedy, test_metamorphic, test_support

from specverify import reproduce
from specverify._layout_coins import coins_from
from specverify._layout_plan import Plan, Request, expand
from specverify._layout_rows import Slot
from specverify.checks.batch_text import literal
from specverify.checks.diagnosis import Branch
from specverify.checks.exact_failure import failed_verdict
from specverify.checks.experiment import Settings
from specverify.checks.layout_search import Found
from specverify.checks.verdict import Status, Verdict
from specverify.contract import Batch, FinalCoin
from specverify.layouts import batches, coins_for
from specverify.mutants import MUTANTS
from specverify.subjects import Subject

SUITES = {
    suite.SUITE.name: suite.SUITE
    for suite in (test_differential, test_greedy, test_metamorphic, test_support)
}


@functools.cache
def fail(mutant: str, suite: str, case: str, seed: int = 0) -> Verdict:
    subject = Subject.of(MUTANTS[mutant].build(), f"mutant:{mutant}")
    (experiment,) = (e for e in SUITES[suite].experiments if e.case == case)
    (verdict,) = experiment.run(subject, Settings(root_seed=seed))
    assert verdict.status is Status.FAIL
    return verdict


@pytest.mark.parametrize(
    ("mutant", "suite", "case", "requests", "branch"),
    [
        ("zero-coin-accepts", "differential", "layouts", 1, Branch.ACCEPTED),
        ("recover-from-target", "differential", "numbers", 1, Branch.RECOVERED),
        ("zero-draft-shift", "greedy", "all-greedy", 2, Branch.BONUS),
        ("zero-draft-shift", "metamorphic", "permuted", 2, None),
        ("placeholder-accepted", "greedy", "all-greedy", 1, Branch.ACCEPTED),
    ],
)
def test_a_failure_shrinks_to_one_or_two_requests(mutant, suite, case, requests, branch) -> None:
    verdict = fail(mutant, suite, case)
    found = verdict.shrunk
    assert len(found.requests) == requests
    assert sum(request.drafts for request in found.requests) <= 1
    assert found.vocab <= 6
    assert (verdict.branch, found.branch) == (branch, branch)
    assert verdict.request == found.request
    assert verdict.reason.startswith(found.reason)


def test_the_snippet_shows_an_exact_failure_by_itself() -> None:
    verdict = fail("zero-coin-accepts", "differential", "layouts")
    assert len(verdict.snippet.splitlines()) <= 5
    said = subprocess.run(
        [sys.executable, "-c", verdict.snippet], capture_output=True, text=True, check=True
    ).stdout
    assert said.strip() == f"FAIL {verdict.shrunk.reason}"
    assert "emitted [" in said
    assert "the reference [" in said
    repaired = verdict.snippet.replace("mutant:zero-coin-accepts", "reference")
    space: dict[str, object] = {}
    exec(repaired.replace("print(", "said = ("), space)
    assert space["said"] == "PASS: nothing is wrong with this layout"


def request(entropy: int, kinds: tuple[str, ...] = ("random", "random")) -> Request:
    slots = tuple(Slot(kind, "random", "drawn") for kind in kinds)
    return Request(
        slots=slots, bonus="random", temperature=1.0, filters=(0, 1.0, 0.0), seed=entropy,
        position=0, entropy=entropy,
    )  # fmt: skip


@given(st.lists(st.integers(0, 99), min_size=2, max_size=4, unique=True), st.data(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_leaving_a_request_out_changes_no_other(entropies, data, dense) -> None:
    dropped = data.draw(st.integers(0, len(entropies) - 1))
    final = data.draw(st.sampled_from(list(FinalCoin)))
    salt = data.draw(st.integers(0, 2**16 - 1))

    def layout(chosen) -> Batch:
        made = expand(
            Plan(
                vocab=5, dense=dense, dtype=torch.float32, views=("contiguous", "contiguous"),
                boundaries=False, requests=tuple(map(request, chosen)),
            )
        )  # fmt: skip
        return made.replace(coins=coins_from(made, final, salt))

    whole = layout(entropies)
    rest = layout([e for i, e in enumerate(entropies) if i != dropped])
    rows = [row for row, owner in enumerate(whole.row_request.tolist()) if owner != dropped]
    slots = [slot for slot, owner in enumerate(whole.draft_request.tolist()) if owner != dropped]
    others = [i for i in range(len(entropies)) if i != dropped]
    assert torch.equal(whole.target_logits[rows], rest.target_logits)
    assert torch.equal(whole.draft_token_ids[slots], rest.draft_token_ids)
    if dense:
        assert torch.equal(whole.draft_probs[slots], rest.draft_probs)
    assert torch.equal(whole.coins.accept[slots], rest.coins.accept)
    for name in ("final", "noise"):
        if getattr(whole.coins, name) is not None:
            assert torch.equal(getattr(whole.coins, name)[others], getattr(rest.coins, name))


# --- batches as text ----------------------------------------------------------------------------

FIELDS = ("target_logits", "draft_token_ids", "draft_probs", "cu_drafts", "temperature", "top_k",
          "top_p", "min_p", "positions")  # fmt: skip


@given(batches(max_requests=3, vocab=(2, 40)), st.sampled_from([None, *FinalCoin]), st.data())
@settings(max_examples=60, deadline=None)
def test_a_batch_is_read_back_as_it_was(layout, final, data) -> None:
    if final is not None:
        coins = data.draw(coins_for(layout, final))
        layout = layout.replace(coins=coins)
    text = literal(layout)
    if text is None:
        return
    again = eval(text, {"batch": reproduce.batch, "inf": inf})
    for name in FIELDS:
        old, new = getattr(layout, name), getattr(again, name)
        assert (old is None) == (new is None)
        assert old is None or (torch.equal(old, new) and old.dtype == new.dtype)
    assert again.seeds.tolist() == layout.seeds.tolist()
    for name in ("accept", "final", "noise"):
        old, new = getattr(layout.coins, name, None), getattr(again.coins, name, None)
        assert (old is None) == (new is None)
        assert old is None or torch.equal(old, new)
    if layout.num_requests > 1:  # of a single row every order of the columns is one
        assert again.target_logits.stride() == layout.target_logits.stride()


def test_what_is_too_large_is_not_written() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1, 5000, generator=generator).tolist()
    assert literal(reproduce.batch(logits=rows, drafts=[[]])) is None
    flat = literal(reproduce.batch(logits=[[0.0] * 5000], drafts=[[]]))
    assert flat is not None
    assert len(flat) < 200


def test_a_search_that_found_nothing_makes_no_failure() -> None:
    with pytest.raises(ValueError, match="got a search without a failure"):
        failed_verdict(SUITES["greedy"].experiments[0], Found(3), None, 0.0)
