"""Tokenizers, from a Hugging Face directory or built from a GGUF file's metadata."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gguf
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

# transformers says on import that it has no PyTorch; tokenizers are all that is wanted of it.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from jaxrag.models.checkpoint.gguf import metadata, open_gguf
from jaxrag.types import InputError

_CONTROL, _USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type

# How the named families cut text before merging: contractions, words with at most one leading
# sign, digits (Llama 3 in threes, Qwen one by one), runs of signs, line ends, blanks.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def learn_tokenizer(texts: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE vocabulary learned from texts: any text can be written in it.

    Args:
      texts: what merges are learned from; the same texts in the same order give the same ones.
      size: most tokens, of which 258 are the bytes, the padding and the end of a text.

    Raises:
      InputError: there are no texts, or the size is below 258.
    """
    special = {"pad_token": "<pad>", "eos_token": "</s>"}
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if size < len(alphabet) + len(special):
        raise InputError(
            f"A vocabulary of {size} is asked for; bytes and special tokens alone are "
            f"{len(alphabet) + len(special)}."
        )
    texts = list(texts)
    if not any(text.strip() for text in texts):
        raise InputError("There are no texts that a vocabulary could be learned from.")
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    made.decoder = decoders.ByteLevel()  # pyright: ignore
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special.values()),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, **special)


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a checkpoint, with its special tokens and chat template.

    Args:
      path: a Hugging Face directory, or a GGUF file with byte-level BPE (``gpt2`` vocabularies, as
        Llama 3, SmolLM and Qwen have).

    Raises:
      InputError: if there is none, or one of an unknown kind.
    """
    path = Path(path)
    if path.is_file():
        return _from_gguf(path)
    if not path.is_dir():
        raise InputError(f"No checkpoint at {path}, so no tokenizer.")
    names = ("tokenizer.json", "vocab.txt", "tokenizer.model", "sentencepiece.bpe.model")
    if not any((path / name).exists() for name in names):
        raise InputError(f"{path} holds no tokenizer: one of {', '.join(names)} is wanted.")
    try:
        return AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as error:  # tokenizers raises bare Exceptions for malformed files
        raise InputError(f"The tokenizer in {path} cannot be read: {error}") from error


def _from_gguf(path: Path) -> PreTrainedTokenizerFast:
    reader = open_gguf(path)
    values = metadata(reader)
    kind = values.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise InputError(
            f"{path} has a tokenizer of kind {kind!r}; of GGUF files only 'gpt2' (byte-level BPE) "
            "is read. Use the model's safetensors directory."
        )
    tokens = _array(reader, "tokenizer.ggml.tokens", path)
    types = _array(reader, "tokenizer.ggml.token_type", path)
    merges = _array(reader, "tokenizer.ggml.merges", path)
    if len(types) != len(tokens):
        raise InputError(f"{path}: {len(tokens)} tokens but {len(types)} token types.")
    backend = _byte_level_bpe(path, values.get("tokenizer.ggml.pre", "gpt-2"), tokens, merges)
    backend.add_tokens(
        [
            AddedToken(token, special=type_ == _CONTROL, normalized=False)
            for token, type_ in zip(tokens, types, strict=True)
            if type_ in (_CONTROL, _USER_DEFINED)
        ]
    )
    special = _special_tokens(values, tokens)
    if "bos_token" in special and values.get(
        "tokenizer.ggml.add_bos_token", values.get("tokenizer.ggml.pre") == "llama-bpe"
    ):
        _begin_with(backend, special["bos_token"])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=values.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        **special,
    )


def _array(reader: gguf.GGUFReader, name: str, path: Path) -> list[Any]:
    if name not in reader.fields:
        raise InputError(f"{path} lacks the metadata key {name!r}.")
    return reader.fields[name].contents()


def _byte_level_bpe(path: Path, family: str, tokens: list[str], merges: list[str]) -> Tokenizer:
    """A byte-level BPE that cuts text as the named family does."""
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    cuts: dict[str, list[Any]] = {
        "gpt-2": [gpt2],
        "smollm": [pre_tokenizers.Digits(individual_digits=True), gpt2],
        "llama-bpe": [pre_tokenizers.Split(Regex(_SPLIT % "{1,3}"), "isolated"), plain],
        "qwen2": [pre_tokenizers.Split(Regex(_SPLIT % ""), "isolated"), plain],
    }
    if family not in cuts:
        raise InputError(
            f"{path} cuts text as {family!r} does (tokenizer.ggml.pre); known are "
            f"{', '.join(cuts)}. Use the model's safetensors directory."
        )
    pairs = [tuple(merge.split(" ")) for merge in merges]
    try:
        backend = Tokenizer(
            models.BPE(
                vocab={token: i for i, token in enumerate(tokens)},
                merges=pairs,  # type: ignore[arg-type]
                ignore_merges=family == "llama-bpe",
            )
        )
    except Exception as error:  # tokenizers raises bare Exceptions
        raise InputError(f"{path} holds a vocabulary and merges that do not match: {error}") from (
            error
        )
    if family == "qwen2":
        backend.normalizer = normalizers.NFC()  # type: ignore[assignment]
    backend.pre_tokenizer = pre_tokenizers.Sequence(cuts[family])  # type: ignore[assignment]
    backend.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    return backend


def _special_tokens(values: dict[str, Any], tokens: list[str]) -> dict[str, str]:
    """The tokens by role; roles that the file leaves out, or that no token has, are left out."""
    roles = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    ids = {role: values.get(f"tokenizer.ggml.{key}_token_id") for role, key in roles.items()}
    return {
        f"{role}_token": tokens[i] for role, i in ids.items() if i is not None and i < len(tokens)
    }


def _begin_with(backend: Tokenizer, token: str) -> None:
    backend.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single=f"{token} $A",
        pair=f"{token} $A {token} $B",
        special_tokens=[(token, backend.token_to_id(token))],
    )
