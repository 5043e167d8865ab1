"""Hypothesis strategies of batches that a scheduler can really produce.

Exact checks look for the layout that breaks a sampler: ragged drafts with requests that have none,
slots that were never proposed, greedy beside random requests, a vocabulary that no tile divides,
masked logits, ties, logits in memory that is not contiguous.  A strategy here stands for a range
of valid batches, never for a distribution over them; narrow the range by its parameters.

Smaller is simpler: a failing batch shrinks to few requests, few drafts, a small vocabulary, flat
logits, temperature 1 and no filters, and :func:`describe` writes it down for a person.  The rows
themselves are expanded from short descriptions (see :mod:`specverify._layout_rows`), so a batch
costs tens of draws and not thousands, and the same description gives the same batch for ever.

Filters keep clear of values at which two correct samplers of different precision may differ (see
:mod:`specverify._layout_filters`), unless ``boundaries=True`` asks for just these.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Sequence

import numpy as np
import torch
from hypothesis import strategies as st

from specverify._layout_coins import EXTREME_COINS, coins_for
from specverify._layout_plan import VIEWS, Plan, Request, as_view, expand
from specverify._layout_rows import (
    DENSE_PICKS,
    DRAFT_KINDS,
    ONE_HOT_PICKS,
    PLACEHOLDER_PICK,
    TARGET_KINDS,
    Slot,
)
from specverify._layout_text import describe
from specverify.contract import Batch, Capabilities, Topology

__all__ = [
    "DRAFTS",
    "DTYPES",
    "EXTREME_COINS",
    "FILTERS",
    "MIN_PS",
    "TARGET_KINDS",
    "TEMPERATURES",
    "TILES",
    "TOP_PS",
    "VIEWS",
    "as_view",
    "batches",
    "batches_for",
    "coins_for",
    "describe",
]

TEMPERATURES = (1.0, 0.0, 0.75, 0.3, 2.0, 1e-3, 1e-5)
"""Greedy, the usual ones, and two that are tiny but not greedy; the simple ones first."""

FILTERS = ("off", "any", "drafted", "zero-draft")
"""Which requests may have filters: none, any, those with drafts, those without (exclusion)."""

DRAFTS = ("any", "dense", "one-hot")
"""Whether batches carry q, and if ``any``, some do."""

DTYPES = ("float32", "bfloat16", "float16")

TOP_PS = (1.0, 1.0, 0.9, 0.5, 0.99, 0.1)
"""What top-p may be before it is moved off a boundary; the simple ones first."""

MIN_PS = (0.0, 0.0, 0.1, 0.5, 0.01, 0.9)
"""The same for min-p."""

TILES = (8, 16, 32, 64, 128, 256, 512, 1024)
"""Widths of the vectors and tiles that kernels cut a row into."""

_OFF = (0, 1.0, 0.0)
_FEW = 4


@dataclasses.dataclass(frozen=True)
class _Options:
    """The parameters of :func:`batches`, checked."""

    max_requests: int
    min_drafts: int
    max_drafts: int
    vocab: tuple[int, int]
    temperatures: tuple[float, ...]
    filters: str
    drafts: str
    placeholders: bool
    dtypes: tuple[str, ...]
    views: tuple[str, ...]
    boundaries: bool
    targets: tuple[str, ...]
    tiled: bool
    top_ps: tuple[float, ...]
    min_ps: tuple[float, ...]
    habits: bool


def batches(
    *,
    max_requests: int = 8,
    max_drafts: int = 4,
    vocab: tuple[int, int] = (2, 300),
    temperatures: Sequence[float] = TEMPERATURES,
    greedy_only: bool = False,
    filters: str = "any",
    drafts: str = "any",
    placeholders: bool = True,
    zero_drafts: bool = True,
    dtypes: Sequence[str] = DTYPES,
    views: bool = True,
    boundaries: bool = False,
    targets: Sequence[str] = TARGET_KINDS,
    tiled: bool = False,
    top_ps: Sequence[float] = TOP_PS,
    min_ps: Sequence[float] = MIN_PS,
    habits: bool = False,
) -> st.SearchStrategy[Batch]:
    """Batches on the CPU, without coins.

    Args:
        max_requests: B is 1 .. this.
        max_drafts: each k_i is 0 .. this.
        vocab: smallest and largest V, at least 2.
        temperatures: what a request may ask for; shrinks towards the first.
        greedy_only: every request at temperature 0.
        filters: one of ``FILTERS``.
        drafts: one of ``DRAFTS``.
        placeholders: some slots were never proposed (-1), anywhere among the drafts. Their row of
            q is a valid one that nobody may read.
        zero_drafts: some requests have no drafts.
        dtypes: of the logits, out of ``DTYPES``; shrinks towards the first.
        views: logits and draft probabilities in memory that is not contiguous; what lies between
            the rows and columns would win every argmax if it were read.
        boundaries: put top-p and min-p onto boundaries instead of keeping clear of them.
        targets: kinds of target rows, out of ``TARGET_KINDS``; shrinks towards the first.
        tiled: half of the vocabularies are a whole number of ``TILES``, or one token off.
        top_ps: what top-p may be, in (0, 1], before it is moved; shrinks towards the first.
        min_ps: the same for min-p, in [0, 1].
        habits: many requests pick (nearly) all of their drafts in one way: agreed with the target,
            or never proposed.

    Raises:
        ValueError: naming the parameter that is out of range, before anything is drawn.
    """
    least = 0 if zero_drafts else 1
    _require("max_requests", max_requests, _is_count(max_requests, 1), "an integer >= 1")
    _require("max_drafts", max_drafts, _is_count(max_drafts, least), f"an integer >= {least}")
    _require("vocab", vocab, _is_vocab(vocab), "(smallest, largest) with 2 <= smallest <= largest")
    fine = len(temperatures) > 0 and all(0 <= value < math.inf for value in temperatures)
    _require("temperatures", temperatures, fine, "one or more finite numbers >= 0")
    _require("filters", filters, filters in FILTERS, f"one of {FILTERS}")
    _require("drafts", drafts, drafts in DRAFTS, f"one of {DRAFTS}")
    fine = len(dtypes) > 0 and all(name in DTYPES for name in dtypes)
    _require("dtypes", dtypes, fine, f"one or more of {DTYPES}")
    fine = len(targets) > 0 and all(kind in TARGET_KINDS for kind in targets)
    _require("targets", targets, fine, f"one or more of {TARGET_KINDS}")
    fine = len(top_ps) > 0 and all(0 < value <= 1 for value in top_ps)
    _require("top_ps", top_ps, fine, "one or more numbers in (0, 1]")
    fine = len(min_ps) > 0 and all(0 <= value <= 1 for value in min_ps)
    _require("min_ps", min_ps, fine, "one or more numbers in [0, 1]")
    return _batches(
        _Options(
            max_requests=max_requests,
            min_drafts=least,
            max_drafts=max_drafts,
            vocab=(vocab[0], vocab[1]),
            temperatures=(0.0,) if greedy_only else tuple(temperatures),
            filters=filters,
            drafts=drafts,
            placeholders=placeholders,
            dtypes=tuple(dtypes),
            views=VIEWS if views else VIEWS[:1],
            boundaries=boundaries,
            targets=tuple(targets),
            tiled=tiled,
            top_ps=tuple(top_ps),
            min_ps=tuple(min_ps),
            habits=habits,
        )
    )


def batches_for(capabilities: Capabilities, **overrides: object) -> st.SearchStrategy[Batch]:
    """Batches that a sampler with these capabilities must be able to verify.

    Args:
        capabilities: what the sampler declares.
        **overrides: parameters of :func:`batches`; they replace what the capabilities imply.

    Raises:
        ValueError: if no packed batch can be verified (trees, neither dense nor one-hot drafts, no
            known dtype), or a parameter is out of range or unknown.
    """
    topology = capabilities.topology
    _require(
        "capabilities.topology", topology.value, topology is not Topology.TREE, "chain or block"
    )
    _require(
        "capabilities", capabilities, capabilities.dense or capabilities.one_hot, "dense or one_hot"
    )
    implied: dict[str, object] = {
        "filters": _allowed_filters(capabilities),
        "drafts": _allowed_drafts(capabilities),
        "placeholders": capabilities.placeholders,
        "zero_drafts": capabilities.zero_drafts,
        "dtypes": tuple(name for name in DTYPES if name in capabilities.dtypes),
        "temperatures": TEMPERATURES
        if capabilities.greedy
        else tuple(value for value in TEMPERATURES if value > 0),
    }
    known = inspect.signature(batches).parameters
    unknown = sorted(set(overrides) - set(known))
    _require("overrides", unknown, not unknown, f"parameters of batches(): {sorted(known)}")
    return batches(**{**implied, **overrides})  # type: ignore[arg-type]


def _require(field: str, got: object, good: bool, expected: str) -> None:
    if not good:
        raise ValueError(f"{field}: got {got!r}; expected {expected}")


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_vocab(value: object) -> bool:
    if not isinstance(value, Sequence) or len(value) != 2:
        return False
    return _is_count(value[0], 2) and _is_count(value[1], value[0])


def _allowed_filters(capabilities: Capabilities) -> str:
    if capabilities.filtering:
        return "any" if capabilities.exclusion else "drafted"
    return "zero-draft" if capabilities.exclusion else "off"


def _allowed_drafts(capabilities: Capabilities) -> str:
    if capabilities.dense and capabilities.one_hot:
        return "any"
    return "dense" if capabilities.dense else "one-hot"


@st.composite
def _batches(draw: st.DrawFn, options: _Options) -> Batch:
    # Counts first and the counted things last: Hypothesis lowers a count and deletes any one of
    # the spans behind it, so a request that plays no part goes, wherever it stands.
    count = draw(_few_or_up_to(options.max_requests))
    vocab = draw(_vocabularies(*options.vocab, tiled=options.tiled))
    dense = options.drafts == "dense" or (options.drafts == "any" and draw(st.booleans()))
    words = _slot_words(options.targets, dense, options.placeholders and draw(st.booleans()))
    view = st.sampled_from(options.views)
    plan = Plan(
        vocab=vocab,
        dense=dense,
        dtype=getattr(torch, draw(st.sampled_from(options.dtypes))),
        views=(draw(view), draw(view) if dense else "contiguous"),
        boundaries=options.boundaries,
        requests=tuple(draw(_requests(options, words, vocab)) for _ in range(count)),
    )
    return expand(plan)


def _few_or_up_to(largest: int) -> st.SearchStrategy[int]:
    few = st.integers(1, min(largest, _FEW))
    return few if largest <= _FEW else few | st.integers(_FEW, largest)


def _vocabularies(smallest: int, largest: int, *, tiled: bool) -> st.SearchStrategy[int]:
    some = st.integers(smallest, largest)
    if not tiled:
        return some
    whole = {
        tile * count + off for tile in TILES for count in range(1, _FEW + 1) for off in (-1, 0, 1)
    }
    near = sorted(size for size in whole if smallest <= size <= largest)
    return some | st.sampled_from(near) if near else some  # the plain one first: it is simpler


@st.composite
def _requests(
    draw: st.DrawFn, options: _Options, words: tuple[tuple[str, ...], ...], vocab: int
) -> Request:
    count = draw(st.integers(options.min_drafts, options.max_drafts))
    if options.habits:
        words = draw(_habit(words))
    who = {"off": False, "any": True, "drafted": count > 0, "zero-draft": count == 0}
    return Request(
        bonus=draw(st.sampled_from(options.targets)),
        temperature=float(np.float32(draw(st.sampled_from(options.temperatures)))),
        filters=_wanted_filters(draw, vocab, options) if who[options.filters] else _OFF,
        seed=draw(st.integers(0, 2**64 - 1)),
        position=draw(st.integers(0, 2**20)),
        slots=tuple(Slot(*(draw(st.sampled_from(w)) for w in words)) for _ in range(count)),
        entropy=draw(st.integers(0, 2**16 - 1)),
    )


def _habit(words: tuple[tuple[str, ...], ...]) -> st.SearchStrategy[tuple[tuple[str, ...], ...]]:
    """The words, or one pick nearly alone: deep slots are met where all before were accepted."""
    targets, drafts, picks = words
    agreed, last = picks[:1], picks[-1:]
    choices = (picks, agreed, agreed * 6 + last, last)
    return st.sampled_from([(targets, drafts, some) for some in choices])


def _slot_words(targets: tuple[str, ...], dense: bool, gaps: bool) -> tuple[tuple[str, ...], ...]:
    picks = (DENSE_PICKS if dense else ONE_HOT_PICKS) + ((PLACEHOLDER_PICK,) if gaps else ())
    return targets, DRAFT_KINDS if dense else DRAFT_KINDS[:1], picks


def _wanted_filters(draw: st.DrawFn, vocab: int, options: _Options) -> tuple[int, float, float]:
    """Top-k, top-p, min-p: all off, or any mixture; top-k may exceed V by one."""
    if not draw(st.booleans()):
        return _OFF
    # Everything and more than everything are the ends that samplers get wrong.
    some = st.integers(1, vocab) | st.sampled_from((vocab, vocab + 1))
    top_k = draw(some) if draw(st.booleans()) else 0
    return top_k, draw(st.sampled_from(options.top_ps)), draw(st.sampled_from(options.min_ps))
