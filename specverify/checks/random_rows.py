"""Layouts without special cases: every logit and every q is a full mantissa of its own.

The layouts of :mod:`specverify.layouts` look for the shape that breaks a sampler, and most of their
rows are flat, tied, masked or peaked.  What rounds wrongly shows in rows where nothing is equal and
nothing is extreme, so these draw only sizes and one integer, and cost next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specverify.contract import Batch, Capabilities

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

DISTANCES = (0.5, 0.05, 2.0, 0.002)
"""Standard deviation of the noise that separates the logits of q from those of p."""
TEMPERATURES = (1.0, 0.75, 1.5)


VOCABULARIES = (50_257, 128_256, 151_936)
"""V of GPT-2, of Llama 3 and of Qwen 2.5; the last two are multiples of 128."""

OFF = (0, 1.0)
FILTERS = ((1500, 1.0), (0, 0.9))
"""Top-k and top-p of the two requests of huge rows."""

LONG = 24
"""Drafts of the longest proposals; engines cut theirs at 8 or 16."""


def long_proposals(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Up to :data:`LONG` drafts, so near to p that most of them are accepted.

    In half of the batches every proposal has one slot, not among the first, that was never filled.
    """
    whole = random_rows(capabilities, (2, 16), most=LONG, requests=3, distances=(0.05, 0.2))
    if not capabilities.placeholders:
        return whole
    near = random_rows(capabilities, (2, 16), most=LONG, requests=6, distances=(0.002, 0.02))
    return whole | near.map(_with_late_gaps)


def _with_late_gaps(batch: Batch) -> Batch:
    """A placeholder in the second quarter of every proposal."""
    counts, ids = batch.draft_counts, batch.draft_token_ids.clone()
    long = counts >= 4
    ids[(batch.cu_drafts[:-1] + counts // 4 + batch.seeds.view(torch.int64) % 2)[long]] = -1
    return batch.replace(draft_token_ids=ids, check_values=False)


def huge_rows(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Vocabularies of real models, beyond 16 bits among them, with top-k and top-p.

    Their mass lies in thousands of tokens all over the ids, so whatever looks at some of them only
    is noticed at nearly every draw.
    """
    from hypothesis import strategies as st

    return st.builds(
        _huge,
        st.just(capabilities),
        st.sampled_from(VOCABULARIES),
        st.integers(0, 2**32 - 1),
    )


def _huge(capabilities: Capabilities, vocab: int, entropy: int) -> Batch:
    counts = [1, 0] if capabilities.zero_drafts else [1, 1]
    batch = random_batch(counts=counts, vocab=vocab, dense=capabilities.dense, entropy=entropy)
    asked = [capabilities.filtering if count else capabilities.exclusion for count in counts]
    filters = [one if able else OFF for one, able in zip(FILTERS, asked, strict=True)]
    top_k, top_p = zip(*filters, strict=True)
    return batch.replace(
        target_logits=batch.target_logits / 2,
        top_k=torch.tensor(top_k),
        top_p=torch.tensor(top_p),
        check_values=False,
    )


def random_rows(
    capabilities: Capabilities,
    vocab: tuple[int, int] = (2, 64),
    *,
    most: int = 3,
    requests: int = 6,
    distances: tuple[float, ...] = DISTANCES,
) -> SearchStrategy[Batch]:
    """Batches of Gaussian logits, with dense q near p or one-hot drafts, and no filters.

    Args:
        capabilities: of the subject.
        vocab: smallest and largest V.
        most: drafts of a request.
        requests: of a batch.
        distances: between the logits of q and of p, as of :func:`random_batch`.
    """
    from hypothesis import strategies as st

    least = 0 if capabilities.zero_drafts else 1
    dense = [True] * capabilities.dense + [False] * capabilities.one_hot
    dtypes = [name for name in ("float32", "bfloat16", "float16") if name in capabilities.dtypes]
    return st.builds(
        random_batch,
        counts=st.lists(st.integers(least, most), min_size=1, max_size=requests),
        vocab=st.integers(*vocab),
        dense=st.sampled_from(dense),
        distance=st.sampled_from(distances),
        dtype=st.sampled_from(dtypes).map(lambda name: getattr(torch, name)),
        entropy=st.integers(0, 2**32 - 1),
    )


def random_batch(
    *,
    counts: list[int],
    vocab: int,
    dense: bool,
    entropy: int,
    distance: float = 0.5,
    dtype: torch.dtype = torch.float32,
) -> Batch:
    """One batch of Gaussian rows.

    Args:
        counts: k of each request.
        vocab: V.
        dense: whether q is shown.
        entropy: everything random derives from it.
        distance: standard deviation between the logits of q and of p.
        dtype: of the logits.

    Returns:
        a batch on the CPU without coins.
    """
    generator = torch.Generator().manual_seed(entropy)
    rows, drafts = sum(counts) + len(counts), sum(counts)
    logits = (2 * torch.randn(rows, vocab, generator=generator)).to(dtype)
    owner = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    temperature = torch.tensor(TEMPERATURES)[torch.arange(len(counts)) % len(TEMPERATURES)]
    shown = logits.double()[torch.arange(drafts) + owner] / temperature[owner, None]
    shown = shown + distance * torch.randn(drafts, vocab, generator=generator).double()
    q = torch.softmax(shown, dim=1).float()
    ids = torch.multinomial(q, 1, generator=generator).squeeze(1) if drafts else owner
    return Batch(
        target_logits=logits,
        draft_token_ids=ids,
        draft_probs=q if dense else None,
        cu_drafts=torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()]),
        temperature=temperature,
        top_k=torch.zeros(len(counts), dtype=torch.int64),
        top_p=torch.ones(len(counts)),
        min_p=torch.zeros(len(counts)),
        seeds=torch.randint(2**62, (len(counts),), generator=generator).to(torch.uint64),
        positions=torch.randint(2**20, (len(counts),), generator=generator),
    )
