"""The relations of the metamorphic layer: what must not matter, and what must.

Each is a function of a subject and one layout, and returns what violates it.
"""

from __future__ import annotations

import torch

from specverify.checks.diagnosis import Problem
from specverify.checks.metamorphic import Asked, parting
from specverify.checks.rebatch import changed_requests, join, pad_vocabulary, select, stranger
from specverify.contract import Batch
from specverify.faults import SamplerFault

SIZES = (1, 2, 8, 32)
"""Batch sizes that a request is verified in."""
ALONE = 8
"""Requests of a batch that are verified one by one."""
SCALE = 1 + 1e-6
"""What a q that sums to 1 may be off by after an engine's own normalisation."""
CONSTANT = 8.0
_SMALL_FIELDS = ("draft_token_ids", "cu_drafts", "temperature", "top_k", "top_p", "min_p",
                 "positions")  # fmt: skip
"""What an engine cuts out of buffers that it keeps."""
FLIPS = (0x5DEECE66D, 0x15A << 40)
"""Bits of a seed; both halves of it count."""


def permuted(asked: Asked, batch: Batch) -> list[Problem]:
    """The order of the requests does not matter."""
    order = torch.randperm(batch.num_requests, generator=asked.generator).tolist()
    pairs = [(old, new) for new, old in enumerate(order)]
    return asked.same(batch, select(batch, order), pairs)


def split(asked: Asked, batch: Batch) -> list[Problem]:
    """A batch in two calls emits what it emits in one; and so do two copies of each request."""
    parts = [list(range(start, batch.num_requests, 2)) for start in (0, 1)]
    parts.append([b for b in range(batch.num_requests) for _ in (0, 1)])
    found: list[Problem] = []
    for part in filter(None, parts):
        found += asked.same(batch, select(batch, part), [(old, i) for i, old in enumerate(part)])
    return found


def other_sizes(asked: Asked, batch: Batch) -> list[Problem]:
    """The first requests of a batch of 32 emit the same in a batch of 1, 2 and 8."""
    tiles = [b % batch.num_requests for b in range(SIZES[-1])]
    large = select(batch, tiles)
    found: list[Problem] = []
    for size in SIZES[:-1]:
        pairs = [(b, b) for b in range(size)]
        found += [one.under(f"batch of {size}") for one in asked.same(
            large, select(large, range(size)), pairs)]  # fmt: skip
    return found


def alone(asked: Asked, batch: Batch) -> list[Problem]:
    """The first requests of a batch emit the same each in a call of its own."""
    found: list[Problem] = []
    for b in range(min(ALONE, batch.num_requests)):
        parts = asked.same(batch, select(batch, [b]), [(b, 0)])
        found += [one.under("in a call of its own") for one in parts]
    return found


def beside_greedy(asked: Asked, batch: Batch) -> list[Problem]:
    """A greedy request in the batch changes nobody else."""
    return _beside(asked, batch, stranger(batch, drafts=2, temperature=0.0))


def beside_idle(asked: Asked, batch: Batch) -> list[Problem]:
    """A request without drafts changes nobody else."""
    return _beside(asked, batch, stranger(batch, drafts=0))


def beside_excluded(asked: Asked, batch: Batch) -> list[Problem]:
    """A request that is filtered and has no drafts changes nobody else."""
    return _beside(asked, batch, stranger(batch, drafts=0, top_k=1, top_p=0.5))


def beside_longer(asked: Asked, batch: Batch) -> list[Problem]:
    """A request with more drafts than all the others changes nobody else."""
    return _beside(asked, batch, stranger(batch, drafts=batch.max_drafts + 2))


def beside_nan(asked: Asked, batch: Batch) -> list[Problem]:
    """A request whose logits are NaN changes nobody else, and emits tokens; or all is refused."""
    found: list[Problem] = []
    for entries in (slice(0, 1), slice(None)):
        broken = stranger(batch, drafts=min(1, batch.max_drafts))
        broken.target_logits[:, entries] = torch.nan
        joined, pairs = _among(batch, broken)
        try:
            if asked.repeats:
                found += [
                    one.under("beside NaN logits") for one in asked.same(batch, joined, pairs)
                ]
            else:
                asked.emit(joined)
        except SamplerFault as fault:
            if fault.__cause__ is None:  # else it refuses the batch, as a sampler may
                found.append(Problem(text=f"beside NaN logits: {fault}"))
    return found


