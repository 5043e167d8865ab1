"""Block verification; equals :class:`specverify.reference.block.BlockSampler`.

Four launches (five with draft logits) that nothing waits for: the softmax of every row as two
numbers, the ratios r of every request, the test h of every draft, and the last token.  A row is
read once for its largest logit, once for its sum, and once for the test of the draft before it;
the row of the last token twice more.  What is kept is a few numbers a row.

Everything is float64, exponentials included: h = S / (S + 1 - r) loses all its digits where p is
close to q, and in fp32 that would show in the tokens.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl
from specverify.kernels._draw import ACCEPT_WORD, BELOW_ONE, FINAL_WORD, request_uniform

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def scale_of(temperature):
    """log2(e) / T in float64, 0 at T = 0."""
    return tl.where(temperature > 0, LOG2E / tl.maximum(temperature, 1e-300), 0.0)


@triton.jit
def tile_of(row_ptr, stride, start, vocab, other, TILE: tl.constexpr):
    """TILE entries of a row from ``start`` (int64) on as float64, ``other`` past its end."""
    i = start + tl.arange(0, TILE)
    return tl.load(row_ptr + i * stride, mask=i < vocab, other=other).to(tl.float64)


@triton.jit
def mass_of(x, top, scale):
    """exp((x - top) / T) in float64; 0 at -inf."""
    anchor = tl.where(top == float("-inf"), 0.0, top)
    return tl.exp2((x - anchor) * scale)


@triton.jit
def sound(top, mass):
    """Whether a row is a law: no NaN, no +inf, some finite logit."""
    return (mass > 0) & (mass < float("inf")) & (top < float("inf"))


@triton.jit
def residual_tile(
    row_ptr, stride_v, q_row, q_stride_v, start, vocab, top, mass, scale, ratio, draft, q_top,
    q_mass, q_scale, soft, Q: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """(r p - q)+ of one tile; with a one-hot q (``soft`` false) r p without the draft."""
    absent: tl.constexpr = 0.0 if Q == 1 else float("-inf")
    i = start + tl.arange(0, TILE)
    x = tile_of(row_ptr, stride_v, start, vocab, float("-inf"), TILE)
    p = mass_of(x, top, scale) / mass * ratio
    left = tl.where(i == draft, 0.0, p)
    if Q != 0:
        full = i < tl.where(soft, vocab, 0)
        y = tl.load(q_row + i * q_stride_v, mask=full, other=absent).to(tl.float64)
        q = y if Q == 1 else mass_of(y, q_top, q_scale) / q_mass
        left = tl.where(full, tl.maximum(p - q, 0.0), left)
    return left


@triton.jit(do_not_specialize=["requests"])
def softmax_kernel(
    logits, stride_r, stride_v, cu_drafts, temperature, tops, masses, bests, requests, vocab,
    DRAFTS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Largest logit, sum of exponentials relative to it, and lowest argmax of every row.

    Grid [width * requests], or [max k * requests] for the rows of draft logits (DRAFTS).
    """
    pid = tl.program_id(0).to(tl.int64)
    b, j = pid % requests, pid // requests
    first = tl.load(cu_drafts + b)
    rows = tl.load(cu_drafts + b + 1) - first + (0 if DRAFTS else 1)
    if j < rows:
        row = first + j + (0 if DRAFTS else b)
        row_ptr = logits + row * stride_r
        scale = scale_of(tl.load(temperature + b).to(tl.float64))
        i = tl.arange(0, TILE)
        top = tl.full([], float("-inf"), tl.float64)
        best = tl.zeros([], dtype=tl.int64)
        start = tl.zeros([], dtype=tl.int64)
        while start < vocab:
            x = tile_of(row_ptr, stride_v, start, vocab, float("-inf"), TILE)
            x = tl.where(x == x, x, float("-inf"))
            here = tl.max(x, 0)
            at = tl.min(tl.where(x == here, i, TILE), 0)
            best = tl.where(here > top, start + at, best)
            top = tl.maximum(here, top)
            start += TILE
        mass = tl.zeros([], dtype=tl.float64)
        start = tl.zeros([], dtype=tl.int64)
        while start < vocab:
            x = tile_of(row_ptr, stride_v, start, vocab, float("-inf"), TILE)
            mass += tl.sum(mass_of(x, top, scale), 0)
            start += TILE
        tl.store(tops + row, top)
        tl.store(masses + row, mass)
        if not DRAFTS:
            tl.store(bests + row, best)


