"""Drafters: tables, n-grams, and the packed buffer that carries drafts to their verification."""

from specverify.drafting.buffer import BufferAudit, DraftBuffer, PackedDrafts
from specverify.drafting.model import TableModel, prefix_numbers
from specverify.drafting.ngram import PromptLookupDrafter
from specverify.drafting.protocol import Contexts, Drafter, DraftModel, Proposal, check_fits
from specverify.drafting.subject import (
    DraftingCapabilities,
    DraftingSampler,
    drafter_of,
    with_drafter,
)
from specverify.drafting.table import TableDrafter, tempered

__all__ = [
    "BufferAudit",
    "Contexts",
    "DraftBuffer",
    "DraftModel",
    "Drafter",
    "DraftingCapabilities",
    "DraftingSampler",
    "PackedDrafts",
    "PromptLookupDrafter",
    "Proposal",
    "TableDrafter",
    "TableModel",
    "check_fits",
    "drafter_of",
    "prefix_numbers",
    "tempered",
    "with_drafter",
]