def padded(asked: Asked, batch: Batch) -> list[Problem]:
    """Tokens of logit -inf behind the vocabulary change nothing."""
    found: list[Problem] = []
    for columns in (1, 13):
        found += asked.same(batch, pad_vocabulary(batch, columns), rounding=True)
    return found


def other_memory(asked: Asked, batch: Batch) -> list[Problem]:
    """Where logits and q lie in memory does not matter."""
    from specverify.layouts import VIEWS, as_view

    found: list[Problem] = []
    for view in VIEWS[1:]:
        probs = batch.draft_probs
        small = {name: _behind_one(getattr(batch, name)) for name in _SMALL_FIELDS}
        moved = batch.replace(
            target_logits=as_view(batch.target_logits, view),
            draft_probs=None if probs is None else as_view(probs, view),
            check_values=False,
            **(small if view == "offset" else {}),
        )
        found += [one.under(view) for one in asked.same(batch, moved, rounding=True)]
    return found


def other_formats(asked: Asked, batch: Batch) -> list[Problem]:
    """The same numbers in another floating format change nothing."""
    found: list[Problem] = []
    wide = {name: getattr(batch, name).double() for name in ("temperature", "top_p", "min_p")}
    if "float32" in asked.capabilities.dtypes:
        wide["target_logits"] = batch.target_logits.float()
    if batch.draft_probs is not None:
        wide["draft_probs"] = batch.draft_probs.double()
    other = batch.replace(**wide, check_values=False)
    found += [one.under("wider formats") for one in asked.same(batch, other, rounding=True)]
    if batch.draft_probs is not None:
        half = batch.draft_probs.bfloat16()
        plain = batch.replace(draft_probs=half.float(), check_values=False)
        other = batch.replace(draft_probs=half, check_values=False)
        found += [one.under("q in bfloat16") for one in asked.same(plain, other, rounding=True)]
    return found


def unread_rows(asked: Asked, batch: Batch) -> list[Problem]:
    """What q holds at a placeholder, and all that lies behind one, does not matter."""
    start = batch.cu_drafts[:-1][batch.draft_request]
    never = batch.draft_token_ids < 0
    gaps = never.long().cumsum(0) - never.long()
    behind = gaps > gaps[start] if batch.num_drafts else never
    rows = torch.zeros(batch.target_logits.shape[0], dtype=torch.bool)
    slots = (behind | never).nonzero().squeeze(1)
    rows[slots + batch.draft_request[slots] + 1] = True
    ids, probs = batch.draft_token_ids, batch.draft_probs
    other = batch.replace(
        target_logits=torch.where(rows[:, None], batch.target_logits.flip(1), batch.target_logits),
        draft_token_ids=torch.where(behind & ~never, batch.vocab_size - 1 - ids, ids),
        draft_probs=None if probs is None else _unread(probs, never, behind),
        check_values=False,
    )
    return asked.same(batch, other)


def _unread(probs: torch.Tensor, never: torch.Tensor, behind: torch.Tensor) -> torch.Tensor:
    turned = torch.where(behind[:, None], probs.flip(1), probs)
    return torch.where(never[:, None], torch.nan, turned)


def scaled_draft_law(asked: Asked, batch: Batch) -> list[Problem]:
    """A q that is 1e-6 too large, 1 itself included, is verified as q."""
    assert batch.draft_probs is not None
    larger = batch.replace(draft_probs=batch.draft_probs * SCALE, check_values=False)
    return asked.same(batch, larger, rounding=True, extra=SCALE - 1)


def added_constant(asked: Asked, batch: Batch) -> list[Problem]:
    """A constant added to every logit of a row changes nothing, where the sum is exact."""
    logits = batch.target_logits
    shifted = logits + CONSTANT
    if not torch.equal(shifted.double() - CONSTANT, logits.double()):
        return []
    other = batch.replace(target_logits=shifted, check_values=False)
    return asked.same(batch, other, rounding=True)


