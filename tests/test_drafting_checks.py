"""Drafts and rounds: the reference passes, every mutant with a drafter is caught, cheaply."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import torch

from specverify.cases import RequestSpec
from specverify.checks._rounds import RoundCase, RoundRunner, round_case
from specverify.checks.drafting import DraftLawExperiment, RoundsExperiment
from specverify.checks.experiment import PROFILES, Settings
from specverify.checks.round_tables import text_tables
from specverify.checks.verdict import Family, Status, Verdict
from specverify.contract import Capabilities, Emission, Guarantee
from specverify.drafting import (
    Contexts,
    DraftingSampler,
    PromptLookupDrafter,
    Proposal,
    TableDrafter,
    drafter_of,
    tempered,
)
from specverify.reference import reference, reference_match, reference_rowwise
from specverify.subjects import Subject

r = RequestSpec
ALPHA = 1e-9
TRIALS = 4_000
FIXED = Settings(root_seed=1, alpha=ALPHA, trials=TRIALS)
PLANNED = Settings(root_seed=1, alpha=1e-8, tv=0.1, profile=PROFILES["quick"])
TWO = (r(drafts=2), r(drafts=2, temperature=0.75))
RAGGED = (r(drafts=1), r(drafts=0), r(drafts=1))


def make(name: str = "rounds-dense-V3-K2", vocab: int = 3, *specs, dense: bool = True):
    return functools.partial(round_case, f"drafting/{name}", vocab, specs or TWO, dense)


def rounds(*args, **more) -> RoundsExperiment:
    return RoundsExperiment(suite="toy", case="rounds", make=make(*args, **more))


def draft_law(*args) -> DraftLawExperiment:
    return DraftLawExperiment(suite="toy", case="drafts", make=make(*args))


def own(drafter: object = None) -> Subject:
    return Subject.of(DraftingSampler(reference, drafter or TableDrafter()), "own")


def statistical(verdicts: list[Verdict]) -> list[Verdict]:
    return [v for v in verdicts if v.status is Status.FAIL and v.p_value is not None]


@pytest.mark.parametrize("found", [rounds(), rounds("ragged", 4, *RAGGED)], ids=["K2", "ragged"])
@pytest.mark.parametrize(
    "subject",
    [Subject.of(reference, "ratio"), Subject.of(reference_match, "match"), own()],
    ids=lambda subject: subject.name,
)
def test_correct_samplers_pass_two_rounds(found: RoundsExperiment, subject: Subject) -> None:
    verdicts = found.run(subject, PLANNED)
    assert {verdict.status for verdict in verdicts} == {Status.PASS}
    assert found.plan(subject.capabilities).tests == len(verdicts)
    assert len({verdict.check for verdict in verdicts}) == len(verdicts)
    assert Family.INDEPENDENCE in {verdict.family for verdict in verdicts}


def test_one_hot_drafts_of_a_lookup_pass() -> None:
    found = rounds("one-hot", 3, *TWO, dense=False)
    for subject in (Subject.of(reference), own(PromptLookupDrafter())):
        assert {v.status for v in found.run(subject, PLANNED)} == {Status.PASS}


@pytest.mark.parametrize("specs", [TWO, RAGGED], ids=["K2", "ragged"])
def test_a_correct_drafter_passes(specs: tuple[RequestSpec, ...]) -> None:
    found = draft_law("law", 3, *specs)
    verdicts = found.run(own(), PLANNED)
    assert {verdict.status for verdict in verdicts} == {Status.PASS}
    spending = [verdict for verdict in verdicts if verdict.alpha > 0]
    assert found.plan(own().capabilities).tests == len(spending)
    assert len(verdicts) == len(spending) + 2  # the support, and injected coins


def test_counts_depend_neither_on_blocks_nor_on_shards() -> None:
    plan = make()()
    tables = text_tables(plan, "reference")
    subject = Subject.of(reference)
    whole = RoundRunner(subject, TableDrafter(), plan, 3, "cpu").run(0, 64)
    cut = RoundRunner(subject, TableDrafter(), plan, 3, "cpu").run(32, 32)
    for table in tables:
        if "trials" not in table.name:
            assert np.array_equal(table.index(whole)[32:], table.index(cut))
    assert np.array_equal(whole.head(8).rounds[1].emitted, whole.rounds[1].emitted[:8])


def test_rounds_advance_in_text_and_stream() -> None:
    seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def spy(batch) -> Emission:
        emission = reference(batch)
        seen.append((batch.seeds, batch.positions, emission.num_emitted))
        return emission

    plan = make()()
    subject = Subject("spy", spy, reference.capabilities)
    done = RoundRunner(subject, TableDrafter(), plan, 3, "cpu").run(0, 50)
    (seeds, start, emitted), (again, after, _) = seen
    assert torch.equal(seeds, again)
    assert torch.equal(after, start + emitted)
    first, second = done.rounds
    for request, tokens in enumerate(done.completed):
        length = first.emitted[:, request]
        assert np.array_equal(second.before[:, request], tokens[np.arange(50), length - 1])


def test_subjects_are_told_why_they_are_not_asked() -> None:
    lossy = Capabilities(guarantee=Guarantee.LOSSY)
    assert "lossy" in str(rounds().plan(lossy).unsupported)
    assert draft_law().plan(Capabilities()).unsupported == "the sampler brings no drafter"
    one_hot = own(PromptLookupDrafter()).capabilities
    assert "reports no q" in str(draft_law().plan(one_hot).unsupported)
    assert "does not report q" in str(rounds().plan(one_hot).unsupported)
    assert "reports q" in str(rounds("o", 3, *TWO, dense=False).plan(own().capabilities))
    assert "zero_drafts" in str(rounds("z", 4, *RAGGED).plan(Capabilities(zero_drafts=False)))
    assert draft_law().run(Subject.of(reference), FIXED)[0].status is Status.NOT_SUPPORTED


class _Broken(TableDrafter):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def propose(self, contexts: Contexts) -> Proposal:
        if self.how == "raises":
            raise RuntimeError("no memory")
        if self.how == "returns":
            return None  # type: ignore[return-value]
        if self.how == "scribbles":
            contexts.positions.add_(1)
        found = super().propose(contexts)
        if self.how == "too many":
            return Proposal(found.tokens[:-1], None, found.counts[:-1])
        return found


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", "the drafter raised RuntimeError: no memory"),
        ("returns", "the drafter returned NoneType; expected a Proposal"),
        ("scribbles", "the drafter changed its input: positions differs"),
        ("too many", "the drafter's proposal does not fit: tokens"),
    ],
)
def test_a_broken_drafter_is_one_failure(how: str, said: str) -> None:
    verdicts = rounds().run(own(_Broken(how)), FIXED)
    assert [verdict.status for verdict in verdicts] == [Status.FAIL]
    assert said in verdicts[0].reason


def test_an_undeclared_drafter_is_a_failure() -> None:
    sampler = DraftingSampler(reference, TableDrafter())
    hidden = Subject("hidden", sampler, reference.capabilities)
    sampler.capabilities = reference.capabilities  # type: ignore[assignment]
    (verdict,) = rounds().run(hidden, FIXED)
    assert verdict.status is Status.FAIL
    assert "with_drafter" in verdict.reason


class _Changing(TableDrafter):
    """Warms q by the request's seed: another row for the same prefix, honestly reported."""

    def propose(self, contexts: Contexts) -> Proposal:
        warm = 1 + (contexts.seeds.to(torch.int64) % 3).float()
        return super().propose(dataclasses.replace(contexts, temperature=warm))


