"""Which kernel the sampler ``triton`` takes for a batch (docs/kernels.md)."""

from __future__ import annotations

# isort: off
from kernel_setup import DEVICE  # before triton

# isort: on
import pytest
import torch
from kernel_batches import random_batch
from kernel_budget import disagreements
from specverify.kernels import TritonChain, sampler, triton_chain
from specverify.kernels._flag import any_filter

from specverify.contract import Batch
from specverify.reference import reference

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

NAMES = ("verify_small", "verify_chain", "verify_filtered")


def plain(vocab: int, **fields: float) -> Batch:
    """One request without drafts."""
    one = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "top_k": 0, **fields}
    return Batch(
        target_logits=torch.zeros(1, vocab), draft_token_ids=torch.zeros(0, dtype=torch.int64),
        draft_probs=None, cu_drafts=torch.zeros(2, dtype=torch.int64),
        seeds=torch.zeros(1, dtype=torch.uint64), positions=torch.zeros(1, dtype=torch.int64),
        **{name: torch.tensor([value]) for name, value in one.items()},
    )  # fmt: skip


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that are called, which then do nothing."""
    names: list[str] = []

    def stub(name: str):
        def verify(*_fields: object, **_options: object) -> tuple[torch.Tensor, torch.Tensor]:
            names.append(name)
            return torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, dtype=torch.int64)

        return verify

    for name in NAMES:
        monkeypatch.setattr(sampler, name, stub(name))
    return names


@pytest.mark.parametrize(
    ("vocab", "name"),
    [
        (2, "verify_small"), (256, "verify_small"), (257, "verify_chain"),
        (32_000, "verify_chain"),
    ],
)  # fmt: skip
def test_by_vocabulary(vocab: int, name: str, called: list[str]) -> None:
    triton_chain(plain(vocab))
    assert called == [name]


@pytest.mark.parametrize(
    "field", [{"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}], ids=["top-k", "top-p", "min-p"]
)
def test_a_filter_decides_above_the_small_vocabularies(
    field: dict[str, float], called: list[str]
) -> None:
    for vocab in (256, 257, 32_000):
        triton_chain(plain(vocab, **field))
    assert called == ["verify_small", "verify_filtered", "verify_filtered"]


def test_filters_of_greedy_requests_do_not_count(called: list[str]) -> None:
    triton_chain(plain(32_000, top_k=5, top_p=0.5, temperature=0.0))
    triton_chain(plain(100, top_k=100))  # as many as there are: off
    assert called == ["verify_chain", "verify_small"]


def test_the_chain_kernel_can_be_forced(called: list[str]) -> None:
    """As the tests of the chain kernel and the checks on a GPU do."""
    for vocab in (2, 300, 16_384):
        TritonChain(small_vocab=0)(plain(vocab))
    assert called == ["verify_chain"] * 3


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
def test_tokens_just_above_the_small_kernel(dense: bool) -> None:
    """V = 300 without filters, through the kernels that it is sent to."""
    generator = torch.Generator(device=DEVICE).manual_seed(1)
    batch = random_batch(generator, 300, 5, 3, torch.float32, dense=dense, coins=True)
    found = disagreements(batch, triton_chain(batch), reference(batch))
    assert not [one for one in found if not one.lawful]


@pytest.mark.parametrize("field", [{"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}], ids=str)
def test_one_filter_among_thousands_is_seen(field: dict[str, float]) -> None:
    """Any request may be the only one that filters, and it counts only if it is random."""
    many = 2500
    generator = torch.Generator(device=DEVICE).manual_seed(2)
    batch = random_batch(generator, 7, many, 0, torch.float32, dense=False, coins=False, greedy=0.0)
    assert not any_filter(batch)
    ((name, value),) = field.items()
    for where in (0, 1023, 1024, many - 1):
        column = getattr(batch, name).clone()
        column[where] = value
        one = batch.replace(**{name: column})
        assert any_filter(one)
        cold = one.temperature.clone()
        cold[where] = 0.0
        assert not any_filter(one.replace(temperature=cold))


def test_fields_that_are_views() -> None:
    """Every second entry of a larger tensor."""
    generator = torch.Generator(device=DEVICE).manual_seed(3)
    batch = random_batch(generator, 7, 4, 0, torch.float32, dense=False, coins=False, greedy=0.0)
    between = torch.tensor([1.0, 0.5] * 4, device=DEVICE)
    assert not any_filter(batch.replace(top_p=between[::2]))
    assert any_filter(batch.replace(top_p=between[1::2]))


@pytest.mark.parametrize("vocab", [15, 256, 300])
def test_company_that_filters_changes_no_other_request(vocab: int) -> None:
    """The same tokens from the same seeds, whichever kernel the company sends a request to."""
    generator = torch.Generator(device=DEVICE).manual_seed(4)
    batch = random_batch(
        generator, vocab, 12, 3, torch.float32, dense=True, coins=False, greedy=0.0, spread=3.0
    )
    alone = triton_chain(batch)
    top_k = batch.top_k.clone()
    top_k[5] = 3
    company = triton_chain(batch.replace(top_k=top_k))
    others = torch.arange(12, device=DEVICE) != 5
    assert torch.equal(alone.token_ids[others], company.token_ids[others])
    assert (alone.num_emitted[others] <= batch.cu_drafts.diff()[others]).sum() >= 3  # recovered


@pytest.mark.parametrize("vocab", [15, 300])
@pytest.mark.parametrize("top_k", [0, 3])
def test_small_fields_may_be_views(vocab: int, top_k: int) -> None:
    """Every second entry of larger tensors gives the same tokens."""
    generator = torch.Generator(device=DEVICE).manual_seed(6)
    batch = random_batch(generator, vocab, 6, 3, torch.float32, dense=True, coins=False)
    batch = batch.replace(top_k=torch.full_like(batch.top_k, top_k))
    names = ("draft_token_ids", "cu_drafts", "temperature", "top_k", "top_p", "min_p", "positions")
    views = {}
    for name in names:
        column = getattr(batch, name)
        wide = torch.stack([column, torch.ones_like(column)], 1)
        views[name] = wide[:, 0]
        assert not views[name].is_contiguous()
    ours = triton_chain(batch.replace(**views, check_values=False))
    assert torch.equal(ours.token_ids, triton_chain(batch).token_ids)
