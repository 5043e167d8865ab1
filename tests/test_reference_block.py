"""Block verification is lossless and accepts sum E[r]: exact enumeration, no sampling."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from specverify.contract import PLACEHOLDER, Batch, Coins
from specverify.reference import reference
from specverify.reference.block import BlockSampler, BlockTests, reference_block

V, K = 3, 3
NEVER = 1 - 2.0**-53


def tables(number: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Rows of p for every prefix of 0 .. K tokens and of q for 0 .. K - 1, [V**j, V] each."""
    generator = np.random.default_rng(number)
    p = [generator.dirichlet(np.full(V, 0.7), V**j).astype(np.float32) for j in range(K + 1)]
    q = [generator.dirichlet(np.full(V, 0.7), V**j) for j in range(K)]
    return [row.astype(np.float64) / row.sum(1, keepdims=True) for row in p], q


def index(prefix: tuple[int, ...]) -> int:
    return int(sum(token * V**place for place, token in enumerate(reversed(prefix))))


def batch_of(
    paths: list[tuple[int, ...]],
    p: list[np.ndarray],
    q: list[np.ndarray] | None,
    accept: torch.Tensor,
) -> Batch:
    """One request a path, float64 laws handed over as fp32 logits of high accuracy."""
    n = len(paths)
    rows = np.stack([p[j][index(path[:j])] for path in paths for j in range(K + 1)])
    probs = None
    if q is not None:
        probs = torch.from_numpy(np.stack([q[j][index(x[:j])] for x in paths for j in range(K)]))
    return Batch(
        target_logits=torch.from_numpy(np.log(rows)).float(),
        draft_token_ids=torch.tensor(paths).reshape(-1), draft_probs=probs,
        cu_drafts=torch.arange(n + 1) * K, temperature=torch.ones(n),
        top_k=torch.zeros(n, dtype=torch.int64), top_p=torch.ones(n), min_p=torch.zeros(n),
        seeds=torch.arange(n).view(torch.uint64), positions=torch.zeros(n, dtype=torch.int64),
        coins=Coins(accept=accept, final=torch.full((n,), 0.5, dtype=torch.float64)),
    )  # fmt: skip


def outcomes(
    paths: list[tuple[int, ...]], p: list[np.ndarray], q: list[np.ndarray] | None
) -> tuple[BlockTests, list[torch.Tensor]]:
    """h and r of every path, and for each stop the weights that its last token is drawn from."""
    sampler = BlockSampler()
    weights = []
    for stop in range(K + 1):
        coins = torch.full((len(paths), K), NEVER, dtype=torch.float64)
        if stop:
            coins[:, stop - 1] = 0.0
        step = sampler.begin(batch_of(paths, p, q, coins.reshape(-1)))
        tests = sampler.tests(step)
        step.accepted = torch.full((len(paths),), stop)
        weights.append(sampler.block_weights(step, tests))
    return tests, weights


def stop_law(passing: np.ndarray) -> np.ndarray:
    """P(stop = 0 .. K): the last of the independent tests that passes."""
    law = [float(np.prod(1 - passing))]
    law += [float(passing[i] * np.prod(1 - passing[i + 1 :])) for i in range(K)]
    return np.array(law)


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
@pytest.mark.parametrize("number", range(6))
def test_the_joint_law_is_the_target(number: int, dense: bool) -> None:
    """All drafts, all stops, completed by the target: V**(K + 1) cells to 1e-6 (fp32 logits)."""
    p, q = tables(number)
    paths = list(itertools.product(range(V), repeat=K))
    tests, weights = outcomes(paths, p, q if dense else None)
    emitted, accepted, expected = np.zeros([V] * (K + 1)), 0.0, 0.0
    for place, path in enumerate(paths):
        drawn = float(np.prod([q[j][index(path[:j]), path[j]] for j in range(K)]))
        stops = stop_law(tests.passing[place].numpy())
        accepted += drawn * float(stops @ np.arange(K + 1))
        expected += drawn * float(tests.ratio[place, 1:].sum())
        for stop in range(K + 1):
            law = (weights[stop][place] / weights[stop][place].sum()).numpy()
            for token in range(V):
                prefix = (*path[:stop], token)
                emitted[prefix] += drawn * stops[stop] * law[token] * rest(p, prefix)
    target = rest(p, ())
    assert 0.5 * float(np.abs(emitted - target).sum()) < 1e-6
    assert abs(accepted - expected) < 1e-9  # sum of E[r_i]; Sun et al. 2024, section 4
    assert accepted >= chain_length(paths, p, q, dense) - 1e-6


