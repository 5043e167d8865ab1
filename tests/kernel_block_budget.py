"""When two float64 block samplers may disagree under the same coins: at a threshold, to rounding.

Sums in another order differ by about 2**-52 a term, so a coin that stands on a boundary to 1e-12
may fall on either side.  h = S / (S + 1 - r) magnifies that by 1 / (S + 1 - r), and a residual
(r p - q)+ that is nothing but rounding is drawn from differently.
"""

from __future__ import annotations

import torch

from specverify.contract import Batch, Emission
from specverify.reference.block import BlockSampler, BlockTests
from specverify.reference.chain import Step

NEAR = 1e-12


def unexcused(batch: Batch, ours: Emission, theirs: Emission) -> list[int]:
    """Requests whose tokens differ although no coin stands at a threshold."""
    differ = (ours.token_ids != theirs.token_ids).any(1) | (ours.num_emitted != theirs.num_emitted)
    if not bool(differ.any()):
        return []
    sampler = BlockSampler()
    step = sampler.begin(batch)
    step.accepted = theirs.num_emitted - 1
    tests = sampler.tests(step)
    weights = sampler.block_weights(step, tests)
    found = []
    for b in differ.nonzero()[:, 0].tolist():
        mine, other = int(ours.num_emitted[b]) - 1, int(theirs.num_emitted[b]) - 1
        accepted = min(mine, other)
        if not torch.equal(ours.token_ids[b, :accepted], theirs.token_ids[b, :accepted]):
            excused = False
        elif mine != other:
            excused = _at_a_test(sampler, step, tests, b, accepted)
        else:
            assert step.coins.final is not None
            token = int(ours.token_ids[b, mine])
            excused = _at_an_edge(weights[b], float(step.coins.final[b]), token)
        if not excused:
            found.append(b)
    return found


def _at_a_test(sampler: BlockSampler, step: Step, tests: BlockTests, b: int, start: int) -> bool:
    """Whether the coin of a draft from ``start`` on is as near to h as rounding reaches."""
    first, length = int(step.batch.cu_drafts[b]), int(tests.length[b])
    for j in range(start, length):
        ratio = tests.ratio[b, j + 1 : j + 2]
        rest = 1.0
        if j + 1 < length:
            row = int(step.batch.first_row[b]) + j + 1
            after = torch.tensor([first + j + 1], device=ratio.device)
            left = sampler.scaled_residual(step, ratio, step.target[row : row + 1], after)
            rest = float(left.sum() + 1 - ratio)
        distance = abs(float(step.coins.accept[first + j]) - float(tests.passing[b, j]))
        if distance <= NEAR / max(rest, NEAR):
            return True
    return False


def _at_an_edge(weights: torch.Tensor, coin: float, token: int) -> bool:
    """Whether the coin is as near to the interval of a token as rounding reaches."""
    upto = weights.cumsum(0)
    total = float(upto[-1])
    low, high = float(upto[token] - weights[token]), float(upto[token])
    distance = max(low - coin * total, coin * total - high)
    return distance <= NEAR * total + 1e-15
