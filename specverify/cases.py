"""Cases: small table models with a different law for every request, position and prefix.

A table model is the whole language model that a statistical test needs: ``target[j]`` holds one row
of logits for every prefix of ``j`` tokens.  Because no two rows are alike, a sampler that reads the
row of another position or of a neighbour emits the wrong law; with one shared row it would not.
"""

from __future__ import annotations

import dataclasses
import enum
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from specverify.contract import Capabilities
from specverify.sampling import CONVENTIONS, target_probabilities

FloatArray = NDArray[np.float64]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Seeding(enum.StrEnum):
    """How the seeds of all requests of all trials (the rows of a run) are related.

    MIXED seeds have nothing to do with each other.  With ASCENDING and DESCENDING ones, seed s + 1
    belongs to the next row and to the row before, so that a sampler which adds (or subtracts, or
    xors) the row to the seed repeats itself.  With SAME, only the positions differ.
    """

    MIXED = "mixed"
    ASCENDING = "ascending"
    DESCENDING = "descending"
    SAME = "same"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TableRequest:
    """One request of a case.

    Attributes:
        target: k + 1 tables of logits, table j of shape [V**j, V], or [1, V] where the row does not
            depend on the prefix; the row of prefix (t_0 .. t_{j-1}) is its number in base V.
        draft: k tables of probabilities, of the same shapes; drafts are drawn from them.
        shown: the tables of q that the sampler is shown; ``None`` if they are ``draft`` itself.
        temperature, top_k, top_p, min_p: the request's sampling parameters.
        placeholders: draft slots that were never proposed.
    """

    target: tuple[torch.Tensor, ...]
    draft: tuple[torch.Tensor, ...]
    shown: tuple[torch.Tensor, ...] | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    placeholders: frozenset[int] = frozenset()

    @property
    def num_drafts(self) -> int:
        """k, the number of draft slots."""
        return len(self.draft)

    @property
    def filtered(self) -> bool:
        """Whether any of top-k, top-p and min-p is on."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    def target_tables(self, convention: str) -> list[FloatArray]:
        """The target probabilities p in float64, from the logits as stored."""
        return [self._probabilities(table, convention) for table in self.target]

    def _probabilities(self, logits: torch.Tensor, convention: str) -> FloatArray:
        rows = logits.shape[0]
        law = target_probabilities(
            logits,
            # float32 like the batch: the law is that of the values a sampler receives.
            torch.full((rows,), self.temperature, dtype=torch.float32),
            torch.full((rows,), self.top_k, dtype=torch.int64),
            torch.full((rows,), self.top_p, dtype=torch.float32),
            torch.full((rows,), self.min_p, dtype=torch.float32),
            CONVENTIONS[convention],
        )
        return np.asarray(law.numpy(), dtype=np.float64)

    def draft_tables(self) -> list[FloatArray]:
        """The draft probabilities q in float64, normalised, from the values as stored."""
        tables = [table.double().numpy() for table in self.draft]
        return [table / table.sum(axis=1, keepdims=True) for table in tables]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """A batch of table requests that is verified again and again, with fresh drafts and coins.

    Attributes:
        name: stable and unique in its suite.
        requests: the batch, in order.
        dense: whether the sampler is shown q (``draft_probs``) or one-hot drafts.
        seeding: how the seeds of requests and trials are related.
    """

    name: str
    requests: tuple[TableRequest, ...]
    dense: bool
    seeding: Seeding = Seeding.MIXED

    @property
    def vocab_size(self) -> int:
        """V."""
        return int(self.requests[0].target[0].shape[1])

    @property
    def num_rows(self) -> int:
        """R, the target rows of one copy of the batch."""
        return sum(len(request.target) for request in self.requests)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the logits."""
        return self.requests[0].target[0].dtype

    def unsupported(self, capabilities: Capabilities) -> str | None:
        """Why a subject cannot be asked this case; ``None`` if it can."""
        drafting = [request for request in self.requests if request.num_drafts]
        idle = [request for request in self.requests if not request.num_drafts]
        needs = {
            "dense": self.dense and bool(drafting),
            "one_hot": not self.dense and bool(drafting),
            "zero_drafts": bool(idle),
            "greedy": any(request.temperature == 0 for request in self.requests),
            "placeholders": any(request.placeholders for request in self.requests),
            "filtering": any(request.filtered for request in drafting),
            "exclusion": any(request.filtered for request in idle),
            "per_request_seeds": self.seeding is not Seeding.MIXED,
        }
        for name, needed in needs.items():
            if needed and not getattr(capabilities, name):
                return f"the sampler does not declare {name}"
        dtype = str(self.dtype).removeprefix("torch.")
        return None if dtype in capabilities.dtypes else f"the sampler does not read {dtype} logits"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestSpec:
    """How to make a table request: everything but the numbers.

    Attributes:
        drafts: k.
        temperature, top_k, top_p, min_p, placeholders: as in :class:`TableRequest`.
        drafting: ``sampled`` drafts are drawn from a soft q, ``greedy`` ones are its argmax, and
            ``improbable`` ones come from a q that likes what the target does not.
    """

    drafts: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    placeholders: frozenset[int] = frozenset()
    drafting: str = "sampled"