def rest(p: list[np.ndarray], prefix: tuple[int, ...]) -> np.ndarray:
    """The target's law of the tokens after a prefix up to K + 1 in all."""
    missing = K + 1 - len(prefix)
    law = np.ones([V] * missing)
    for tail in itertools.product(range(V), repeat=missing):
        for j in range(missing):
            law[tail] *= p[len(prefix) + j][index((*prefix, *tail[:j])), tail[j]]
    return law


def chain_length(
    paths: list[tuple[int, ...]], p: list[np.ndarray], q: list[np.ndarray], dense: bool
) -> float:
    """Expected accepted drafts of the chain rule."""
    total = 0.0
    for path in paths:
        drawn, alive = 1.0, 1.0
        for j in range(K):
            drawn *= float(q[j][index(path[:j]), path[j]])
        for j in range(K):
            ratio = p[j][index(path[:j]), path[j]] / (
                q[j][index(path[:j]), path[j]] if dense else 1
            )
            alive *= min(1.0, float(ratio))
            total += drawn * alive
    return total


def test_a_chain_stop_at_the_first_failure_would_be_lossy() -> None:
    """The same h with stops at the first failure: the enumeration sees TV > 0.01."""
    p, q = tables(0)
    paths = list(itertools.product(range(V), repeat=K))
    tests, weights = outcomes(paths, p, q)
    emitted = np.zeros([V] * (K + 1))
    for place, path in enumerate(paths):
        drawn = float(np.prod([q[j][index(path[:j]), path[j]] for j in range(K)]))
        h = tests.passing[place].numpy()
        upto = np.cumprod(np.concatenate([[1.0], h]))
        stops = upto * np.concatenate([1 - h, [1.0]])
        for stop in range(K + 1):
            law = (weights[stop][place] / weights[stop][place].sum()).numpy()
            for token in range(V):
                prefix = (*path[:stop], token)
                emitted[prefix] += drawn * stops[stop] * law[token] * rest(p, prefix)
    assert 0.5 * float(np.abs(emitted - rest(p, ())).sum()) > 0.01


def test_one_draft_is_the_chain_rule() -> None:
    """With one draft both rules are the same, coin for coin."""
    generator = torch.Generator().manual_seed(1)
    n = 200
    q = torch.softmax(torch.randn(n, 5, generator=generator).double(), 1)
    ids = torch.multinomial(q, 1, generator=generator).squeeze(1)
    ids[::7] = PLACEHOLDER
    for probs in (q, None):
        batch = Batch(
            target_logits=torch.randn(2 * n, 5, generator=generator), draft_token_ids=ids,
            draft_probs=probs, cu_drafts=torch.arange(n + 1),
            temperature=torch.tensor([1.0, 0.5, 0.0, 2.0]).repeat(n // 4),
            top_k=torch.zeros(n, dtype=torch.int64), top_p=torch.ones(n), min_p=torch.zeros(n),
            seeds=torch.arange(n).view(torch.uint64), positions=torch.arange(n),
        )  # fmt: skip
        ours, theirs = reference_block(batch), reference(batch)
        assert torch.equal(ours.token_ids, theirs.token_ids)
        assert torch.equal(ours.num_emitted, theirs.num_emitted)


def test_placeholders_end_the_block_and_greedy_is_exact() -> None:
    logits = torch.zeros(7, 4)
    logits[torch.arange(7), torch.tensor([1, 2, 3, 0, 2, 1, 3])] = 5.0
    batch = Batch(
        target_logits=logits, draft_token_ids=torch.tensor([1, 2, PLACEHOLDER, 0, 1]),
        draft_probs=None, cu_drafts=torch.tensor([0, 3, 5]), temperature=torch.zeros(2),
        top_k=torch.zeros(2, dtype=torch.int64), top_p=torch.ones(2), min_p=torch.zeros(2),
        seeds=torch.arange(2).view(torch.uint64), positions=torch.zeros(2, dtype=torch.int64),
    )  # fmt: skip
    out = reference_block(batch)
    assert out.token_ids.tolist() == [[1, 2, 3, -1], [2, -1, -1, -1]]
    assert out.num_emitted.tolist() == [3, 1]


def test_no_drafts_at_all() -> None:
    batch = Batch(
        target_logits=torch.eye(3)[:2] * 20, draft_token_ids=torch.zeros(0, dtype=torch.int64),
        draft_probs=None, cu_drafts=torch.zeros(3, dtype=torch.int64), temperature=torch.ones(2),
        top_k=torch.zeros(2, dtype=torch.int64), top_p=torch.ones(2), min_p=torch.zeros(2),
        seeds=torch.arange(2).view(torch.uint64), positions=torch.zeros(2, dtype=torch.int64),
    )  # fmt: skip
    assert reference_block(batch).token_ids.tolist() == [[0], [1]]
