"""One block of trials: the case replicated into a batch; the emission read back and completed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from specverify.cases import Case, Seeding
from specverify.contract import PLACEHOLDER, Batch, Capabilities, Emission
from specverify.faults import SamplerFault
from specverify.streams import Purpose, Stream

if TYPE_CHECKING:
    from specverify.trials import Tally

IntArray = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """A batch of T copies of a case, and the drafts in it, [T, k_i] for each request."""

    batch: Batch
    drafts: list[IntArray]


class Counter:
    """Counts of several tables.

    Args:
        cells: number of cells of each table, by name.
    """

    def __init__(self, cells: Mapping[str, int]) -> None:
        self._counts = {name: np.zeros(size, dtype=np.int64) for name, size in cells.items()}

    def count(self, tallies: Sequence[Tally], outcomes: Any) -> None:
        """Add the outcomes of a block to every table."""
        for tally in tallies:
            self._counts[tally.name] += np.bincount(tally.index(outcomes), minlength=tally.cells)

    def result(self) -> dict[str, IntArray]:
        """The counts of each table."""
        return self._counts


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
        self.cdf = torch.from_numpy(cdf)

    def draw(self, rows: torch.Tensor, coins: torch.Tensor) -> torch.Tensor:
        """Token ids [T] for row numbers [T] (a table of one row serves them all) and coins [T]."""
        if self.cdf.shape[0] == 1:
            return torch.searchsorted(self.cdf[0], coins, right=True)
        return torch.searchsorted(self.cdf[rows], coins[:, None], right=True).squeeze(1)


class RowTables:
    """All tables of one kind of a case, end to end, so that one gather fills a whole batch.

    Args:
        tables: [n_j, V] each, for every row of a batch in order.
    """

    def __init__(self, tables: list[torch.Tensor]) -> None:
        sizes = [table.shape[0] for table in tables]
        self.shared = [size == 1 for size in sizes]
        self.starts = [sum(sizes[:i]) for i in range(len(sizes))]
        self.table = torch.cat(tables)

    def gather(self, prefixes: list[torch.Tensor]) -> torch.Tensor:
        """[T * rows, V]: for each row of the batch, the row of its table at the prefix [T]."""
        index = torch.stack(
            [
                torch.full_like(prefix, start) if shared else prefix + start
                for prefix, start, shared in zip(prefixes, self.starts, self.shared, strict=True)
            ],
            dim=1,
        )
        return self.table.index_select(0, index.reshape(-1))


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
        self.convention = capabilities.convention
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
        self._logits = RowTables([table for r in case.requests for table in r.target])
        shown = [table for r in case.requests for table in (r.shown or r.draft)]
        self._probs = RowTables(shown) if case.dense and shown else None
        self._constants: tuple[int, dict[str, Any]] | None = None

    def counter(self, cells: Mapping[str, int]) -> Counter:
        """Empty counts, where the outcomes of this builder's blocks are."""
        return Counter(cells)

    def settle(self, again: Callable[[BlockBuilder, int, int], object]) -> None:
        """Nothing is left to be seen: what an emission had wrong was raised when it was read."""

    def forget(self) -> None:
        """Make the tensors that blocks share anew, and check the next block's values."""
        self._constants = None

    def ahead(self, first_trial: int, trials: int) -> None:
        """Told which block comes after the one that is asked for next: nothing to do here."""

    def build(self, first_trial: int, trials: int) -> Block:
        """Draw the drafts of ``trials`` trials and replicate the case."""
        drafts, target_rows, draft_rows = [], [], []
        for number, request in enumerate(self.case.requests):
            tokens, prefixes = self._draft(number, first_trial, trials)
            target_rows += prefixes
            draft_rows += prefixes[:-1]
            drafts.append(_with_placeholders(tokens.numpy(), request.placeholders))
        logits = self._logits.gather(target_rows)
        probs = self._probs.gather(draft_rows) if self._probs is not None else None
        if probs is None and self.case.dense:  # nobody drafts
            probs = torch.empty(0, self.case.vocab_size)
        return Block(self._batch(first_trial, trials, logits, probs, drafts), drafts)

    def _draft(
        self, number: int, first_trial: int, trials: int
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """[T, k] drafts of one request, and the numbers [T] of its prefixes of 0 .. k tokens."""
        count, vocab = self.counts[number], self.case.vocab_size
        prefixes = [torch.zeros(trials, dtype=torch.int64)]
        if count == 0:
            return torch.empty((trials, 0), dtype=torch.int64), prefixes
        coins = self._coins(number, first_trial, trials, count, Purpose.DRAFT)
        columns = []
        for j, drafter in enumerate(self._drafters[number]):
            columns.append(drafter.draw(prefixes[j], coins[j]))
            prefixes.append(prefixes[j] * vocab + columns[j])
        return torch.stack(columns, dim=1), prefixes

    def _coins(
        self, number: int, first_trial: int, trials: int, count: int, purpose: Purpose
    ) -> torch.Tensor:
        """[count, T] float64 in [0, 1)."""
        run = np.arange(first_trial, first_trial + trials)
        coins = self.stream.uniform_run(run, np.array([number]), count, purpose)[:, 0]
        return torch.from_numpy(coins).T.contiguous()

    def _batch(
        self,
        first_trial: int,
        trials: int,
        logits: torch.Tensor,
        probs: torch.Tensor | None,
        drafts: list[IntArray],
    ) -> Batch:
        home = self.device
        ids = drafts[0] if len(drafts) == 1 else np.concatenate(drafts, axis=1)
        first_block = self._constants is None
        if self._constants is None or self._constants[0] != trials:
            self._constants = trials, self._same_in_every_block(trials)
        return Batch(
            target_logits=logits.to(home),
            draft_token_ids=torch.from_numpy(ids).reshape(-1).to(home),
            draft_probs=None if probs is None else probs.to(home),
            seeds=torch.from_numpy(self._seeds(first_trial, trials)).to(home),
            positions=self._positions(first_trial, trials).to(home),
            check_values=first_block,  # the same tables fill every block
            **self._constants[1],
        )

    def _seeds(self, first_trial: int, trials: int) -> NDArray[np.uint64]:
        """[T * B] the seed of every row."""
        requests = len(self.counts)
        if self.case.seeding is Seeding.MIXED:
            numbers = np.arange(first_trial, first_trial + trials)[:, None]
            seeds = self.stream.bits64(numbers, np.arange(requests)[None], 0, Purpose.SEED)
            return seeds.reshape(-1)
        rows = np.arange(first_trial * requests, (first_trial + trials) * requests, dtype=np.uint64)
        base = np.uint64(self.stream.bits64(0, 0, 0, Purpose.SEED)) >> np.uint64(24)
        # Low bits clear, so that base + row and base ^ row are one: xor with the row undoes both.
        base <<= np.uint64(24)
        if self.case.seeding is Seeding.ASCENDING:
            return np.asarray(base + rows)
        if self.case.seeding is Seeding.DESCENDING:
            return np.asarray(base - rows)
        return np.full_like(rows, base)

    def _positions(self, first_trial: int, trials: int) -> torch.Tensor:
        """[T * B] where each row stands in its stream."""
        requests = len(self.counts)
        if self.case.seeding is not Seeding.SAME:
            return (torch.arange(requests) * 6 + 12).repeat(trials)
        rows = torch.arange(first_trial * requests, (first_trial + trials) * requests)
        return rows * (self.width + 1)  # one step uses at most this many positions

    def _same_in_every_block(self, trials: int) -> dict[str, Any]:
        """The fields that only depend on the number of trials.

        A sampler that writes into them is found out at its first call, which is watched.
        """
        per_copy = np.cumsum(self.counts)
        cumulative = np.arange(trials)[:, None] * per_copy[-1] + per_copy
        fields = {
            "cu_drafts": torch.from_numpy(np.concatenate([[0], cumulative.reshape(-1)])),
        }
        kinds = {
            "temperature": torch.float32,
            "top_k": torch.int64,
            "top_p": torch.float32,
            "min_p": torch.float32,
        }
        for name, kind in kinds.items():
            values = [getattr(request, name) for request in self.case.requests]
            fields[name] = torch.tensor(values, dtype=kind).repeat(trials)
        return {name: value.to(self.device) for name, value in fields.items()}

    def account(
        self, emission: Emission, block: Block, first_trial: int
    ) -> tuple[IntArray, IntArray, list[IntArray]]:
        """Accepted lengths and last tokens [T, B], and for each request its completed tokens.

        Raises:
            SamplerFault: as ``read``.
        """
        accepted, tokens = self.read(emission, block)
        last = np.take_along_axis(tokens, accepted[:, :, None], axis=2)[:, :, 0]
        return accepted, last, self.complete(tokens, accepted, first_trial)

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
        # The first token is always the sampler's own, so coin j - 1 completes position j.
        coins = self._coins(number, first_trial, trials, limit - 1, Purpose.COMPLETION)
        tokens, reached = torch.from_numpy(out), torch.from_numpy(accepted)
        prefix = torch.zeros(trials, dtype=torch.int64)
        for j, completer in enumerate(self._completers[number]):
            open_ = torch.nonzero(reached < j).squeeze(1)
            if open_.numel():
                tokens[open_, j] = completer.draw(prefix[open_], coins[j - 1, open_])
            prefix = prefix * self.case.vocab_size + tokens[:, j]


def _with_placeholders(tokens: IntArray, slots: frozenset[int]) -> IntArray:
    if not slots:
        return tokens
    shown = tokens.copy()
    shown[:, sorted(slots)] = PLACEHOLDER
    return shown