@triton.jit
def ratio_kernel(
    logits, stride_r, stride_v, drafts, q_ptr, q_stride_r, q_stride_v, cu_drafts, temperature,
    draft_temperature, tops, masses, bests, q_tops, q_masses, ratios, lengths, Q: tl.constexpr,
):  # fmt: skip
    """The ratio r of every draft of a block, and the length of the block; grid [requests]."""
    b = tl.program_id(0).to(tl.int64)
    first = tl.load(cu_drafts + b)
    count = tl.load(cu_drafts + b + 1) - first
    t = tl.load(temperature + b).to(tl.float64)
    scale = scale_of(t)
    soft = t == t
    q_scale = scale
    if Q == 2:
        tq = tl.load(draft_temperature + b).to(tl.float64)
        soft = tq > 0
        q_scale = scale_of(tq)
    ratio = tl.full([], 1.0, tl.float64)
    j = tl.zeros([], dtype=tl.int64)
    draft = tl.load(drafts + first, mask=count > 0, other=-1)
    while draft >= 0:
        slot = first + j
        row = slot + b
        top, mass = tl.load(tops + row), tl.load(masses + row)
        own = tl.load(logits + row * stride_r + draft * stride_v).to(tl.float64)
        p = mass_of(own, top, scale) / mass
        p = tl.where(sound(top, mass), p, 0.0)
        p = tl.where(t == 0, tl.where(tl.load(bests + row) == draft, 1.0, 0.0), p)
        q = p * 0.0 + 1.0
        if Q != 0:
            at = q_ptr + slot * q_stride_r + draft * q_stride_v
            value = tl.load(at, mask=soft, other=0.0).to(tl.float64)
            if Q == 2:
                top, mass = tl.load(q_tops + slot), tl.load(q_masses + slot)
                value = mass_of(value, top, q_scale) / mass
            q = tl.where(soft, value, q)
        fresh = ratio * tl.where(p > 0, p / q, 0.0)
        ratio = tl.where(fresh > 1.0, 1.0, fresh)
        tl.store(ratios + slot, ratio)
        j += 1
        draft = tl.load(drafts + first + j, mask=j < count, other=-1)
    tl.store(lengths + b, j)


