"""What arithmetic alone may do, so that no sampler is failed for what its number formats force.

Two descriptions of the same rounding:

* ``float_tv``: how large the total variation came out in experiments with laws like a language
  model's (softmax of Gaussian logits with deviation 3), by vocabulary size. Tests gate at five
  times this or more.
* ``Allowance``: a bound for each cell, |p' - p| <= relative * p + absolute, on which the tolerant
  tests and the envelope are built.

Where the bounds come from, u being the unit roundoff of a format (2^-24, 2^-8, 2^-11 for float32,
bfloat16 and float16, half the spacing above 1):

* float32 softmax: for scaled logits within 64 of the largest, subtracting the maximum is off by at
  most 2^-19, dividing by the temperature as much, exp and the sum less; together under 2^-17 of p;
* a stored probability is p (1 + d), |d| <= u, so at most 2u (1 + 2u) off after renormalising;
  float16 has spacing 2^-24 below 2^-14, hence 2^-25 for each cell, and V 2^-25 for the sum;
* inverse CDF, running sum in float32: the width of a cell is the difference of two neighbouring
  sums, one rounded addition apart: off by at most half a spacing below 1, 2^-25. What all
  roundings lose together, up to V 2^-25, goes to the last cell;
* a uniform on a grid of spacing g: a cell holds its width in grid points, off by less than one: g;
* a race of exponentials -ln u, u on that grid in (0, 1]: P(E > x) is off by less than g for every
  token. One of those is the token's own, the others together take at most V g of its share
  (to first order in g; the tests compute such races exactly). If u = 1 can occur the noise can be
  0, and a token wins with it outright: another g, and another V g.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from specverify.evidence import validate

_VOCABULARIES = (1024, 32_000, 151_936)


class Arithmetic(enum.StrEnum):
    """One step of a sampler that rounds."""

    FLOAT32_SOFTMAX = "float32-softmax"
    BFLOAT16_PROBABILITIES = "bfloat16-probabilities"
    FLOAT16_PROBABILITIES = "float16-probabilities"
    FLOAT32_CUMSUM = "float32-cumsum"
    UNIFORM_24_BITS = "uniform-24-bits"
    UNIFORM_23_BITS = "uniform-23-bits"
    UNIFORM_32_BITS = "uniform-32-bits"
    RACE_24_BITS = "race-24-bits"
    RACE_24_BITS_WITH_ZERO = "race-24-bits-with-zero"
    RACE_31_BITS = "race-31-bits"


@dataclasses.dataclass(frozen=True)
class _Step:
    """Measured total variation at the three sizes, and the bound of a cell.

    ``relative`` and ``absolute`` hold for each cell, ``shared`` is relative for each of V cells,
    ``drift`` goes to the last cell, for each of V cells.
    """

    tv: tuple[float, float, float]
    relative: float = 0.0
    absolute: float = 0.0
    shared: float = 0.0
    drift: float = 0.0


_TABLE: dict[Arithmetic, _Step] = {
    Arithmetic.FLOAT32_SOFTMAX: _Step((4e-8, 7e-8, 8e-8), relative=2.0**-17),
    Arithmetic.BFLOAT16_PROBABILITIES: _Step((7e-4, 7e-4, 7e-4), relative=2.02 * 2.0**-8),
    Arithmetic.FLOAT16_PROBABILITIES: _Step(
        (1e-4, 3e-4, 1.1e-3), relative=2.01 * 2.0**-11, absolute=2.0**-24, shared=2.0**-25
    ),
    Arithmetic.FLOAT32_CUMSUM: _Step((5e-6, 1.6e-4, 7.5e-4), absolute=2.0**-25, drift=2.0**-25),
    Arithmetic.UNIFORM_23_BITS: _Step((2e-5, 6e-4, 2.6e-3), absolute=2.0**-23),
    Arithmetic.UNIFORM_24_BITS: _Step((1e-5, 3e-4, 1.3e-3), absolute=2.0**-24),
    Arithmetic.UNIFORM_32_BITS: _Step((5e-8, 1e-6, 6e-6), absolute=2.0**-32),
    Arithmetic.RACE_24_BITS: _Step((2.5e-5, 7e-4, 2.5e-3), absolute=2.0**-24, shared=2.0**-24),
    Arithmetic.RACE_24_BITS_WITH_ZERO: _Step(
        (2.6e-5, 1e-3, 5.4e-3), absolute=2.0**-23, shared=2.0**-23
    ),
    Arithmetic.RACE_31_BITS: _Step((2e-7, 6e-6, 3e-5), absolute=2.0**-31, shared=2.0**-31),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Allowance:
    """How far each cell of a law may be off: |p' - p| <= relative * p + absolute.

    Attributes:
        relative: of the cell's own probability.
        absolute: of every cell with p > 0; excluded cells get nothing.
        last: of the last such cell in token order, on top.
    """

    relative: float = 0.0
    absolute: float = 0.0
    last: float = 0.0

    def __post_init__(self) -> None:
        for field in ("relative", "absolute", "last"):
            value = getattr(self, field)
            if not (math.isfinite(value) and 0 <= value < 1):
                raise ValueError(f"{field}: got {value}; expected a number in [0, 1)")

    def cells(self, p: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The largest lawful deviation of each cell.

        Args:
            p: [k] law.

        Returns:
            [k] float64.

        Raises:
            ValueError: if ``p`` is not a law.
        """
        law = validate.law("p", p)
        tau = np.where(law > 0, self.relative * law + self.absolute, 0.0)
        tau[int(np.flatnonzero(law)[-1])] += self.last
        return tau


