"""What rounding alone does: bounds against exact computations, tolerant tests, the envelope."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evidence_cases import at_least, at_most, draft_leak, softmax_law, uniform_law, worst_direction
from scipy import special, stats

from specverify.evidence import cressie_read, pool, trials_needed
from specverify.evidence.eprocess import dirichlet_log_e
from specverify.evidence.float_budget import (
    Allowance,
    Arithmetic,
    allowance,
    envelope_cost,
    envelope_limit,
    envelope_log_e,
    float_tv,
    least_gate,
)
from specverify.evidence.tolerant import (
    ratio,
    threshold,
    tolerant_detectable,
    tolerant_test,
    tolerant_trials_needed,
)


def half(p):
    """Stored in float16 or bfloat16 and renormalised, exactly."""
    bits = np.asarray(p, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return {
        "bfloat16": rounded.view(np.float32).astype(np.float64),
        "float16": np.asarray(p, np.float16).astype(np.float64),
    }


def inverse_cdf(p, bits, dtype):
    """Exact law of searchsorted(cumsum, u), u on a grid; the last cell takes what is left."""
    total = np.cumsum(p.astype(dtype), dtype=dtype).astype(np.float64)
    # u = j 2^-bits is below the sum for ceil(sum 2^bits) values of j
    ends = np.minimum(np.ceil(total * 2.0**bits) / 2.0**bits, 1.0)
    ends[-1] = 1.0
    return np.diff(ends, prepend=0.0)


def inside(q, p, allowed):
    return np.all(np.abs(q - p) <= allowed.cells(p) * (1 + 1e-9) + 1e-15)


@pytest.mark.parametrize("vocab", [1024, 32_000, 151_936])
def test_rounding_stays_within_its_bounds_and_near_its_measured_size(vocab):
    p = softmax_law(vocab)
    logits = np.log(p).astype(np.float32)
    weights = np.exp(logits - logits.max(), dtype=np.float32)
    exact = special.softmax(logits.astype(np.float64))
    soft = (weights / weights.sum(dtype=np.float32)).astype(np.float64)
    stored = half(p)
    cases = {
        ("float32-softmax",): (soft / soft.sum(), exact),
        ("bfloat16-probabilities",): (stored["bfloat16"] / stored["bfloat16"].sum(), p),
        ("float16-probabilities",): (stored["float16"] / stored["float16"].sum(), p),
        ("uniform-24-bits",): (inverse_cdf(p, 24, np.float64), p),
        ("uniform-23-bits",): (inverse_cdf(p, 23, np.float64), p),
        ("uniform-32-bits",): (inverse_cdf(p, 32, np.float64), p),
        ("float32-cumsum", "uniform-24-bits"): (inverse_cdf(p, 24, np.float32), p),
    }
    for steps, (law, target) in cases.items():
        assert inside(law, target, allowance(steps, vocab)), steps
        measured = 0.5 * np.abs(law - target).sum()
        assert measured <= 2.5 * float_tv(steps, vocab), steps
        assert measured >= 0.1 * float_tv(steps, vocab), steps


def race(p, bits, zero):
    """Exact law of argmin(-ln(u) / p), u = 1 .. 2^bits (or one less) grid steps, by enumeration."""
    grid = 2.0**-bits
    points = np.arange(1, 2**bits + zero)
    law = np.empty(len(p))
    for i in range(len(p)):
        times = -np.log(points * grid) / p[i]
        others = np.ones(len(points))
        for j in range(len(p)):
            if j != i:
                later = np.exp(-times * p[j]) / grid  # u_j below this; the lower id wins a tie
                count = np.ceil(later - 1e-9) - 1 if j < i else np.floor(later + 1e-9)
                others *= np.clip(count, 0, len(points)) / len(points)
        law[i] = others.mean()
    return law


@pytest.mark.parametrize("spread", [1.0, 3.0])
@pytest.mark.parametrize("zero", [False, True])
def test_a_race_on_a_grid_stays_within_its_bound(spread, zero):
    p, bits = softmax_law(32, 0, spread), 12
    law = race(p, bits, zero)
    assert law.sum() == pytest.approx(1)
    name = "race-24-bits-with-zero" if zero else "race-24-bits"
    real = allowance([name], 32)
    scale = 2.0 ** (24 - bits)  # the same formula on a coarser grid
    bound = Allowance(relative=scale * real.relative, absolute=scale * real.absolute)
    assert inside(law, p, bound)
    assert not inside(law, p, Allowance(relative=bound.relative / 8, absolute=bound.absolute / 8))


def test_measured_sizes_are_interpolated():
    assert float_tv(["float32-cumsum"], 32_000) == pytest.approx(1.6e-4)
    assert float_tv(["float32-cumsum", "uniform-24-bits"], 151_936) == pytest.approx(2.05e-3)
    assert 5e-6 < float_tv(["float32-cumsum"], 5000) < 1.6e-4
    assert float_tv(["float32-cumsum"], 64) < 5e-6
    assert float_tv(["race-24-bits-with-zero"], 10**9) == 1.0
    assert least_gate(["race-24-bits"], 151_936) == pytest.approx(1.25e-2)
    assert least_gate(["race-24-bits"], 10**9) == 1.0
    assert float_tv([], 10) == 0.0


def test_an_allowance_by_cell():
    allowed = Allowance(relative=0.01, absolute=1e-4, last=0.02)
    assert allowed.cells([0.5, 0.3, 0.2, 0.0]) == pytest.approx([5.1e-3, 3.1e-3, 0.0221, 0.0])
    found = allowance([Arithmetic.FLOAT32_CUMSUM, "uniform-24-bits"], 1024)
    assert (found.relative, found.absolute) == (0.0, 2.0**-25 + 2.0**-24)
    assert found.last == 1024 * 2.0**-25
    assert allowance(["race-24-bits"], 1000).relative == pytest.approx(1000 * 2.0**-24)


def test_thresholds_are_quantiles():
    for cells, lambda0, alpha in ((3, 1.0, 1e-9), (64, 30.0, 1e-6), (1000, 200.0, 1e-9)):
        limit = threshold(cells, lambda0, alpha)
        assert stats.ncx2.sf(limit, cells - 1, lambda0) == pytest.approx(alpha, rel=1e-3)
    assert threshold(5, 0.0, 1e-6) == pytest.approx(stats.chi2.isf(1e-6, 4))
    assert threshold(5, 1e-9, 1e-6) == pytest.approx(threshold(5, 0.0, 1e-6), rel=1e-6)


def test_no_allowance_is_the_ordinary_test():
    rng = np.random.default_rng(1)
    for cells in (1, 2, 5, 300):
        p = softmax_law(cells)
        for counts in (rng.multinomial(4000, p), rng.multinomial(4000, p[::-1])):
            found = tolerant_test(counts, p, Allowance(), alpha=1e-6)
            usual = cressie_read(counts, p, alpha=1e-6)
            assert found.p_value == pytest.approx(usual.p_value, rel=1e-9)
            assert (found.value, found.cells) == (pytest.approx(usual.value), usual.cells)
            assert found.lambda0 == 0
            if cells > 1:
                assert found.detectable_tv == pytest.approx(usual.detectable_tv)


def test_a_lawful_sampler_is_not_failed_for_its_floats():
    """A coarse grid that the ordinary test sees: 32 cells, uniforms of 10 bits, 1e6 trials."""
    p, n, runs = softmax_law(32, 0, 1.5), 10**6, 150
    law = inverse_cdf(p, 10, np.float64)
    allowed = Allowance(absolute=2.0**-10)
    assert inside(law, p, allowed)
    tables = np.random.default_rng(2).multinomial(n, law, size=runs)
    for level in (0.1, 0.01):
        hits = sum(tolerant_test(t, p, allowed, alpha=level).rejected for t in tables)
        assert hits <= at_most(level, runs)
    assert all(cressie_read(t, p, alpha=1e-9).rejected for t in tables[:20])


@pytest.mark.parametrize("cells", [2, 8])
def test_the_worst_lawful_deviation_is_rejected_with_probability_alpha(cells):
    p, tau, n, runs = uniform_law(cells), 0.01, 20_000, 600
    law = p + tau * np.where(np.arange(cells) % 2, 1, -1)
    tables = np.random.default_rng(3).multinomial(n, law, size=runs)
    values = np.array(
        [tolerant_test(t, p, Allowance(absolute=tau), alpha=0.01).p_value for t in tables]
    )
    for level in (0.2, 0.05, 0.01):
        hits = np.sum(values <= level)
        assert hits <= at_most(level, runs)
        assert cells == 2 or hits >= at_least(level, runs)


@pytest.mark.parametrize("cells", [2, 4, 64])
def test_the_promised_power_is_kept_above_the_allowance(cells):
    p, tau, alpha, power, runs = uniform_law(cells), 0.02 / cells, 1e-9, 0.99, 400
    n, tv = 20_000, 0.0
    while True:
        found = tolerant_test((n * p).astype(int), p, Allowance(absolute=tau), alpha=alpha,
                              power=power)  # fmt: skip
        tv = found.detectable_tv
        if tv < 0.08:
            break
        n *= 2
    tables = np.random.default_rng(4).multinomial(n, worst_direction(p, tv), size=runs)
    allowed = Allowance(absolute=tau)
    hits = sum(tolerant_test(t, p, allowed, alpha=alpha, power=power).rejected for t in tables)
    assert hits >= at_least(power, runs)
    assert found.tv_allowed == pytest.approx(0.01)
    assert found.tv_allowed < tv


def test_a_real_fault_is_still_rejected():
    p = softmax_law(1024)
    allowed = allowance(["float32-softmax", "float32-cumsum", "uniform-24-bits"], 1024)
    n = 60_000
    pooling = pool(p, n)
    counts = np.random.default_rng(5).multinomial(n, draft_leak(p, 0.05))
    found = tolerant_test(counts, p, allowed, alpha=1e-9)
    assert found.rejected
    assert found.cells == pooling.cells
    assert found.tv_allowed < 1e-4
    assert not tolerant_test(np.random.default_rng(6).multinomial(n, p), p, allowed, alpha=1e-9
                             ).rejected  # fmt: skip


def test_excluded_cells_are_never_forgiven():
    found = tolerant_test([500, 499, 1], [0.5, 0.5, 0.0], Allowance(absolute=0.4), alpha=1e-9)
    assert (found.p_value, found.zero_hits, found.rejected) == (0.0, 1, True)
    only = tolerant_test([0, 0, 1], [0.5, 0.5, 0.0], Allowance(), alpha=1e-9)
    assert (only.value, only.rejected) == (0.0, True)
    none = tolerant_test([0, 0, 0], [0.5, 0.3, 0.2], Allowance(), alpha=1e-9)
    assert (none.p_value, none.detectable_tv) == (1.0, 1.0)


def test_two_cells_within_the_allowance_are_not_questioned():
    allowed = Allowance(absolute=0.01)
    assert tolerant_test([5050, 4950], [0.5, 0.5], allowed, alpha=0.05).p_value == 1.0
    high = tolerant_test([5300, 4700], [0.5, 0.5], allowed, alpha=0.05).p_value
    assert high == pytest.approx(2 * stats.binom.sf(5299, 10_000, 0.51), rel=1e-6)
    low = tolerant_test([4700, 5300], [0.5, 0.5], allowed, alpha=0.05).p_value
    assert low == pytest.approx(high, rel=1e-6)
    wide = Allowance(absolute=0.25)  # up to the last rate within
    assert tolerant_test([6, 2], [0.5, 0.5], wide, alpha=0.05).p_value == 1.0
    assert tolerant_test([2, 6], [0.5, 0.5], wide, alpha=0.05).p_value == 1.0


def test_nothing_is_detected_where_every_rate_is_forgiven_or_there_is_one_cell():
    every = tolerant_test([0, 1, 0, 0], [0.1, 0.2, 0.3, 0.4], Allowance(absolute=0.5), alpha=0.05)
    assert (every.cells, every.p_value, every.detectable_tv) == (2, 1.0, 1.0)
    assert tolerant_test([10], [1.0], Allowance(), alpha=0.05).detectable_tv == 1.0
    wide = tolerant_test([50] * 4, [0.25] * 4, Allowance(absolute=0.9), alpha=0.05)
    assert (wide.cells, wide.p_value, wide.tv_allowed) == (4, 1.0, 1.0)


def test_trials_and_deviation_invert():
    for cells, tv, tau in ((3, 0.1, 1e-3), (64, 0.03, 1e-4), (1000, 0.05, 0.0)):
        per_trial = ratio(np.full(cells, tau), uniform_law(cells))
        n = tolerant_trials_needed(cells, tv, per_trial, 1e-9, 0.999)
        assert tolerant_detectable(cells, n, per_trial, 1e-9, 0.999) <= tv
        assert tolerant_detectable(cells, n - 1, per_trial, 1e-9, 0.999) > tv
        assert n >= trials_needed(cells, tv, 1e-9, 0.999) - 1
    assert tolerant_detectable(3, 0, 0.1, 1e-9, 0.9) == 1.0
    small = tolerant_detectable(3, 100, 1e-3, 0.05, 0.99999)
    limit = threshold(3, 0.1, 0.05)
    assert stats.ncx2.sf(limit, 2, 400 * small**2) == pytest.approx(0.99999, rel=1e-6)
    smaller = tolerant_detectable(3, 100, 1e-3, 0.5, 0.55)
    assert stats.ncx2.sf(threshold(3, 0.1, 0.5), 2, 400 * smaller**2) == pytest.approx(0.55)
    # where power is below alpha no deviation is needed at all
    assert tolerant_detectable(3, 100, 0.01, 0.5, 0.1) == 0.0
    assert tolerant_detectable(3, 100, 50.0, 1e-9, 0.9) == 1.0


def test_the_envelope_is_an_e_value_for_every_law_below_it():
    p, n = np.array([0.5, 0.3, 0.2]), 6
    allowed = Allowance(relative=0.1, absolute=0.02)
    for shift in ([0.07, -0.05, -0.02], [-0.07, 0.05, 0.02], [0, 0, 0], [0.07, -0.04, -0.03]):
        law = p + shift
        assert inside(law, p, allowed)
        mean = 0.0
        for i in range(n + 1):
            for j in range(n + 1 - i):
                table = [i, j, n - i - j]
                log_e = envelope_log_e(dirichlet_log_e(table, p), table, p, allowed)
                mean += stats.multinomial.pmf(table, n, law) * math.exp(log_e)
        assert mean <= 1 + 1e-12
    # without the division the same bets have a mean above 1 under a lawful law: it is needed
    law = p + np.array([0.07, -0.05, -0.02])
    plain = sum(
        stats.multinomial.pmf([i, j, n - i - j], n, law)
        * math.exp(dirichlet_log_e([i, j, n - i - j], p))
        for i in range(n + 1)
        for j in range(n + 1 - i)
    )
    assert plain > 1


def test_the_envelope_still_finds_a_fault_and_has_a_price():
    p = uniform_law(64)
    allowed = Allowance(absolute=2.0**-24)
    q = worst_direction(p, 0.05)
    counts = np.random.default_rng(7).multinomial(40_000, q)
    log_e = dirichlet_log_e(counts, p)
    found = envelope_log_e(log_e, counts, p, allowed)
    assert log_e - found == pytest.approx(40_000 * 64 * 2.0**-24, rel=1e-4)
    assert found > math.log(1e9)
    assert envelope_limit(p, allowed) == pytest.approx(math.sqrt(64 * 2.0**-24 / 2), rel=1e-3)
    assert envelope_limit([1.0, 0.0], Allowance()) == 0.0
    assert envelope_cost([3, 1], [1.0, 0.0], Allowance(absolute=0.1)) == pytest.approx(
        3 * math.log(1.1)
    )
    assert envelope_log_e(math.inf, [3, 1], [1.0, 0.0], allowed) == math.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Allowance(relative=-0.1), r"relative: got -0\.1"),
        (lambda: Allowance(absolute=float("nan")), "absolute: got nan"),
        (lambda: Allowance(last=1.0), r"last: got 1\.0"),
        (lambda: Allowance().cells([0.5, 0.6]), "p: got a sum"),
        (lambda: float_tv(["fp8"], 10), "steps: got 'fp8'; expected one of float32-softmax"),
        (lambda: float_tv([], 0), "vocab: got 0"),
        (lambda: allowance([], 0), "vocab: got 0"),
        (lambda: allowance(["x"], 1), "steps: got 'x'"),
        (lambda: least_gate(["x"], 1), "steps: got 'x'"),
        (lambda: envelope_cost([1], [0.5, 0.5], Allowance()), "counts: got"),
        (lambda: envelope_log_e(math.nan, [1], [1.0], Allowance()), "log_e: got nan"),
        (lambda: envelope_limit([0.4], Allowance()), "p: got a sum"),
        (lambda: threshold(1, 0.0, 0.1), "cells: got 1"),
        (lambda: threshold(3, -1.0, 0.1), r"lambda0: got -1\.0"),
        (lambda: threshold(3, 1.0, 0.0), "alpha: got 0"),
        (lambda: tolerant_detectable(2, 5, 0.0, 0.1, 0.9), "cells: got 2"),
        (lambda: tolerant_detectable(3, 5, -1.0, 0.1, 0.9), r"per_trial: got -1\.0"),
        (lambda: tolerant_detectable(3, 5, 0.0, 0.1, 1.0), "power: got"),
        (lambda: tolerant_trials_needed(3, 0.01, 0.01, 0.1, 0.9), "tv: got 0.01; expected more"),
        (lambda: tolerant_test([1, -1], [0.5, 0.5], Allowance(), alpha=0.1), r"counts\[1\]"),
        (lambda: tolerant_test([1, 1], [0.5, 0.5], Allowance(), alpha=0), "alpha: got 0"),
        (lambda: tolerant_test([1, 1], [0.5, 0.5], Allowance(), alpha=0.1, floor=0), "floor"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
