"""The sampler that the README shows: it is run as it stands there, and must be right."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch

from specverify.contract import Batch, Emission, Sampler
from specverify.registry import resolve
from specverify.sampling import batch_probabilities

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"<!-- (?P<file>\w+\.py) -->\n```python\n(?P<code>.*?)```", re.DOTALL)
VOCAB = 3
ALPHA = 1e-6


def readme_code() -> str:
    blocks = {found["file"]: found["code"] for found in BLOCK.finditer(README.read_text("utf-8"))}
    return blocks["my_file.py"]


def load(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> Sampler:
    (folder / f"{module}.py").write_text(code, "utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return resolve(f"{module}:my_sampler").sampler


@pytest.fixture
def my_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sampler:
    return load(readme_code(), tmp_path, monkeypatch, "readme_sampler")


def make_batch(counts: list[int], *, dense: bool, temperature: float = 1.0) -> Batch:
    """A batch whose rows all differ, with drafts drawn from the q that a dense one shows."""
    requests, drafts = len(counts), sum(counts)
    generator = torch.Generator().manual_seed(20_001)
    logits = torch.randn(drafts + requests, VOCAB, generator=generator)
    probs = torch.softmax(torch.randn(drafts, VOCAB, generator=generator), dim=1)
    ids = torch.multinomial(probs, 1, generator=generator)[:, 0] if drafts else torch.empty(0)
    return Batch(
        target_logits=logits,
        draft_token_ids=ids.long(),
        draft_probs=probs if dense else None,
        cu_drafts=torch.tensor([0, *np.cumsum(counts).tolist()]),
        temperature=torch.full((requests,), temperature),
        top_k=torch.zeros(requests, dtype=torch.int64),
        top_p=torch.ones(requests),
        min_p=torch.zeros(requests),
        seeds=torch.arange(requests).to(torch.uint64),
        positions=torch.zeros(requests, dtype=torch.int64),
    )


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
@pytest.mark.parametrize("counts", [[0], [1], [3], [2, 0, 4, 1], [0, 0, 0]], ids=str)
def test_emission_is_well_formed(my_sampler: Sampler, counts: list[int], dense: bool) -> None:
    torch.manual_seed(20_002)
    batch = make_batch(counts, dense=dense)
    emission = my_sampler(batch)
    assert emission.token_ids.shape == (len(counts), max(counts) + 1)
    drafts = torch.split(batch.draft_token_ids, counts)
    for tokens, emitted, proposed in zip(
        emission.token_ids.tolist(), emission.num_emitted.tolist(), drafts, strict=True
    ):
        assert 1 <= emitted <= len(proposed) + 1
        assert tokens[: emitted - 1] == proposed[: emitted - 1].tolist()
        assert all(0 <= token < VOCAB for token in tokens[:emitted])
        assert all(token == -1 for token in tokens[emitted:])


def greedy_by_hand(batch: Batch) -> list[list[int]]:
    best = batch.target_logits.argmax(dim=1).tolist()
    drafts, cu = batch.draft_token_ids.tolist(), batch.cu_drafts.tolist()
    emitted = []
    for i, (start, end) in enumerate(pairwise(cu)):
        tokens = []
        for slot in range(start, end + 1):
            tokens.append(best[slot + i])
            if slot == end or drafts[slot] != best[slot + i]:
                break
        emitted.append(tokens)
    return emitted


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
def test_greedy_requests_follow_the_argmax(my_sampler: Sampler, dense: bool) -> None:
    batch = make_batch([4, 0, 2, 3, 1, 5], dense=dense, temperature=0.0)
    emission = my_sampler(batch)
    expected = greedy_by_hand(batch)
    rows = zip(emission.token_ids.tolist(), expected, strict=True)
    assert [tokens[: len(want)] for tokens, want in rows] == expected
    assert emission.num_emitted.tolist() == [len(tokens) for tokens in expected]


COPIES = 8_000


def first_token_p_value(subject: Sampler) -> tuple[float, float]:
    """Test the first token of the second request, its drafts drawn from q, against its target.

    Whatever the rule, a lossless sampler emits the target here.

    Returns:
        the p-value of Pearson's chi-square, and the plug-in total variation.
    """
    base = make_batch([1, 1], dense=True)
    drafts = torch.multinomial(
        base.draft_probs, COPIES, replacement=True, generator=torch.Generator().manual_seed(20_003)
    )  # [2, copies]
    batch = Batch(
        target_logits=base.target_logits.repeat(COPIES, 1),
        draft_token_ids=drafts.T.flatten(),
        draft_probs=base.draft_probs.repeat(COPIES, 1),
        cu_drafts=torch.arange(2 * COPIES + 1),
        temperature=torch.ones(2 * COPIES),
        top_k=torch.zeros(2 * COPIES, dtype=torch.int64),
        top_p=torch.ones(2 * COPIES),
        min_p=torch.zeros(2 * COPIES),
        seeds=torch.arange(2 * COPIES).to(torch.uint64),
        positions=torch.zeros(2 * COPIES, dtype=torch.int64),
    )
    torch.manual_seed(20_004)
    emission: Emission = subject(batch)
    counts = np.bincount(emission.token_ids[1::2, 0].numpy(), minlength=VOCAB)
    law = batch_probabilities(base)[2].numpy()
    result = scipy.stats.chisquare(counts, law * COPIES)
    return float(result.pvalue), float(np.abs(counts / COPIES - law).sum() / 2)


def test_first_token_has_the_law_of_the_target(my_sampler: Sampler) -> None:
    p_value, _ = first_token_p_value(my_sampler)
    assert p_value > ALPHA


@pytest.mark.parametrize(
    ("module", "right", "wrong"),
    [
        ("recover_from_target", "(p - q).clamp(min=0)", "p"),
        ("row_of_a_neighbour", "p, q = target[start + i + j],", "p, q = target[start + j],"),
        ("accept_all", ">= p[draft]", ">= q[draft]"),
    ],
)
def test_the_same_test_rejects_a_broken_copy(
    module: str, right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = readme_code()
    assert code.count(right) == 1
    broken = load(code.replace(right, wrong), tmp_path, monkeypatch, module)
    p_value, distance = first_token_p_value(broken)
    # By noncentral chi-square, this many copies reject a total variation of 0.05 at this alpha with
    # a probability above 0.999; the mutants are further away than that.
    assert distance > 0.05
    assert p_value < ALPHA


def test_the_power_that_the_broken_copies_rely_on() -> None:
    # For a total variation of tv, the sum of d^2 / p is at least (sum |d|)^2 = 4 tv^2.
    noncentrality = COPIES * 4 * 0.05**2
    critical = scipy.stats.chi2.isf(ALPHA, VOCAB - 1)
    assert scipy.stats.ncx2.sf(critical, VOCAB - 1, noncentrality) > 0.999
