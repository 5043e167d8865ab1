"""Device functions that the kernels share: streams, softmax tiles and draws by inverse CDF.

A row of logits is cut into tiles.  A first pass leaves, for every tile, its largest logit and the
sum of exponentials relative to that logit; everything a verification step asks of a row (p of one
token, the total, the tile that a coin falls into) follows from these pairs, and only the chosen
tile is read a second time.  Exponentials and the sums inside a tile are fp32; sums over tiles, the
cumulative sum inside the chosen tile and every comparison with a coin are float64.
"""

# Triton's kernel language is not typed Python, and its compile-time branches must stay apart.
# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

ACCEPT_WORD = tl.constexpr(2 << 24)  # streams.Purpose.ACCEPT
FINAL_WORD = tl.constexpr(3 << 24)  # streams.Purpose.FINAL
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
BELOW_ONE = tl.constexpr(1.0 - 2.0**-53)


@triton.jit
def uniform53(high, low):
    """The top 53 of 64 random bits, times 2**-53 (``streams._to_uniform``)."""
    bits = (high.to(tl.uint64) << 32) | low.to(tl.uint64)
    return (bits >> 11).to(tl.int64).to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def block_of(seed, place, third, purpose):
    """The Philox block of a request's own stream that serves position ``place``."""
    block = place >> 1
    c0 = (block & 0xFFFFFFFF).to(tl.uint32)
    c1 = ((block >> 32) & 0xFFFFFFFF).to(tl.uint32)
    zero = c0 ^ c0
    c2 = zero + third.to(tl.uint32)
    c3 = zero + purpose
    return tl.philox(seed, c0, c1, c2, c3)


@triton.jit
def request_uniform(seed, place, purpose):
    """``streams.request_uniforms`` of one seed and position."""
    w0, w1, w2, w3 = block_of(seed, place, place ^ place, purpose)
    odd = (place & 1) == 1
    return uniform53(tl.where(odd, w2, w0), tl.where(odd, w3, w1))


@triton.jit
def retry_uniforms(seed, place, attempt):
    """Two uniforms of the ``attempt``-th retry (from 1) of a final draw, in blocks of their own."""
    third = ((attempt << 1) | (place & 1)) & 0xFFFFFFFF
    w0, w1, w2, w3 = block_of(seed, place, third, FINAL_WORD)
    return uniform53(w0, w1), uniform53(w2, w3)


@triton.jit
def inverse_temperature(temperature):
    """log2(e) / T as fp32, finite for any T >= 0: exp2(x * it) is exp(x / T) for x <= 0."""
    safe = tl.maximum(temperature.to(tl.float64), 1e-37)
    return tl.where(temperature > 0, LOG2E / safe, 0.0).to(tl.float32)


@triton.jit
def filters_on(temperature, top_k, top_p, min_p, vocab):
    """Whether a request has a filter that changes its law."""
    some = ((top_k > 0) & (top_k < vocab)) | (top_p < 1) | (min_p > 0)
    return some & (temperature > 0)


@triton.jit
def tile_exponentials(x, top, scale):
    """exp((x - top) / T): 0 at -inf, also in a tile that holds nothing else."""
    anchor = tl.where(top == float("-inf"), 0.0, top)
    return tl.exp2((x - anchor) * scale)


@triton.jit
def load_pairs(tile_max, tile_sum, row, tiles, TILES: tl.constexpr):
    """The (max, sum) pairs of a row; past its last tile (-inf, 0)."""
    i = tl.arange(0, TILES)
    at = row * tiles + i
    top = tl.load(tile_max + at, mask=i < tiles, other=float("-inf"), cache_modifier=".cg")
    total = tl.load(tile_sum + at, mask=i < tiles, other=0.0, cache_modifier=".cg")
    return top, total


@triton.jit
def exponential(x, anchor, scale):
    """exp((x - anchor) / T) in float64, for a few numbers: anchors may be far apart."""
    safe = tl.where(anchor == float("-inf"), 0.0, anchor)
    return tl.exp2((x.to(tl.float32) - safe).to(tl.float64) * scale.to(tl.float64))


@triton.jit
def quick_exponential(x, anchor, scale):
    """``exponential`` to a relative 2**-22 and with the range of float64, in fp32 instructions.

    Float64 functions are long chains in a program of one warp.  The product with the scale is
    carried in two fp32 numbers; the power of two is written into the exponent of the result.
    """
    safe = tl.where(anchor == float("-inf"), 0.0, anchor)
    distance = x.to(tl.float32) - safe
    octaves = distance * scale
    rest = tl.fma(distance, scale, -octaves)
    octaves = tl.minimum(tl.maximum(octaves, -1000.0), 1000.0)
    whole = tl.floor(octaves)
    near_one = tl.exp2(octaves - whole) * (1.0 + rest * LN2)
    power = ((whole.to(tl.int32) + 1023).to(tl.int64) << 52).to(tl.float64, bitcast=True)
    return tl.where(octaves > -1000.0, near_one.to(tl.float64) * power, 0.0)


