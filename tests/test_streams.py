from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specverify import streams
from specverify.streams import (
    Purpose,
    Stream,
    philox4x32,
    request_uniform_run,
    request_uniforms,
)

fixed = settings(derandomize=True, deadline=None)

M0, M1, W0, W1, LOW = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85, 0xFFFFFFFF

# Known answers published with Random123 (philox4x32, 10 rounds).
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def slow_philox(counter: list[int], key: list[int], rounds: int = 10) -> list[int]:
    """The same map in Python integers, straight from the paper's description of one round."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(rounds):
        left, right = M0 * c0, M1 * c2
        c0, c1, c2, c3 = (right >> 32) ^ c1 ^ k0, right & LOW, (left >> 32) ^ c3 ^ k1, left & LOW
        k0, k1 = (k0 + W0) & LOW, (k1 + W1) & LOW
    return [c0, c1, c2, c3]


def slow_uniform(counter: list[int], key: int, position: int) -> float:
    block = slow_philox(counter, [key & LOW, key >> 32])
    high, low = block[2 * (position & 1) : 2 * (position & 1) + 2]
    return ((high << 32 | low) >> 11) / 2**53


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_philox_known_answers(counter: str, key: str, answer: str) -> None:
    got = philox4x32(np.array(words(counter), np.uint32), np.array(words(key), np.uint32))
    assert got.dtype == np.uint32
    assert got.tolist() == words(answer)
    assert slow_philox(words(counter), words(key)) == words(answer)


@given(
    st.lists(st.lists(st.integers(0, LOW), min_size=4, max_size=4), min_size=1, max_size=5),
    st.lists(st.integers(0, LOW), min_size=2, max_size=2),
    st.integers(0, 12),
)
@settings(fixed)
def test_philox_equals_integer_arithmetic(
    counters: list[list[int]], key: list[int], rounds: int
) -> None:
    got = philox4x32(np.array(counters, np.uint32), np.array(key, np.uint32), rounds)
    assert got.tolist() == [slow_philox(counter, key, rounds) for counter in counters]


def test_philox_broadcasts_keys_against_counters() -> None:
    counters = np.arange(24, dtype=np.uint32).reshape(2, 3, 4)
    keys = np.arange(4, dtype=np.uint32).reshape(2, 1, 2)
    got = philox4x32(counters, keys)
    assert got.shape == (2, 3, 4)
    for i in range(2):
        for j in range(3):
            assert got[i, j].tolist() == slow_philox(counters[i, j].tolist(), keys[i, 0].tolist())


def test_chunks_do_not_show() -> None:
    size = 2 * streams._CHUNK + 17
    trials = np.arange(size)
    whole = Stream(7).uniforms(trials, 3, 1, Purpose.ACCEPT)
    for at in (0, streams._CHUNK - 1, streams._CHUNK, size - 1):
        assert whole[at] == Stream(7).uniforms(at, 3, 1, Purpose.ACCEPT)
    run = Stream(7).uniform_run(trials, [3], 3, Purpose.ACCEPT)
    assert np.array_equal(run[:, 0, 1], whole)
    seeds = trials.astype(np.uint64)
    own = request_uniform_run(seeds, np.zeros(size, np.int64), 2, Purpose.FINAL)
    assert np.array_equal(own[:, 1], request_uniforms(seeds, 1, Purpose.FINAL))


@given(
    key=st.integers(0, 2**64 - 1),
    trial=st.integers(0, 2**56 - 1),
    request=st.integers(0, 2**32 - 1),
    position=st.integers(0, 2**33 - 1),
    purpose=st.sampled_from(Purpose),
)
@settings(fixed)
def test_stream_counter_layout(
    key: int, trial: int, request: int, position: int, purpose: Purpose
) -> None:
    counter = [trial & LOW, request, position >> 1, purpose << 24 | trial >> 32]
    got = Stream(key).uniforms(trial, request, position, purpose)
    assert got.shape == ()
    assert float(got) == slow_uniform(counter, key, position)


@given(
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**63 - 1),
    purpose=st.sampled_from(Purpose),
)
@settings(fixed)
def test_request_counter_layout(seed: int, position: int, purpose: Purpose) -> None:
    block = position >> 1
    got = request_uniforms(np.array([seed], np.uint64), [position], purpose)
    assert got.tolist() == [
        slow_uniform([block & LOW, block >> 32, 0, purpose << 24], seed, position)
    ]


@given(
    trials=st.lists(st.integers(0, 2**56 - 1), max_size=4),
    requests=st.lists(st.integers(0, 2**32 - 1), max_size=3),
    count=st.integers(0, 7),
    first=st.integers(0, 2**33 - 7),
)
@settings(fixed)
def test_uniform_run_equals_single_draws(
    trials: list[int], requests: list[int], count: int, first: int
) -> None:
    stream = Stream.derive(1, "run")
    run = stream.uniform_run(trials, requests, count, Purpose.DRAFT, first)
    assert run.shape == (len(trials), len(requests), count)
    for t, trial in enumerate(trials):
        for b, request in enumerate(requests):
            for k in range(count):
                single = stream.uniforms(trial, request, first + k, Purpose.DRAFT)
                assert run[t, b, k] == single


@given(
    rows=st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**62 - 1)), max_size=5),
    count=st.integers(0, 7),
)
@settings(fixed)
def test_request_uniform_run_equals_single_draws(rows: list[tuple[int, int]], count: int) -> None:
    seeds = np.array([seed for seed, _ in rows], np.uint64)
    positions = np.array([position for _, position in rows], np.int64)
    run = request_uniform_run(seeds, positions, count, Purpose.FINAL)
    assert run.shape == (len(rows), count)
    for n in range(len(rows)):
        for k in range(count):
            single = request_uniforms(seeds[n : n + 1], positions[n : n + 1] + k, Purpose.FINAL)
            assert run[n, k] == single[0]


def test_uniforms_broadcast_and_lie_on_the_grid() -> None:
    grid = Stream(5).uniforms(
        np.arange(50)[:, None, None], np.arange(3)[:, None], np.arange(4), Purpose.ACCEPT
    )
    assert grid.shape == (50, 3, 4)
    assert np.array_equal(grid * 2**53, np.floor(grid * 2**53))
    assert grid.min() >= 0
    assert grid.max() < 1
    bits = Stream(5).bits64(np.arange(50)[:, None, None], np.arange(3)[:, None], np.arange(4),
                            Purpose.ACCEPT)  # fmt: skip
    assert bits.dtype == np.uint64
    assert np.array_equal(grid, (bits >> np.uint64(11)).astype(np.float64) / 2**53)


def test_the_largest_uniform_is_below_one() -> None:
    bits = np.array([0, 2**64 - 1], np.uint64)
    assert streams._to_uniform(bits).tolist() == [0.0, 1 - 2.0**-53]


def test_addresses_never_share_a_number() -> None:
    """64-bit outputs of distinct addresses: a single collision among 8e4 has probability 2e-10."""
    stream = Stream.derive(0, "disjoint")
    bits = [
        stream.bits64(np.arange(60)[:, None, None] << high, np.arange(10)[:, None],
                      np.arange(10), purpose).reshape(-1)
        for purpose in Purpose
        for high in (0, 33)
    ]  # fmt: skip
    # Trial 0 is the same address at both shifts.
    assert np.unique(np.concatenate(bits)).size == len(Purpose) * (2 * 6000 - 100)


def test_derived_keys_depend_on_every_part_and_on_its_type() -> None:
    paths: list[tuple[str | int, ...]] = [
        (), ("a",), ("a", "b"), ("ab",), ("a", ""), ("", "a"), (1,), ("1",), (11,), (1, 1),
        ("a1",), ("a", 1), (-1,), ("i1:1",),
    ]  # fmt: skip
    keys = {Stream.derive(0, *path).key for path in paths}
    assert len(keys) == len(paths)
    assert Stream.derive(0, 1) != Stream.derive(1, 0)
    assert Stream.derive(3, "x", 4) == Stream.derive(3, "x", 4)


def test_derived_key_is_fixed_for_ever() -> None:
    """Replay tokens of older versions must keep their meaning."""
    assert Stream.derive(0).key == int.from_bytes(hashlib.sha256(b"i1:0").digest()[:8], "big")
    assert Stream.derive(0, "a", 17).key == int.from_bytes(
        hashlib.sha256(b"i1:0s1:ai2:17").digest()[:8], "big"
    )


# --- statistics; fixed seed, alpha 1e-6 a test -------------------------------------------------

ALPHA = 1e-6


def chi2_p(counts: np.ndarray) -> float:
    return float(stats.chisquare(counts.reshape(-1)).pvalue)


def stream_p_values() -> dict[str, float]:
    """Single values in 64 cells, and neighbours along each axis in 8 x 8 cells."""
    drawn = Stream.derive(0, "uniformity").uniform_run(range(50_000), range(2), 2, Purpose.DRAFT)
    fine, cell = (drawn * 64).astype(int), (drawn * 8).astype(int)
    found = {
        f"value {b} {k}": chi2_p(np.bincount(fine[:, b, k], minlength=64))
        for b in range(2)
        for k in range(2)
    }
    pairs = {
        "positions": (cell[:, :, 0], cell[:, :, 1]),
        "requests": (cell[:, 0], cell[:, 1]),
        "trials": (cell[:-1:2], cell[1::2]),
    }
    for name, (one, two) in pairs.items():
        found[name] = chi2_p(np.bincount((one * 8 + two).reshape(-1), minlength=64))
    return found


def request_p_values() -> dict[str, float]:
    """The same for requests' own streams, with neighbouring seeds."""
    seeds = np.arange(50_000, dtype=np.uint64)
    drawn = request_uniform_run(seeds, np.full(50_000, 3), 3, Purpose.ACCEPT)
    cell = (drawn * 8).astype(int)
    found = {"value": chi2_p(np.bincount((drawn.reshape(-1) * 64).astype(int), minlength=64))}
    pairs = {f"{i} {j}": (cell[:, i], cell[:, j]) for i, j in ((0, 1), (1, 2), (0, 2))}
    pairs["seeds"] = (cell[:-1:2], cell[1::2])
    for name, (one, two) in pairs.items():
        found[name] = chi2_p(np.bincount((one * 8 + two).reshape(-1), minlength=64))
    return found


