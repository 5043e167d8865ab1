"""Several rounds of draft, verify, advance, over many seeded trials of a table model.

Everything is a function of (root seed, case, trial, request): the requests' seeds, the completion
and the coins of the probability integral transforms.  Drafts come from the subject's own drafter
where it brings one, and their randomness from that drafter.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import torch
from numpy.typing import NDArray

from specverify._blocks import Categorical
from specverify.cases import Case, FloatArray, RequestSpec, TableRequest, make_case
from specverify.checks._round_calls import emitted_tokens, proposal_of
from specverify.contract import PLACEHOLDER, Batch, Capabilities
from specverify.drafting import Contexts, DraftBuffer, Drafter, Proposal, TableModel
from specverify.faults import call
from specverify.streams import Purpose, Stream
from specverify.subjects import Subject
from specverify.trials import BLOCK_ELEMENTS, MAX_BLOCK, IntArray, Outcomes

PROMPT = 6
"""Tokens in front of every text, for drafters that look words up."""
BINS = 8
"""Cells of a probability integral transform."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RoundCase:
    """A batch of requests that decode for some rounds.

    Attributes:
        case: the batch, with a target table for every token that the rounds can emit (so its
            ``num_drafts`` is the horizon less one, not the drafts of a round).
        drafts: how many drafts each request wants in a round.
        rounds: how many rounds.
    """

    case: Case
    drafts: tuple[int, ...]
    rounds: int = 2

    @property
    def horizons(self) -> tuple[int, ...]:
        """The most tokens that each request can emit in all rounds together."""
        return tuple(len(request.target) for request in self.case.requests)

    @property
    def block(self) -> int:
        """Trials in one call: even, and a function of the case alone."""
        rows = sum(self.drafts) + len(self.drafts)
        most = BLOCK_ELEMENTS // (rows * self.case.vocab_size)
        return max(2, min(MAX_BLOCK, most) // 2 * 2)

    def unsupported(self, capabilities: Capabilities) -> str | None:
        """Why a subject cannot be asked this case; ``None`` if it can."""
        if 0 in self.drafts and not capabilities.zero_drafts:
            return "the sampler does not declare zero_drafts"
        return self.case.unsupported(capabilities)


@functools.lru_cache(maxsize=64)
def round_case(
    name: str,
    vocab: int,
    specs: tuple[RequestSpec, ...],
    dense: bool,
    dtype: str = "float32",
    rounds: int = 2,
    spread: float = 1.2,
) -> RoundCase:
    """Make a case whose numbers depend on its name alone.

    Args:
        name: of the case.
        vocab: V.
        specs: one for each request; ``drafts`` are those of one round.
        dense: whether the sampler is shown q.
        dtype: of the logits.
        rounds: at least 1.
        spread: standard deviation of the logits before temperature.

    Raises:
        ValueError: if ``rounds`` is below 1, or as :func:`~specverify.cases.make_case`.
    """
    if rounds < 1:
        raise ValueError(f"rounds: got {rounds}; expected at least 1")
    long = tuple(dataclasses.replace(spec, drafts=rounds * (spec.drafts + 1) - 1) for spec in specs)
    return RoundCase(
        case=make_case(name, vocab, long, dense, dtype=dtype, spread=spread),
        drafts=tuple(spec.drafts for spec in specs),
        rounds=rounds,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Round:
    """One round of T trials of B requests, K the most drafts of a request.

    Attributes:
        before: [T, B] the last token of the text before the round.
        drafts: [T, B, K] drafts, -1 where none was proposed.
        q: [T, B, K, V] float64, the reported law; ``None`` for one-hot drafts.
        draft_bins: [T, B, K] cell of each draft's probability integral transform under the
            reported q, -1 where there is none.
        emitted: [T, B] tokens emitted.
        first_bins: [T, B] the same of the first emitted token, under the target.
    """

    before: IntArray
    drafts: IntArray
    q: FloatArray | None
    draft_bins: IntArray
    emitted: IntArray
    first_bins: IntArray

    def head(self, trials: int) -> Round:
        """The first trials alone."""
        return Round(
            before=self.before[:trials],
            drafts=self.drafts[:trials],
            q=None if self.q is None else self.q[:trials],
            draft_bins=self.draft_bins[:trials],
            emitted=self.emitted[:trials],
            first_bins=self.first_bins[:trials],
        )


@dataclasses.dataclass(frozen=True, eq=False)
class RoundOutcomes(Outcomes):
    """What happened in a run of consecutive trials, round by round.

    ``drafts``, ``accepted`` and ``last`` of the base are those of the first round; ``completed`` is
    the text of all rounds, completed to the horizon.
    """

    rounds: tuple[Round, ...] = ()

    def head(self, trials: int) -> RoundOutcomes:
        """The first trials alone."""
        cut = tuple(one.head(trials) for one in self.rounds)
        base = super().head(trials)
        return RoundOutcomes(
            base.first_trial, base.drafts, base.accepted, base.last, base.completed, cut
        )


class RoundRunner:
    """Runs blocks of trials of one case.

    Args:
        subject: the sampler under test.
        drafter: where drafts come from.
        plan: the case.
        root_seed: of the run.
        device: torch device type.
    """

    def __init__(
        self, subject: Subject, drafter: Drafter, plan: RoundCase, root_seed: int, device: str
    ) -> None:
        self.subject, self.drafter, self.plan, self.device = subject, drafter, plan, device
        self.stream = Stream.derive(root_seed, "rounds", plan.case.name)
        self.transforms = Stream.derive(root_seed, "rounds transforms", plan.case.name)
        requests = plan.case.requests
        self.width = max(plan.drafts)
        self.vocab = plan.case.vocab_size
        self.targets = TableModel([request.target for request in requests])
        self.model = TableModel([_draft_logits(request) for request in requests], PROMPT).to(device)
        convention = subject.capabilities.convention
        laws = [table for r in requests for table in r.target_tables(convention)]
        self.law = np.concatenate(laws)
        self.completer = Categorical(self.law)
        self.prompt = _prompt(plan.case.name, len(requests), self.vocab)

    def run(self, first_trial: int, trials: int, *, watch: bool = False) -> RoundOutcomes:
        """All rounds of ``trials`` trials.

        Raises:
            SamplerFault: naming what the sampler or the drafter did.
        """
        text = _Text(self, first_trial, trials)
        done = tuple(self._round(text, step, watch) for step in range(self.plan.rounds))
        first = done[0]
        accepted = first.emitted - 1
        last = np.take_along_axis(text.first_round, accepted[:, :, None], axis=2)[:, :, 0]
        drafts = [first.drafts[:, i, :k] for i, k in enumerate(self.plan.drafts)]
        return RoundOutcomes(first_trial, drafts, accepted, last, text.completed(), done)

    def _round(self, text: _Text, step: int, watch: bool) -> Round:
        contexts = text.contexts(step)
        numbers = np.arange(2)
        seeds = self.stream.bits64(text.first_trial, numbers, 1 + step, Purpose.SEED)
        proposal = proposal_of(self.drafter, contexts, int(seeds[0]))
        batch, rows = text.batch(proposal, step)
        emission = call(self.subject, batch, int(seeds[1]), watch_input=watch)
        tokens, emitted = emitted_tokens(
            emission.token_ids, emission.num_emitted, proposal, self.vocab, len(self.plan.drafts)
        )
        shape = (text.trials, len(self.plan.drafts))
        done = Round(
            before=_last_token(contexts).reshape(shape),
            drafts=proposal.tokens.cpu().numpy().reshape(*shape, -1),
            q=None
            if proposal.q is None
            else proposal.q.double().cpu().numpy().reshape(*shape, -1, self.vocab),
            draft_bins=text.draft_bins(proposal, step).reshape(*shape, -1),
            emitted=emitted.reshape(shape),
            first_bins=text.bins(self.law[rows], tokens[:, 0], step, 0).reshape(shape),
        )
        if step == 0:
            text.first_round = tokens.reshape(*shape, -1)
        text.append(tokens, emitted)
        return done


class _Text:
    """The growing texts of one block, N = trials x requests of them, copy after copy."""

    def __init__(self, runner: RoundRunner, first_trial: int, trials: int) -> None:
        self.runner, self.first_trial, self.trials = runner, first_trial, trials
        case, horizon = runner.plan.case, max(runner.plan.horizons)
        requests = len(case.requests)
        self.trial = np.repeat(np.arange(first_trial, first_trial + trials), requests)
        self.request = np.tile(np.arange(requests), trials)
        size = trials * requests
        self.tokens = np.full((size, PROMPT + horizon), PLACEHOLDER, dtype=np.int64)
        self.tokens[:, :PROMPT] = runner.prompt[self.request]
        self.length = np.zeros(size, dtype=np.int64)
        self.number = np.zeros(size, dtype=np.int64)
        self.seeds = runner.stream.bits64(self.trial, self.request, 0, Purpose.SEED)
        self.position = self.request * 6 + 12
        self.wanted = np.array(runner.plan.drafts)[self.request]
        self.temperature = torch.tensor(
            [r.temperature for r in case.requests], dtype=torch.float32
        ).repeat(trials)
        self.ids = torch.arange(size)
        self.buffer = DraftBuffer(
            int(self.wanted.sum()), runner.vocab, dtype=torch.float32, with_probs=case.dense
        )
        self.first_round: IntArray = np.empty((0, 0, 0), dtype=np.int64)

    def contexts(self, step: int) -> Contexts:
        """What the drafter is told."""
        home = self.runner.device
        return Contexts(
            tokens=torch.from_numpy(self.tokens.copy()).to(home),
            lengths=torch.from_numpy(self.length + PROMPT).to(home),
            counts=torch.from_numpy(self.wanted.copy()).to(home),
            temperature=self.temperature.to(home, copy=True),
            seeds=torch.from_numpy(self.seeds.copy()).to(home),
            positions=torch.from_numpy(self.position.copy()).to(home),
            vocab_size=self.runner.vocab,
            step=step,
            model=self.runner.model,
        )

    def batch(self, proposal: Proposal, step: int) -> tuple[Batch, NDArray[np.int64]]:
        """The batch that verifies a proposal, and the target rows [N] of its first tokens."""
        runner, case = self.runner, self.runner.plan.case
        kept = Proposal(
            proposal.tokens.cpu(),
            proposal.q.cpu() if proposal.q is not None and case.dense else None,
            proposal.counts.cpu(),
        )
        self.buffer.store(kept, self.ids, step)
        packed = self.buffer.read(self.ids, step)
        rows = self._target_rows(kept)
        inside = torch.arange(rows.shape[1]) <= kept.counts[:, None]
        home = runner.device
        return (
            Batch(
                target_logits=runner.targets.table.index_select(0, rows[inside]).to(home),
                draft_token_ids=packed.draft_token_ids.to(home, copy=True),
                draft_probs=None
                if packed.draft_probs is None
                else packed.draft_probs.to(home, copy=True),
                cu_drafts=packed.cu_drafts.to(home),
                seeds=torch.from_numpy(self.seeds.copy()).to(home),
                positions=torch.from_numpy(self.position.copy()).to(home),
                temperature=self.temperature.to(home, copy=True),
                top_k=self._each("top_k", torch.int64),
                top_p=self._each("top_p", torch.float32),
                min_p=self._each("min_p", torch.float32),
                check_values=False,
            ),
            rows[:, 0].numpy(),
        )

    def _each(self, name: str, kind: torch.dtype) -> torch.Tensor:
        """[N]: a sampling parameter of every request."""
        values = [getattr(request, name) for request in self.runner.plan.case.requests]
        return torch.tensor(values, dtype=kind).repeat(self.trials).to(self.runner.device)

    def _target_rows(self, proposal: Proposal) -> torch.Tensor:
        """[N, K + 1] int64: the target row after each number of drafts; unused ones repeat."""
        owner, number = torch.from_numpy(self.request), torch.from_numpy(self.number.copy())
        length = torch.from_numpy(self.length.copy())
        rows = [self.runner.targets.index(owner, length, number)]
        for j in range(proposal.tokens.shape[1]):
            more = j < proposal.counts
            number = torch.where(more, number * self.runner.vocab + proposal.tokens[:, j], number)
            length = length + more.long()
            rows.append(self.runner.targets.index(owner, length, number))
        return torch.stack(rows, dim=1)

    def draft_bins(self, proposal: Proposal, step: int) -> IntArray:
        """[N, K]: cells of the drafts' transforms under the reported q, -1 where there is none."""
        width = proposal.tokens.shape[1]
        bins = np.full((self.tokens.shape[0], width), -1, dtype=np.int64)
        if proposal.q is None:
            return bins
        q, tokens = proposal.q.double().cpu().numpy(), proposal.tokens.cpu().numpy()
        for j in range(width):
            there = proposal.counts.cpu().numpy() > j
            cells = self.bins(q[:, j], np.maximum(tokens[:, j], 0), step, j + 1)
            bins[:, j] = np.where(there, cells, -1)
        return bins

    def bins(self, law: FloatArray, tokens: IntArray, step: int, place: int) -> IntArray:
        """[N]: cells of the randomised probability integral transform, uniform if tokens ~ law.

        The transform F(x-) + v (F(x) - F(x-)) with an independent uniform v is uniform for every
        row, so tokens of different rows fill one table (Rosenblatt 1952; Ferguson 1967, 5.3).
        """
        address = step * (self.runner.width + 1) + place
        v = self.runner.transforms.uniforms(self.trial, self.request, address, Purpose.NOISE)
        cdf = np.cumsum(law, axis=1)
        mass = np.take_along_axis(law, tokens[:, None], axis=1)[:, 0]
        upper = np.take_along_axis(cdf, tokens[:, None], axis=1)[:, 0]
        place_ = (upper - mass + v * mass) / np.where(cdf[:, -1] > 0, cdf[:, -1], 1.0)
        return np.clip((place_ * BINS).astype(np.int64), 0, BINS - 1)

    def append(self, tokens: IntArray, emitted: IntArray) -> None:
        """Put the emitted tokens behind the texts and advance in the streams."""
        everyone = np.arange(len(emitted))
        for j in range(tokens.shape[1]):
            more = everyone[j < emitted]
            self.tokens[more, PROMPT + self.length[more] + j] = tokens[more, j]
            self.number[more] = self.number[more] * self.runner.vocab + tokens[more, j]
        self.length = self.length + emitted
        self.position = self.position + emitted

    def completed(self) -> list[IntArray]:
        """For each request [T, H]: the text, completed by the target's own draws."""
        requests = len(self.runner.plan.drafts)
        return [self._complete(i, slice(i, None, requests)) for i in range(requests)]

    def _complete(self, number: int, mine: slice) -> IntArray:
        horizon = self.runner.plan.horizons[number]
        out = self.tokens[mine, PROMPT : PROMPT + horizon].copy()
        coins = self.runner.stream.uniform_run(
            self.trial[mine], np.array([number]), horizon, Purpose.COMPLETION
        )[:, 0]
        prefix, owner = self.number[mine].copy(), torch.tensor([number])
        for j in range(horizon):
            open_ = np.nonzero(self.length[mine] <= j)[0]
            if open_.size:
                rows = self.runner.targets.index(
                    owner.expand(open_.size),
                    torch.full((open_.size,), j),
                    torch.from_numpy(prefix[open_]),
                )
                drawn = self.runner.completer.draw(rows, torch.from_numpy(coins[open_, j]))
                out[open_, j] = drawn.numpy()
                prefix[open_] = prefix[open_] * self.runner.vocab + out[open_, j]
        return out


def _draft_logits(request: TableRequest) -> list[torch.Tensor]:
    """Logits whose softmax at the request's temperature is the case's q."""
    temperature = request.temperature or 1.0
    vocab = request.target[0].shape[1]
    tables = [table.double().log() * temperature for table in request.draft]
    return tables or [torch.zeros(1, vocab, dtype=torch.float64)]


def _prompt(name: str, requests: int, vocab: int) -> IntArray:
    """[B, PROMPT] tokens that depend on the name of the case alone."""
    coins = Stream.derive(0, "prompt", name).uniforms(
        0, np.arange(requests)[:, None], np.arange(PROMPT)[None], Purpose.LAYOUT
    )
    return np.asarray((coins * vocab).astype(np.int64))


def _last_token(contexts: Contexts) -> IntArray:
    last = contexts.tokens.gather(1, contexts.lengths[:, None] - 1)
    return np.asarray(last.squeeze(1).cpu().numpy())
