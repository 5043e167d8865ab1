"""The command ``specverify power``: what a number of trials can show, before spending them."""

from __future__ import annotations

import math

import numpy as np
from rich.console import Console
from rich.table import Table


def power(cells: int, tv: float, alpha: float, power: float, confidence: float, trials: int | None
          ) -> None:  # fmt: skip
    """Print trials needed and deviations detected, for a table of ``cells`` cells.

    The total-variation rows are for the uniform law, the worst case: its expected plug-in distance
    is the largest of all laws with that many cells.

    Raises:
        ValueError: if a number is out of its range.
    """
    from specverify import evidence

    if not 2 <= cells <= 10_000_000:
        raise ValueError(f"cells: got {cells}; expected a number from 2 to 10,000,000")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: got {confidence}; expected a number between 0 and 1")
    if trials is not None and trials < 1:
        raise ValueError(f"trials: got {trials}; expected a count >= 1")
    uniform = np.full(cells, 1 / cells)
    chi = evidence.trials_needed(cells, tv, alpha, power)
    total = evidence.tv_trials_needed(uniform, tv, alpha, power)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("trials", "Cressie-Read detects TV", "total variation detects TV",
                 "certificate of a correct sampler"):  # fmt: skip
        table.add_column(name, justify="right")
    for n in sorted({chi, total} if trials is None else {chi, total, trials}):
        drift = math.sqrt(math.log(1 / (1 - confidence)) / (2 * n))
        table.add_row(
            f"{n:,}",
            f"{evidence.detectable_tv(cells, n, alpha, power):.5f}",
            f"{evidence.tv_detectable(uniform, n, alpha, power):.5f}",
            f"{min(1.0, evidence.expected_tv(uniform, n) + drift):.5f}",
        )
    console = Console(highlight=False)
    console.print(
        f"{cells} cells, alpha {alpha:g}: to catch TV {tv:g} with probability {power:g}, "
        f"Cressie-Read needs {chi:,} trials (worst direction), total variation {total:,} (proved)."
    )
    console.print(table)
    console.print(
        f"The certificate bounds the true TV with confidence {confidence:g}; the expected one "
        "for a sampler that follows the law is shown."
    )