REDRAWS = 1_000
"""How often unsuitable rows are drawn anew before a case is given up."""
BOUNDARY_MARGIN = 1e-3
"""Distance of every cumulative mass from top-p, and of every p / max p from min-p: within an ulp of
a boundary, two right samplers of different precision may keep different sets."""


@lru_cache(maxsize=64)
def make_case(
    name: str,
    vocab: int,
    specs: tuple[RequestSpec, ...],
    dense: bool,
    dtype: str = "float32",
    spread: float = 1.2,
    seeding: Seeding = Seeding.MIXED,
) -> Case:
    """Make a case whose numbers depend on its name alone.

    Args:
        name: of the case.
        vocab: V.
        specs: one for each request.
        dense: whether the sampler is shown q.
        dtype: of the logits.
        spread: standard deviation of the logits before temperature.
        seeding: how the seeds of the rows are related.

    Raises:
        ValueError: if there is no request, the dtype is not one of the contract's, or no rows off
            the boundaries of the filters are found.
    """
    if not specs:
        raise ValueError("specs: got no request; expected at least one")
    if dtype not in DTYPES:
        raise ValueError(f"dtype: got {dtype!r}; expected one of {', '.join(DTYPES)}")
    rng = np.random.Generator(np.random.Philox(key=list(_digest(name))))
    requests = tuple(_make_request(rng, vocab, spec, DTYPES[dtype], spread) for spec in specs)
    return Case(name=name, requests=requests, dense=dense, seeding=seeding)


def _digest(name: str) -> tuple[int, int]:
    import hashlib

    digest = hashlib.sha256(f"specverify case {name}".encode()).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")


def _make_request(
    rng: np.random.Generator, vocab: int, spec: RequestSpec, dtype: torch.dtype, spread: float
) -> TableRequest:
    target = [
        _logit_table(rng, vocab**j, vocab, spec, dtype, spread) for j in range(spec.drafts + 1)
    ]
    draft = [_draft_table(rng, target[j], spec) for j in range(spec.drafts)]
    return TableRequest(
        target=tuple(target),
        draft=tuple(draft),
        temperature=spec.temperature,
        top_k=spec.top_k,
        top_p=spec.top_p,
        min_p=spec.min_p,
        placeholders=spec.placeholders,
    )


def _logit_table(
    rng: np.random.Generator,
    rows: int,
    vocab: int,
    spec: RequestSpec,
    dtype: torch.dtype,
    spread: float,
) -> torch.Tensor:
    """Rows of logits, redrawn until none stands on the boundary of a filter."""
    # The spread is that of the law after temperature, so that no row degenerates at T = 0.3.
    scale = spread * (spec.temperature or 1.0)
    table = torch.from_numpy(rng.normal(0.0, scale, (rows, vocab))).to(dtype)
    for _ in range(REDRAWS):
        if not bool((bad := ambiguous_rows(table, spec)).any()):
            return table
        fresh = rng.normal(0.0, scale, (int(bad.sum()), vocab))
        table[bad] = torch.from_numpy(fresh).to(dtype)
    raise ValueError(
        f"specs: found no rows of {vocab} {str(dtype).removeprefix('torch.')} logits without ties "
        f"and off the boundaries of {spec}; expected a smaller vocabulary or another filter"
    )


def ambiguous_rows(table: torch.Tensor, spec: RequestSpec) -> torch.Tensor:
    """[rows] bool: a tie, or a mass within the margin of a filter's boundary."""
    logits = table.double().sort(dim=1, descending=True).values
    tied = (logits[:, :-1] == logits[:, 1:]).any(dim=1)
    law = torch.softmax(logits / (spec.temperature or 1.0), dim=1)
    near = torch.zeros_like(tied)
    for kept in {law.shape[1], spec.top_k or law.shape[1]}:  # joint and sequential order
        mass = law[:, :kept].cumsum(dim=1)
        mass = mass / mass[:, -1:]
        if spec.top_p < 1:
            near |= ((mass - spec.top_p).abs() < BOUNDARY_MARGIN).any(dim=1)
    if spec.min_p > 0:
        near |= ((law / law[:, :1] - spec.min_p).abs() < BOUNDARY_MARGIN).any(dim=1)
    return tied | near


def _draft_table(rng: np.random.Generator, target: torch.Tensor, spec: RequestSpec) -> torch.Tensor:
    """[rows, V] float32: q, half informed by the target and half its own noise."""
    temperature = spec.temperature or 1.0
    informed = (
        -1.0 if spec.drafting == "improbable" else 0.5
    ) * target.double() / temperature + torch.from_numpy(rng.normal(0.0, 0.9, tuple(target.shape)))
    soft = torch.softmax(informed, dim=1)
    if spec.drafting == "greedy":
        return torch.nn.functional.one_hot(soft.argmax(dim=1), soft.shape[1]).float()
    return soft.float()
