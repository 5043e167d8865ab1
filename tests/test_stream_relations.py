"""Streams: every bit of seed and position counts, and nothing is held against what is right."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from specverify.suites import all_suites

from specverify.checks.experiment import PROFILES, Settings
from specverify.checks.metamorphic import Asked
from specverify.checks.stream_relations import MOVES, REQUESTS, _even, streams_apart
from specverify.checks.verdict import Status
from specverify.contract import Batch, Capabilities
from specverify.reference import ChainSampler, MatchSampler, Step, reference, reference_rowwise
from specverify.registry import resolve
from specverify.sampling import batch_probabilities
from specverify.subjects import Subject


def problems(sampler: object, entropy: int = 0) -> list[str]:
    subject = Subject.of(sampler)  # type: ignore[arg-type]
    asked = Asked(subject, Settings(profile=PROFILES["quick"]), 5, REQUESTS)
    batch = _even(subject.capabilities, 64, entropy)
    return [problem.text for problem in streams_apart(asked, batch)]


class Moved(ChainSampler):
    """Seed and position are replaced."""

    def __init__(self, seed: str, position: str) -> None:
        self.seed, self.position = seed, position

    def begin(self, batch: Batch) -> Step:
        names = {"s": batch.seeds.view(torch.int64), "p": batch.positions, "zero": 0}
        bits = eval(self.seed, {"__builtins__": {}}, names)
        places = eval(self.position, {"__builtins__": {}}, names) + 0 * batch.positions
        seeds = bits.contiguous().view(torch.uint64)
        return super().begin(batch.replace(seeds=seeds, positions=places, check_values=False))


@pytest.mark.parametrize("entropy", range(4))
@pytest.mark.parametrize("dense", [True, False])
def test_every_draft_has_probability_one_half(dense: bool, entropy: int) -> None:
    batch = _even(Capabilities(dense=dense), 64, entropy)
    p = batch_probabilities(batch)
    rows = torch.arange(batch.num_drafts) + batch.draft_request
    assert p[rows, batch.draft_token_ids].numpy() == pytest.approx(0.5, abs=1e-6)
    assert (batch.draft_probs is not None) == dense


@pytest.mark.parametrize("entropy", range(6))
def test_what_is_right_passes(entropy: int) -> None:
    for sampler in (reference, reference_rowwise, MatchSampler()):
        assert problems(sampler, entropy) == []


@pytest.mark.parametrize("name", ["lawful:never-accepts", "lawful:exponential-race"])
def test_other_rules_pass(name: str) -> None:
    assert problems(resolve(name).sampler) == []


@pytest.mark.parametrize(
    ("seed", "position", "named"),
    [
        ("s & 0x7FFF_FFFF_FFFF_FFFF", "p", "bit 63 of the seed"),
        ("s & 0xFFFF_FFFF_FFFF", "p", "bit 48 of the seed"),
        ("s >> 1", "p", "bit 0 of the seed"),
        ("(s ^ (s >> 32)) & 0xFFFF_FFFF", "p", "both halves"),
        ("s + p", "zero", "seed + 1 and position - 1"),
        ("s - p", "zero", "seed + 1 and position + 1"),
        ("s ^ p", "zero", "seed"),
        ("s ^ (p << 32)", "zero", "seed"),
        ("s", "p & 0xFFFF", "bit 16 of the position"),
        ("s", "p >> 3", "bit 0 of the position"),
    ],
)
def test_a_stream_of_something_else_is_named(seed: str, position: str, named: str) -> None:
    found = problems(Moved(seed, position))
    assert found
    assert named in found[0]


def test_a_repeated_accept_coin_alone_is_seen() -> None:
    """The last token comes from the right place, the accept coins forget the position."""

    class Half(ChainSampler):
        def accept_coins(self, step: Step) -> torch.Tensor:
            one = step.batch.replace(positions=step.batch.positions & ~4, check_values=False)
            return ChainSampler().begin(one).coins.accept

    assert "stopped at the same drafts" in problems(Half())[0]


def test_a_large_batch_changes_nothing() -> None:
    class Wrapped(ChainSampler):
        def begin(self, batch: Batch) -> Step:
            place = torch.arange(batch.num_requests) % 2048
            seeds = batch.seeds.view(torch.int64)[place].view(torch.uint64)
            return super().begin(batch.replace(seeds=seeds, check_values=False))

    assert "one of the last" in problems(Wrapped())[0]


def test_moves_are_different_and_never_stand_still() -> None:
    assert len({move.name for move in MOVES}) == len(MOVES)
    assert all(dataclasses.astuple(move)[1:] != (0, 0, 0, 0, False) for move in MOVES)


@pytest.mark.parametrize("name", ["flashspec", "lawful:global-generator"])
def test_a_sampler_without_seeds_is_not_asked(name: str) -> None:
    cases = all_suites()["metamorphic"].experiments
    experiment = next(one for one in cases if one.case == "streams-apart")
    verdict = experiment.run(resolve(name), Settings(profile=PROFILES["quick"]))[0]
    assert verdict.status is Status.NOT_SUPPORTED
