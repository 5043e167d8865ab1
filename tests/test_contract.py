"""Every wrong field of a batch, of coins and of an emission is refused, in words that help."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from specverify.contract import (
    PLACEHOLDER,
    AcceptanceRule,
    Batch,
    Capabilities,
    Coins,
    Emission,
    FinalCoin,
    Sampler,
    capabilities_of,
    sampler,
)

NAN, INF = float("nan"), float("inf")


def fields(**changes: Any) -> dict[str, Any]:
    """Three requests with 2, 0 and 1 drafts over V = 4: D = 3, R = 6."""
    return {
        "target_logits": torch.arange(24, dtype=torch.float32).reshape(6, 4).sin(),
        "draft_token_ids": torch.tensor([1, PLACEHOLDER, 3]),
        "draft_probs": torch.full((3, 4), 0.25),
        "cu_drafts": torch.tensor([0, 2, 2, 3]),
        "temperature": torch.tensor([1.0, 0.0, 0.5]),
        "top_k": torch.tensor([0, 2, 0]),
        "top_p": torch.tensor([1.0, 0.9, 1.0]),
        "min_p": torch.tensor([0.0, 0.1, 1.0]),
        "seeds": torch.tensor([0, 1, 2**63 - 1]).to(torch.uint64),
        "positions": torch.tensor([0, 7, 2**40]),
        **changes,
    }


def changed(name: str, at: tuple[int, ...], value: float) -> torch.Tensor:
    """One field of :func:`fields` with one element replaced."""
    tensor: torch.Tensor = fields()[name].clone()
    tensor[at] = value
    return tensor


def refused(build: Any, *words: str) -> None:
    """The call raises ValueError, and the text holds all of these words."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is checked below
        build()
    for word in words:
        assert word in str(caught.value)
    assert re.fullmatch(r"[\w.\[\]]+: got .+; expected .+", str(caught.value), flags=re.DOTALL)


def test_valid_batch_is_taken() -> None:
    batch = Batch(**fields())
    assert (batch.num_requests, batch.num_drafts, batch.vocab_size) == (3, 3, 4)
    assert batch.coins is None
    assert batch.device == torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_valid_dtypes_and_strides(dtype: torch.dtype) -> None:
    strided = torch.zeros(4, 6, dtype=dtype).t()
    assert Batch(**fields(target_logits=strided)).target_logits.stride() == (1, 6)
    for probs in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        Batch(**fields(draft_probs=torch.full((3, 4), 0.25, dtype=probs)))


WRONG_SHAPE_OR_DTYPE: dict[str, list[tuple[str, Any]]] = {
    "target_logits": [
        ("[6, 4] float64", torch.zeros(6, 4, dtype=torch.float64)),
        ("[5, 4] float32", torch.zeros(5, 4)),
        ("[6] float32", torch.zeros(6)),
        ("[6, 0] float32", torch.zeros(6, 0)),
        ("list", [[0.0]]),
        ("NoneType", None),
    ],
    "draft_token_ids": [
        ("[3] int32", torch.zeros(3, dtype=torch.int32)),
        ("[2] int64", torch.zeros(2, dtype=torch.int64)),
        ("[3, 1] int64", torch.zeros(3, 1, dtype=torch.int64)),
        ("list", [1, 2, 3]),
    ],
    "draft_probs": [
        ("[3, 3] float32", torch.full((3, 3), 1 / 3)),
        ("[2, 4] float32", torch.full((2, 4), 0.25)),
        ("[3, 4] int64", torch.ones(3, 4, dtype=torch.int64)),
        ("[3, 4] float8_e4m3fn", torch.full((3, 4), 0.25).to(torch.float8_e4m3fn)),
        ("ndarray", torch.full((3, 4), 0.25).numpy()),
    ],
    "cu_drafts": [
        ("[4] int32", torch.tensor([0, 2, 2, 3], dtype=torch.int32)),
        ("[1] int64", torch.tensor([0])),
        ("[0] int64", torch.zeros(0, dtype=torch.int64)),
        ("[] int64", torch.tensor(0)),
        ("NoneType", None),
    ],
    "temperature": [
        ("[2] float32", torch.ones(2)),
        ("[3] int64", torch.ones(3, dtype=torch.int64)),
        ("float", 1.0),
    ],
    "top_k": [
        ("[3] float32", torch.zeros(3)),
        ("[3] int32", torch.zeros(3, dtype=torch.int32)),
        ("[1] int64", torch.zeros(1, dtype=torch.int64)),
    ],
    "top_p": [("[3] int64", torch.ones(3, dtype=torch.int64)), ("[4] float32", torch.ones(4))],
    "min_p": [("[3] int64", torch.zeros(3, dtype=torch.int64)), ("[4] float32", torch.zeros(4))],
    "seeds": [
        ("[3] int64", torch.zeros(3, dtype=torch.int64)),
        ("[2] uint64", torch.zeros(2, dtype=torch.uint64)),
    ],
    "positions": [
        ("[3] int32", torch.zeros(3, dtype=torch.int32)),
        ("[2] int64", torch.zeros(2, dtype=torch.int64)),
    ],
}


