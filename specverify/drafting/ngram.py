"""Prompt lookup: the drafts are what followed the same words before.

A deterministic drafter: one-hot drafts, no q.  The idea is that of Saxena (2023), "Prompt Lookup
Decoding": match the last n tokens of the text earlier in the text, and propose what came next.
"""

from __future__ import annotations

import torch

from specverify.contract import PLACEHOLDER
from specverify.drafting.protocol import Contexts, Proposal


class PromptLookupDrafter:
    """Proposes what followed the most recent earlier occurrence of the text's last n tokens.

    The longest n with a match wins; without any, nothing is proposed.

    Args:
        longest: largest n that is looked for.
        shortest: smallest n that is good enough.

    Raises:
        ValueError: unless 1 <= shortest <= longest.
    """

    reports_q = False
    takes_coins = False

    def __init__(self, longest: int = 3, shortest: int = 1) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(
                f"shortest: got {shortest} with longest {longest}; "
                "expected 1 <= shortest <= longest"
            )
        self.longest, self.shortest = longest, shortest

    def propose(self, contexts: Contexts) -> Proposal:
        """Look every request's last tokens up in its own text."""
        follows = self._continuation(contexts.tokens, contexts.lengths)
        found = follows >= 0
        counts = torch.where(found, (contexts.lengths - follows).clamp(max=10**9), 0)
        counts = torch.minimum(counts, contexts.counts)
        column = torch.arange(contexts.max_drafts, device=contexts.tokens.device)
        place = (follows.clamp(min=0)[:, None] + column).clamp(max=contexts.tokens.shape[1] - 1)
        tokens = contexts.tokens.gather(1, place)
        return Proposal(torch.where(column < counts[:, None], tokens, PLACEHOLDER), None, counts)

    def _continuation(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """[B] int64: the place behind the match, -1 where there is none."""
        best = torch.full_like(lengths, -1)
        for n in range(self.shortest, min(self.longest, tokens.shape[1] - 1) + 1):
            windows = tokens.unfold(1, n, 1)
            start = torch.arange(windows.shape[1], device=tokens.device)
            enough = lengths > n
            last = (lengths - n).clamp(min=0)
            pattern = windows[torch.arange(len(lengths), device=tokens.device), last]
            same = (windows == pattern[:, None]).all(dim=2) & (start < last[:, None])
            same &= enough[:, None]
            latest = torch.where(same, start, -1).amax(dim=1)
            best = torch.where(latest >= 0, latest + n, best)  # a longer match overrules
        return best
