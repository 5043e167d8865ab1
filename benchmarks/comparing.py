"""The tables of docs/comparing.md that are computed, not simulated.

    python benchmarks/comparing.py

Questions needed, coverage of the intervals summed over all tables, trials for two samplers, the
worked examples.  What is simulated is in ``benchmarks/calibrate.py``, section ``pairs``.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

from specverify.evidence import (
    compare_paired,
    compare_unpaired,
    paired_questions_needed,
    trials_needed,
    two_sample_test,
    two_sample_trials_needed,
    unpaired_questions_needed,
)
from specverify.evidence.accuracy_intervals import newcombe, tango
from specverify.evidence.accuracy_power import (
    independent_discordance,
    unpaired_power,
)
from specverify.evidence.two_sample_sequential import SequentialTwoSample

A, B, ASKED = 0.79, 0.77, 1319
RISKS = ((0.05, 0.8), (0.05, 0.9), (0.001, 0.9))
CONFIDENCE = 0.95
CELLS, DEVIATIONS = (2, 4, 16, 64, 1024), (0.1, 0.03, 0.01)
Floats = npt.NDArray[np.float64]


def show(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for row in rows:
        cells = (f"{x:,}" if isinstance(x, int) else str(x) for x in row)
        print(f"| {' | '.join(cells)} |", flush=True)


def questions() -> None:
    """Questions needed to tell the two accuracies, by how many are answered differently."""
    independent = independent_discordance(A, B)
    shares = [*(0.03, 0.05, 0.1, 0.2), independent]
    head = ["answered differently", *(f"alpha {a:g}, power {p:g}" for a, p in RISKS)]
    paired = [
        [f"{share:.1%}", *(paired_questions_needed(A - B, share, a, p) for a, p in RISKS)]
        for share in shares
    ]
    last = ["other questions", *(unpaired_questions_needed(A, B, a, p) for a, p in RISKS)]
    show(f"Questions needed to tell {A} from {B}", head, [*paired, last])
    print(
        f"\n{ASKED:,} questions: power {unpaired_power(A, B, ASKED, ASKED, 0.05):.2f}; "
        f"0.63 against 0.62: {unpaired_questions_needed(0.63, 0.62, 0.05, 0.9):,} questions; "
        f"64 cells, TV 0.02, alpha 1e-9, power 0.999: {trials_needed(64, 0.02, 1e-9, 0.999):,} "
        "draws"
    )


def newcombe_coverage(n: int) -> Floats:
    """Coverage at every pair of accuracies 0.05, 0.1 .. 0.95, n questions for each."""
    cuts = np.array([[newcombe(x, n, y, n, CONFIDENCE) for y in range(n + 1)]
                     for x in range(n + 1)])  # fmt: skip
    grid = np.arange(0.05, 0.951, 0.05)
    mass = {rate: stats.binom.pmf(np.arange(n + 1), n, rate) for rate in grid}
    found = [
        mass[a] @ ((cuts[..., 0] <= a - b) & (a - b <= cuts[..., 1])) @ mass[b]
        for a, b in itertools.product(grid, grid)
    ]
    return np.array(found)


def tango_coverage(n: int) -> Floats:
    """Coverage at discordances 0.05 .. 0.4 and differences of 0 to 0.9 of them."""
    tables = [(x, y) for x in range(n + 1) for y in range(n + 1 - x)]
    cuts = np.array([tango(x, y, n, CONFIDENCE) for x, y in tables])
    counts = np.array([(x, y, n - x - y) for x, y in tables])
    found = []
    for discordance, part in itertools.product((0.05, 0.1, 0.2, 0.3, 0.4), (0.0, 0.3, 0.6, 0.9)):
        truth = part * discordance
        shares = [(discordance + truth) / 2, (discordance - truth) / 2, 1 - discordance]
        mass = stats.multinomial.pmf(counts, n, shares)
        found.append(mass[(cuts[:, 0] <= truth) & (truth <= cuts[:, 1])].sum())
    return np.array(found)


def coverage() -> None:
    """The two approximate intervals, summed over all tables."""
    measured = [("Newcombe", f"{n} and {n}", newcombe_coverage(n)) for n in (20, 100)]
    measured += [("Tango", str(n), tango_coverage(n)) for n in (20, 50, 100)]
    show(
        f"Coverage at nominal {CONFIDENCE}",
        ["interval", "n", "lowest", "mean", "highest"],
        [
            [name, n, f"{found.min():.3f}", f"{found.mean():.3f}", f"{found.max():.3f}"]
            for name, n, found in measured
        ],
    )


def trials() -> None:
    """Draws for each of two samplers."""
    needed = functools.partial(two_sample_trials_needed, alpha=1e-9, power=0.999)
    show(
        "Trials for each arm, alpha 1e-9, power 0.999, worst direction",
        ["cells", *(f"TV {tv:g}" for tv in DEVIATIONS)],
        [[cells, *(needed(cells, tv) for tv in DEVIATIONS)] for cells in CELLS],
    )


def worked_examples() -> None:
    """The two stories of the page."""
    paired = compare_paired(290, 30, 8, 400)
    unpaired = compare_unpaired(320, 400, 298, 400)
    print(
        f"\n30 against 8 of 400: paired p = {paired.p_value:.2g}, unpaired {unpaired.p_value:.2g}"
    )
    logits = 1.5 * np.random.default_rng(0).normal(size=64)
    p, q = (np.exp(logits / t) / np.exp(logits / t).sum() for t in (1.0, 1.1))
    tv = 0.5 * float(np.abs(p - q).sum())
    n = two_sample_trials_needed(64, tv, 1e-9, 0.999)
    rng = np.random.default_rng(1)
    sound, other, wrong = (rng.multinomial(n, law) for law in (p, p, q))
    print(
        f"64 tokens, temperature x 1.1: TV {tv:.3f}, {n:,} draws for each arm; p = "
        f"{two_sample_test(sound, wrong, alpha=1e-9).p_value:.1g}, for two sound samplers "
        f"{two_sample_test(sound, other, alpha=1e-9).p_value:.2f}"
    )
    test, total = SequentialTwoSample(64, alpha=1e-9), 0
    while True:
        batch = max(10, total // 20)
        total += batch
        if test.add(rng.multinomial(batch, p), rng.multinomial(batch, q)).rejected:
            break
    print(f"SequentialTwoSample, batches of a twentieth: alarm after {total:,}")


def main() -> None:
    """Print everything."""
    questions()
    coverage()
    trials()
    worked_examples()


if __name__ == "__main__":
    main()