@pytest.mark.parametrize(
    ("name", "got", "value"),
    [(name, got, value) for name, bad in WRONG_SHAPE_OR_DTYPE.items() for got, value in bad],
    ids=[f"{name}-{got}" for name, bad in WRONG_SHAPE_OR_DTYPE.items() for got, _ in bad],
)
@pytest.mark.parametrize("check_values", [True, False])
def test_shapes_and_dtypes(name: str, got: str, value: object, check_values: bool) -> None:
    refused(
        lambda: Batch(**fields(**{name: value}), check_values=check_values), f"{name}: got {got};"
    )


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("draft_token_ids", 0, 4, "draft_token_ids[0]: got 4; expected an id in [0, 4)"),
        ("draft_token_ids", 2, -2, "draft_token_ids[2]: got -2; expected an id in [0, 4)"),
        ("cu_drafts", 0, 1, "cu_drafts[0]: got 1; expected 0"),
        ("cu_drafts", 2, 1, "cu_drafts: got a draft count of -1 for request 1"),
        ("temperature", 1, -1e-6, "temperature[1]: got -9.99"),
        ("temperature", 2, NAN, "temperature[2]: got nan"),
        ("temperature", 2, INF, "temperature[2]: got inf"),
        ("top_k", 1, -1, "top_k[1]: got -1"),
        ("top_p", 0, 0.0, "top_p[0]: got 0.0; expected a number in (0, 1]"),
        ("top_p", 0, 1.5, "top_p[0]: got 1.5"),
        ("top_p", 2, NAN, "top_p[2]: got nan"),
        ("min_p", 1, -0.5, "min_p[1]: got -0.5"),
        ("min_p", 1, 1.5, "min_p[1]: got 1.5"),
        ("min_p", 0, NAN, "min_p[0]: got nan"),
        ("positions", 2, -1, "positions[2]: got -1"),
    ],
)
@pytest.mark.parametrize("check_values", [True, False])
def test_small_fields_are_always_read(
    name: str, at: int, value: float, message: str, check_values: bool
) -> None:
    bad = {name: changed(name, (at,), value)}
    refused(lambda: Batch(**fields(**bad), check_values=check_values), message)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"target_logits": changed("target_logits", (2, 1), NAN)}, "target_logits[2]: got NaN"),
        ({"target_logits": changed("target_logits", (5, 3), INF)}, "target_logits[5]: got +inf"),
        (
            {"target_logits": torch.cat([torch.zeros(5, 4), torch.full((1, 4), -INF)])},
            "target_logits[5]: got only -inf",
        ),
        (
            {"draft_probs": changed("draft_probs", (0, 2), -0.25)},
            "draft_probs[0]: got a negative probability or NaN",
        ),
        (
            {"draft_probs": changed("draft_probs", (2, 0), NAN)},
            "draft_probs[2]: got a negative probability or NaN",
        ),
        (
            {"draft_probs": changed("draft_probs", (2, 0), 0.2502)},
            "draft_probs[2]: got a row that sums to 1.0002",
        ),
        (
            {"draft_probs": changed("draft_probs", (0, 0), INF)},
            "draft_probs[0]: got a row that sums to inf",
        ),
        (
            {"draft_probs": torch.full((3, 4), 0.24, dtype=torch.bfloat16)},
            "draft_probs[0]: got a row that sums to 0.96",
        ),
    ],
    ids=["nan", "+inf", "-inf row", "negative q", "nan q", "mass", "inf q", "bf16 mass"],
)
def test_values_are_read_unless_told_otherwise(bad: dict[str, torch.Tensor], message: str) -> None:
    refused(lambda: Batch(**fields(**bad)), message)
    Batch(**fields(**bad), check_values=False)  # the caller vouches for them