@triton.jit(do_not_specialize=["requests"])
def test_kernel(
    logits, stride_r, stride_v, drafts, q_ptr, q_stride_r, q_stride_v, cu_drafts, temperature,
    draft_temperature, seeds, positions, accept_coins, tops, masses, bests, q_tops, q_masses,
    ratios, lengths, passes, requests, vocab,
    Q: tl.constexpr, COINS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Whether the coin of a draft is below its h; grid [max k * requests]."""
    pid = tl.program_id(0).to(tl.int64)
    b, j = pid % requests, pid // requests
    length = tl.load(lengths + b)
    if j < length:
        slot = tl.load(cu_drafts + b) + j
        t = tl.load(temperature + b).to(tl.float64)
        ratio = tl.load(ratios + slot)
        h = ratio
        if j + 1 < length:
            after, row = slot + 1, slot + 1 + b
            draft = tl.load(drafts + after)
            top, mass = tl.load(tops + row), tl.load(masses + row)
            soft = t == t
            q_scale = t
            q_top, q_mass = top, mass
            q_row = q_ptr + after * q_stride_r
            if Q == 2:
                tq = tl.load(draft_temperature + b).to(tl.float64)
                soft = tq > 0
                q_scale = scale_of(tq)
                q_top, q_mass = tl.load(q_tops + after), tl.load(q_masses + after)
            left = tl.zeros([], dtype=tl.float64)
            if t == 0:  # p is one at the largest logit: a single entry of q matters
                best = tl.load(bests + row)
                q = tl.where(best == draft, 1.0, 0.0).to(tl.float64)
                if Q != 0:
                    value = tl.load(q_row + best * q_stride_v).to(tl.float64)
                    if Q == 2:
                        value = mass_of(value, q_top, q_scale) / q_mass
                    q = tl.where(soft, value, q)
                left = tl.maximum(ratio - q, 0.0)
            else:
                start = tl.zeros([], dtype=tl.int64)
                scale = scale_of(t)
                while start < vocab:
                    part = residual_tile(
                        logits + row * stride_r, stride_v, q_row, q_stride_v, start, vocab, top,
                        mass, scale, ratio, draft, q_top, q_mass, q_scale, soft, Q, TILE,
                    )  # fmt: skip
                    left += tl.sum(part, 0)
                    start += TILE
                left = tl.where(sound(top, mass), left, 0.0)
            # r = 1 and nothing left: p = q follows, and a later draft passes for certain.
            rest = left + 1.0 - ratio
            h = tl.where(rest > 0, left / rest, 1.0)
        if COINS:
            coin = tl.load(accept_coins + slot).to(tl.float64)
        else:
            coin = request_uniform(tl.load(seeds + b), tl.load(positions + b) + j, ACCEPT_WORD)
        tl.store(passes + slot, (coin < h).to(tl.int32))


@triton.jit(do_not_specialize=["width"])
def last_kernel(
    logits, stride_r, stride_v, drafts, q_ptr, q_stride_r, q_stride_v, cu_drafts, temperature,
    draft_temperature, seeds, positions, final_coins, tops, masses, bests, q_tops, q_masses,
    ratios, lengths, passes, tokens, emitted, vocab, width,
    Q: tl.constexpr, COINS: tl.constexpr, TILE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Stop after the last draft that passed, draw, and write the output; grid [requests]."""
    b = tl.program_id(0).to(tl.int64)
    first, length = tl.load(cu_drafts + b), tl.load(lengths + b)
    stop = tl.zeros([], dtype=tl.int64)
    j = tl.zeros([], dtype=tl.int64)
    while j < length:
        j += 1
        stop = tl.where(tl.load(passes + first + j - 1) == 1, j, stop)
    slot, row = first + stop, first + b + stop
    recovered = stop < length
    draft = tl.load(drafts + slot, mask=recovered, other=-1)
    ratio = tl.load(ratios + slot - 1, mask=stop > 0, other=1.0)
    t = tl.load(temperature + b).to(tl.float64)
    top, mass = tl.load(tops + row), tl.load(masses + row)
    token = tl.load(bests + row)
    if (t > 0) & sound(top, mass):
        scale = scale_of(t)
        soft = recovered
        q_scale = scale
        q_top, q_mass = top, mass
        if Q == 2:
            tq = tl.load(draft_temperature + b).to(tl.float64)
            soft = recovered & (tq > 0)
            q_scale = scale_of(tq)
            q_top = tl.load(q_tops + slot, mask=soft, other=0.0)
            q_mass = tl.load(q_masses + slot, mask=soft, other=1.0)
        row_ptr, q_row = logits + row * stride_r, q_ptr + slot * q_stride_r
        total = tl.zeros([], dtype=tl.float64)
        start = tl.zeros([], dtype=tl.int64)
        while recovered & (start < vocab):
            part = residual_tile(
                row_ptr, stride_v, q_row, q_stride_v, start, vocab, top, mass, scale, ratio, draft,
                q_top, q_mass, q_scale, soft, Q, TILE,
            )  # fmt: skip
            total += tl.sum(part, 0)
            start += TILE
        # Nothing left: p = q up to rounding, and the token comes from p; as after a whole block.
        plain = (not recovered) | (not (total > 0))
        soft = soft & (not plain)
        draft = tl.where(plain, -1, draft)
        ratio = tl.where(plain, 1.0, ratio)
        total = tl.where(plain, 1.0, total)
        if COINS:
            coin = tl.load(final_coins + b).to(tl.float64)
        else:
            coin = request_uniform(tl.load(seeds + b), tl.load(positions + b), FINAL_WORD)
        point = tl.minimum(coin, BELOW_ONE) * total
        token = tl.zeros([], dtype=tl.int64) - 1
        last = tl.zeros([], dtype=tl.int64)
        before = tl.zeros([], dtype=tl.float64)
        start = tl.zeros([], dtype=tl.int64)
        while (token < 0) & (start < vocab):
            part = residual_tile(
                row_ptr, stride_v, q_row, q_stride_v, start, vocab, top, mass, scale, ratio, draft,
                q_top, q_mass, q_scale, soft, Q, TILE,
            )  # fmt: skip
            i = start + tl.arange(0, TILE)
            beyond = (tl.cumsum(part, 0) + before > point) & (part > 0)
            found = tl.min(tl.where(beyond, i, vocab), 0)
            token = tl.where(found < vocab, found, token)
            last = tl.maximum(last, tl.max(tl.where(part > 0, i, 0), 0))
            before += tl.sum(part, 0)
            start += TILE
        token = tl.where(token < 0, last, token)
    for begin in range(0, width, WIDTH):
        column = begin + tl.arange(0, WIDTH)
        out = tl.load(drafts + first + column, mask=column < stop, other=-1)
        out = tl.where(column == stop, token, out)
        tl.store(tokens + b * width + column, out, mask=column < width)
    tl.store(emitted + b, stop + 1)
