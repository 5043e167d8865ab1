"""Every suite with a subject on a second device, which is pretended: see ``pretended_cuda``.

The harness keeps its own tensors on the CPU and the subject's where the subject is.  What mixes
them, or reads them without bringing them home, fails here as it fails on a GPU.  Budgets are tiny:
what is asked is that a suite comes to its end, and comes to what it comes to on the CPU.

Trials that stay on a GPU run in kernels of Triton, which are not pretended; here all trials are
built and read on the host.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
import torch
from pretended_cuda import pretended_cuda
from specverify.suites import NAMES, all_suites

from specverify import registry, replay, trials
from specverify._options import RunOptions
from specverify._runner import Answer, answer
from specverify.checks.experiment import PROFILES, Experiment, Settings
from specverify.checks.random_rows import random_batch
from specverify.checks.recorded import recorded_experiments
from specverify.checks.shrink import Shrinking
from specverify.contract import AcceptanceRule, Batch, Capabilities, Emission, sampler
from specverify.drafting import (
    DraftBuffer,
    DraftingSampler,
    PromptLookupDrafter,
    Proposal,
    TableDrafter,
    TableModel,
)
from specverify.layouts import VIEWS, as_view
from specverify.mutants import MUTANTS
from specverify.mutants.lawful import LAWFUL
from specverify.recorded import RecordedRows
from specverify.reference import reference
from specverify.results import Outcome, VerdictRecord
from specverify.sampling import batch_probabilities
from specverify.subjects import Subject

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real device")

TINY = dataclasses.replace(PROFILES["quick"], examples=2, max_trials=32)
TINY_FAILING = dataclasses.replace(TINY, max_trials=200_000)
WRONG = (Outcome.FAIL, Outcome.ERROR)
FEW = (
    ("support", "filtered"),
    ("differential", "layouts"),
    ("metamorphic", "memory-layout"),
    ("independence", "V4-one-seed"),
    ("mixed", "layouts"),
    ("mixed", "dense-V5-ragged"),
    ("exclusion", "filtered-all-V8-K3"),
    ("acceptance", "greedy-length"),
    ("acceptance", "dense-V5-placeholder"),
    ("drafting", "rounds-dense-V4-ragged"),
    ("drafting", "rounds-one-hot-V3-K2"),
    ("drafting", "drafts-V3-K2"),
    ("drafting", "drafts-V8-ragged"),
)
"""A case of every kind, for subjects that are not the reference."""


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(trials, "stays_on", lambda device, case: False)
    trials._builder.cache_clear()
    yield
    trials._builder.cache_clear()


def settings(experiment: Experiment, device: str) -> Settings:
    # An experiment on layouts takes the number of trials for the number of layouts.
    layouts = 2 if hasattr(experiment, "layouts") else None
    return Settings(root_seed=1, tv=0.5, profile=TINY, device=device, trials=layouts, shrink=False)


def asked(experiment: Experiment, subject: Subject, device: str) -> Answer:
    with pretended_cuda() if device == "cuda" else contextlib.nullcontext():
        return answer(experiment, subject, settings(experiment, device))


def experiments(suite: str, case: str | None = None) -> list[Experiment]:
    return [one for one in all_suites()[suite].experiments if case in (None, one.case)]


def few() -> list[Experiment]:
    return [one for suite, case in FEW for one in experiments(suite, case)]


def wrong(found: Iterable[Experiment], subject: Subject) -> list[str]:
    """What a subject that is right is accused of on the device, or what broke there."""
    return [
        f"{one.suite}/{one.case}: {verdict.status}: {verdict.reason}"
        for one in found
        for verdict in asked(one, subject, "cuda").verdicts
        if verdict.status in WRONG
    ]


def essence(verdict: VerdictRecord) -> dict[str, object]:
    """What must not depend on the device."""
    return verdict.model_dump(exclude={"seconds", "snippet"})


@sampler(
    Capabilities(
        one_hot=False,
        filtering=True,
        exclusion=True,
        acceptance=AcceptanceRule.UNDECLARED,
        devices=("cpu", "cuda"),
    )
)
def own_generator(batch: Batch) -> Emission:
    """Accepts nothing, and draws from p by a generator that it makes where the batch is."""
    generator = torch.Generator(batch.device).manual_seed(int(batch.seeds[0]) >> 1)
    law = batch_probabilities(batch)[batch.first_row]
    drawn = torch.multinomial(law, 1, generator=generator)
    tokens = torch.nn.functional.pad(drawn, (0, batch.max_drafts), value=-1)
    return Emission(tokens, torch.ones_like(batch.top_k))


def one_hot_only() -> Subject:
    subject = registry.resolve("reference")
    capabilities = dataclasses.replace(subject.capabilities, dense=False)
    return dataclasses.replace(subject, capabilities=capabilities)


SUBJECTS = {
    "own-drafter": lambda: Subject.of(DraftingSampler(reference, TableDrafter()), "own"),
    "prompt-lookup": lambda: Subject.of(DraftingSampler(reference, PromptLookupDrafter()), "own"),
    "unbatched": lambda: registry.resolve("reference-rowwise"),
    "one-hot-only": one_hot_only,
    "own-generator": lambda: Subject.of(own_generator),
    "global-generator": lambda: registry.resolve("lawful:global-generator"),
}


@pytest.mark.parametrize("suite", [name for name in NAMES if name != "recorded"])
def test_the_reference_passes_every_case(suite: str) -> None:
    found = experiments(suite)
    assert found
    assert wrong(found, registry.resolve("reference")) == []


@pytest.mark.parametrize("name", SUBJECTS)
def test_subjects_of_other_kinds_pass_a_case_of_every_kind(name: str) -> None:
    subject = SUBJECTS[name]()
    supported = [one for one in few() if one.plan(subject.capabilities).unsupported is None]
    assert len(supported) >= 4
    assert wrong(supported, subject) == []


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
def test_recorded_rows(dense: bool) -> None:
    rng = np.random.default_rng(20)
    rows = RecordedRows(
        target_logits=torch.from_numpy(rng.normal(0, 1.5, (4, 12))).float(),
        draft_token_ids=torch.tensor([3, 7]),
        draft_probs=torch.full((2, 12), 1 / 12) if dense else None,
        cu_drafts=torch.tensor([0, 2, 2]),
        temperature=torch.tensor([1.0, 0.7]),
        top_k=torch.zeros(2, dtype=torch.int64),
        top_p=torch.ones(2),
        min_p=torch.zeros(2),
    )
    found = recorded_experiments(rows)
    assert len(found) >= 3
    assert wrong(found, registry.resolve("reference")) == []


@functools.cache
def failed(mutant: str, suite: str, case: str, device: str) -> VerdictRecord:
    """The verdict that names the smallest layout of a failure."""
    (one,) = experiments(suite, case)
    subject = registry.resolve(f"mutant:{mutant}")
    asked_for = Settings(
        root_seed=1, tv=0.1, profile=TINY_FAILING, device=device,
        trials=20 if hasattr(one, "layouts") else None,
    )  # fmt: skip
    with pretended_cuda() if device == "cuda" else contextlib.nullcontext():
        found = answer(one, subject, asked_for, shrinking=Shrinking())
    assert found.error is None, found.error
    return next(verdict for verdict in found.verdicts if verdict.snippet is not None)


FAILING = [
    ("recover-from-target", "random", "dense-V4-K2"),
    ("round-final-reused", "drafting", "rounds-dense-V3-K2"),
    ("bonus-after-rejection", "mixed", "layouts"),
    ("row-plus-one", "differential", "numbers"),
    ("stride-ignored", "metamorphic", "memory-layout"),
    pytest.param(("sparse-draft-report", "drafting", "drafts-V3-K2"), marks=pytest.mark.slow),
    pytest.param(("draft-buffer-shifted", "drafting", "drafts-V3-K2"), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("failure", FAILING, ids="-".join)
def test_a_failure_is_explained_as_on_the_cpu(failure: tuple[str, str, str], capsys) -> None:
    there, here = failed(*failure, "cuda"), failed(*failure, "cpu")
    assert there.status is Outcome.FAIL
    assert essence(there) == essence(here)
    assert there.snippet is not None
    assert here.snippet is not None
    assert "device='cuda'" in there.snippet
    with pretended_cuda():
        exec(there.snippet, {})
    said = capsys.readouterr().out
    assert said.startswith("FAIL")
    exec(here.snippet, {})
    assert capsys.readouterr().out == said


def test_a_failure_is_replayed() -> None:
    name = ("stride-ignored", "metamorphic", "memory-layout")
    verdict = failed(*name, "cuda")
    options = RunOptions(sampler=f"mutant:{name[0]}", seed=1, device="cuda", trials=20)
    token = replay.ReplayToken.decode(replay.stamp(verdict, options, 1e-9, None))
    with pretended_cuda():
        found = replay.rerun(token, token.options(), all_suites())
    assert [one.status for one in found.verdicts] == [Outcome.FAIL]
    assert found.verdicts[0].reason == verdict.reason


def test_a_model_that_is_moved_in_part_is_noticed(monkeypatch) -> None:
    def only_the_table(self: TableModel, device: str) -> TableModel:
        moved = copy.copy(self)
        moved.table = self.table.to(device)
        return moved

    monkeypatch.setattr(TableModel, "to", only_the_table)
    found = wrong(experiments("drafting"), registry.resolve("reference"))
    assert len(found) >= 4
    assert all("indices should be either on cpu" in one for one in found)


def test_a_sampler_that_answers_on_the_cpu_is_accused() -> None:
    def at_home(batch: Batch) -> Emission:
        return reference(batch.to("cpu"))

    subject = dataclasses.replace(registry.resolve("reference"), sampler=at_home)
    for one in few():
        found = asked(one, subject, "cuda")
        assert found.error is None, one.case
        if hasattr(one, "layouts"):
            assert [verdict.status for verdict in found.verdicts] == [Outcome.FAIL]
            assert "expected torch.int64 on cuda:0" in found.verdicts[0].reason


def test_a_buffer_and_a_model_that_are_made_on_the_device() -> None:
    with pretended_cuda():
        buffer = DraftBuffer(4, 3, device="cuda")
        requests = torch.arange(2, device="cuda")
        tokens = torch.tensor([[1, 2], [0, -1]], device="cuda")
        counts = torch.tensor([2, 1], device="cuda")
        q = torch.full((2, 2, 3), 1 / 3, device="cuda")
        nobody = buffer.read(requests, 0)
        buffer.store(Proposal(tokens, q, counts), requests, 0)
        for asked_for, drafts in ((requests, [1, 2, 0]), (requests.flip(0), [0, 1, 2])):
            packed = buffer.read(asked_for, 0)
            assert packed.draft_token_ids.tolist() == drafts
            assert packed.draft_probs is not None
            fields = (packed.draft_token_ids, packed.draft_probs, packed.cu_drafts)
            assert all(field.is_cuda for field in fields)
        assert nobody.draft_token_ids.is_cuda
        tables = [torch.zeros(1, 3, device="cuda"), torch.ones(3, 3, device="cuda")]
        rows = TableModel([tables]).logits(requests, tokens, counts - 1)
        assert rows.tolist() == [[1.0] * 3, [0.0] * 3]


@pytest.mark.parametrize("view", VIEWS)
def test_a_batch_lies_on_the_device_as_it_lay_on_the_cpu(view: str) -> None:
    batch = random_batch(counts=[2, 0, 1], vocab=6, dense=True, entropy=1)
    seeds = torch.cat([batch.seeds.new_zeros(1), batch.seeds])[1:]
    logits = as_view(batch.target_logits, view)
    assert batch.draft_probs is not None
    probs = batch.draft_probs.expand(3, -1)
    batch = batch.replace(target_logits=logits, draft_probs=probs, seeds=seeds)
    with pretended_cuda():
        there = batch.to("cuda")
        back = there.to("cpu")
        for name in ("target_logits", "draft_probs", "seeds"):
            here, moved, again = (getattr(one, name) for one in (batch, there, back))
            assert moved.is_cuda
            assert moved.stride() == again.stride() == here.stride()
            assert moved.storage_offset() == again.storage_offset() == here.storage_offset()
            assert torch.equal(again, here)


def test_a_view_far_into_a_large_tensor_takes_no_more_than_it_reaches() -> None:
    batch = random_batch(counts=[1], vocab=6, dense=True, entropy=1)
    room = torch.zeros(10_000)
    room[1_001:1_013] = batch.target_logits.reshape(-1)
    moved = batch.replace(target_logits=room[1_001:1_013].reshape(2, 6)).to("cpu:0")
    assert moved.target_logits.storage_offset() == 1_001 % 64
    assert torch.equal(moved.target_logits, batch.target_logits)


VARIANTS = [
    *(f"mutant:{name}" for name in MUTANTS if name != "uninitialised-scratch"),  # luck, by design
    *(f"lawful:{name}" for name in LAWFUL),
    "reference-match",
    "reference-block",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_comes_to_what_it_comes_to_on_the_cpu(name: str) -> None:
    for one in few():
        # Asked anew each time: some remember their last call.
        there, here = (asked(one, registry.resolve(name), device) for device in ("cuda", "cpu"))
        assert there.error is None
        assert [essence(verdict) for verdict in there.verdicts] == [
            essence(verdict) for verdict in here.verdicts
        ]