def asked_again(asked: Asked, batch: Batch) -> list[Problem]:
    """The same call twice, with another in between, emits the same twice."""
    before = asked.emit(batch)
    last_first = list(range(batch.num_requests))[::-1]
    asked.emit(select(batch, [*last_first, 0]))
    after = asked.emit(batch)
    changed = changed_requests(before, after, [(b, b) for b in range(batch.num_requests)])
    return [
        Problem(
            text=f"request {b % asked.requests}: the same call emitted something else",
            request=b % asked.requests,
            position=parting(before, b, after, b),
        )
        for b, _ in changed
    ]


def settings_moved(asked: Asked, batch: Batch) -> list[Problem]:
    """What a call of the same shape left behind does not matter when settings change hands.

    Rows and drafts stay, and every request takes the settings of the one before it: whatever is
    kept under a shape is right for the first call alone.  The truth is asked in a batch that is
    one request larger.
    """
    count = batch.num_requests
    moved = {name: getattr(batch, name).roll(1) for name in _settings(asked, batch)}
    other = batch.replace(**moved, check_values=False)
    asked.emit(batch)
    return asked.same(other, select(other, [*range(count), 0]), [(b, b) for b in range(count)])


def _settings(asked: Asked, batch: Batch) -> list[str]:
    """Settings that any request of the batch may have."""
    able = asked.capabilities
    anybody = able.filtering and (able.exclusion or not bool((batch.draft_counts == 0).any()))
    return ["temperature", *(("top_k", "top_p", "min_p") if anybody else ())]


def seed_matters(asked: Asked, batch: Batch) -> list[Problem]:
    """Another seed for every second request changes some of these, and none of the others.

    Every second request is flipped in its low bits, then in its high ones: a seed has 64 bits.
    """
    found: list[Problem] = []
    for flip in FLIPS:
        bits = batch.seeds.view(torch.int64).clone()
        bits[1::2] ^= flip
        other = batch.replace(seeds=bits.view(torch.uint64))
        found += _moves_every_second(asked, batch, other, f"seed (bits {flip:#x})")
    return found


def position_matters(asked: Asked, batch: Batch) -> list[Problem]:
    """Another position for every second request changes some of these, and none of the others."""
    later = batch.positions.clone()
    later[1::2] += 64
    return _moves_every_second(asked, batch, batch.replace(positions=later), "position")


def unwritten_memory(asked: Asked, batch: Batch) -> list[Problem]:
    """With uninitialised memory full of NaN, the emission is the same."""
    if asked.repeats:
        return asked.same(batch, batch, rounding=True, poisoned=True)
    asked.emit(batch, poisoned=True)
    return []


def _among(batch: Batch, one: Batch) -> tuple[Batch, list[tuple[int, int]]]:
    """A request before, amid and behind the others, and where the others are then."""
    count = batch.num_requests
    others, middle = list(range(count)), count // 2
    order = [count, *others[:middle], count, *others[middle:], count]
    pairs = [(b, order.index(b)) for b in others]
    return select(join(batch, one), order), pairs


def _behind_one(field: torch.Tensor) -> torch.Tensor:
    """The same values behind one that is none of them, in one buffer."""
    return torch.cat([field[-1:] + 1, field])[field[-1:].numel() :]


def _beside(asked: Asked, batch: Batch, one: Batch) -> list[Problem]:
    return asked.same(batch, *_among(batch, one))


def _moves_every_second(asked: Asked, batch: Batch, other: Batch, what: str) -> list[Problem]:
    before, after = asked.emit(batch), asked.emit(other)
    pairs = [(b, b) for b in range(batch.num_requests)]
    changed = {b for b, _ in changed_requests(before, after, pairs)}
    if not changed & set(range(1, batch.num_requests, 2)):
        said = f"another {what} for half of {batch.num_requests} requests changed none of them"
        return [Problem(text=said)]
    strangers = sorted(changed & set(range(0, batch.num_requests, 2)))
    return [
        Problem(text=f"request {b}: changed with the {what} of its neighbours", request=b)
        for b in strangers[:1]
    ]
