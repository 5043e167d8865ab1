"""Every public function refuses every kind of bad input by name: none was forgotten."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from specverify import evidence

P = [0.5, 0.3, 0.2]
COUNTS = [50, 30, 20]
SPECTRUM = evidence.Spectrum(trace=0.7, spread=0.15, largest=0.04)
TEXTS = [[1, 2, 3], [1, 1, 2], [2, 2, 3], [3, 1, -1], [2, 3, 1]]
LOG_E = [1.0, 30.0, 2.0]
RATES = {"alpha": 0.01, "power": 0.9}

GOOD = {
    "CertificateSequence": {"p": P, "planned": 100, "confidence": 0.99},
    "SequentialTest": {"p": P, "alpha": 0.01},
    "SequentialTwoSample": {"cells": 3, "alpha": 0.01},
    "binomial_detectable": {"probability": 0.3, "trials": 100, **RATES},
    "binomial_test": {"successes": 30, "trials": 100, "probability": 0.3, **RATES},
    "binomial_trials_needed": {"probability": 0.3, "deviation": 0.1, **RATES},
    "bonferroni_share": {"alpha": 0.01, "tests": 3},
    "bonferroni_shares": {"alpha": 0.01, "weights": [1.0, 2.0]},
    "certificate": {"counts": COUNTS, "p": P, "confidence": 0.99},
    "clopper_pearson": {"successes": 30, "trials": 100, "confidence": 0.99},
    "compare_paired": {"both": 50, "only_a": 9, "only_b": 3, "questions": 80, **RATES,
                       "confidence": 0.9},
    "compare_unpaired": {"right_a": 50, "questions_a": 80, "right_b": 40, "questions_b": 80,
                         **RATES, "confidence": 0.9},
    "cressie_read": {"counts": COUNTS, "p": P, **RATES},
    "detectable_tv": {"cells": 3, "n": 100, **RATES},
    "dirichlet_log_e": {"counts": COUNTS, "p": P},
    "distinct_detectable": {"draws": 40, "values": 64, **RATES},
    "distinct_draws_needed": {"values": 64, "reached": 33, **RATES},
    "distinct_test": {"distinct": 30, "draws": 40, "values": 64, **RATES},
    "e_bh": {"log_e": LOG_E, "alpha": 0.01},
    "e_closed": {"log_e": LOG_E, "alpha": 0.01},
    "e_holm": {"log_e": LOG_E, "alpha": 0.01},
    "envelope_cost": {"counts": COUNTS, "p": P, "allowed": evidence.Allowance(relative=1e-6)},
    "envelope_limit": {"p": P, "allowed": evidence.Allowance(relative=1e-6)},
    "envelope_log_e": {"log_e": 3.0, "counts": COUNTS, "p": P,
                       "allowed": evidence.Allowance(relative=1e-6)},
    "exact_p_value": {"counts": COUNTS, "p": P},
    "expected_tv": {"p": P, "n": 100},
    "holm": {"p_values": [0.5, 1e-9, 0.2], "alpha": 0.01},
    "independence": {"counts": [[30, 20], [25, 25]], "row_law": [0.5, 0.5],
                     "column_law": [0.5, 0.5], **RATES},
    "independence_detectable": {"row_law": [0.5, 0.5], "column_law": [0.5, 0.5], "n": 100, **RATES},
    "leaks": {"p": P, "other": [0.2, 0.3, 0.5], "name": "leak"},
    "mean_sequence": {"counts": COUNTS, "values": [0, 1, 2], "confidence": 0.99},
    "mmd_detectable": {"spectrum": SPECTRUM, "texts_a": 50, "texts_b": 50, **RATES},
    "mmd_test": {"a": TEXTS, "b": TEXTS, **RATES},
    "mmd_texts_needed": {"spectrum": SPECTRUM, "distance": 0.1, **RATES},
    "paired_detectable": {"discordance": 0.2, "n": 100, **RATES},
    "paired_power": {"difference": 0.1, "discordance": 0.2, "n": 100, "alpha": 0.01},
    "paired_questions_needed": {"difference": 0.1, "discordance": 0.2, **RATES},
    "pearson": {"counts": COUNTS, "p": P, **RATES},
    "pool": {"p": P, "n": 100},
    "rate_sequence": {"successes": 30, "trials": 100, "confidence": 0.99},
    "temperatures": {"p": P},
    "thin_tails": {"p": P},
    "tolerant_detectable": {"cells": 3, "n": 100, "per_trial": 1e-6, **RATES},
    "tolerant_test": {"counts": COUNTS, "p": P, "allowed": evidence.Allowance(relative=1e-6),
                      **RATES},
    "tolerant_trials_needed": {"cells": 3, "tv": 0.1, "per_trial": 1e-6, **RATES},
    "trials_needed": {"cells": 3, "tv": 0.1, **RATES},
    "trials_needed_for_law": {"p": P, "tv": 0.1, **RATES},
    "tv_detectable": {"p": P, "n": 100, **RATES},
    "tv_drift": {"n": 100, "confidence": 0.99, "planned": 100},
    "tv_test": {"counts": COUNTS, "p": P, **RATES},
    "tv_threshold": {"p": P, "n": 100, "alpha": 0.01},
    "tv_trials_needed": {"p": P, "tv": 0.1, **RATES},
    "two_sample_detectable": {"cells": 3, "trials_a": 100, "trials_b": 100, **RATES},
    "two_sample_test": {"counts_a": COUNTS, "counts_b": COUNTS, **RATES},
    "two_sample_trials_needed": {"cells": 3, "tv": 0.1, **RATES},
    "unpaired_detectable": {"rate": 0.8, "n_a": 100, "n_b": 100, **RATES},
    "unpaired_power": {"accuracy_a": 0.8, "accuracy_b": 0.6, "n_a": 100, "n_b": 100, "alpha": 0.01},
    "unpaired_questions_needed": {"accuracy_a": 0.8, "accuracy_b": 0.6, **RATES},
    "worst_cells": {"counts": COUNTS, "p": P},
}  # fmt: skip
"""Good arguments of every public function with an argument of a kind below."""

PLANNED = {"pooled_detectable_tv"}
"""Takes a pooling that other functions made, and is called by them with checked numbers."""

NAN = float("nan")
LAWS = ([0.5, 0.3, 0.3], [0.5, NAN, 0.5], [0.5, 0.7, -0.2], [[0.5, 0.5]], ["a", "b"], [])
TABLES = ([5, -3, 2], [5.0, 3.0, 2.0], [NAN, 3, 2], [True, False, True])
LEVELS = (0.0, 1.0, -0.1, 2.0, NAN)
BAD = {
    "p": LAWS,
    "other": LAWS,
    "row_law": LAWS,
    "column_law": LAWS,
    "counts": TABLES,
    "counts_a": TABLES,
    "counts_b": (*TABLES, [5, 3]),
    "alpha": LEVELS,
    "power": LEVELS,
    "confidence": LEVELS,
}
"""What must be refused, by the name of the argument."""


def functions():
    """Names and arguments of all public functions and classes that a person calls."""
    for name in evidence.__all__:
        found = getattr(evidence, name)
        is_record = inspect.isclass(found) and hasattr(found, "__dataclass_fields__")
        if callable(found) and not is_record and name not in PLANNED:
            yield name, [field for field in inspect.signature(found).parameters if field in BAD]


def test_no_public_function_was_forgotten():
    needed = {name for name, fields in functions() if fields}
    assert needed <= GOOD.keys()
    for name, fields in functions():
        if fields:
            assert set(fields) <= GOOD[name].keys(), name


@pytest.mark.parametrize("name", sorted(GOOD))
def test_good_arguments_are_accepted(name):
    assert getattr(evidence, name)(**GOOD[name]) is not None


@pytest.mark.parametrize("name", sorted(name for name, fields in functions() if fields))
def test_bad_arguments_are_refused_by_name(name):
    for field, good in GOOD[name].items():
        for bad in BAD.get(field, ()):
            if np.ndim(good) == 2 and np.ndim(bad) == 1:
                bad = [bad, bad]
            with pytest.raises(ValueError, match=rf"^{field}(\[[\d, ]+\])?: got .*expected"):
                getattr(evidence, name)(**{**GOOD[name], field: bad})


def test_counts_of_the_wrong_length_are_refused():
    for name, fields in functions():
        if "counts" in fields:
            bad = [[5, 3, 2]] * 2 if name == "independence" else [5, 3]
            with pytest.raises(ValueError, match=r"counts(, values)?: got "):
                getattr(evidence, name)(**{**GOOD[name], "counts": bad})


def test_sequences_refuse_bad_batches_and_stay_as_they_were():
    one, two = evidence.SequentialTest(P, alpha=0.01), evidence.SequentialTwoSample(3, alpha=0.01)
    bound = evidence.CertificateSequence(P, planned=100)
    one.add(COUNTS), two.add(COUNTS, COUNTS), bound.add(COUNTS)
    for bad in (*TABLES, [5, 3]):
        with pytest.raises(ValueError, match=r"^counts(\[\d\])?: got"):
            one.add(bad)
        with pytest.raises(ValueError, match=r"^counts(\[\d\])?: got"):
            bound.add(bad)
        for pair, field in (((bad, COUNTS), "counts_a"), ((COUNTS, bad), "counts_b")):
            with pytest.raises(ValueError, match=rf"^{field}(\[\d\])?: got"):
                two.add(*pair)
    fresh = evidence.SequentialTest(P, alpha=0.01).add(COUNTS)
    assert one.add([0, 0, 0]).log_e == fresh.log_e
    assert two.add([0, 0, 0], [0, 0, 0]).trials_a == 100
