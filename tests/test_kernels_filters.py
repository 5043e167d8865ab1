"""The filter kernel against ``specverify.sampling`` under the reference convention."""

from __future__ import annotations

# isort: off
from kernel_setup import DEVICE  # before triton

# isort: on
import pytest
import torch
from kernel_filtering import deviation, filtered, laws_over_layouts, one_row_each

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3))]
)
def test_the_law_over_layouts(part: int) -> None:
    """4 x 25 layouts."""
    laws_over_layouts(part, 25, "reference")


@pytest.mark.parametrize(
    ("k", "p", "m"), [(50, 1.0, 0.0), (0, 0.91, 0.0), (0, 1.0, 0.03), (40, 0.8, 0.01)]
)
def test_long_rows(k: int, p: float, m: float) -> None:
    """Several parts a row (V = 9,001), three dtypes, signed zeros and negative logits."""
    generator = torch.Generator().manual_seed(k)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        logits = (torch.randn(2, 9001, generator=generator) * 3).to(dtype)
        batch = one_row_each(logits, [(k, p, m)] * 2)
        assert deviation(batch, filtered(batch)) < 2e-6


def test_ties_by_lowest_id_across_parts() -> None:
    logits = torch.zeros(1, 9001)
    logits[0, 5000] = 1.0
    kept = filtered(one_row_each(logits, [(4500, 1.0, 0.0)]))[0] > float("-inf")
    assert kept.nonzero()[:, 0].tolist() == [*range(4499), 5000]


def test_in_place_touches_only_filtered_rows() -> None:
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    batch = one_row_each(logits, [(3, 1.0, 0.0), (0, 1.0, 0.0), (5, 1.0, 0.0)])
    before = logits.clone()
    out = filtered(batch, in_place=True)
    assert out.data_ptr() == batch.target_logits.data_ptr()
    assert torch.equal(out[1], before[1])
    assert (out > float("-inf")).sum(1).tolist() == [3, 40, 5]
