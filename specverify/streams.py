"""Counter-based random streams: every random number of a run has an address.

The generator is Philox 4x32 with 10 rounds (Salmon, Moraes, Dror and Shaw, "Parallel Random
Numbers: As Easy as 1, 2, 3", SC 2011): a keyed bijection of 128-bit counters, so a number depends
on where it is (trial, request, position, purpose) and never on how many were drawn before it.
Counts therefore do not change with the number of workers, the shards or the batch size, one trial
can be replayed alone, and a kernel that implements the same map draws the same bits.

One block of four 32-bit words serves two positions: position ``p`` reads words ``2 * (p & 1)``
(high half) and ``2 * (p & 1) + 1`` (low half) of block ``p >> 1``.  Its uniform is the top 53 of
these 64 bits times 2**-53.

Two counter layouts, words from first to last:

* a :class:`Stream` (key: derived from the root seed and a path):
  ``trial mod 2**32, request, position >> 1, purpose << 24 | trial >> 32``;
* a request's own stream (key: the request's seed): ``position >> 1`` low half, high half,
  ``0, purpose << 24``.

The purpose is part of the counter, so numbers drawn for different purposes never share a block.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]

_MULTIPLIERS: Final = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)
_ROUNDS: Final = 10
# 8192 blocks keep the six arrays of a round (384 kB) in the second-level cache, and are enough to
# hide the fixed cost of some hundred numpy calls.
_CHUNK: Final = 8192


class Purpose(enum.IntEnum):
    """What a number is drawn for; the values are part of every counter and never change."""

    DRAFT = 1
    ACCEPT = 2
    FINAL = 3
    COMPLETION = 4
    SEED = 5
    LAYOUT = 6
    NOISE = 7


def philox4x32(
    counter: npt.NDArray[np.uint32], key: npt.NDArray[np.uint32], rounds: int = _ROUNDS
) -> npt.NDArray[np.uint32]:
    """Philox 4x32 blocks (Salmon et al. 2011, section 3.3).

    Args:
        counter: [..., 4] uint32.
        key: [..., 2] uint32; leading dimensions broadcast against those of ``counter``.
        rounds: number of rounds; 10 is the published standard.

    Returns:
        [..., 4] uint32.

    Raises:
        ValueError: if a last dimension or a dtype is not as above, or ``rounds`` is negative.
    """
    for field, value, words in (("counter", counter, 4), ("key", key, 2)):
        if value.dtype != np.uint32 or value.ndim < 1 or value.shape[-1] != words:
            raise ValueError(
                f"{field}: got {list(value.shape)} {value.dtype}; expected [..., {words}] uint32"
            )
    if rounds < 0:
        raise ValueError(f"rounds: got {rounds}; expected an integer >= 0")
    shape = np.broadcast_shapes(counter.shape[:-1], key.shape[:-1])
    state = [_spread(counter[..., word], shape) for word in range(4)]
    keys = [_spread(key[..., word], shape) for word in range(2)]
    _blocks(state, keys[0], keys[1], rounds)
    return np.stack(state, axis=-1).astype(np.uint32).reshape(*shape, 4)


@dataclasses.dataclass(frozen=True)
class Stream:
    """All random numbers under one 64-bit key.

    Attributes:
        key: the Philox key; its low half is the first key word.

    Raises:
        ValueError: if ``key`` is not an integer in [0, 2**64).
    """

    key: int

    def __post_init__(self) -> None:
        _integer("key", self.key, 64)

    @classmethod
    def derive(cls, root_seed: int, *path: str | int) -> Stream:
        """The stream of one place in a run, for example ``derive(0, "random", "V=4", 17)``.

        The key is the first 8 bytes (big-endian) of the SHA-256 digest of the root seed and the
        path, every part written with its type and length, so that different paths cannot be
        written alike.

        Raises:
            ValueError: if a part of the path is neither a string nor an integer.
        """
        text = b"".join(_part(part) for part in (root_seed, *path))
        return cls(int.from_bytes(hashlib.sha256(text).digest()[:8], "big"))

    def bits64(
        self,
        trial: npt.ArrayLike,
        request: npt.ArrayLike,
        position: npt.ArrayLike,
        purpose: Purpose,
    ) -> U64:
        """64 random bits for every address.

        Args:
            trial: integers in [0, 2**56).
            request: integers in [0, 2**32).
            position: integers in [0, 2**33).
            purpose: what the numbers are for.

        Returns:
            uint64 of the broadcast shape of the three arrays.

        Raises:
            ValueError: naming the argument that is out of range or not integral.
        """
        trials, requests, positions = np.broadcast_arrays(
            _integers("trial", trial, 56),
            _integers("request", request, 32),
            _integers("position", position, 33),
        )
        state = self._counter(trials, requests, positions >> np.uint64(1), purpose, trials.shape)
        self._run(state)
        return _pick(state, positions)

    def uniforms(
        self,
        trial: npt.ArrayLike,
        request: npt.ArrayLike,
        position: npt.ArrayLike,
        purpose: Purpose,
    ) -> F64:
        """Uniforms in [0, 1) on the grid of 2**-53; arguments, shape and errors as ``bits64``."""
        return _to_uniform(self.bits64(trial, request, position, purpose))

    def uniform_run(
        self,
        trials: npt.ArrayLike,
        requests: npt.ArrayLike,
        count: int,
        purpose: Purpose,
        first: int = 0,
    ) -> F64:
        """Uniforms of consecutive positions, each block computed once.

        Args:
            trials: [T] integers in [0, 2**56).
            requests: [B] integers in [0, 2**32).
            count: K >= 0, the number of positions.
            purpose: what the numbers are for.
            first: the first position; ``first + count <= 2**33``.

        Returns:
            [T, B, K] float64, equal to ``uniforms`` at positions ``first .. first + K - 1``.

        Raises:
            ValueError: naming the argument that is out of range or of the wrong shape.
        """
        rows = _vector("trials", trials, 56)
        columns = _vector("requests", requests, 32)
        _span(count, first)
        blocks = np.arange(first >> 1, (first + count + 1) >> 1, dtype=np.uint64)
        drawn = np.empty((rows.size, columns.size, 2 * blocks.size))
        for part in _parts(rows.size, columns.size * blocks.size):
            trial = rows[part, None, None]
            shape = (trial.size, columns.size, blocks.size)
            state = self._counter(trial, columns[:, None], blocks, purpose, shape)
            self._run(state)
            _pairs(state, drawn[part])
        return drawn[:, :, first & 1 :][:, :, :count]

    def _counter(
        self, trial: U64, request: U64, block: U64, purpose: Purpose, shape: tuple[int, ...]
    ) -> list[U64]:
        last = (trial >> _HALF) | np.uint64(Purpose(purpose) << 24)
        return [_spread(word, shape) for word in (trial & _LOW, request, block, last)]

    def _run(self, state: list[U64]) -> None:
        _blocks(state, np.uint64(self.key & 0xFFFFFFFF), np.uint64(self.key >> 32), _ROUNDS)


def request_uniforms(seeds: npt.ArrayLike, positions: npt.ArrayLike, purpose: Purpose) -> F64:
    """Uniforms from requests' own streams, whose key is the request's seed.

    Args:
        seeds: integers in [0, 2**64).
        positions: integers in [0, 2**63).
        purpose: what the numbers are for.

    Returns:
        float64 in [0, 1) on the grid of 2**-53, of the broadcast shape of the two arrays.

    Raises:
        ValueError: naming the argument that is out of range or not integral.
    """
    keys, places = np.broadcast_arrays(
        _integers("seeds", seeds, 64), _integers("positions", positions, 63)
    )
    state = _request_blocks(keys, places >> np.uint64(1), purpose)
    return _to_uniform(_pick(state, places))


def request_uniform_run(
    seeds: npt.ArrayLike, positions: npt.ArrayLike, count: int, purpose: Purpose
) -> F64:
    """Uniforms of consecutive positions of each request, each block computed once.

    Args:
        seeds: [N] integers in [0, 2**64).
        positions: [N] integers in [0, 2**62): where each request starts.
        count: K >= 0, the number of positions.
        purpose: what the numbers are for.

    Returns:
        [N, K] float64, equal to ``request_uniforms`` at ``positions + 0 .. positions + K - 1``.

    Raises:
        ValueError: naming the argument that is out of range or of the wrong shape.
    """
    keys = _vector("seeds", seeds, 64)
    places = _vector("positions", positions, 62)
    if keys.size != places.size:
        raise ValueError(f"positions: got [{places.size}]; expected [N] = [{keys.size}] as seeds")
    _span(count, 0)
    odd = (places & np.uint64(1)).astype(bool)
    any_odd = bool(odd.any())
    blocks = np.arange((count + 1 + any_odd) >> 1, dtype=np.uint64)
    drawn = np.empty((keys.size, 2 * blocks.size))
    for part in _parts(keys.size, blocks.size):
        starts = places[part, None] >> np.uint64(1)
        _pairs(_request_blocks(keys[part, None], starts + blocks, purpose), drawn[part])
    if not any_odd:
        return drawn[:, :count]
    return np.where(odd[:, None], drawn[:, 1 : count + 1], drawn[:, :count])


def _request_blocks(keys: U64, block: U64, purpose: Purpose) -> list[U64]:
    """The blocks of requests' own streams, [4] of flat uint64."""
    shape = np.broadcast_shapes(keys.shape, block.shape)
    last = np.uint64(Purpose(purpose) << 24)
    words = (block & _LOW, block >> _HALF, np.uint64(0), last)
    state = [_spread(word, shape) for word in words]
    _blocks(state, _spread(keys & _LOW, shape), _spread(keys >> _HALF, shape), _ROUNDS)
    return state