def test_rounded_draft_probs_are_taken() -> None:
    for dtype, error in ((torch.float64, 5e-7), (torch.float32, 5e-5), (torch.float16, 5e-3)):
        probs = torch.full((3, 4), 0.25, dtype=dtype)
        probs[0, 0] += error
        Batch(**fields(draft_probs=probs))


def test_row_of_a_placeholder_is_never_read() -> None:
    Batch(**fields(draft_probs=changed("draft_probs", (1, 0), NAN)))
    Batch(**fields(draft_probs=changed("draft_probs", (1, 0), 7.0)))


def test_masked_logits_are_taken() -> None:
    Batch(**fields(target_logits=changed("target_logits", (0, 1), -INF)))


def test_first_wrong_element_is_named() -> None:
    bad = torch.tensor([1, 9, 8])
    refused(lambda: Batch(**fields(draft_token_ids=bad)), "draft_token_ids[1]: got 9")


@pytest.mark.parametrize("name", ["seeds", "draft_probs"])
def test_one_device(name: str) -> None:
    # The meta device stands for any other: these two fields are looked at by device first.
    elsewhere = fields()[name].to("meta")
    refused(
        lambda: Batch(**fields(**{name: elsewhere})),
        f"{name}: got a tensor on meta; expected cpu, where target_logits is",
    )


def coins(**changes: Any) -> Coins:
    values: dict[str, Any] = {"accept": torch.tensor([0.0, 0.5, 1 - 2.0**-24])}
    return Coins(**{**values, "final": torch.full((3,), 0.5), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accept": torch.tensor([1.0])}, "coins.accept[0]: got 1.0; expected a number in [0, 1)"),
        ({"accept": torch.tensor([0.0, -0.5])}, "coins.accept[1]: got -0.5"),
        ({"accept": torch.tensor([NAN])}, "coins.accept[0]: got nan"),
        ({"accept": torch.tensor([0])}, "coins.accept: got [1] int64"),
        ({"accept": None}, "coins.accept: got NoneType"),
        ({"final": torch.ones(3)}, "coins.final[0]: got 1.0"),
        ({"final": torch.zeros(3, 1)}, "coins.final: got [3, 1] float32"),
        ({"final": None}, "coins: got both or neither of final and noise"),
        ({"noise": torch.ones(3, 4)}, "coins: got both or neither of final and noise"),
        ({"final": None, "noise": torch.zeros(3, 4)}, "coins.noise[0]: got 0.0"),
        ({"final": None, "noise": torch.full((3, 4), INF)}, "coins.noise[0]: got inf"),
        ({"final": None, "noise": torch.full((3, 4), NAN)}, "coins.noise[0]: got nan"),
        ({"final": None, "noise": torch.ones(3)}, "coins.noise: got [3] float32"),
    ],
)
def test_coins_by_themselves(changes: dict[str, Any], message: str) -> None:
    refused(lambda: coins(**changes), message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accept": torch.zeros(2)}, "coins.accept: got [2] float32; expected a tensor [D] = [3]"),
        ({"final": torch.zeros(4)}, "coins.final: got [4] float32; expected a tensor [B] = [3]"),
        ({"final": None, "noise": torch.ones(3, 5)}, "coins.noise: got [3, 5] float32"),
    ],
)
def test_coins_fit_their_batch(changes: dict[str, Any], message: str) -> None:
    refused(lambda: Batch(**fields(coins=coins(**changes))), message)
    Batch(**fields(coins=coins()))
    Batch(**fields(coins=coins(final=None, noise=torch.ones(3, 4))))


