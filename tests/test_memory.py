"""The memory plan: known sums, and the scratch that a launch really takes."""

from __future__ import annotations

import pytest

from specverify.memory import LAYOUTS, Shape, plans, table

FULL = Shape(256, 10, 128256, "float32")


def test_known_sizes() -> None:
    by_name = {name: layout(FULL) for name, layout in LAYOUTS.items()}
    assert by_name["triton"].draft == 256 * 10 * 128256 * 4 == 1_313_341_440
    assert by_name["triton"].logits == 256 * 11 * 128256 * 4
    assert by_name["triton-one-hot"].draft == 0
    assert by_name["sglang"].copies == by_name["sglang"].logits


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("vocab", [32000, 128256, 151936])
def test_ours_adds_at_most_one_percent(vocab: int, dtype: str) -> None:
    for plan in plans(Shape(256, 7, vocab, dtype))[:3]:
        assert plan.copies == 0
        assert plan.extra <= 0.01 * plan.logits


def test_totals_and_text() -> None:
    for plan in plans(FULL):
        assert plan.total == plan.logits + plan.draft + plan.copies + plan.scratch + plan.outputs
    text = table(FULL)
    assert "1.31 GB" in text
    assert len(text.splitlines()) == 1 + len(LAYOUTS)
    assert all(len(line) == len(text.splitlines()[0]) for line in text.splitlines())


@pytest.mark.parametrize(
    ("change", "message"),
    [({"batch": 0}, "batch: got 0"), ({"drafts": -1}, "drafts: got -1"), ({"vocab": 1.5}, "vocab"),
     ({"dtype": "int8"}, "dtype: got 'int8'")],
)  # fmt: skip
def test_bad_shapes(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shape(**{"batch": 1, "drafts": 1, "vocab": 2, **change})
