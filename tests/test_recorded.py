"""A file of recorded rows comes back as it was written, and a bad one is refused by a sentence."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from specverify import recorded
from specverify.recorded import RecordedRows, load, save

safetensors_torch = pytest.importorskip("safetensors.torch")

METADATA = {"model": "tiny", "drafter": "early-exit:1", "description": "three steps"}


def make_rows(dense: bool = True, **changes: object) -> RecordedRows:
    """Three requests with 2, 0 and 1 drafts over 5 tokens."""
    generator = torch.Generator().manual_seed(1)
    fields: dict[str, Any] = {
        "target_logits": torch.randn(6, 5, generator=generator),
        "draft_token_ids": torch.tensor([4, 0, 2]),
        "draft_probs": torch.rand(3, 5, generator=generator).softmax(1) if dense else None,
        "cu_drafts": torch.tensor([0, 2, 2, 3]),
        "temperature": torch.tensor([1.0, 0.0, 0.7], dtype=torch.float64),
        "top_k": torch.tensor([0, 3, 0]),
        "top_p": torch.tensor([1.0, 1.0, 0.9], dtype=torch.float64),
        "min_p": torch.zeros(3, dtype=torch.float64),
    }
    return RecordedRows(**{**fields, **changes})


def write(path: Path, tensors: dict[str, torch.Tensor], **metadata: str) -> Path:
    """A file as somebody else's writer could make it."""
    header = {"format": recorded.FORMAT, "version": recorded.VERSION, **metadata}
    safetensors_torch.save_file(tensors, path, metadata=header)
    return path


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_written_is_read(tmp_path: Path, dense: bool, dtype: torch.dtype) -> None:
    rows = make_rows(dense)
    rows = dataclasses.replace(rows, target_logits=rows.target_logits.to(dtype))
    path = tmp_path / "rows.safetensors"
    save(path, rows, METADATA)
    found = load(path)
    assert found.tensors().keys() == rows.tensors().keys()
    for name, tensor in rows.tensors().items():
        assert torch.equal(found.tensors()[name], tensor)
        assert found.tensors()[name].dtype == tensor.dtype
    assert found.digest() == rows.digest()
    assert (found.num_requests, found.vocab_size) == (3, 5)
    assert METADATA.items() <= found.metadata.items()
    assert found.metadata["created"].endswith("+00:00")
    assert list(tmp_path.iterdir()) == [path]


def test_rows_without_any_draft(tmp_path: Path) -> None:
    rows = make_rows(
        target_logits=torch.zeros(3, 5),
        draft_token_ids=torch.zeros(0, dtype=torch.int64),
        draft_probs=torch.zeros(0, 5),
        cu_drafts=torch.zeros(4, dtype=torch.int64),
    )
    save(tmp_path / "rows", rows, METADATA)
    assert load(tmp_path / "rows").digest() == rows.digest()


def test_a_batch_holds_the_rows_and_a_seed_for_each_request() -> None:
    rows = make_rows()
    batch = rows.batch(first_seed=7)
    assert torch.equal(batch.target_logits, rows.target_logits)
    assert batch.draft_probs is rows.draft_probs
    assert batch.seeds.tolist() == [7, 8, 9]
    assert batch.positions.tolist() == [0, 0, 0]


