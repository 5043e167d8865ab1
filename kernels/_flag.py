"""Whether any request filters, in one launch: the sampler asks this before it chooses a kernel."""

# Triton's kernel language is not typed Python.
# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from specverify.kernels._direct import launch
from specverify.kernels._draw import filters_on

from specverify.contract import Batch

_BLOCK = 1024


@triton.jit(do_not_specialize=["requests"])
def flag_kernel(temperature, top_k, top_p, min_p, flag, vocab, requests, BLOCK: tl.constexpr):
    """Set ``flag`` to 1 if a request of this program's BLOCK has a filter that is on."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = i < requests
    t = tl.load(temperature + i, mask=here, other=0.0)
    k = tl.load(top_k + i, mask=here, other=0)
    p = tl.load(top_p + i, mask=here, other=1.0)
    m = tl.load(min_p + i, mask=here, other=0.0)
    tl.store(flag + (i ^ i), 1, mask=here & filters_on(t, k, p, m, vocab))


def any_filter(batch: Batch) -> bool:
    """Whether a random request has a filter that is on; reads one flag back."""
    flag = torch.zeros(1, dtype=torch.int32, device=batch.device)
    requests = batch.num_requests
    fields = [batch.temperature, batch.top_k, batch.top_p, batch.min_p]
    tensors = [*(one.contiguous() for one in fields), flag]
    launch(
        flag_kernel, triton.cdiv(requests, _BLOCK), tensors, (batch.vocab_size,), (requests,),
        (_BLOCK,), (),
    )  # fmt: skip
    return bool(flag)
