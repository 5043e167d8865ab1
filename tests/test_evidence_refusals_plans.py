"""Refusals of the plans, trials needed and deviations detected, word for word."""

from __future__ import annotations

import math
from typing import Any

import pytest
from evidence_refusals import (
    NAN,
    OVER,
    Calls,
    P,
    above_zero,
    law,
    lawful,
    level,
    refusals,
    refused,
    share,
    size,
)

from specverify import evidence
from specverify.evidence.tolerant import threshold

TOO_SMALL = "{}: got a difference that needs {} questions; expected a larger one, for at most 1e+09"

CALLS: Calls = [
    (
        evidence.tv_detectable,
        {"p": P, "n": 0, "alpha": 0.01, "power": 0.9},
        {"p": law("p"), "n": size("n"), "alpha": level("alpha"), "power": level("power")},
    ),
    (
        evidence.tv_trials_needed,
        {"p": P, "tv": 0.1, "alpha": 0.01, "power": 0.9},
        {"p": law("p"), "tv": level("tv"), "alpha": level("alpha"), "power": level("power")},
    ),
    (
        evidence.binomial_detectable,
        {"probability": 0.5, "trials": 0, "alpha": 0.01, "power": 0.9},
        {
            "probability": share("probability"),
            "trials": size("trials"),
            "alpha": level("alpha"),
            "power": level("power"),
        },
    ),
    (
        evidence.binomial_trials_needed,
        {"probability": 0.5, "deviation": 0.1, "alpha": 0.01, "power": 0.9},
        {
            "probability": share("probability"),
            "deviation": level("deviation"),
            "alpha": level("alpha"),
            "power": level("power"),
        },
    ),
    (
        evidence.trials_needed,
        {"cells": 1, "tv": 0.1, "alpha": 0.01, "power": 0.9},
        {
            "cells": size("cells", 1),
            "tv": level("tv"),
            "alpha": level("alpha"),
            "power": level("power"),
        },
    ),
    (
        evidence.detectable_tv,
        {"cells": 1, "n": 0, "alpha": 0.01, "power": 0.9},
        {
            "cells": size("cells", 1),
            "n": size("n"),
            "alpha": level("alpha"),
            "power": level("power"),
        },
    ),
    (
        evidence.trials_needed_for_law,
        {"p": P, "tv": 0.1, "alpha": 0.01, "power": 0.9, "slack": 0.0},
        {
            "p": law("p"),
            "tv": level("tv"),
            "alpha": level("alpha"),
            "power": level("power"),
            "floor": above_zero("floor"),
            "slack": [
                (bad, f"slack: got {bad}; expected a finite number >= 0")
                for bad in (-0.001, math.inf, NAN)
            ],
        },
    ),
    (
        evidence.tolerant_detectable,
        {"cells": 3, "n": 0, "per_trial": 0.0, "alpha": 0.01, "power": 0.9},
        {
            "cells": size("cells", 3),
            "n": size("n"),
            "alpha": level("alpha"),
            "power": level("power"),
            "per_trial": [
                (bad, f"per_trial: got {bad}; expected a finite number >= 0")
                for bad in (-0.001, math.inf, NAN)
            ],
        },
    ),
    (
        evidence.tolerant_trials_needed,
        {"cells": 3, "tv": 0.1, "per_trial": 1e-8, "alpha": 0.01, "power": 0.9},
        {
            "cells": size("cells", 3),
            "tv": [
                *level("tv"),
                (5e-5, "tv: got 5e-05; expected more than 5e-05, what floats may do"),
            ],
            "alpha": level("alpha"),
            "power": level("power"),
            "per_trial": [(-1.0, "per_trial: got -1.0; expected a finite number >= 0")],
        },
    ),
    (
        evidence.independence_detectable,
        {"row_law": [0.5] * 2, "column_law": [0.5] * 2, "n": 100, "alpha": 0.01, "power": 0.9},
        {
            "row_law": law("row_law"),
            "column_law": law("column_law"),
            "floor": above_zero("floor"),
        },
    ),
    (
        evidence.two_sample_detectable,
        {"cells": 1, "trials_a": 0, "trials_b": 0, "alpha": 0.01, "power": 0.9},
        {
            "cells": size("cells", 1),
            "trials_a": size("trials_a"),
            "trials_b": size("trials_b"),
            "alpha": level("alpha"),
            "power": level("power"),
        },
    ),
    (
        evidence.two_sample_trials_needed,
        {"cells": 2, "tv": 0.2, "alpha": 0.01, "power": 0.9},
        {
            "cells": size("cells", 2),
            "tv": level("tv"),
            "alpha": level("alpha"),
            "power": level("power"),
        },
    ),
    (
        threshold,
        {"cells": 2, "lambda0": 0.0, "alpha": 0.01},
        {
            "cells": size("cells", 2),
            "alpha": level("alpha"),
            "lambda0": [
                (bad, f"lambda0: got {bad}; expected a finite number >= 0")
                for bad in (-0.001, math.inf, NAN)
            ],
        },
    ),
    (
        evidence.paired_detectable,
        {"discordance": 0.0, "n": 1, "alpha": 0.01, "power": 0.9},
        {
            "discordance": share("discordance"),
            "n": size("n", 1),
            "alpha": level("alpha"),
            "power": level("power"),
        },
    ),
    (
        evidence.unpaired_detectable,
        {"rate": 1.0, "n_a": 1, "n_b": 1, "alpha": 0.05, "power": 0.9},
        {
            "rate": share("rate"),
            "n_a": size("n_a", 1),
            "n_b": size("n_b", 1),
            "alpha": level("alpha"),
            "power": level("power"),
        },
    ),
    (
        evidence.unpaired_power,
        {"accuracy_a": 0.5, "accuracy_b": 0.75, "n_a": 1, "n_b": 1, "alpha": 0.05},
        {
            "accuracy_a": level("accuracy_a"),
            "accuracy_b": level("accuracy_b"),
            "n_a": size("n_a", 1),
            "n_b": size("n_b", 1),
            "alpha": level("alpha"),
        },
    ),
    (
        evidence.paired_power,
        {"difference": 0.1, "discordance": 1.0, "n": 1, "alpha": 0.05},
        {
            "discordance": [*share("discordance"), (0.0, above_zero("discordance")[0][1])],
            "difference": [
                (
                    1.5,
                    f"difference: got 1.5; {OVER} the discordance 1 in size",
                )
            ],
            "n": size("n", 1),
            "alpha": level("alpha"),
        },
    ),
    (
        evidence.paired_questions_needed,
        {"difference": 0.2, "discordance": 0.4},
        {
            "difference": [
                (0, "difference: got 0; expected a difference to look for"),
                (1e-6, TOO_SMALL.format("difference", "4.2e+12")),
                (-0.5, f"difference: got -0.5; {OVER} the discordance 0.4 in size"),
            ],
            "alpha": level("alpha"),
            "power": level("power"),
        },
    ),
    (
        evidence.unpaired_questions_needed,
        {"accuracy_a": 0.5, "accuracy_b": 0.9},
        {
            "accuracy_a": level("accuracy_a"),
            "accuracy_b": [
                *level("accuracy_b"),
                (0.5, "accuracy_b: got 0.5; expected another one than accuracy_a"),
                (0.500001, TOO_SMALL.format("accuracy_b", "5.25e+12")),
            ],
            "alpha": level("alpha"),
            "power": level("power"),
        },
    ),
]


@pytest.mark.parametrize(("call", "given", "message"), refusals(CALLS))
def test_a_refusal_is_exact(call: Any, given: dict[str, Any], message: str) -> None:
    refused(call, given, message)


@pytest.mark.parametrize(("call", "given"), lawful(CALLS))
def test_the_last_lawful_value_is_taken(call: Any, given: dict[str, Any]) -> None:
    call(**given)
