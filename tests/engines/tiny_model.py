"""A random decoder of a few thousand weights with a tokenizer of one token a byte."""

from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from jaxrag.engines.local.engine import Local, LocalModel
from jaxrag.models.checkpoint.files import write_checkpoint
from jaxrag.models.decoder.checkpoint import parameter_shapes
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.decoder.network import Decoder
from jaxrag.types import Message
from tests.models.decoder.reference import CONFIGS, random_tensors, stored

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    "{% if short %}short {% endif %}"
)
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|end|>"]
VOCABULARY = 260  # the bytes, the special tokens, and one that means nothing


def load_local(
    path: Path | str,
    *,
    mesh: Any = None,
    stacked: bool | None = None,
    shared_bytes: int = 1 << 28,
    **settings: Any,
) -> LocalModel:
    """A model with some settings of `Local`."""
    local = Local(str(path), **settings)
    return LocalModel.load(local, mesh=mesh, stacked=stacked, shared_bytes=shared_bytes)


def write_tiny_model(
    directory: Path, *, template: str | None = TEMPLATE, **changes: Any
) -> dict[str, np.ndarray]:
    """Writes the checkpoint; returns its weights."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore
    backend.decoder = decoders.ByteLevel()  # type: ignore
    backend.add_special_tokens(SPECIAL)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template=template, eos_token="<|im_end|>"
    )
    tokenizer.save_pretrained(directory)
    config = {**CONFIGS["qwen2"], "vocab_size": VOCABULARY, "eos_token_id": 257, **changes}
    tensors = random_tensors(parameter_shapes(Decoder(read_decoder_config(config, source="tiny"))))
    write_checkpoint(directory, config, stored(config, tensors))
    (directory / "generation_config.json").write_text('{"eos_token_id": [257, 258]}')
    return tensors


DEMONSTRATIONS = (
    Message("system", "Answer in a word."),
    Message("user", "Capital of Norway?"),
    Message("assistant", "Oslo"),
)
CHATS = [
    (*DEMONSTRATIONS, Message("user", question))
    for question in (
        "Capital of Chad?",
        "Highest mountain of Peru, which is the country between Ecuador and Chile?",
        "Currency?",
        "Who wrote it?",
        "Where does the river end that begins in Lake Victoria?",
        "Colour of a ripe tomato?",
        "Year?",
        "Months in a year?",
        "What is the name of the star nearest to the sun, seen from where you are?",
        "Sum of one and one?",
    )
]