@pytest.mark.parametrize(
    ("tokens", "counts", "message"),
    [
        (torch.zeros(3, 2), torch.ones(3, dtype=torch.int64), "token_ids: got [3, 2] float32"),
        (
            torch.zeros(3, 2, dtype=torch.int32),
            torch.ones(3, dtype=torch.int64),
            "token_ids: got [3, 2] int32",
        ),
        (
            torch.zeros(2, 2, dtype=torch.int64),
            torch.ones(3, dtype=torch.int64),
            "token_ids: got [2, 2] int64; expected a tensor [B, max k + 1] = [3, any] of int64",
        ),
        (
            torch.zeros(3, dtype=torch.int64),
            torch.ones(3, dtype=torch.int64),
            "token_ids: got [3] int64",
        ),
        (torch.zeros(3, 2, dtype=torch.int64), torch.ones(3), "num_emitted: got [3] float32"),
        (torch.zeros(3, 2, dtype=torch.int64), 3, "num_emitted: got int"),
        ([[1]], torch.ones(1, dtype=torch.int64), "token_ids: got list"),
    ],
)
def test_emission(tokens: Any, counts: Any, message: str) -> None:
    refused(lambda: Emission(tokens, counts), message)


def test_derived_properties() -> None:
    batch = Batch(**fields())
    assert batch.draft_counts.tolist() == [2, 0, 1]
    assert batch.max_drafts == 2
    assert batch.row_request.tolist() == [0, 0, 0, 1, 2, 2]
    assert batch.draft_request.tolist() == [0, 0, 2]
    assert batch.first_row.tolist() == [0, 3, 4]
    for tensor in (batch.draft_counts, batch.row_request, batch.draft_request, batch.first_row):
        assert tensor.dtype == torch.int64


def test_rows_of_a_batch_without_drafts() -> None:
    idle = Batch(
        **fields(
            target_logits=torch.zeros(3, 4),
            draft_token_ids=torch.zeros(0, dtype=torch.int64),
            draft_probs=torch.zeros(0, 4),
            cu_drafts=torch.zeros(4, dtype=torch.int64),
        )
    )
    assert (idle.num_drafts, idle.max_drafts) == (0, 0)
    assert idle.row_request.tolist() == idle.first_row.tolist() == [0, 1, 2]
    assert idle.draft_request.tolist() == []


def test_replace_validates_again_and_forgets_what_was_derived() -> None:
    batch = Batch(**fields())
    assert batch.max_drafts == 2  # derived now, and not to be kept
    other = batch.replace(cu_drafts=torch.tensor([0, 3, 3, 3]))
    assert other.max_drafts == 3
    assert other.first_row.tolist() == [0, 4, 5]
    assert other.target_logits is batch.target_logits
    refused(lambda: batch.replace(top_p=torch.zeros(3)), "top_p[0]: got 0.0")
    bad = changed("target_logits", (0, 0), NAN)
    refused(lambda: batch.replace(target_logits=bad), "target_logits[0]: got NaN")
    assert batch.replace(target_logits=bad, check_values=False).target_logits is bad


def test_to_the_same_device_is_the_batch_itself() -> None:
    batch = Batch(**fields(coins=coins()))
    assert batch.to("cpu") is batch
    assert batch.to(torch.device("cpu")) is batch


def test_to_moves_every_field() -> None:
    # ``cpu:0`` is another name of the same device, so that the moving path runs without a GPU.
    batch = Batch(**fields(coins=coins()))
    moved = batch.to("cpu:0")
    assert moved is not batch
    for name, value in fields().items():
        assert torch.equal(getattr(moved, name), value), name
    assert moved.coins is not None
    assert torch.equal(moved.coins.accept, coins().accept)
    raced = coins(final=None, noise=torch.ones(3, 4)).to("cpu:0")
    assert raced.final is None
    assert raced.noise is not None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_to_a_gpu_and_back() -> None:
    batch = Batch(**fields(coins=coins()))
    there = batch.to("cuda")
    assert there.device.type == "cuda"
    assert there.coins is not None
    assert there.coins.accept.device.type == "cuda"
    assert torch.equal(there.to("cpu").target_logits, batch.target_logits)


def test_capabilities_of() -> None:
    declared = Capabilities(greedy=False, final_coin=FinalCoin.RACE)

    @sampler(declared)
    def mine(batch: Batch) -> Emission:
        raise NotImplementedError

    assert capabilities_of(mine) is declared
    assert isinstance(mine, Sampler)
    assert capabilities_of(lambda batch: batch) == Capabilities()
    assert Capabilities().acceptance is AcceptanceRule.RATIO
    mine.capabilities = {"greedy": False}  # type: ignore[attr-defined]
    refused_text = "capabilities: expected a specverify.Capabilities, got dict"
    with pytest.raises(ValueError, match=re.escape(refused_text)):
        capabilities_of(mine)
