"""One block of trials: the case replicated into a batch; the emission read back and completed."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray

from specverify.cases import Case
from specverify.contract import PLACEHOLDER, Batch, Capabilities, Emission
from specverify.faults import SamplerFault
from specverify.streams import Purpose, Stream

IntArray = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """A batch of T copies of a case, and the drafts in it, [T, k_i] for each request."""

    batch: Batch
    drafts: list[IntArray]


class Categorical:
    """Draws from rows of a table by inverse CDF, in float64.

    Args:
        table: [N, V] float64 probabilities.
    """

    def __init__(self, table: NDArray[np.float64]) -> None:
        cdf = np.cumsum(table, axis=1)
        # Everything from the last token with mass onwards ends at +inf: no coin falls off the end,
        # and no token of probability zero behind it is ever drawn.
        last = table.shape[1] - 1 - np.argmax(table[:, ::-1] > 0, axis=1)
        cdf[np.arange(table.shape[1]) >= last[:, None]] = np.inf
        self.cdf = cdf

    def draw(self, rows: IntArray, coins: NDArray[np.float64]) -> IntArray:
        """Token ids [T] for row numbers [T] (taken modulo the rows of the table) and coins [T]."""
        if self.cdf.shape[0] == 1:
            return np.searchsorted(self.cdf[0], coins, side="right").astype(np.int64)
        return np.asarray((self.cdf[rows] <= coins[:, None]).sum(axis=1, dtype=np.int64))


class BlockBuilder:
    """Builds blocks of one case.

    Args:
        case: the case.
        stream: where drafts, seeds and completions come from.
        device: torch device type of the batches.
        horizon: how many tokens of each request are completed.
        capabilities: of the subject; its filter convention fixes the completing law.
    """

    def __init__(
        self, case: Case, stream: Stream, device: str, horizon: int, capabilities: Capabilities
    ) -> None:
        self.case, self.stream, self.device = case, stream, device
        self.counts = [request.num_drafts for request in case.requests]
        self.width = max(self.counts)
        self.horizons = [min(horizon, count + 1) for count in self.counts]
        self._drafters = [[Categorical(t) for t in r.draft_tables()] for r in case.requests]
        self._completers = [
            [Categorical(table) for table in request.target_tables(capabilities.convention)[:limit]]
            if limit > 1
            else []
            for request, limit in zip(case.requests, self.horizons, strict=True)
        ]

    def build(self, first_trial: int, trials: int) -> Block:
        """Draw the drafts of ``trials`` trials and replicate the case."""
        case, vocab = self.case, self.case.vocab_size
        logits = torch.empty((trials, case.num_rows, vocab), dtype=case.dtype)
        probs = torch.empty((trials, sum(self.counts), vocab)) if case.dense else None
        drafts, row, slot = [], 0, 0
        for number, request in enumerate(case.requests):
            tokens = self._draft(number, first_trial, trials)
            prefix = torch.zeros(trials, dtype=torch.int64)
            for j, table in enumerate(request.target):
                logits[:, row + j] = _rows(table, prefix)
                if j < request.num_drafts:
                    if probs is not None:
                        probs[:, slot + j] = _rows((request.shown or request.draft)[j], prefix)
                    prefix = prefix * vocab + torch.from_numpy(tokens[:, j])
            row, slot = row + len(request.target), slot + request.num_drafts
            drafts.append(_with_placeholders(tokens, request.placeholders))
        return Block(self._batch(first_trial, trials, logits, probs, drafts), drafts)

    def _draft(self, number: int, first_trial: int, trials: int) -> IntArray:
        """[T, k] drafts of one request, each drawn from q given the ones before it."""
        count, vocab = self.counts[number], self.case.vocab_size
        tokens = np.empty((trials, count), dtype=np.int64)
        if count == 0:
            return tokens
        coins = self._coins(number, first_trial, trials, count, Purpose.DRAFT)
        prefix = np.zeros(trials, dtype=np.int64)
        for j, drafter in enumerate(self._drafters[number]):
            tokens[:, j] = drafter.draw(prefix, coins[:, j])
            prefix = prefix * vocab + tokens[:, j]
        return tokens

    def _coins(
        self, number: int, first_trial: int, trials: int, count: int, purpose: Purpose
    ) -> NDArray[np.float64]:
        run = np.arange(first_trial, first_trial + trials)
        return self.stream.uniform_run(run, np.array([number]), count, purpose)[:, 0]

    def _batch(
        self,
        first_trial: int,
        trials: int,
        logits: torch.Tensor,
        probs: torch.Tensor | None,
        drafts: list[IntArray],
    ) -> Batch:
        requests, vocab = len(self.counts), self.case.vocab_size
        per_copy = np.concatenate([[0], np.cumsum(self.counts)])
        cumulative = np.arange(trials)[:, None] * per_copy[-1] + per_copy[None, 1:]
        numbers = np.arange(first_trial, first_trial + trials)[:, None]
        seeds = self.stream.bits64(numbers, np.arange(requests)[None], 0, Purpose.SEED)
        home = self.device
        return Batch(
            target_logits=logits.reshape(-1, vocab).to(home),
            draft_token_ids=torch.from_numpy(np.concatenate(drafts, axis=1)).reshape(-1).to(home),
            draft_probs=None if probs is None else probs.reshape(-1, vocab).to(home),
            cu_drafts=torch.from_numpy(np.concatenate([[0], cumulative.reshape(-1)])).to(
                self.device
            ),
            temperature=self._per_request("temperature", torch.float32, trials),
            top_k=self._per_request("top_k", torch.int64, trials),
            top_p=self._per_request("top_p", torch.float32, trials),
            min_p=self._per_request("min_p", torch.float32, trials),
            seeds=torch.from_numpy(seeds.reshape(-1)).to(home),
            positions=(torch.arange(requests) * 5 + 11).repeat(trials).to(home),
            check_values=first_trial == 0,  # the same tables fill every block
        )

    def _per_request(self, name: str, dtype: torch.dtype, trials: int) -> torch.Tensor:
        values = [getattr(request, name) for request in self.case.requests]
        return torch.tensor(values, dtype=dtype).repeat(trials).to(self.device)

    def read(self, emission: Emission, block: Block) -> tuple[IntArray, IntArray]:
        """Accepted lengths [T, B] and tokens [T, B, max k + 1] of an emission.

        Raises:
            SamplerFault: if a length or a token is out of range, if what stands before the last
                token is not the drafts, or if something stands behind it.
        """
        trials, requests = block.drafts[0].shape[0], len(self.counts)
        accepted = emission.num_emitted.cpu().numpy().reshape(trials, requests) - 1
        tokens = emission.token_ids.cpu().numpy().reshape(trials, requests, self.width + 1)
        self._check_lengths(accepted)
        column = np.arange(self.width + 1)
        emitted = tokens[column <= accepted[:, :, None]]
        strange = emitted[(emitted < 0) | (emitted >= self.case.vocab_size)]
        if strange.size:
            raise SamplerFault(
                f"token_ids: emitted the id {int(strange[0])}; "
                f"expected ids in [0, {self.case.vocab_size})"
            )
        if (tokens[column > accepted[:, :, None]] != PLACEHOLDER).any():
            raise SamplerFault("token_ids: a slot after the last emitted token is not -1")
        for number, drafts in enumerate(block.drafts):
            self._check_prefix(number, drafts, accepted[:, number], tokens[:, number])
        return accepted, tokens

    def _check_lengths(self, accepted: IntArray) -> None:
        beyond = (accepted < 0) | (accepted > np.array(self.counts))
        if beyond.any():
            trial, number = (int(i) for i in np.argwhere(beyond)[0])
            raise SamplerFault(
                f"num_emitted: got {int(accepted[trial, number]) + 1} for request {number} with "
                f"{self.counts[number]} drafts; expected 1 to {self.counts[number] + 1}"
            )

    def _check_prefix(
        self, number: int, drafts: IntArray, accepted: IntArray, tokens: IntArray
    ) -> None:
        kept = np.arange(self.counts[number]) < accepted[:, None]
        wrong = kept & ((tokens[:, : self.counts[number]] != drafts) | (drafts < 0))
        if wrong.any():
            trial, slot = (int(i) for i in np.argwhere(wrong)[0])
            raise SamplerFault(
                f"token_ids: request {number} emitted {int(tokens[trial, slot])} at position "
                f"{slot}, before its last token, where the draft is {int(drafts[trial, slot])}; "
                "emitted tokens are accepted drafts and then one recovered or bonus token"
            )

    def complete(self, tokens: IntArray, accepted: IntArray, first_trial: int) -> list[IntArray]:
        """For each request [T, H]: the emission, completed by the target's own draws.

        Source: the validity notion of Sun et al. 2024 (Block Verification, 2403.10444).
        """
        done = []
        for number, limit in enumerate(self.horizons):
            out = tokens[:, number, :limit].copy()
            if limit > 1:
                self._continue(out, accepted[:, number], number, first_trial)
            done.append(out)
        return done

    def _continue(self, out: IntArray, accepted: IntArray, number: int, first_trial: int) -> None:
        trials, limit = out.shape
        coins = self._coins(number, first_trial, trials, limit, Purpose.COMPLETION)
        prefix = np.zeros(trials, dtype=np.int64)
        for j, completer in enumerate(self._completers[number]):
            open_ = np.flatnonzero(accepted < j)
            if open_.size:
                out[open_, j] = completer.draw(prefix[open_], coins[open_, j])
            prefix = prefix * self.case.vocab_size + out[:, j]


def _rows(table: torch.Tensor, prefix: torch.Tensor) -> torch.Tensor:
    return table if table.shape[0] == 1 else table[prefix]


def _with_placeholders(tokens: IntArray, slots: frozenset[int]) -> IntArray:
    if not slots:
        return tokens
    shown = tokens.copy()
    shown[:, sorted(slots)] = PLACEHOLDER
    return shown
