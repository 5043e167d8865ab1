"""The adapters hand every row, draft and parameter to the engine where it belongs, and back."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import subprocess
import sys

import pytest
import torch
from scipy import stats

from specverify import _optional
from specverify.adapters import _packing
from specverify.contract import Batch, Emission, Sampler, capabilities_of

V = 3
ALPHA = 1e-6
ENGINES = ["flashspec", "transformers"]


@pytest.fixture(params=ENGINES)
def adapter(request: pytest.FixtureRequest) -> Sampler:
    return load(request.param)


def load(name: str) -> Sampler:
    if not _optional.is_installed(name):
        pytest.skip(f"{name} is not installed")
    found: Sampler = getattr(importlib.import_module(f"specverify.adapters.{name}"), name)
    return found


def make_batch(
    logits: torch.Tensor,
    counts: torch.Tensor,
    ids: torch.Tensor,
    probs: torch.Tensor | None,
    **fields: object,
) -> Batch:
    requests = counts.shape[0]
    values: dict[str, object] = {
        "temperature": torch.ones(requests),
        "top_k": torch.zeros(requests, dtype=torch.int64),
        "top_p": torch.ones(requests),
        "min_p": torch.zeros(requests),
        "seeds": torch.arange(requests).to(torch.uint64),
        "positions": torch.zeros(requests, dtype=torch.int64),
    }
    values.update(fields)
    cu_drafts = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return Batch(
        target_logits=logits, draft_token_ids=ids, draft_probs=probs, cu_drafts=cu_drafts, **values
    )  # type: ignore[arg-type]


def forced_batch(dense: bool, **fields: object) -> tuple[Batch, Emission]:
    """Targets that allow one token a row, so that every emission is known without drawing.

    With p one-hot, a draft is accepted iff it is the token that p allows (p/q >= 1 or 0), and the
    recovered or bonus token is the one that p allows.
    """
    vocab = 7
    generator = torch.Generator().manual_seed(11)
    counts = torch.tensor([2, 0, 3, 1, 0, 3, 2, 3, 1])
    rows = int(counts.sum()) + len(counts)
    path = torch.randint(0, vocab, (rows,), generator=generator)
    logits = torch.full((rows, vocab), -torch.inf).scatter_(1, path[:, None], 1.5)
    wrong_at = [1, 0, 3, 0, 0, 2, 2, 0, 1]  # the place of the first wrong draft; k_i for none
    ids, tokens = [], []
    row = 0
    for count, wrong in zip(counts.tolist(), wrong_at, strict=True):
        own = path[row : row + count + 1].tolist()
        ids += [(t + 1) % vocab if place == wrong else t for place, t in enumerate(own[:count])]
        tokens.append(own[: wrong + 1] + [-1] * (3 - wrong))
        row += count + 1
    drafts = torch.tensor(ids)
    probs = torch.full((len(ids), vocab), 0.5 / (vocab - 1)).scatter_(1, drafts[:, None], 0.5)
    batch = make_batch(logits, counts, drafts, probs if dense else None, **fields)
    return batch, Emission(torch.tensor(tokens), torch.tensor(wrong_at) + 1)


def drawn_batch(dense: bool, requests: int, seed: int, **fields: object) -> Batch:
    """Requests with 0, 1 and 2 drafts in turn; p and q differ by class and position."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.arange(requests) % 3
    target = 1.5 * torch.randn(6, V, generator=torch.Generator().manual_seed(5))
    law = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [0.25, 0.7, 0.05]])
    probs = law.repeat(requests // 3, 1)
    ids = torch.multinomial(probs, 1, generator=generator)[:, 0]
    logits = target.repeat(requests // 3, 1)
    return make_batch(logits, counts, ids, probs if dense else None, **fields)


def first_token_p_values(emission: Emission, law: torch.Tensor) -> list[float]:
    """Pearson's chi-square of the first emitted token, for each class of ``drawn_batch``."""
    found = []
    for kind, row in enumerate((0, 1, 3)):
        tokens = emission.token_ids[kind::3, 0]
        observed = torch.bincount(tokens, minlength=V).double()
        allowed = law[row] > 0
        assert not observed[~allowed].any()
        expected = law[row][allowed] * len(tokens)
        found.append(float(stats.chisquare(observed[allowed].numpy(), expected.numpy()).pvalue))
    return found


def same(one: Emission, other: Emission) -> bool:
    return torch.equal(one.token_ids, other.token_ids) and torch.equal(
        one.num_emitted, other.num_emitted
    )


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
def test_forced_targets_give_the_known_emission(adapter: Sampler, dense: bool) -> None:
    batch, expected = forced_batch(dense)
    assert same(adapter(batch), expected)


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
def test_flashspec_mixes_greedy_and_random_requests(dense: bool) -> None:
    adapter = load("flashspec")
    batch, expected = forced_batch(dense, temperature=torch.tensor([0.0, 0, 1, 0, 2, 0, 0.3, 0, 1]))
    assert same(adapter(batch), expected)


def test_flashspec_greedy_emits_the_argmax_path() -> None:
    adapter = load("flashspec")
    batch, expected = forced_batch(True, temperature=torch.zeros(9))
    # Finite logits with the same argmax: at temperature 0 nothing else may be emitted.
    soft = batch.target_logits.clamp_min(0.0)
    assert same(adapter(batch.replace(target_logits=soft)), expected)


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "one-hot"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_flashspec_stops_at_a_placeholder(dense: bool, temperature: float) -> None:
    adapter = load("flashspec")
    batch, expected = forced_batch(dense, temperature=torch.full((9,), temperature))
    ids = batch.draft_token_ids.clone()
    # Request 2 proposes three right drafts; without its second it emits one of them and its own.
    slot = int(batch.cu_drafts[2]) + 1
    ids[slot] = -1
    tokens, emitted = expected.token_ids.clone(), expected.num_emitted.clone()
    tokens[2, 2:], emitted[2] = -1, 2
    assert same(adapter(batch.replace(draft_token_ids=ids)), Emission(tokens, emitted))


@pytest.mark.parametrize("counts", [[0, 0], [0], [1], [4]])
def test_small_layouts(adapter: Sampler, counts: list[int]) -> None:
    drafts = sum(counts)
    probs = torch.full((drafts, V), 1 / V)
    batch = make_batch(
        torch.zeros(drafts + len(counts), V),
        torch.tensor(counts),
        torch.zeros(drafts, dtype=torch.int64),
        probs,
    )
    emission = adapter(batch)
    assert emission.token_ids.shape == (len(counts), max(counts) + 1)
    column = torch.arange(max(counts) + 1)
    emitted = column < emission.num_emitted[:, None]
    assert torch.equal(emission.token_ids >= 0, emitted)
    assert bool((emission.num_emitted <= torch.tensor(counts) + 1).all())


def test_the_same_batch_gives_the_same_emission_and_another_seed_another(adapter: Sampler) -> None:
    batch = drawn_batch(True, 600, seed=1)
    assert same(adapter(batch), adapter(batch))
    other = batch.replace(seeds=torch.arange(1, 601).to(torch.uint64))
    assert not same(adapter(batch), adapter(other))
    assert not same(adapter(batch), adapter(batch.replace(positions=batch.positions + 1)))


@pytest.mark.parametrize("top_k", [0, 2])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_input_and_global_random_state_are_left_alone(
    adapter: Sampler, top_k: int, temperature: float
) -> None:
    batch = drawn_batch(True, 60, seed=2, top_k=torch.full((60,), top_k))
    batch = batch.replace(temperature=torch.full((60,), temperature))
    before = {
        field.name: value.clone()
        for field in dataclasses.fields(batch)
        if isinstance(value := getattr(batch, field.name), torch.Tensor)
    }
    torch.manual_seed(123)
    state = torch.get_rng_state()
    adapter(batch)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(getattr(batch, name), value) for name, value in before.items())


LAW_CASES = [
    pytest.param(dense, temperature, top_k, id=f"{name}-T{temperature}-k{top_k}")
    for (dense, name), (temperature, top_k) in itertools.product(
        [(True, "dense"), (False, "one-hot")], [(1.0, 0), (0.6, 2)]
    )
]


@pytest.mark.parametrize(("dense", "temperature", "top_k"), LAW_CASES)
@pytest.mark.parametrize("name", ENGINES)
def test_first_token_follows_the_target(
    name: str, dense: bool, temperature: float, top_k: int
) -> None:
    """7,000 requests a class at ALPHA catch TV 0.05, for transformers 3,000 catch TV 0.07.

    For a shift of d between two tokens of probability 1/3 the noncentrality is n * 2 * d**2 * 3:
    105 and 88, with power 0.9999 or more at the critical value 27.6 of ALPHA (2 degrees of
    freedom, scipy.stats.ncx2).
    """
    adapter = load(name)
    requests = 21_000 if name == "flashspec" else 9_000
    fields = {
        "temperature": torch.full((requests,), temperature),
        "top_k": torch.full((requests,), top_k),
    }
    batch = drawn_batch(dense, requests, seed=3, **fields)
    emission = adapter(batch)
    assert min(first_token_p_values(emission, law_of(batch))) > ALPHA


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("wrong", ["row-plus-one", "temperature-twice", "q-of-neighbour"])
def test_a_wrong_adapter_is_rejected(name: str, wrong: str) -> None:
    """The test above would see the faults that an adapter can have."""
    adapter = load(name)
    batch = drawn_batch(True, 3_000, seed=4, temperature=torch.full((3_000,), 0.6))
    assert batch.draft_probs is not None
    broken = {
        "row-plus-one": {"target_logits": batch.target_logits.roll(-1, dims=0)},
        "temperature-twice": {"temperature": batch.temperature**2},
        "q-of-neighbour": {"draft_probs": batch.draft_probs.roll(1, dims=0)},
    }[wrong]
    assert min(first_token_p_values(adapter(batch.replace(**broken)), law_of(batch))) < ALPHA


def law_of(batch: Batch) -> torch.Tensor:
    """[6, V] float64 target of the six kinds of row, written down without the library."""
    logits = batch.target_logits[:6].double() / batch.temperature[0].double()
    top_k = int(batch.top_k[0]) or V
    floor = logits.topk(top_k, dim=1).values[:, -1:]
    return logits.masked_fill(logits < floor, -torch.inf).softmax(dim=1)


def test_a_tiny_temperature_keeps_the_differences_of_logits() -> None:
    # 40 and its float32 neighbour differ by 3.8e-6: a factor exp(0.38) at temperature 1e-5, which
    # dividing first would round to exp(0.5) or 1.
    near = torch.nextafter(torch.tensor(40.0), torch.tensor(0.0))
    logits = torch.stack([torch.tensor(40.0), near, torch.tensor(0.0)])[None]
    batch = make_batch(
        logits,
        torch.tensor([0]),
        torch.zeros(0, dtype=torch.int64),
        None,
        temperature=torch.tensor([1e-5], dtype=torch.float64),
    )
    expected = ((logits.double() - 40) / 1e-5).softmax(dim=1)
    assert torch.allclose(_packing.processed_log_probs(batch).exp().double(), expected, atol=1e-6)


def test_transformers_refuses_what_it_does_not_declare() -> None:
    adapter = load("transformers")
    assert not capabilities_of(adapter).greedy
    batch, _ = forced_batch(True)
    with pytest.raises(ValueError, match="temperature: got 0"):
        adapter(batch.replace(temperature=torch.zeros(9)))
    ids = batch.draft_token_ids.clone()
    ids[0] = -1
    with pytest.raises(ValueError, match="placeholder"):
        adapter(batch.replace(draft_token_ids=ids))


def test_transformers_gets_the_argument_that_older_releases_ask_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load("transformers")
    from specverify.adapters import transformers as module

    def older(
        candidate_input_ids: object,
        candidate_logits: object,
        candidate_length: object,
        new_logits: object,
        is_done_candidate: object,
    ) -> object:
        return is_done_candidate

    def unknown(candidate_input_ids: object, tree: object) -> None: ...

    def install(function: object) -> None:
        fake = type("Module", (), {"_speculative_sampling": staticmethod(function)})
        monkeypatch.setattr(module, "require", lambda name, extra: fake)

    install(older)
    verify = module._verify.__wrapped__()
    given = dict.fromkeys(module._GIVEN)
    assert verify(**given) is False
    install(unknown)
    with pytest.raises(ValueError, match="takes candidate_input_ids, tree"):
        module._verify.__wrapped__()


@pytest.mark.parametrize("name", ENGINES)
def test_an_absent_engine_is_a_sentence_not_an_import_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_optional, "is_installed", lambda package: False)
    module = importlib.import_module(f"specverify.adapters.{name}")
    with pytest.raises(ValueError, match=rf"{name} is not installed: pip install .*\[engines\]"):
        module._verify.__wrapped__() if name == "transformers" else module._step.__wrapped__(
            "greedy", "greedy_step"
        )


def test_adapters_import_no_engine() -> None:
    code = (
        "import sys, specverify.adapters.flashspec, specverify.adapters.transformers;"
        "assert not {'flashspec', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
