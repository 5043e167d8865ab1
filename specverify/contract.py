"""What goes into a rejection sampler and what must come out of it.

A *sampler* is any callable that takes one :class:`Batch` and returns one :class:`Emission`.
Everything else in specverify (laws, trials, checks, adapters, kernels) meets only here, so this
module imports nothing of the package but the checks of its own fields.

The layout is packed (CSR).  With ``B`` requests, request ``i`` having ``k_i >= 0`` drafts,
``D = sum(k_i)`` drafts in all and ``R = D + B`` target rows over a vocabulary of ``V`` tokens,
row ``cu_drafts[i] + i + j`` of ``target_logits`` is the target given the ``j`` drafts before it,
and the last row of a request is its bonus row.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from specverify import _validate

if TYPE_CHECKING:
    import torch

PLACEHOLDER = -1
"""Draft id of a slot that was never proposed, and padding after the last emitted token."""


class Guarantee(enum.StrEnum):
    """What a verification rule promises about the law of the emitted text."""

    LOSSLESS = "lossless"
    LOSSY_KNOWN_LAW = "lossy-known-law"
    LOSSY = "lossy"


class AcceptanceRule(enum.StrEnum):
    """How a method decides on a draft; it fixes the coupling laws, never the law of the text.

    ``RATIO``: accept with min(1, p/q), recover from (p - q)+ (Leviathan et al. 2023, Algorithm 1).
    ``MATCH``: draw from p, accept iff equal to the draft; needs no q.
    ``UNDECLARED``: some other rule; only the law family applies.
    """

    RATIO = "ratio"
    MATCH = "match"
    UNDECLARED = "undeclared"


class FinalCoin(enum.StrEnum):
    """The form of injected randomness that the draw of the last token takes."""

    INVERSE_CDF = "inverse-cdf"
    RACE = "race"


class Topology(enum.StrEnum):
    """The shape of a proposal that a rule can verify."""

    CHAIN = "chain"
    BLOCK = "block"
    TREE = "tree"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Coins:
    """Injected randomness: with it a sampler is a function and can be compared token for token.

    Attributes:
        accept: [D] floating, in [0, 1): one accept coin for each draft.
        final: [B] floating, in [0, 1): inverse CDF in token order for the last token.
        noise: [B, V] floating, > 0: unit exponentials for a race (argmin of noise / weight).
    """

    accept: torch.Tensor
    final: torch.Tensor | None = None
    noise: torch.Tensor | None = None

    def __post_init__(self) -> None:
        _validate.coins(self)

    def to(self, device: str | torch.device) -> Coins:
        """The same coins on another device."""
        return Coins(
            accept=self.accept.to(device),
            final=None if self.final is None else self.final.to(device),
            noise=None if self.noise is None else self.noise.to(device),
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """One verification step over a packed ragged batch.

    Attributes:
        target_logits: [R, V] float32 / bfloat16 / float16, any strides. Raw logits: temperature
            and filters are the sampler's business.
        draft_token_ids: [D] int64 in [0, V), or -1 for a slot that was never proposed.
        draft_probs: [D, V] floating, the law q each draft was drawn from, after the drafter's own
            temperature; ``None`` means one-hot drafts (n-gram, greedy drafters).
        cu_drafts: [B + 1] int64, cumulative draft counts with a leading zero.
        temperature: [B] floating, >= 0; 0 is greedy.
        top_k: [B] int64, >= 0; 0 is off.
        top_p: [B] floating in (0, 1]; 1 is off.
        min_p: [B] floating in [0, 1]; 0 is off.
        seeds: [B] uint64, the key of each request's random stream.
        positions: [B] int64, >= 0, where in its stream each request stands.
        coins: injected randomness, or ``None`` when the sampler draws its own.
        check_values: skip the checks that read every logit and probability when False (shapes,
            dtypes and ranges of the small fields are always checked). For callers that have
            checked the same values once and build many batches of them.

    Raises:
        ValueError: naming the field, what it holds and what was expected.
    """

    target_logits: torch.Tensor
    draft_token_ids: torch.Tensor
    draft_probs: torch.Tensor | None
    cu_drafts: torch.Tensor
    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    seeds: torch.Tensor
    positions: torch.Tensor
    coins: Coins | None = None
    check_values: dataclasses.InitVar[bool] = True

    def __post_init__(self, check_values: bool) -> None:
        _validate.batch(self, check_values=check_values)

    @property
    def num_requests(self) -> int:
        """B, the number of requests."""
        return self.temperature.shape[0]

    @property
    def num_drafts(self) -> int:
        """D, the number of draft slots in all requests together."""
        return self.draft_token_ids.shape[0]

    @property
    def vocab_size(self) -> int:
        """V, the number of tokens."""
        return self.target_logits.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the logits live."""
        return self.target_logits.device

    @cached_property
    def draft_counts(self) -> torch.Tensor:
        """[B] int64, the number of draft slots k_i of each request."""
        return self.cu_drafts[1:] - self.cu_drafts[:-1]

    @cached_property
    def max_drafts(self) -> int:
        """The largest k_i; the emission has one column more."""
        return int(self.draft_counts.max())

    @cached_property
    def row_request(self) -> torch.Tensor:
        """[R] int64, the request that each target row belongs to."""
        import torch

        requests = torch.arange(self.num_requests, device=self.cu_drafts.device)
        return torch.repeat_interleave(requests, self.draft_counts + 1)

    @cached_property
    def draft_request(self) -> torch.Tensor:
        """[D] int64, the request that each draft slot belongs to."""
        import torch

        requests = torch.arange(self.num_requests, device=self.cu_drafts.device)
        return torch.repeat_interleave(requests, self.draft_counts)

    @cached_property
    def first_row(self) -> torch.Tensor:
        """[B] int64, the target row of each request's first position."""
        import torch

        return self.cu_drafts[:-1] + torch.arange(self.num_requests, device=self.cu_drafts.device)

    def to(self, device: str | torch.device) -> Batch:
        """The same batch on another device (itself if it is there already), strides and all."""
        import torch

        if self.device == torch.device(device):
            return self
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        moved = {
            name: _moved(value, device) if isinstance(value, torch.Tensor) else value
            for name, value in values.items()
        }
        if self.coins is not None:
            moved["coins"] = self.coins.to(device)
        return self.replace(**moved, check_values=False)

    def replace(self, **changes: object) -> Batch:
        """The same batch with some fields changed, validated again."""
        kept: dict[str, Any] = {"check_values": True, **changes}
        return dataclasses.replace(self, **kept)