def test_the_digest_sees_every_tensor_and_not_the_metadata() -> None:
    rows = make_rows()
    digests = {rows.digest(), make_rows(dense=False).digest()}
    for name, tensor in rows.tensors().items():
        if name in ("cu_drafts", "draft_probs"):
            continue
        changed = tensor.clone()
        changed.view(-1)[0] = 0.5 if tensor.is_floating_point() else 1
        digests.add(dataclasses.replace(rows, **{name: changed}).digest())
    assert len(digests) == 8
    assert dataclasses.replace(rows, metadata={"model": "other"}).digest() == rows.digest()
    view = torch.empty(5, 6).T.copy_(rows.target_logits)
    assert dataclasses.replace(rows, target_logits=view).digest() == rows.digest()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target_logits": torch.full((6, 5), torch.nan)}, r"target_logits\[0\]: got NaN"),
        ({"target_logits": torch.zeros(5, 5)}, r"target_logits: got \[5, 5\]"),
        ({"target_logits": torch.zeros(6, 5, dtype=torch.float64)}, "target_logits: got"),
        ({"draft_token_ids": torch.tensor([4, 0, 5])}, r"draft_token_ids\[2\]: got 5"),
        ({"draft_probs": torch.full((3, 5), 0.3)}, r"draft_probs\[0\]: got a row that sums to 1.5"),
        ({"cu_drafts": torch.tensor([0, 2, 1, 3])}, "cu_drafts: got a draft count of -1"),
        ({"temperature": torch.tensor([1.0, -1.0, 1.0])}, r"temperature\[1\]: got -1"),
        ({"temperature": torch.ones(2)}, r"temperature: got \[2\] float32"),
        ({"top_k": torch.zeros(3)}, "top_k: got"),
        ({"min_p": torch.full((3,), 2.0)}, r"min_p\[0\]: got 2"),
    ],
)
def test_values_that_the_contract_refuses(
    tmp_path: Path, changes: dict[str, torch.Tensor], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        make_rows(**changes)
    path = write(tmp_path / "rows", {**make_rows().tensors(), **changes})
    with pytest.raises(ValueError, match=rf"rows: {said}"):
        load(path)


@pytest.mark.parametrize("name", ["target_logits", "cu_drafts", "min_p"])
def test_a_missing_tensor(tmp_path: Path, name: str) -> None:
    tensors = make_rows().tensors()
    del tensors[name]
    with pytest.raises(ValueError, match=f"rows: tensors: got no {name}; expected"):
        load(write(tmp_path / "rows", tensors))


def test_an_unknown_tensor(tmp_path: Path) -> None:
    tensors = {**make_rows(dense=False).tensors(), "draft_prob": torch.zeros(3, 5)}
    with pytest.raises(ValueError, match="got unknown draft_prob"):
        load(write(tmp_path / "rows", tensors))


def test_another_version_and_another_format(tmp_path: Path) -> None:
    tensors = make_rows().tensors()
    with pytest.raises(ValueError, match="got version 2; expected 1"):
        load(write(tmp_path / "rows", tensors, version="2"))
    with pytest.raises(ValueError, match="got weights; expected format specverify-recorded-rows"):
        load(write(tmp_path / "rows", tensors, format="weights"))
    safetensors_torch.save_file(tensors, tmp_path / "plain")
    with pytest.raises(ValueError, match="got no format in the metadata"):
        load(tmp_path / "plain")


@pytest.mark.parametrize("content", [b"", b"not a tensor", b"\xff" * 64])
def test_not_a_safetensors_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows").write_bytes(content)
    with pytest.raises(ValueError, match="rows: not a safetensors file"):
        load(tmp_path / "rows")


def test_a_truncated_file_and_a_pickle_and_no_file(tmp_path: Path) -> None:
    save(tmp_path / "rows", make_rows(), METADATA)
    (tmp_path / "cut").write_bytes((tmp_path / "rows").read_bytes()[:-10])
    with pytest.raises(ValueError, match="cut: not a safetensors file"):
        load(tmp_path / "cut")
    (tmp_path / "pickled").write_bytes(pickle.dumps({"target_logits": [1.0]}))
    with pytest.raises(ValueError, match="pickled: not a safetensors file"):
        load(tmp_path / "pickled")
    with pytest.raises(ValueError, match="absent: there is no such file"):
        load(tmp_path / "absent")
    with pytest.raises(ValueError, match="there is no such file"):
        load(tmp_path)


def test_saving_says_what_is_missing_or_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"metadata: got \['model'\]; expected drafter too"):
        save(tmp_path / "rows", make_rows(), {"model": "tiny"})
    with pytest.raises(ValueError, match="cannot be written: No such file"):
        save(tmp_path / "no" / "rows", make_rows(), METADATA)
    monkeypatch.setattr("specverify._optional.is_installed", lambda package: False)
    with pytest.raises(ValueError, match=r"safetensors is not installed: pip install .*\[real\]"):
        save(tmp_path / "rows", make_rows(), METADATA)
    (tmp_path / "rows").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"safetensors is not installed: pip install .*\[real\]"):
        load(tmp_path / "rows")
