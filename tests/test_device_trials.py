"""Trials that stay on a GPU give the numbers of the CPU, bit for bit (in Triton's interpreter)."""

from __future__ import annotations

# isort: off
from kernel_setup import DEVICE  # before triton

# isort: on
import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from specverify import _device_sizes as sizes
from specverify import trials
from specverify._blocks import BlockBuilder
from specverify._cells import Cells, Seen, Term
from specverify._device_blocks import DeviceBlocks
from specverify._device_counts import count
from specverify.cases import Case, RequestSpec, Seeding, TableRequest, make_case
from specverify.checks.tables import tables_of
from specverify.checks.verdict import Family
from specverify.contract import Batch, Capabilities, Emission
from specverify.faults import SamplerFault
from specverify.reference import reference
from specverify.streams import Purpose, Stream
from specverify.subjects import Subject
from specverify.trials import IntArray, Outcomes, run_trials, stream_of

r = RequestSpec
HOLES = frozenset({1})
CASES = (
    make_case(
        "resident/ragged",
        4,
        (r(drafts=2), r(drafts=0), r(drafts=3, temperature=0.7, placeholders=HOLES)),
        True,
    ),
    make_case("resident/one-hot", 5, (r(drafts=2), r(drafts=1)), False, seeding=Seeding.ASCENDING),
    make_case("resident/idle", 3, (r(drafts=0), r(drafts=0)), True, seeding=Seeding.SAME),
    make_case("resident/half", 16, (r(drafts=2),), True, "bfloat16", seeding=Seeding.DESCENDING),
)


def deep(vocab: int, drafts: int) -> Case:
    """A prefix of all drafts would overflow; the first two alone decide anything."""
    generator = torch.Generator().manual_seed(vocab)
    rows = [vocab**j if j <= 2 else 1 for j in range(drafts + 1)]
    target = tuple(torch.randn(count, vocab, generator=generator) for count in rows)
    draft = tuple(torch.softmax(table, dim=1) for table in target[:-1])
    requests = (TableRequest(target=target, draft=draft), TableRequest(target=target[:1], draft=()))
    return Case(name=f"resident/deep-V{vocab}", requests=requests, dense=True)


DEEP = deep(8, 12), deep(5, 15)
FIELDS = (
    "target_logits", "draft_token_ids", "draft_probs", "cu_drafts", "temperature", "top_k",
    "top_p", "min_p", "seeds", "positions",
)  # fmt: skip
SUBJECT = Subject.of(reference, "reference")
EVERYTHING = (Family.LAW, Family.COUPLING, Family.INDEPENDENCE)


def builders(case: Case, horizon: int) -> tuple[BlockBuilder, DeviceBlocks]:
    stream = stream_of(3, case)
    return (
        BlockBuilder(case, stream, DEVICE, horizon, Capabilities()),
        DeviceBlocks(case, stream, DEVICE, horizon, Capabilities()),
    )


@pytest.mark.parametrize("horizon", [0, 1, 9])
@pytest.mark.parametrize("case", [*CASES, *DEEP], ids=lambda case: case.name)
def test_blocks_are_the_same(case: Case, horizon: int) -> None:
    """Batches and completions; several blocks, beyond 2**32 trials as well."""
    host, device = builders(case, horizon)
    for first, size in ((0, 70), (70, 70), (2**33 + 4, 50)):
        ours, theirs = device.build(first, size), host.build(first, size)
        for name in FIELDS:
            left, right = getattr(ours.batch, name), getattr(theirs.batch, name)
            assert (left is right is None) or (
                left.dtype == right.dtype and torch.equal(left, right)
            ), name
        emission = reference(theirs.batch)
        got, want = device.account(emission, ours, first), host.account(emission, theirs, first)
        for left, right in zip(
            [*ours.drafts, got[0], got[1], *got[2]],
            [*theirs.drafts, want[0], want[1], *want[2]],
            strict=True,
        ):
            np.testing.assert_array_equal(trials.to_host(left), right)
    device.settle(pytest.fail)


