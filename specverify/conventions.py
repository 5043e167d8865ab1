"""What engines mean by top-k, top-p and min-p: the conventions, each with its source.

"Top-k 50, top-p 0.9" does not name one law.  Engines differ in what happens to ties, to the token
that crosses the boundary of top-p, and in the law that the top-p mass is counted on; the supports
they allow differ, and so do the probabilities.  A harness that tests one engine against another's
convention would call a correct sampler wrong, so a :class:`FilterConvention` names each choice.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Final


class Ties(enum.StrEnum):
    """Which of several tokens with equal logits a filter keeps at its boundary."""

    KEEP_ALL = "keep-all"
    LOWEST_ID = "lowest-id"
    HIGHEST_ID = "highest-id"


class TopPBoundary(enum.StrEnum):
    """Whether top-p keeps the token that crosses the threshold, tokens in descending order.

    ``INCLUSIVE_CROSSING``: kept while the mass strictly before it is < top_p, the smallest set
    that reaches top_p (Holtzman et al. 2020, section 3.1).  ``BEFORE_AT_MOST``: the same with
    <=, so one token more when the mass before it is exactly top_p.  ``AT_MOST``: kept while the
    mass up to and including it is <= top_p, and never fewer than the first.
    """

    INCLUSIVE_CROSSING = "inclusive-crossing"
    BEFORE_AT_MOST = "before-at-most"
    AT_MOST = "at-most"


class Order(enum.StrEnum):
    """The law that the mass of top-p is counted on.

    ``JOINT``: the temperature-scaled law; the masks of all filters are intersected.
    ``TOP_K_FIRST``: what top-k left, renormalised.
    """

    JOINT = "joint"
    TOP_K_FIRST = "sequential-top-k-first"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterConvention:
    """One meaning of temperature, top-k, top-p and min-p together.

    min-p keeps a token when its probability is >= min_p times the largest one.  As every filter
    keeps the most probable token, it does not matter to min-p which filters ran before it; it
    matters only whether top-p counts its mass before or after it.

    Attributes:
        name: as in :attr:`specverify.Capabilities.convention`.
        top_k_ties: which of the tokens tied with the k-th largest logit survive top-k.
        top_p_ties: in which order tied tokens are counted by top-p; ``KEEP_ALL`` keeps or drops
            them together, by the mass of the tokens that are strictly more probable.
        top_p_boundary: whether the crossing token is kept.
        order: the law that top-p counts on.
        min_p_first: whether that law has gone through min-p too.
        source: where this can be read.

    Raises:
        ValueError: if a field is not one of its enumeration's values, or if the two filters prefer
            opposite ends of a tie.
    """

    name: str
    top_k_ties: Ties
    top_p_ties: Ties
    top_p_boundary: TopPBoundary
    order: Order
    min_p_first: bool
    source: str

    def __post_init__(self) -> None:
        for field, kind in _ENUMS.items():
            value = getattr(self, field)
            if value not in list(kind):
                raise ValueError(
                    f"{field}: got {value!r}; expected one of {[str(k) for k in kind]}"
                )
            object.__setattr__(self, field, kind(value))
        if {self.top_k_ties, self.top_p_ties} == {Ties.LOWEST_ID, Ties.HIGHEST_ID}:
            raise ValueError(
                f"top_p_ties: got {self.top_p_ties} beside top_k_ties {self.top_k_ties}; expected "
                "no opposite preferences: together they can leave no token at all"
            )

    @property
    def tie_order(self) -> Ties:
        """LOWEST_ID or HIGHEST_ID: the order of tied tokens in one sort for both filters."""
        highest = Ties.HIGHEST_ID in (self.top_k_ties, self.top_p_ties)
        return Ties.HIGHEST_ID if highest else Ties.LOWEST_ID


_ENUMS: Final[dict[str, type[enum.StrEnum]]] = {
    "top_k_ties": Ties,
    "top_p_ties": Ties,
    "top_p_boundary": TopPBoundary,
    "order": Order,
}

REFERENCE: Final = FilterConvention(
    name="reference",
    top_k_ties=Ties.LOWEST_ID,
    top_p_ties=Ties.LOWEST_ID,
    top_p_boundary=TopPBoundary.INCLUSIVE_CROSSING,
    order=Order.JOINT,
    min_p_first=False,
    source="specverify's own samplers: exactly k tokens, the smallest set that reaches top_p",
)
VLLM: Final = FilterConvention(
    name="vllm",
    top_k_ties=Ties.LOWEST_ID,
    top_p_ties=Ties.LOWEST_ID,
    top_p_boundary=TopPBoundary.INCLUSIVE_CROSSING,
    order=Order.TOP_K_FIRST,
    min_p_first=True,
    source=(
        "vLLM: v1/worker/gpu/sample/sampler.py applies temperature, min-p, then "
        "v1/sample/ops/topk_topp_triton.py apply_top_k_top_p_triton, whose kernel trims the ties "
        "of both boundaries in token order. Without Triton, topk_topp_sampler.py "
        "apply_top_k_top_p_pytorch keeps what TRANSFORMERS keeps (but min-p first); the "
        "FlashInfer sampler of requests without a seed keeps what FLASHINFER keeps"
    ),
)
TRANSFORMERS: Final = FilterConvention(
    name="transformers",
    top_k_ties=Ties.KEEP_ALL,
    top_p_ties=Ties.HIGHEST_ID,
    top_p_boundary=TopPBoundary.INCLUSIVE_CROSSING,
    order=Order.TOP_K_FIRST,
    min_p_first=False,
    source=(
        "transformers 5.24: generation/utils.py _get_logits_processor (temperature, top-k, top-p, "
        "min-p); logits_process.py TopKLogitsWarper compares with the k-th value, "
        "TopPLogitsWarper removes from the bottom of an ascending sort. The sort is not declared "
        "stable; where it is (CPU), the highest ids of a tie stay"
    ),
)
FLASHINFER: Final = FilterConvention(
    name="flashinfer",
    top_k_ties=Ties.KEEP_ALL,
    top_p_ties=Ties.KEEP_ALL,
    top_p_boundary=TopPBoundary.INCLUSIVE_CROSSING,
    order=Order.TOP_K_FIRST,
    min_p_first=False,
    source=(
        "FlashInfer: sampling.py top_k_top_p_sampling_from_logits with its default "
        "filter_apply_order; include/flashinfer/sampling.cuh TopPRenormProbKernel and "
        "TopPSamplingFromProbKernel, topk.cuh RadixTopKMaskLogitsKernel_MultiCTA: thresholds are "
        "values. Exception: a scalar top_k <= 256 over 65,536 tokens or more keeps exactly k, "
        "ties undefined (_top_k_first_fast_path)"
    ),
)
SGLANG: Final = FilterConvention(
    name="sglang",
    top_k_ties=Ties.KEEP_ALL,
    top_p_ties=Ties.KEEP_ALL,
    top_p_boundary=TopPBoundary.INCLUSIVE_CROSSING,
    order=Order.JOINT,
    min_p_first=False,
    source=(
        "SGLang: srt/layers/sampler.py Sampler._sample_from_probs, FlashInfer backend without "
        "min-p: filter_apply_order='joint', TopKTopPSamplingFromProbKernel. With min-p, and in "
        "the verifiers under srt/speculative, it is top_k_renorm_prob then top_p_renorm_prob, "
        "which is FLASHINFER (sglang #36173)"
    ),
)
SGLANG_TORCH: Final = FilterConvention(
    name="sglang-torch",
    top_k_ties=Ties.LOWEST_ID,
    top_p_ties=Ties.LOWEST_ID,
    top_p_boundary=TopPBoundary.BEFORE_AT_MOST,
    order=Order.JOINT,
    min_p_first=False,
    source=(
        "SGLang: srt/layers/sampler.py top_k_top_p_min_p_sampling_from_probs_torch (PyTorch "
        "backend, deterministic mode): drops a token when the mass before it is > top_p. Its "
        "sort is not declared stable; where it is, the lowest ids of a tie stay"
    ),
)

CONVENTIONS: Final[dict[str, FilterConvention]] = {
    convention.name: convention
    for convention in (REFERENCE, VLLM, TRANSFORMERS, FLASHINFER, SGLANG, SGLANG_TORCH)
}
"""Conventions by name."""
