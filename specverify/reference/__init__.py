"""The verification rules in plain float64: a per-row version to read, a vectorised one to run."""

from specverify.reference.chain import ChainSampler, Step
from specverify.reference.match import MatchSampler
from specverify.reference.rowwise import reference_rowwise

reference = ChainSampler()
reference_match = MatchSampler()

__all__ = [
    "ChainSampler",
    "MatchSampler",
    "Step",
    "reference",
    "reference_match",
    "reference_rowwise",
]
