"""Metamorphic: what must not matter does not, and what must matter does.

A request is verified twice, in other company or from other memory, with the same randomness.
"""

from __future__ import annotations

import functools

import pytest
from specverify.suites.declare import Suite

from specverify.checks import relation_layouts as layouts
from specverify.checks import relations as relate
from specverify.checks.metamorphic import MetamorphicExperiment
from specverify.checks.stream_relations import even_rows, streams_apart

_case = functools.partial(MetamorphicExperiment, suite="metamorphic", layouts=layouts.company)
_numbers = functools.partial(
    MetamorphicExperiment, suite="metamorphic", layouts=layouts.plain_numbers, copies=8
)
_stream = functools.partial(
    MetamorphicExperiment,
    suite="metamorphic",
    layouts=layouts.flat_rows,
    needs=("per_request_seeds",),
    share=0.1,
)

SUITE = Suite(
    "metamorphic",
    "order, size and neighbours of a batch, memory, padding, constants, seeds, NaN",
    (
        _case(case="permuted", holds=relate.permuted),
        _case(case="split", holds=relate.split),
        _case(case="batch-sizes", holds=relate.other_sizes),
        _numbers(
            case="alone", holds=relate.alone, layouts=layouts.filtered_company, copies=4, share=0.25
        ),
        _case(case="beside-greedy", holds=relate.beside_greedy, needs=("greedy",)),
        _case(case="beside-idle", holds=relate.beside_idle, needs=("zero_drafts",)),
        _case(
            case="beside-excluded", holds=relate.beside_excluded, needs=("zero_drafts", "exclusion")
        ),
        _case(case="beside-longer", holds=relate.beside_longer),
        _case(case="beside-nan", holds=relate.beside_nan, repeats=False),
        _case(case="asked-again", holds=relate.asked_again),
        _numbers(
            case="settings-moved",
            holds=relate.settings_moved,
            layouts=layouts.settings_and_numbers,
            copies=16,
            share=1.0,
        ),
        _numbers(case="unwritten-memory", holds=relate.unwritten_memory, repeats=False),
        _numbers(
            case="memory-layout", holds=relate.other_memory, layouts=layouts.settings_and_numbers
        ),
        _numbers(
            case="number-formats",
            holds=relate.other_formats,
            layouts=layouts.settings_and_numbers,
            copies=4,
            share=1.0,
        ),
        _case(
            case="unread-rows",
            holds=relate.unread_rows,
            layouts=layouts.gapped,
            needs=("placeholders",),
            copies=4,
        ),
        _numbers(case="padded-vocabulary", holds=relate.padded, coins=True),
        _numbers(case="added-constant", holds=relate.added_constant, layouts=layouts.exact_numbers),
        _stream(case="seed-matters", holds=relate.seed_matters),
        _stream(case="position-matters", holds=relate.position_matters),
        _stream(case="streams-apart", holds=streams_apart, layouts=even_rows, share=0.05),
    ),
)


@pytest.mark.parametrize("experiment", SUITE.experiments, ids=lambda e: e.case)
def test_metamorphic(experiment, verify):  # type: ignore[no-untyped-def]
    """One relation over generated layouts."""
    verify(experiment)