_ALIGNED = 64
"""Elements after which an address is as round as that of fresh memory, for every dtype."""


def _moved(tensor: torch.Tensor, device: str | torch.device) -> torch.Tensor:
    """The tensor on another device, as it lies in memory: ``Tensor.to`` makes most views dense."""
    if tensor.numel() == 0 or (tensor.is_contiguous() and tensor.storage_offset() == 0):
        return tensor.to(device)
    offset = tensor.storage_offset() % _ALIGNED
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    run = tensor.as_strided((offset + reach + 1,), (1,), tensor.storage_offset() - offset)
    return run.to(device).as_strided(tensor.shape, tensor.stride(), offset)


@dataclasses.dataclass(frozen=True, eq=False)
class Emission:
    """What a sampler emitted: accepted drafts, then one recovered or bonus token.

    Attributes:
        token_ids: [B, max k + 1] int64, padded with -1 after the last emitted token.
        num_emitted: [B] int64, 1 .. k_i + 1.

    Raises:
        ValueError: if the two tensors are not of these shapes and dtypes.
    """

    token_ids: torch.Tensor
    num_emitted: torch.Tensor

    def __post_init__(self) -> None:
        _validate.emission(self)


SINGLE_PRECISION = ("float32-softmax", "float32-cumsum", "uniform-24-bits")
"""The rounding of a plain float32 sampler, taken for one that declares nothing else."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a sampler can be asked to do; a suite reports the rest as *not supported*.

    Attributes:
        one_hot: verifies drafts without q (``draft_probs is None``).
        dense: verifies drafts with a full row q.
        greedy: takes requests at temperature 0.
        zero_drafts: takes requests without drafts beside others.
        placeholders: takes -1 draft slots; verification stops there and the target is drawn.
        filtering: verifies drafts against the filtered, renormalised target.
        exclusion: applies top-k / top-p / min-p to requests without drafts.
        convention: name of the :class:`~specverify.sampling.FilterConvention` it follows.
        per_request_seeds: the same seed and position give the same tokens whatever the batch, and
            another seed (all 64 bits count) or position (up to 2**31) gives other coins.
        final_coin: the form of injected coins it takes, ``None`` if it draws its own only.
        topology: shape of the proposals.
        acceptance: the rule that fixes the coupling laws.
        guarantee: what it promises of the emitted text.
        arithmetic: names of the rounding steps that the sampler takes (``Arithmetic`` in
            ``evidence/float_budget.py``); what they alone may cause is never held against it.
        batched: many requests a call are cheap; False for samplers of one request a call.
        devices: torch device types it runs on.
        dtypes: names of the logit dtypes it reads.
    """

    one_hot: bool = True
    dense: bool = True
    greedy: bool = True
    zero_drafts: bool = True
    placeholders: bool = False
    filtering: bool = False
    exclusion: bool = False
    convention: str = "reference"
    per_request_seeds: bool = False
    final_coin: FinalCoin | None = None
    topology: Topology = Topology.CHAIN
    acceptance: AcceptanceRule = AcceptanceRule.RATIO
    guarantee: Guarantee = Guarantee.LOSSLESS
    arithmetic: tuple[str, ...] = SINGLE_PRECISION
    batched: bool = True
    devices: tuple[str, ...] = ("cpu",)
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")


@runtime_checkable
class Sampler(Protocol):
    """A verification rule. Plain functions are samplers too."""

    def __call__(self, batch: Batch, /) -> Emission:
        """Verify every draft of ``batch`` and emit; must not change its input."""
        ...


DEFAULT_CAPABILITIES = Capabilities()
_S = TypeVar("_S", bound=Callable[..., Emission])


def sampler(capabilities: Capabilities = DEFAULT_CAPABILITIES) -> Callable[[_S], _S]:
    """Declare what a function can do: ``@sampler(Capabilities(greedy=False))``."""

    def declare(function: _S) -> _S:
        function.capabilities = capabilities  # type: ignore[attr-defined]
        return function

    return declare


def capabilities_of(subject: object) -> Capabilities:
    """The declared capabilities of a sampler, the defaults where nothing is declared.

    Raises:
        ValueError: if ``capabilities`` is declared but is not a :class:`Capabilities`.
    """
    declared = getattr(subject, "capabilities", DEFAULT_CAPABILITIES)
    if not isinstance(declared, Capabilities):
        raise ValueError(
            f"capabilities: expected a specverify.Capabilities, got {type(declared).__name__}"
        )
    return declared
