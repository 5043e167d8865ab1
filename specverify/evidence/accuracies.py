"""Two accuracies: do they differ, by how much, and could the benchmark have told?

If both answered the same questions, only those that one of them alone got right carry information:
under equal accuracies each is a fair coin (McNemar 1947, exact binomial form). If the questions,
or the records of who answered what, differ, the test is Barnard's exact unconditional one.
"""

from __future__ import annotations

import dataclasses
from typing import SupportsIndex

from specverify.evidence import barnard, validate
from specverify.evidence.accuracy_intervals import newcombe, tango
from specverify.evidence.accuracy_power import paired_detectable, unpaired_detectable
from specverify.evidence.binomial import two_sided_p_value


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracyComparison:
    """The answer of one comparison of two accuracies.

    Attributes:
        test: "McNemar" (paired) or "Barnard" (unpaired), both exact.
        accuracy_a, accuracy_b: observed.
        questions_a, questions_b: how many were asked; equal when paired.
        only_a, only_b: questions that only one got right; ``None`` when unpaired.
        difference: accuracy A minus accuracy B.
        low, high: interval for the difference (Tango when paired, Newcombe when not).
        confidence: nominal coverage of the interval.
        p_value: probability of answers at least as different, if the accuracies are equal.
        alpha: false-alarm probability the test was asked to spend.
        detectable: smallest difference that is told with probability ``power`` at this number of
            questions (and the observed discordance, when paired); 1 when the test is blind.
        power: of the promise.
    """

    test: str
    accuracy_a: float
    accuracy_b: float
    questions_a: int
    questions_b: int
    only_a: int | None
    only_b: int | None
    difference: float
    low: float
    high: float
    confidence: float
    p_value: float
    alpha: float
    detectable: float
    power: float

    @property
    def rejected(self) -> bool:
        """Whether equal accuracies are rejected."""
        return self.p_value <= self.alpha

    @property
    def paired(self) -> bool:
        """Whether both answered the same questions."""
        return self.only_a is not None


def _part(field: str, value: SupportsIndex, whole_field: str, most: int) -> int:
    found = validate.whole(field, value)
    if found > most:
        raise ValueError(f"{field}: got {found}; expected at most {whole_field} = {most}")
    return found


def compare_paired(
    both: SupportsIndex,
    only_a: SupportsIndex,
    only_b: SupportsIndex,
    questions: SupportsIndex,
    *,
    alpha: float = 0.05,
    power: float = 0.9,
    confidence: float = 0.95,
) -> AccuracyComparison:
    """Compare two accuracies on the same questions: McNemar's exact test.

    Args:
        both: questions that both got right.
        only_a: questions that only A got right.
        only_b: questions that only B got right.
        questions: n >= 1, those that neither got right included.
        alpha: false-alarm probability.
        power: of the promise in ``detectable``.
        confidence: of the interval.

    Returns:
        The comparison.

    Raises:
        ValueError: naming the field that is wrong.
    """
    n = validate.whole("questions", questions, 1)
    b, c = _part("only_a", only_a, "questions", n), _part("only_b", only_b, "questions", n)
    shared = _part("both", both, "questions - only_a - only_b", n - b - c)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    low, high = tango(b, c, n, validate.inside("confidence", confidence))
    return AccuracyComparison(
        test="McNemar",
        accuracy_a=(shared + b) / n,
        accuracy_b=(shared + c) / n,
        questions_a=n,
        questions_b=n,
        only_a=b,
        only_b=c,
        difference=(b - c) / n,
        low=low,
        high=high,
        confidence=confidence,
        p_value=two_sided_p_value(b, b + c, 0.5),
        alpha=alpha,
        detectable=paired_detectable((b + c) / n, n, alpha, power),
        power=power,
    )


def compare_unpaired(
    right_a: SupportsIndex,
    questions_a: SupportsIndex,
    right_b: SupportsIndex,
    questions_b: SupportsIndex,
    *,
    alpha: float = 0.05,
    power: float = 0.9,
    confidence: float = 0.95,
) -> AccuracyComparison:
    """Compare two accuracies from independent answers: Barnard's exact test.

    Args:
        right_a: 0 .. questions_a.
        questions_a: >= 1.
        right_b: 0 .. questions_b.
        questions_b: >= 1.
        alpha: false-alarm probability, more than 1e-8 (p-values are resolved to 1e-9).
        power: of the promise in ``detectable``.
        confidence: of the interval.

    Returns:
        The comparison.

    Raises:
        ValueError: naming the field that is wrong.
    """
    n_a = validate.whole("questions_a", questions_a, 1)
    n_b = validate.whole("questions_b", questions_b, 1)
    x, y = (
        _part("right_a", right_a, "questions_a", n_a),
        _part("right_b", right_b, "questions_b", n_b),
    )
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    if alpha <= 10 * barnard.MISS:
        raise ValueError(f"alpha: got {alpha}; expected more than {10 * barnard.MISS:g}")
    low, high = newcombe(x, n_a, y, n_b, validate.inside("confidence", confidence))
    return AccuracyComparison(
        test="Barnard",
        accuracy_a=x / n_a,
        accuracy_b=y / n_b,
        questions_a=n_a,
        questions_b=n_b,
        only_a=None,
        only_b=None,
        difference=x / n_a - y / n_b,
        low=low,
        high=high,
        confidence=confidence,
        p_value=barnard.p_value(x, n_a, y, n_b),
        alpha=alpha,
        detectable=unpaired_detectable((x + y) / (n_a + n_b), n_a, n_b, alpha, power),
        power=power,
    )


def most_discordant(
    difference: SupportsIndex, questions: SupportsIndex, alpha: float
) -> int | None:
    """The most questions that may be answered differently while McNemar's test still rejects.

    For two accuracies whose per-question answers are unknown: the paired test could have told
    them apart only if at most this many answers differ.

    Args:
        difference: right answers of A minus those of B, of either sign.
        questions: n >= |difference|.
        alpha: false-alarm probability.

    Returns:
        The number, |difference| at least; ``None`` if no number would do.

    Raises:
        ValueError: naming the field that is wrong.
    """
    n = validate.whole("questions", questions, 1)
    gap = abs(validate.whole("difference", difference, -n))
    if gap > n:
        raise ValueError(f"difference: got {gap}; expected at most questions = {n}")
    level = validate.inside("alpha", alpha)
    low, high = -1, (n - gap) // 2 + 1  # the smaller discordant count; p grows with it
    while high - low > 1:
        middle = (low + high) // 2
        rejects = two_sided_p_value(middle, gap + 2 * middle, 0.5) <= level
        low, high = (middle, high) if rejects else (low, middle)
    return gap + 2 * low if low >= 0 else None