def test_a_law_that_changes_is_judged_by_the_transform_alone() -> None:
    verdicts = draft_law().run(own(_Changing()), PLANNED)
    assert {v.status for v in verdicts if v.p_value is not None} == {Status.PASS}
    unknown = [verdict for verdict in verdicts if verdict.status is Status.NOT_SUPPORTED]
    assert len(unknown) == 4
    assert all("different laws for one prefix" in verdict.reason for verdict in unknown)


class _OutOfSupport(TableDrafter):
    def reported(self, logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        q = tempered(logits, temperature).float()
        q[:, 0] = 0.0
        return q / q.sum(dim=1, keepdim=True)

    def drawn_from(self, logits, reported, temperature):  # type: ignore[no-untyped-def]
        return tempered(logits, temperature)


def test_a_draft_outside_its_support_fails_exactly() -> None:
    verdicts = draft_law().run(own(_OutOfSupport()), FIXED)
    support = next(verdict for verdict in verdicts if verdict.check == "exact/support of q")
    assert support.status is Status.FAIL


def test_unbatched_and_call_seeded_samplers_run() -> None:
    few = dataclasses.replace(FIXED, trials=40)
    assert rounds().run(Subject.of(reference_rowwise), few)[0].status is not Status.FAIL

    def by_global_generator(batch) -> Emission:
        fresh = torch.randint(0, 2**62, batch.seeds.shape).to(torch.uint64)
        return reference(batch.replace(seeds=fresh, check_values=False))

    declared = dataclasses.replace(reference.capabilities, per_request_seeds=False)
    subject = Subject("global", by_global_generator, declared)
    again = [rounds().run(subject, FIXED) for _ in range(2)]
    assert [v.p_value for v in again[0]] == [v.p_value for v in again[1]]
    assert not statistical(again[0])


def test_bad_cases_are_named() -> None:
    with pytest.raises(ValueError, match="rounds: got 0"):
        round_case("x", 3, TWO, True, rounds=0)
    assert isinstance(make()(), RoundCase)
    assert drafter_of(reference) is None
