"""Drafts and their law, kept from the step that drew them to the step that verifies them.

Between the two steps requests finish, arrive and change places.  The buffer is allocated once,
packed (request after request, nothing between), handed out as views, and every slot carries a stamp
(request, step, place), so that a stale or misplaced row is an error and not a wrong law.
"""

from __future__ import annotations

import dataclasses

import torch

from specverify.drafting.protocol import Proposal


@dataclasses.dataclass(frozen=True, eq=False)
class PackedDrafts:
    """Drafts in the layout of a batch.

    Attributes:
        draft_token_ids: [D] int64.
        draft_probs: [D, V], or ``None`` for one-hot drafts.
        cu_drafts: [B + 1] int64.
    """

    draft_token_ids: torch.Tensor
    draft_probs: torch.Tensor | None
    cu_drafts: torch.Tensor


@dataclasses.dataclass(frozen=True)
class BufferAudit:
    """Slots that must not be verified.

    Attributes:
        slots: how many were looked at.
        stale: slots that another step wrote.
        misaligned: slots that belong to another request or another place in it.
    """

    slots: int
    stale: tuple[int, ...]
    misaligned: tuple[int, ...]

    @property
    def clean(self) -> bool:
        """Whether every slot holds what it should."""
        return not (self.stale or self.misaligned)


class DraftBuffer:
    """A preallocated, packed buffer of draft tokens and their rows of q.

    Args:
        slots: the most drafts that one step can have, over all requests.
        vocab_size: V.
        dtype: of q.
        device: where the buffer lives.
        with_probs: False for one-hot drafters, which need no [slots, V].

    Raises:
        ValueError: if ``slots`` or ``vocab_size`` is out of range.
    """

    def __init__(
        self,
        slots: int,
        vocab_size: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        with_probs: bool = True,
    ) -> None:
        if slots < 0:
            raise ValueError(f"slots: got {slots}; expected a count >= 0")
        if vocab_size < 1:
            raise ValueError(f"vocab_size: got {vocab_size}; expected at least one token")
        self._ids = torch.full((slots,), -1, dtype=torch.int64, device=device)
        # NaN, so that a row which nobody wrote is no law.
        self._probs = (
            torch.full((slots, vocab_size), torch.nan, dtype=dtype, device=device)
            if with_probs
            else None
        )
        self._owner = torch.full_like(self._ids, -1)
        self._step = torch.full_like(self._ids, -1)
        self._place = torch.full_like(self._ids, -1)
        self._requests = torch.empty(0, dtype=torch.int64, device=device)
        self._cu = torch.zeros(1, dtype=torch.int64, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes allocated; ``slots * V * size of dtype`` for q outweighs the rest."""
        kept = [self._ids, self._owner, self._step, self._place]
        if self._probs is not None:
            kept.append(self._probs)
        return sum(tensor.numel() * tensor.element_size() for tensor in kept)

    def store(self, proposal: Proposal, request_ids: torch.Tensor, step: int) -> None:
        """Overwrite the buffer with the drafts of one step.

        Args:
            proposal: of B requests.
            request_ids: [B] int64, distinct, >= 0: who they are, whatever their place.
            step: number of the step, >= 0.

        Raises:
            ValueError: if the drafts do not fit, or q is there and not expected or the reverse.
        """
        requests = int(proposal.counts.shape[0])
        if tuple(request_ids.shape) != (requests,):
            raise ValueError(
                f"request_ids: got {list(request_ids.shape)}; expected [B] = [{requests}]"
            )
        if bool((request_ids.sort().values.diff() == 0).any()):
            raise ValueError("request_ids: got a request twice; expected distinct requests")
        total = int(proposal.counts.sum())
        if total > self._ids.shape[0]:
            raise ValueError(f"slots: got {total} drafts; expected at most {self._ids.shape[0]}")
        if (proposal.q is None) != (self._probs is None):
            raise ValueError(
                f"q: got {'none' if proposal.q is None else 'a law'}; expected the reverse: "
                "the buffer was made for other drafts"
            )
        inside = proposal.proposed()
        self._requests = request_ids.clone()
        self._cu = torch.nn.functional.pad(proposal.counts.cumsum(0), (1, 0))
        self._ids[:total] = proposal.tokens[inside]
        if self._probs is not None and proposal.q is not None:
            self._probs[:total] = proposal.q[inside].to(self._probs.dtype)
        self._owner[:total] = torch.repeat_interleave(request_ids, proposal.counts)
        self._step[:total] = step
        column = torch.arange(inside.shape[1], device=inside.device)
        self._place[:total] = column.expand(inside.shape)[inside]

    def read(self, request_ids: torch.Tensor, step: int) -> PackedDrafts:
        """The drafts of some requests, in the order asked for.

        Views of the buffer when the order is the one that was stored, else a gather; valid until
        the next :meth:`store`.

        Args:
            request_ids: [B] int64; one that was not stored has no drafts.
            step: the step that must have written them.

        Raises:
            ValueError: naming the first slot that is stale or misaligned.
        """
        if torch.equal(request_ids, self._requests):
            total = int(self._cu[-1])
            slots, cu = slice(0, total), self._cu
            self._refuse(self.audit(request_ids, self._cu.diff(), step))
            probs = None if self._probs is None else self._probs[slots]
            return PackedDrafts(self._ids[slots], probs, cu)
        chosen, counts = self._find(request_ids)
        self._refuse(self.audit(request_ids, counts, step, chosen))
        cu = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        probs = None if self._probs is None else self._probs[chosen]
        return PackedDrafts(self._ids[chosen], probs, cu)

    def _find(self, request_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Slots [D] of the requests in their order, and their counts [B]."""
        same = request_ids[:, None] == self._requests
        known = same.any(dim=1)
        if self._requests.numel() == 0:
            return self._ids.new_empty(0), torch.zeros_like(request_ids)
        at = same.long().argmax(dim=1)
        counts = torch.where(known, self._cu.diff()[at], 0)
        first = torch.repeat_interleave(self._cu[:-1][at], counts)
        start = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
        return first + torch.arange(int(counts.sum()), device=first.device) - start, counts

    def audit(
        self,
        request_ids: torch.Tensor,
        counts: torch.Tensor,
        step: int,
        slots: torch.Tensor | None = None,
    ) -> BufferAudit:
        """Compare the stamps of slots with what a verifier believes to be in them.

        Args:
            request_ids: [B] int64, the requests of the batch in order.
            counts: [B] int64, their drafts.
            step: the step that should have written them.
            slots: [D] int64, where they are thought to be; the first D by default.
        """
        total = int(counts.sum())
        if slots is None:
            slots = torch.arange(total, device=self._ids.device)
        owner = torch.repeat_interleave(request_ids, counts)
        start = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
        place = torch.arange(total, device=start.device) - start
        stale = self._step[slots] != step
        wrong = (self._owner[slots] != owner) | (self._place[slots] != place)
        return BufferAudit(total, _numbers(slots[stale]), _numbers(slots[wrong]))

    @staticmethod
    def _refuse(audit: BufferAudit) -> None:
        for kind, slots in (("stale", audit.stale), ("misaligned", audit.misaligned)):
            if slots:
                raise ValueError(
                    f"draft buffer: slot {slots[0]} is {kind} ({len(slots)} of {audit.slots}); "
                    "expected the drafts that this step verifies"
                )


def _numbers(slots: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(slot) for slot in slots)