@pytest.mark.parametrize("key", [0, 2**31, 2**63 + 5, 2**64 - 1])
def test_every_key_is_the_same_stream(key: int) -> None:
    case = CASES[0]
    device = DeviceBlocks(case, Stream(key), DEVICE, 0, Capabilities())
    want = Stream(key).bits64(np.arange(6, 26)[:, None], np.arange(3), 0, Purpose.SEED)
    seeds = device.build(6, 20).batch.seeds.cpu().numpy()
    np.testing.assert_array_equal(seeds, want.reshape(-1))


@pytest.fixture
def resident(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trials stay on the device, whatever it is."""
    trials._builder.cache_clear()
    monkeypatch.setattr(trials, "stays_on", lambda _device, _case: True)
    yield
    trials._builder.cache_clear()


@dataclasses.dataclass
class OwnTally:
    """A tally that knows numpy alone."""

    name: str = "drafts"
    cells: int = 9
    horizon: int = 0

    def index(self, outcomes: Outcomes) -> IntArray:
        return np.where(outcomes.drafts[0][:, 0] > 0, outcomes.accepted.sum(1), 8)


def counted(case: Case, number: int = 500) -> dict[str, IntArray]:
    tallies = (*tables_of(case, EVERYTHING, SUBJECT.capabilities), OwnTally())
    return run_trials(SUBJECT, case, tallies, root_seed=2, trials=number, device=DEVICE)


HOST = {case.name: counted(case) for case in CASES if case.requests[0].num_drafts}


@pytest.mark.usefixtures("resident")
@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[3]], ids=lambda case: case.name)
def test_counts_are_the_same(case: Case) -> None:
    counts = counted(case)
    assert counts.keys() == HOST[case.name].keys()
    for name, table in counts.items():
        np.testing.assert_array_equal(table, HOST[case.name][name], err_msg=name)


@pytest.mark.usefixtures("resident")
def test_blocks_and_shards_add_up() -> None:
    case = CASES[0]
    tables = tables_of(case, EVERYTHING, SUBJECT.capabilities)
    keywords = {"root_seed": 2, "device": DEVICE}
    parts = [
        run_trials(SUBJECT, case, tables, trials=200, block=64, **keywords),
        run_trials(SUBJECT, case, tables, trials=300, first_trial=200, **keywords),
    ]
    for name, table in trials.merge(parts).items():
        np.testing.assert_array_equal(table, HOST[case.name][name])


@pytest.mark.usefixtures("resident")
def test_the_first_block_is_small_and_the_rest_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 20, 200, 200 and 80 trials, the later ones drawn ahead; the same counts."""
    case = CASES[0]
    row = case.num_rows * trials.DEVICE_ROW
    monkeypatch.setattr(trials, "BLOCK_ELEMENTS", 20 * case.num_rows * case.vocab_size)
    monkeypatch.setattr(trials, "DEVICE_ELEMENTS", 200 * row)
    done: list[int] = []
    tables = tables_of(case, EVERYTHING, SUBJECT.capabilities)
    counts = run_trials(
        SUBJECT, case, tables, root_seed=2, trials=500, device=DEVICE,
        progress=lambda count, _planned: done.append(count),
    )  # fmt: skip
    assert done == [20, 220, 420, 500]
    for name, table in counts.items():
        np.testing.assert_array_equal(table, HOST[case.name][name], err_msg=name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_block_drawn_ahead_is_the_block(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """By fewer programs than there are parts, in any order."""
    monkeypatch.setattr(sizes, "AHEAD_PROGRAMS", 2)
    monkeypatch.setattr(sizes, "FILL_WARPS", 1)
    host, device = builders(case, 0)
    for first in (0, 140, 70):
        ours, theirs = device.build(first, 70).batch, host.build(first, 70).batch
        for after in (70, 140) if first == 0 else ():
            device.ahead(after, 70)
        for name in FIELDS:
            left, right = getattr(ours, name), getattr(theirs, name)
            assert (left is right is None) or torch.equal(left, right), name


@dataclasses.dataclass
class CellTally:
    """Any sum of columns."""

    name: str
    cells: int
    index: Cells
    horizon: int = 0


DRAFT, LAST = Term(1, Seen.DRAFT, 0), Term(1, Seen.LAST, 0)
UNUSUAL = (
    CellTally("the rest is a cell of others, too", 5, Cells((LAST,), rest=2, stopped=(0, 1))),
    CellTally("the rest is nobody's", 9, Cells((LAST,), rest=6, reached=(0, 1))),
    CellTally("pairs of which some are the rest", 36, Cells((DRAFT,), 5, stopped=(0, 0), pairs=6)),
    CellTally("pairs", 25, Cells((DRAFT,), pairs=5)),
)


def test_unusual_cells_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for stays in (False, True):
        trials._builder.cache_clear()
        monkeypatch.setattr(trials, "stays_on", lambda _device, _case, stays=stays: stays)
        found.append(
            run_trials(SUBJECT, CASES[1], UNUSUAL, root_seed=2, trials=301, device=DEVICE)
        )  # fmt: skip
    trials._builder.cache_clear()
    for tally in UNUSUAL:
        np.testing.assert_array_equal(found[0][tally.name], found[1][tally.name], tally.name)


def too_long(batch: Batch) -> Emission:
    out = reference(batch)
    return Emission(out.token_ids, out.num_emitted.clone().index_fill_(0, torch.tensor(40), 9))


def outside(batch: Batch) -> Emission:
    out = reference(batch)
    out.token_ids[41, 0] = 4
    return out


def beyond_32_bits(batch: Batch) -> Emission:
    out = reference(batch)
    out.token_ids[41, 0] += 2**32
    return out


def not_the_draft(batch: Batch) -> Emission:
    out = reference(batch)
    long = out.num_emitted > 1
    out.token_ids[long, 0] = (out.token_ids[long, 0] + 1) % 4
    return out


def behind(batch: Batch) -> Emission:
    out = reference(batch)
    out.token_ids[1, -1] = 0
    return out


@pytest.mark.parametrize("sampler", [too_long, outside, beyond_32_bits, not_the_draft, behind])
def test_faults_read_like_those_of_the_host(
    sampler: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject("faulty", sampler, SUBJECT.capabilities)  # type: ignore[arg-type]
    texts = []
    for stays in (False, True):
        trials._builder.cache_clear()
        monkeypatch.setattr(trials, "stays_on", lambda _device, _case, stays=stays: stays)
        with pytest.raises(SamplerFault) as caught:
            run_trials(subject, CASES[0], (), root_seed=2, trials=120, device=DEVICE)
        texts.append(str(caught.value))
    trials._builder.cache_clear()
    assert texts[0] == texts[1]


@pytest.mark.usefixtures("resident")
def test_a_fault_that_does_not_come_back_is_told() -> None:
    calls = []

    def once(batch: Batch) -> Emission:
        calls.append(1)
        return outside(batch) if len(calls) == 1 else reference(batch)

    with pytest.raises(SamplerFault, match="malformed in trials 0 to 119, but not when"):
        run_trials(
            Subject("once", once, SUBJECT.capabilities), CASES[0], (), root_seed=2, trials=120,
            device=DEVICE,
        )  # fmt: skip


@pytest.mark.parametrize("cells", [3, 33, 1500])
def test_count_is_bincount_of_what_is_in_range(cells: int) -> None:
    generator = torch.Generator().manual_seed(cells)
    index = torch.randint(-3, cells + 3, (5000,), generator=generator)
    counts = torch.ones(cells, dtype=torch.int64, device=DEVICE)
    count(index.to(DEVICE), counts)
    inside = index[(index >= 0) & (index < cells)]
    assert torch.equal(counts.cpu(), torch.bincount(inside, minlength=cells) + 1)


def test_only_small_vocabularies_on_a_gpu_stay() -> None:
    assert trials.stays_on("cuda:1", CASES[0])
    assert not trials.stays_on("cpu", CASES[0])
    assert not trials.stays_on("cuda", make_case("resident/wide", 300, (r(drafts=0),), True))
