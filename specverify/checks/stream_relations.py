"""Whether every bit of a seed and of a position counts, and whether the two are told apart.

A request's stream is keyed by its seed and counted by its position.  A sampler that keeps half of a
seed, drops the low bits of a position, or adds the two up before it hashes them, gives two requests
the same coins: seed s at position p + 1 and seed s + 1 at position p are then one.  No single law
is wrong, and trials whose seeds are far apart never meet it, so it is asked for here: one call
holds a batch many times over, each copy with its seeds and positions moved in one way.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from specverify.checks.diagnosis import Problem
from specverify.checks.metamorphic import Asked
from specverify.checks.random_rows import random_batch
from specverify.checks.rebatch import changed_requests, select
from specverify.contract import Batch, Capabilities, Emission

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

REQUESTS = 32
"""Of each kind: with drafts, and without."""
DRAFTS = 3
"""Of a request of the first kind; each is accepted with probability 1/2.  Such a step may use the
coins of ``DRAFTS + 1`` positions, and lawfully those that a step begun inside of them would use, so
the low bits of a position are asked of requests without drafts."""
SAME_TOKENS = 12
"""Requests of a layout that draw the same last token twice: with 63 equally likely ones this many
do by accident with probability C(32, 12) / 63**12 < 1e-13."""
ACCIDENT = 1e-12
"""The largest probability with which all requests of a layout stop at the same drafts twice."""
POSITION_BITS = 31
"""Bits of a position that count: two thousand million tokens."""
_SOME = 0x2545_F491


@dataclasses.dataclass(frozen=True)
class Move:
    """One way to come to another stream: ``(seed ^ flip) + step`` and ``(position ^ turn) + walk``.

    Attributes:
        name: for a person.
        flip, step: of the seed, modulo 2**64.
        turn, walk: of the position.
        idle: asked of requests without drafts alone.
    """

    name: str
    flip: int = 0
    step: int = 0
    turn: int = 0
    walk: int = 0
    idle: bool = False


MOVES = (
    *(Move(f"bit {bit} of the seed flipped", flip=1 << bit) for bit in range(64)),
    *(
        Move(f"bit {bit} of the position flipped", turn=1 << bit, idle=1 << bit <= DRAFTS)
        for bit in range(POSITION_BITS)
    ),
    Move("the same bits of both halves of the seed flipped", flip=_SOME << 32 | _SOME),
    Move("seed + 1 and position - 1", step=1, walk=-1),
    Move("seed + 1 and position + 1", step=1, walk=1),
    Move("seed + 4 and position - 4", step=4, walk=-4),
    Move("the same low bits of seed and position flipped", flip=21, turn=21),
    Move("low bits of the position and bits 32 up of the seed flipped", flip=21 << 32, turn=21),
)
"""Ways to other streams, each of which some mixture of seed and position would undo."""


def even_rows(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Requests with drafts of probability 1/2 beside 63 and more equally likely tokens."""
    from hypothesis import strategies as st

    return st.builds(_even, st.just(capabilities), st.integers(64, 72), st.integers(0, 2**16))


def _even(capabilities: Capabilities, vocab: int, entropy: int) -> Batch:
    idle = [0] * REQUESTS if capabilities.zero_drafts else []
    batch = random_batch(
        counts=[DRAFTS] * REQUESTS + idle, vocab=vocab, dense=capabilities.dense, entropy=entropy
    )
    dtype = next(n for n in ("float32", "bfloat16", "float16") if n in capabilities.dtypes)
    logits = torch.zeros_like(batch.target_logits)
    rows = torch.arange(batch.num_drafts) + batch.draft_request
    # One draft for all slots of a request: where it stopped hardly moves the tokens' stretches.
    drafts = batch.draft_token_ids[batch.cu_drafts[batch.draft_request]]
    logits[rows, drafts] = float(torch.tensor(vocab - 1.0).log())
    certain = torch.nn.functional.one_hot(drafts, vocab).float()
    return batch.replace(
        target_logits=logits.to(getattr(torch, dtype)),
        draft_token_ids=drafts,
        draft_probs=certain if capabilities.dense else None,
        temperature=torch.ones_like(batch.temperature),
        positions=_near_and_far(batch.positions),
        check_values=False,
    )


def _near_and_far(positions: torch.Tensor) -> torch.Tensor:
    """Every second one so large that float32 cannot hold it."""
    moved = positions + 8
    moved[1::2] |= 1 << (POSITION_BITS - 1)
    return moved


def streams_apart(asked: Asked, batch: Batch) -> list[Problem]:
    """Another seed or position gives other coins, bit by bit; and a large batch changes nothing."""
    count = batch.num_requests
    copies = [_moved(batch, move) for move in MOVES]
    bits, places = zip(*copies, strict=True)
    tiled = select(batch, list(range(count)) * (len(MOVES) + 1))
    many = tiled.replace(
        seeds=torch.cat([*bits, batch.seeds.view(torch.int64)]).view(torch.uint64),
        positions=torch.cat([*places, batch.positions]),
        check_values=False,
    )
    before, after = asked.emit(batch), asked.emit(many)
    last = [(b, len(MOVES) * count + b) for b in range(count)]
    for b, _ in changed_requests(before, after, last)[:1]:
        said = f"request {b}: changed as one of the last of {many.num_requests} requests"
        return [Problem(text=said, request=b)]
    first = batch.draft_token_ids[batch.cu_drafts[:-1].clamp(max=batch.num_drafts - 1)]
    drafts = torch.where(batch.draft_counts > 0, first, -1)
    for number, move in enumerate(MOVES):
        for kind in range(int(move.idle), count // REQUESTS):
            here = slice(kind * REQUESTS, (kind + 1) * REQUESTS)
            there = slice(number * count + here.start, number * count + here.stop)
            what = _repeated(_part(before, here), _part(after, there), drafts[here])
            if what is not None:
                said = f"{move.name}: {what}, though seed and position are not the same"
                return [Problem(text=said)]
    return []


def _part(emission: Emission, requests: slice) -> Emission:
    return Emission(emission.token_ids.cpu()[requests], emission.num_emitted.cpu()[requests])


def _moved(batch: Batch, move: Move) -> tuple[torch.Tensor, torch.Tensor]:
    """[B] int64 bits of the seeds, [B] int64 positions."""
    bits = batch.seeds.view(torch.int64) ^ _signed(move.flip)
    return bits + move.step, (batch.positions ^ move.turn) + move.walk


def _signed(bits: int) -> int:
    return bits - 2**64 if bits >= 2**63 else bits


def _repeated(one: Emission, two: Emission, drafts: torch.Tensor) -> str | None:
    """What two emissions of the same requests share beyond accident; ``None`` if nothing.

    Some rules draw the draft itself, which half of the target is; that is no accident.
    """
    counts, tokens = (one.num_emitted, two.num_emitted), (one.token_ids, two.token_ids)
    last = [t.gather(1, n[:, None] - 1)[:, 0] for t, n in zip(tokens, counts, strict=True)]
    same = int(((last[0] == last[1]) & (last[0] != drafts)).sum())
    if same >= SAME_TOKENS:
        return f"{same} of {len(last[0])} requests drew the same last token again"
    shares = torch.bincount(counts[0]).double() / counts[0].numel()
    accident = float((shares**2).sum()) ** counts[0].numel()
    if accident < ACCIDENT and torch.equal(*counts):
        return f"all {counts[0].numel()} requests stopped at the same drafts again"
    return None