@pytest.mark.parametrize("p_values", [stream_p_values, request_p_values])
def test_values_and_neighbours_are_uniform(p_values: Callable[[], dict[str, float]]) -> None:
    assert min(p_values().values()) > ALPHA


@pytest.mark.parametrize("p_values", [stream_p_values, request_p_values])
def test_the_uniformity_tests_reject_two_rounds(
    p_values: Callable[[], dict[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power: Philox cut to 2 rounds, a bijection still, is rejected beyond any doubt."""
    monkeypatch.setattr(streams, "_ROUNDS", 2)
    assert min(p_values().values()) < 1e-30


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trial", "request_", "position", "name"),
    [
        (-1, 0, 0, "trial"),
        (2**56, 0, 0, "trial"),
        (0, 2**32, 0, "request"),
        (0, -5, 0, "request"),
        (0, 0, 2**33, "position"),
        (0, 0, -1, "position"),
        (0.5, 0, 0, "trial"),
        (0, np.array([True]), 0, "request"),
    ],
)
def test_bad_addresses_are_named(trial: float, request_: int, position: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: got"):
        Stream(0).uniforms(trial, request_, position, Purpose.DRAFT)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"^key: got 18446744073709551616"):
        Stream(2**64)
    with pytest.raises(ValueError, match=r"^key"):
        Stream(-1)
    with pytest.raises(ValueError, match=r"^path: got True"):
        Stream.derive(0, True)
    with pytest.raises(ValueError, match=r"^path: got 0.5"):
        Stream.derive(0, 0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^trials: got \[1, 1\]"):
        Stream(0).uniform_run([[0]], [0], 1, Purpose.DRAFT)
    with pytest.raises(ValueError, match=r"^count: got -1"):
        Stream(0).uniform_run([0], [0], -1, Purpose.DRAFT)
    with pytest.raises(ValueError, match=r"^count: got 2 from position"):
        Stream(0).uniform_run([0], [0], 2, Purpose.DRAFT, 2**33 - 1)
    with pytest.raises(ValueError, match=r"^seeds: got -1"):
        request_uniforms([-1], [0], Purpose.DRAFT)
    with pytest.raises(ValueError, match=r"^positions: got -1"):
        request_uniforms([1], [-1], Purpose.DRAFT)
    with pytest.raises(ValueError, match=r"^positions: got \[2\]"):
        request_uniform_run([1], [0, 1], 1, Purpose.DRAFT)
    with pytest.raises(ValueError, match="not a valid Purpose"):
        Stream(0).uniforms(0, 0, 0, 99)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^counter: got \[3\] uint32"):
        philox4x32(np.zeros(3, np.uint32), np.zeros(2, np.uint32))
    with pytest.raises(ValueError, match=r"^key: got \[2\] int64"):
        philox4x32(np.zeros(4, np.uint32), np.zeros(2, np.int64))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^rounds: got -1"):
        philox4x32(np.zeros(4, np.uint32), np.zeros(2, np.uint32), -1)