def _spread(values: npt.NDArray[np.uint32] | U64 | np.uint64, shape: tuple[int, ...]) -> U64:
    """A flat, writable uint64 copy of ``values`` broadcast to ``shape``."""
    flat = np.empty(shape, dtype=np.uint64)
    flat[...] = values
    return flat.reshape(-1)


def _parts(rows: int, blocks: int) -> Iterator[slice]:
    """Slices of the rows, ``blocks`` blocks each, that keep one round's arrays in the cache."""
    step = max(1, _CHUNK // max(1, blocks))
    return (slice(start, start + step) for start in range(0, rows, step))


def _blocks(state: list[U64], low: U64 | np.uint64, high: U64 | np.uint64, rounds: int) -> None:
    """Replace flat counters by their Philox blocks, in place, a cache-sized chunk at a time."""
    size = state[0].size
    scratch = np.empty((2, min(size, _CHUNK)), dtype=np.uint64)
    for start in range(0, size, _CHUNK):
        part = slice(start, min(start + _CHUNK, size))
        _chunk([word[part] for word in state], _at(low, part), _at(high, part), rounds, scratch)


def _at(key: U64 | np.uint64, part: slice) -> U64 | np.uint64:
    return key[part] if isinstance(key, np.ndarray) else key


def _chunk(
    state: list[U64], low: U64 | np.uint64, high: U64 | np.uint64, rounds: int, scratch: U64
) -> None:
    """The rounds on one chunk.

    Words 0 and 2, and only they, are multiplied; so only they are cut to 32 bits in every round.
    Words 1 and 3 and the keys may carry anything in their upper halves until the end.
    """
    c0, c1, c2, c3 = state
    one, two = c1, c3
    a, b = scratch[0, : c0.size], scratch[1, : c0.size]
    for turn in range(rounds):
        np.multiply(c0, _MULTIPLIERS[0], out=a)
        np.multiply(c2, _MULTIPLIERS[1], out=b)
        _mix(b, c1, _bumped(low, turn * _WEYL[0]), c0)
        _mix(a, c3, _bumped(high, turn * _WEYL[1]), c2)
        c1, b = b, c1
        c3, a = a, c3
    # After an odd number of rounds the low halves are in the scratch, after an even one in place.
    np.bitwise_and(c1, _LOW, out=one)
    np.bitwise_and(c3, _LOW, out=two)


def _bumped(key: U64 | np.uint64, step: int) -> U64 | np.uint64:
    """The key of a later round, right in its low 32 bits: a step is < 2**36, so none is lost."""
    return key + np.uint64(step) if step else key


def _mix(product: U64, word: U64, key: U64 | np.uint64, out: U64) -> None:
    """``out = (high half of product) ^ word ^ key``, in 32 bits."""
    np.right_shift(product, _HALF, out=out)
    np.bitwise_xor(out, word, out=out)
    np.bitwise_xor(out, key, out=out)
    np.bitwise_and(out, _LOW, out=out)


def _pick(state: list[U64], positions: U64) -> U64:
    """The 64 bits that each position reads of its block."""
    odd = (positions & np.uint64(1)).astype(bool)
    high = np.where(odd.reshape(-1), state[2], state[0])
    low = np.where(odd.reshape(-1), state[3], state[1])
    return ((high << _HALF) | low).reshape(positions.shape)


def _pairs(state: list[U64], out: F64) -> None:
    """Write the uniforms of both positions of each block into contiguous ``out``."""
    pairs = out.reshape(-1, 2)
    for half in (0, 1):
        bits = state[2 * half]
        np.left_shift(bits, _HALF, out=bits)
        np.bitwise_or(bits, state[2 * half + 1], out=bits)
        pairs[:, half] = _to_uniform(bits)


def _to_uniform(bits: U64) -> F64:
    """The top 53 bits times 2**-53: every value is exact, and 1 cannot occur."""
    return np.multiply((bits >> np.uint64(11)).view(np.int64), 2.0**-53, dtype=np.float64)


def _part(part: str | int) -> bytes:
    """One part of a path as type, length and text."""
    if isinstance(part, bool) or not isinstance(part, str | int):
        raise ValueError(f"path: got {part!r}; expected strings and integers only")
    text = str(part).encode()
    return b"%s%d:%s" % (b"s" if isinstance(part, str) else b"i", len(text), text)


def _integer(field: str, value: int, bits: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << bits:
        raise ValueError(f"{field}: got {value!r}; expected an integer in [0, 2**{bits})")


def _span(count: int, first: int) -> None:
    _integer("count", count, 33)
    _integer("first", first, 33)
    if first + count > 1 << 33:
        raise ValueError(f"count: got {count} from position {first}; expected an end <= 2**33")


def _integers(field: str, values: npt.ArrayLike, bits: int) -> U64:
    """Check that an array holds integers in [0, 2**bits) and return it as uint64."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{field}: got {array.dtype}; expected integers in [0, 2**{bits})")
    if array.size:
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >> bits:
            worst = low if low < 0 else high
            raise ValueError(f"{field}: got {worst}; expected integers in [0, 2**{bits})")
    return array.astype(np.uint64, copy=False)


def _vector(field: str, values: npt.ArrayLike, bits: int) -> U64:
    array = _integers(field, values, bits)
    if array.ndim != 1:
        raise ValueError(f"{field}: got {list(array.shape)}; expected one dimension")
    return array
