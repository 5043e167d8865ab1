"""What a statistic answers: a record with the promise it makes, never a bare boolean."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """The answer of one test of counts against a law.

    Attributes:
        statistic: name of the statistic.
        value: of the statistic.
        p_value: probability, under the law, of a table at least as extreme; 0 after a draw that
            the law excludes.
        alpha: false-alarm probability the test was asked to spend.
        trials: n, the number of draws.
        cells: cells that the statistic compares, after pooling.
        detectable_tv: smallest total variation (between the laws on those cells) that is rejected
            with probability ``power`` at this n and alpha; 1 when the test is blind.
        power: probability of the promise.
        zero_hits: draws in cells of probability 0. One is a proof that the law is another.
        merged_mass: probability of live cells that were merged with others. The promise says
            nothing about shifts inside them; 0 when ``detectable_tv`` covers the whole law.
    """

    statistic: str
    value: float
    p_value: float
    alpha: float
    trials: int
    cells: int
    detectable_tv: float
    power: float
    zero_hits: int = 0
    merged_mass: float = 0.0

    @property
    def rejected(self) -> bool:
        """Whether the law is rejected: p-value within alpha, or an impossible draw."""
        return self.p_value <= self.alpha or self.zero_hits > 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certificate:
    """An upper bound on the total variation between the true law and the expected one.

    Attributes:
        tv_observed: plug-in total variation between frequencies and law.
        tv_upper: bound on the true total variation.
        confidence: probability, over the draws, that the bound holds.
    """

    tv_observed: float
    tv_upper: float
    confidence: float
