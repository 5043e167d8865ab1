"""The filter kernel against ``specverify.sampling`` under the reference convention."""

from __future__ import annotations

# isort: off
from kernel_setup import DEVICE  # before triton

# isort: on
import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from specverify.kernels import filter_logits

from specverify.contract import Batch
from specverify.layouts import batches, describe
from specverify.sampling import batch_probabilities

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def filtered(batch: Batch, **options: bool) -> torch.Tensor:
    return filter_logits(
        batch.target_logits, batch.cu_drafts, batch.temperature, batch.top_k, batch.top_p,
        batch.min_p, max_drafts=batch.max_drafts, **options,
    )  # fmt: skip


def deviation(batch: Batch, logits: torch.Tensor) -> float:
    """Largest total variation of a random row between softmax(logits / T) and the filtered law."""
    temperature = batch.temperature[batch.row_request].double()
    law = torch.softmax(logits.double() / temperature.clamp(min=1e-30)[:, None], 1)
    apart = (law - batch_probabilities(batch)).abs().sum(1) / 2
    return float(torch.where(temperature > 0, apart, 0.0).max())


def uniform_batch(logits: torch.Tensor, k: int, p: float, m: float) -> Batch:
    rows = logits.shape[0]
    return Batch(
        target_logits=logits, draft_token_ids=torch.zeros(0, dtype=torch.int64), draft_probs=None,
        cu_drafts=torch.zeros(rows + 1, dtype=torch.int64), temperature=torch.ones(rows),
        top_k=torch.full((rows,), k), top_p=torch.full((rows,), p), min_p=torch.full((rows,), m),
        seeds=torch.arange(rows).view(torch.uint64), positions=torch.zeros(rows, dtype=torch.int64),
    ).to(DEVICE)  # fmt: skip


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3))]
)
def test_the_law_over_layouts(part: int) -> None:
    """4 x 25 layouts; the filters keep clear of boundaries that fp32 could miss."""

    @seed(part)
    @settings(
        max_examples=25, deadline=None, derandomize=False, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(batches(max_requests=3, max_drafts=2, filters="any"))
    def check(batch: Batch) -> None:
        batch = batch.to(DEVICE)
        assert deviation(batch, filtered(batch)) < 2e-6, describe(batch)

    check()


@pytest.mark.parametrize(
    ("k", "p", "m"), [(50, 1.0, 0.0), (0, 0.91, 0.0), (0, 1.0, 0.03), (40, 0.8, 0.01)]
)
def test_long_rows(k: int, p: float, m: float) -> None:
    """Several parts a row (V = 9,001), three dtypes, signed zeros and negative logits."""
    generator = torch.Generator().manual_seed(k)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        logits = (torch.randn(2, 9001, generator=generator) * 3).to(dtype)
        batch = uniform_batch(logits, k, p, m)
        assert deviation(batch, filtered(batch)) < 2e-6


def test_ties_by_lowest_id_across_parts() -> None:
    logits = torch.zeros(1, 9001)
    logits[0, 5000] = 1.0
    kept = filtered(uniform_batch(logits, 4500, 1.0, 0.0))[0] > float("-inf")
    assert kept.nonzero()[:, 0].tolist() == [*range(4499), 5000]


def test_in_place_touches_only_filtered_rows() -> None:
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    batch = uniform_batch(logits, 3, 1.0, 0.0)
    batch = batch.replace(top_k=torch.tensor([3, 0, 5], device=DEVICE))
    before = logits.clone()
    out = filtered(batch, in_place=True)
    assert out.data_ptr() == batch.target_logits.data_ptr()
    assert torch.equal(out[1], before[1])
    assert (out > float("-inf")).sum(1).tolist() == [3, 40, 5]