@triton.jit
def quick_weights(anchor, total, row_anchor, scale):
    """``tile_weights`` by ``quick_exponential``."""
    return total.to(tl.float64) * quick_exponential(anchor, row_anchor, scale)


@triton.jit
def tile_weights(anchor, total, row_anchor, scale):
    """float64 mass of every tile relative to the row's largest anchor."""
    return total.to(tl.float64) * exponential(anchor, row_anchor, scale)


@triton.jit
def pick(weights, point, BLOCK: tl.constexpr):
    """First index whose cumulative weight exceeds ``point``, and the mass before it.

    Never an index of weight zero, whatever the rounding: where ``point`` reaches the total it is
    the last index with a weight.
    """
    i = tl.arange(0, BLOCK)
    upto = tl.cumsum(weights, 0)
    beyond = (upto > point) & (weights > 0)
    # Both reductions always: as a branch, ptxas made a predicated warp reduction of the second.
    first = tl.min(tl.where(beyond, i, BLOCK), 0)
    last = tl.max(tl.where(weights > 0, i, 0), 0)
    chosen = tl.where(first == BLOCK, last, first)
    before = tl.sum(tl.where(i == chosen, upto - weights, 0.0), 0)
    return chosen, before


@triton.jit
def places(TILE: tl.constexpr):
    """int32 places in a tile, as [TILE / 32, 32] (by 16 for the smallest tiles)."""
    INNER: tl.constexpr = 32 if TILE >= 64 else 16
    OUTER: tl.constexpr = TILE // INNER
    return tl.arange(0, OUTER)[:, None] * INNER + tl.arange(0, INNER)[None, :]


@triton.jit
def load_at(base, inside, stride, mask, other):
    """Elements ``inside`` (int32) past a pointer; 64-bit products unless they are adjacent."""
    if stride == 1:
        x = tl.load(base + inside, mask=mask, other=other)
    else:
        x = tl.load(base + inside.to(tl.int64) * stride, mask=mask, other=other)
    return x.to(tl.float32)


@triton.jit
def row_tile(row_ptr, stride, tile, vocab, other, TILE: tl.constexpr):
    """One tile of a row as fp32, ``other`` past its end; laid out as ``places``."""
    start = tile.to(tl.int64) * TILE
    inside = places(TILE)
    left = (vocab - start).to(tl.int32)
    return load_at(row_ptr + start * stride, inside, stride, inside < left, other)


@triton.jit
def all_max(x):
    """The largest of a tile."""
    return tl.max(tl.max(x, 1), 0)


@triton.jit
def all_sum(x):
    """float64 sum of a tile of fp32: fp32 over 32 neighbours, float64 over those."""
    return tl.sum(tl.sum(x, 1).to(tl.float64), 0)


@triton.jit
def pick_in_tile(weights, tile, point, TILE: tl.constexpr):
    """The token of a tile of fp32 weights at mass ``point``; never one of weight zero.

    First 32 neighbours are chosen, then one of them, so that a float64 sum costs few registers.
    """
    INNER: tl.constexpr = 32 if TILE >= 64 else 16
    OUTER: tl.constexpr = TILE // INNER
    outer, before = pick(tl.sum(weights, 1).to(tl.float64), point, OUTER)
    mine = tl.arange(0, OUTER)[:, None] == outer
    near = tl.sum(tl.where(mine, weights, 0.0), 0).to(tl.float64)
    inner, _ = pick(near, point - before, INNER)
    return tile.to(tl.int64) * TILE + outer * INNER + inner


@triton.jit
def draw_from_row(
    row_ptr, stride, vocab, top, weights, mass, row_top, excluded, coin, scale,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """A token of softmax(row) without ``excluded`` (-1: none), by inverse CDF in token order.

    ``mass`` is the sum of ``weights``.
    """
    point = coin * mass
    tile, before = pick(weights, point, TILES)
    tile_top = tl.max(tl.where(tl.arange(0, TILES) == tile, top, float("-inf")), 0)
    units = quick_exponential(row_top, tile_top, scale)
    x = row_tile(row_ptr, stride, tile, vocab, float("-inf"), TILE)
    e = tile_exponentials(x, tile_top, scale)
    e = tl.where(places(TILE) == excluded - tile.to(tl.int64) * TILE, 0.0, e)
    return pick_in_tile(e, tile, (point - before) * units, TILE)


@triton.jit
def first_of(row_ptr, stride, vocab, top, row_top, TILE: tl.constexpr, TILES: tl.constexpr):
    """The lowest id of the largest logit in the first tile of the largest anchor.

    For a greedy row, whose anchors are maxima, this is the argmax.  0 where nothing is finite.
    """
    i = tl.arange(0, TILES)
    tile = tl.min(tl.where(top == row_top, i, TILES), 0)
    tile = tl.where(tile == TILES, 0, tile)
    x = row_tile(row_ptr, stride, tile, vocab, float("-inf"), TILE)
    best = all_max(x)
    at = tl.min(tl.min(tl.where(x == best, places(TILE), TILE), 1), 0)
    found = (best > float("-inf")) & (at < TILE)
    return tl.where(found, tile.to(tl.int64) * TILE + at, 0)