def _steps(steps: Iterable[Arithmetic | str]) -> list[Arithmetic]:
    found = []
    for step in steps:
        try:
            found.append(Arithmetic(step))
        except ValueError:
            known = ", ".join(Arithmetic)
            raise ValueError(f"steps: got {step!r}; expected one of {known}") from None
    return found


def float_tv(steps: Iterable[Arithmetic | str], vocab: SupportsIndex) -> float:
    """Total variation that rounding steps cause, as measured, added up.

    Between the sizes measured (1,024, 32,000, 151,936) the logarithm is interpolated linearly in
    the logarithm of V; outside them the law of the nearest pair goes on.

    Args:
        steps: what the sampler does in low precision.
        vocab: V >= 1.

    Returns:
        The total variation, at most 1.

    Raises:
        ValueError: naming the field that is wrong.
    """
    size = math.log(validate.whole("vocab", vocab, 1))
    x = np.log(_VOCABULARIES)
    total = 0.0
    for step in _steps(steps):
        y = np.log(_TABLE[step].tv)
        i = 0 if size < x[1] else 1
        total += math.exp(y[i] + (y[i + 1] - y[i]) * (size - x[i]) / (x[i + 1] - x[i]))
    return min(1.0, total)


def least_gate(steps: Iterable[Arithmetic | str], vocab: SupportsIndex) -> float:
    """The smallest total variation worth gating at: five times what rounding does.

    Args:
        steps: what the sampler does in low precision.
        vocab: V >= 1.

    Returns:
        5 ``float_tv``, at most 1.

    Raises:
        ValueError: naming the field that is wrong.
    """
    return min(1.0, 5 * float_tv(steps, vocab))


def allowance(steps: Iterable[Arithmetic | str], vocab: SupportsIndex) -> Allowance:
    """The bound on each cell for rounding steps, added up.

    Args:
        steps: what the sampler does in low precision.
        vocab: V >= 1.

    Returns:
        The allowance.

    Raises:
        ValueError: naming the field that is wrong.
    """
    size = validate.whole("vocab", vocab, 1)
    found = [_TABLE[step] for step in _steps(steps)]
    return Allowance(
        relative=min(0.5, sum(step.relative + size * step.shared for step in found)),
        absolute=sum(step.absolute for step in found),
        last=min(0.5, sum(size * step.drift for step in found)),
    )


def envelope_cost(counts: npt.ArrayLike, p: npt.ArrayLike, allowed: Allowance) -> float:
    """What an e-process pays, in nats, to hold for every law below p+ = p + tau.

    Proof. A bet q multiplies the evidence by q(x) / p(x) at each draw. Divided by p+(x) instead,
    its mean under p' <= p+ is sum p' q / p+ <= sum q = 1. So ln E - sum N ln(p+ / p) is the
    logarithm of an e-process for all those laws at once, whatever the bets were. QED. With absolute
    bounds alone it pays about k tau a draw, so only deviations beyond sqrt(k tau / 2) can be seen.

    Args:
        counts: [k] integers >= 0, all draws so far.
        p: [k] law that the e-process was made for.
        allowed: how far each cell may be off.

    Returns:
        The nats to take off ln E: sum N ln(p+ / p) over the cells with p > 0.

    Raises:
        ValueError: naming the field that is wrong.
    """
    law = validate.law("p", p)
    table = validate.table("counts", counts, law.shape[0])
    hit = (table > 0) & (law > 0)
    # the logarithm of the ratio by its excess over 1: tau / p is tiny for large cells
    return float(table[hit] @ np.log1p(allowed.cells(law)[hit] / law[hit]))


def envelope_log_e(
    log_e: float, counts: npt.ArrayLike, p: npt.ArrayLike, allowed: Allowance
) -> float:
    """The log e-value against every law within the allowance.

    Args:
        log_e: ln E against p exactly, after the same draws; infinite after an excluded draw.
        counts: [k] integers >= 0.
        p: [k] law.
        allowed: how far each cell may be off.

    Returns:
        ln E minus :func:`envelope_cost`.

    Raises:
        ValueError: naming the field that is wrong.
    """
    if math.isnan(log_e):
        raise ValueError(f"log_e: got {log_e}; expected a log e-value")
    return log_e - envelope_cost(counts, p, allowed)


def envelope_limit(p: npt.ArrayLike, allowed: Allowance) -> float:
    """About the total variation that the envelope hides at any number of draws.

    Seeing a deviation eps in its worst direction earns 2 eps^2 nats a draw; the envelope costs
    sum p ln(1 + tau / p) <= sum tau.

    Args:
        p: [k] law.
        allowed: how far each cell may be off.

    Returns:
        sqrt(cost / 2), at most 1.

    Raises:
        ValueError: if ``p`` is not a law.
    """
    law = validate.law("p", p)
    live = law > 0
    cost = float(law[live] @ np.log1p(allowed.cells(law)[live] / law[live]))
    return min(1.0, math.sqrt(cost / 2))
