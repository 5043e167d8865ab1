"""A draft model that is a table: one row of logits for every request and every prefix."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch


def prefix_numbers(tokens: torch.Tensor, lengths: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """[n] int64: the base-V number of the first ``lengths`` tokens, the first most significant.

    Args:
        tokens: [n, L] int64.
        lengths: [n] int64 in [0, L].
        vocab_size: V.
    """
    number = torch.zeros_like(lengths)
    for j in range(tokens.shape[1]):
        number = torch.where(j < lengths, number * vocab_size + tokens[:, j], number)
    return number


class TableModel:
    """Rows that depend on the request and on every token after the prompt.

    Args:
        tables: for each request its tables, table j [V**j, V]; a batch with more requests is made
            of copies, one behind the other.
        prompt_length: tokens in front of each text that the rows do not depend on.

    Raises:
        ValueError: if there is no table, or one has another shape.
    """

    def __init__(self, tables: Sequence[Sequence[torch.Tensor]], prompt_length: int = 0) -> None:
        if not tables or not all(tables):
            raise ValueError("tables: got no table; expected at least one for every request")
        self._vocab = int(tables[0][0].shape[-1])
        for number, own in enumerate(tables):
            for j, table in enumerate(own):
                want = [self._vocab**j, self._vocab]
                if list(table.shape) != want:
                    raise ValueError(
                        f"tables[{number}][{j}]: got {list(table.shape)}; "
                        f"expected [V**j, V] = {want}"
                    )
        self.prompt_length = prompt_length
        self.table = torch.cat([table for own in tables for table in own])
        self.depths = torch.tensor([len(own) for own in tables], device=self.table.device)
        sizes = torch.tensor([sum(len(table) for table in own) for own in tables])
        self._first = (sizes.cumsum(0) - sizes).to(self.table.device)
        before = [(self._vocab**j - 1) // (self._vocab - 1) if self._vocab > 1 else j
                  for j in range(int(self.depths.max()))]  # fmt: skip
        self._before = torch.tensor(before, device=self.table.device)

    def to(self, device: str | torch.device) -> TableModel:
        """The same model with all of its tensors on a device; this one is not changed."""
        moved = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, torch.Tensor):
                setattr(moved, name, value.to(device))
        return moved

    @property
    def vocab_size(self) -> int:
        """V."""
        return self._vocab

    def index(
        self, rows: torch.Tensor, lengths: torch.Tensor, numbers: torch.Tensor
    ) -> torch.Tensor:
        """[n] int64: where the row of a prefix of this length and number lies in ``table``.

        Raises:
            ValueError: if a prefix is longer than the tables reach.
        """
        owner = rows % self.depths.shape[0]
        beyond = lengths >= self.depths[owner]
        if bool(beyond.any()):
            at = int(torch.nonzero(beyond)[0])
            raise ValueError(
                f"lengths[{at}]: got {int(lengths[at])} tokens after the prompt; expected fewer "
                f"than the {int(self.depths[owner[at]])} tables of the request"
            )
        return self._first[owner] + self._before[lengths] + numbers

    def logits(
        self, rows: torch.Tensor, tokens: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        """[n, V]: the row of each text; see :class:`~specverify.drafting.protocol.DraftModel`."""
        generated = lengths - self.prompt_length
        numbers = prefix_numbers(tokens[:, self.prompt_length :], generated, self._vocab)
        return self.table.index_select(0, self.index(rows, generated, numbers))
