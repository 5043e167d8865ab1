"""The layouts and the exact properties that layout experiments combine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specverify.checks.structural import Violation, greedy_violations, support_violations
from specverify.contract import Batch, Capabilities, Emission
from specverify.sampling import CONVENTIONS, filter_support

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def any_layout(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Everything that the subject declares to take."""
    from specverify.layouts import batches_for

    return batches_for(capabilities)


def wide_layout(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Vocabularies that take several tiles of a kernel, few requests."""
    from specverify.layouts import batches_for

    return batches_for(capabilities, vocab=(300, 5000), max_requests=3, max_drafts=2)


def greedy_layout(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Every request at temperature 0, in half of the batches with long proposals."""
    from specverify.layouts import batches_for

    long = batches_for(
        capabilities, greedy_only=True, max_requests=4, max_drafts=12, tiled=True, habits=True
    )
    return batches_for(capabilities, greedy_only=True) | long


def excluded_layout(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Filters on requests without drafts only; in half of the batches nobody has any."""
    from specverify.layouts import batches_for

    alone = batches_for(
        capabilities,
        filters="zero-draft",
        max_drafts=0,
        temperatures=(1.0, 0.75, 2.0),
        targets=("random", "masked", "shifted"),
    )
    return batches_for(capabilities, filters="zero-draft") | alone


def filtered_layout(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Filters anywhere, in half of the batches near the ends of their ranges."""
    from specverify.layouts import batches_for

    return batches_for(capabilities, filters="any") | corner_layout(capabilities)


def tied_layout(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Filters on rows with a few values only, so that most cuts go through tokens that tie."""
    from specverify.layouts import batches_for

    return batches_for(capabilities, filters="any", targets=("flat", "ties"))


def corner_layout(capabilities: Capabilities) -> SearchStrategy[Batch]:
    """Proposals longer than usual, whole tiles, and settings near the ends of their ranges.

    What engines take for off or for greedy, cap, or store in half precision; and the request that
    has a filter, a placeholder or temperature 0 and yet many drafts.
    """
    from specverify.layouts import batches_for

    return batches_for(
        capabilities,
        max_requests=4,
        max_drafts=12,
        vocab=(8, 600),
        temperatures=(1.0, 0.6, 10.0, 0.98, 1.4) + (0.0,) * capabilities.greedy,
        top_ps=(1.0, 0.999, 0.95, 1e-3),
        min_ps=(0.0, 0.0, 0.0, 0.05, 1e-3, 1.0),
        tiled=True,
        habits=True,
    )


def anything(_batch: Batch, _emission: Emission, _capabilities: Capabilities) -> list[Violation]:
    """Nothing beyond the structure, which every layout experiment checks anyway."""
    return []


def greedy_text_is_exact(
    batch: Batch, emission: Emission, _capabilities: Capabilities
) -> list[Violation]:
    """Requests at temperature 0 emit maxima of their rows and nothing else, ties included."""
    return greedy_violations(batch, emission, text_only=True)


def greedy_drafts_all_pass(
    batch: Batch, emission: Emission, _capabilities: Capabilities
) -> list[Violation]:
    """At temperature 0, also: verification goes on while the drafts are right."""
    return greedy_violations(batch, emission)


def inside_the_support(
    batch: Batch, emission: Emission, capabilities: Capabilities
) -> list[Violation]:
    """No emitted token has probability zero under the subject's filter convention."""
    request = batch.row_request
    support = filter_support(
        batch.target_logits,
        batch.temperature[request],
        batch.top_k[request],
        batch.top_p[request],
        batch.min_p[request],
        CONVENTIONS[capabilities.convention],
    )
    return support_violations(batch, emission, support)
