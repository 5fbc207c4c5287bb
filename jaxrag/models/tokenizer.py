"""Tokenizers, from a Hugging Face directory or built from a GGUF file's metadata."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

from jaxrag.core.bounded import Bounded, LimitError
from jaxrag.core.hashing import canonical, digest
from jaxrag.models.checkpoint.files import MOST_JSON, check_file, read_config, read_json
from jaxrag.models.checkpoint.gguf import listed, metadata
from jaxrag.models.tokenizer_trial import MOST_ADDED
from jaxrag.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# transformers, used only for tokenizers, would warn on import that there is no PyTorch. Its import
# takes seconds, so functions import it: `--help` and a refused command do not wait for it.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
"""What `save_pretrained` writes of a fast tokenizer."""

_MOST_BYTES = 100_000_000  # of one of a tokenizer's files; the largest published have 33 MB
_CONTROL, _USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type

# Pre-tokenization of Llama 3 and Qwen: contractions, words with at most one leading punctuation
# mark, digits (Llama 3: groups of up to three), punctuation, line ends, blanks.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def learn_tokenizer(texts: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """Trains a byte-level BPE vocabulary of at most ``size`` tokens, which can represent any text.

    256 bytes, a padding and an end token are among them; the same texts give the same merges.
    InputError if there are no texts, or the size is below 258.
    """
    special = {"pad_token": "<pad>", "eos_token": "</s>"}
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if size < len(alphabet) + len(special):
        raise InputError(
            f"The vocabulary's size is {size}; it must be at least {len(alphabet) + len(special)}, "
            "the number of bytes and special tokens."
        )
    from transformers import PreTrainedTokenizerFast

    texts = list(texts)
    if not any(text.strip() for text in texts):
        raise InputError("There are no texts to learn a vocabulary from.")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special.values()),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a checkpoint, with its special tokens and chat template.

    ``path``: a Hugging Face directory, or a GGUF file with byte-level BPE (``gpt2`` vocabularies,
    as in Llama 3, SmolLM and Qwen). InputError if there is none, or its type is not supported.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"No checkpoint at {path}.")
    try:
        return _from_gguf(path) if path.is_file() else _from_files(path)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # tokenizers raises bare Exceptions for malformed files
        raise InputError(f"The tokenizer in {path} cannot be read: {error}") from error


def _from_files(path: Path) -> PreTrainedTokenizerFast:
    """The tokenizer in a directory, once a trial of its tokenizer.json has ended well."""
    names = ("tokenizer.json", "vocab.txt", "tokenizer.model", "sentencepiece.bpe.model")
    if not any((path / name).exists() for name in names):
        raise InputError(f"{path} holds no tokenizer: one of {', '.join(names)} is required.")
    for file in (*path.iterdir(), *path.glob("additional_chat_templates/*")):
        if file.suffix in (".txt", ".model") or file.name == "tokenizer.json":
            check_file(file, _MOST_BYTES)
        elif file.suffix in (".json", ".jinja"):
            check_file(file, MOST_JSON)
    settings = path / "tokenizer_config.json"
    added = read_json(settings).get("added_tokens_decoder") if settings.exists() else None
    if isinstance(added, dict) and len(added) > MOST_ADDED:
        raise InputError(f"{settings} has {len(added):,} added tokens, of at most {MOST_ADDED:,}.")
    kind = str(read_config(path).get("model_type")) if (path / "config.json").exists() else ""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        trial = pool.submit(_try, path / "tokenizer.json")
        import transformers  # noqa: F401  (takes as long as the trial)

        trial.result()
    try:
        return _from_directory(path)
    except Exception:
        if not kind:
            raise
        # transformers validates config.json, too, of which only the model's type matters here
        return _from_directory(path, kind)


def _try(file: Path) -> None:
    """Reads a tokenizer and some texts in another process, as it may never end or end the process.

    InputError if it takes more than 4 s or 1 GiB, has too many added tokens, or panics.
    """
    trial = Bounded("jaxrag.models.tokenizer_trial", "read_texts", seconds=4.0, memory=1 << 30)
    try:
        if file.exists():
            trial(path=str(file))
    except LimitError as error:
        raise InputError(f"The tokenizer in {file} cannot be used: {error}.") from None
    except InputError:
        pass  # transformers may read what tokenizers alone does not, and says what is wrong


def _from_directory(path: Path, kind: str = "") -> PreTrainedTokenizerFast:
    from transformers import AutoConfig, AutoTokenizer

    config = {"config": AutoConfig.for_model(kind)} if kind else {}
    tokenizer = AutoTokenizer.from_pretrained(
        path, local_files_only=True, trust_remote_code=False, **config
    )
    if not tokenizer.chat_template and (of_processor := path / "chat_template.json").exists():
        tokenizer.chat_template = read_json(of_processor).get("chat_template")
    return tokenizer


def tokenizer_fingerprint(path: Path) -> str:
    """SHA-256 (hex) of the files of a checkpoint's tokenizer; InputError if one is missing."""
    hasher = hashlib.sha256()
    for name in TOKENIZER_FILES:
        try:
            content = (path / name).read_bytes()
        except OSError as error:
            raise InputError(f"{path}: the tokenizer's file {name} cannot be read.") from error
        hasher.update(f"{name}\0{len(content)}\0".encode() + content)
    return hasher.hexdigest()


def check_trained_with(path: Path, recorded: object, *, results: str) -> None:
    """InputError if a trained network's tokenizer is not the ``recorded`` one, by fingerprint.

    ``results``: what the network computes, for the message.
    """
    if (fingerprint := tokenizer_fingerprint(path)) != recorded:
        raise InputError(
            f"{path} was trained with another tokenizer ({str(recorded)[:12]}) than the one in "
            f"this directory ({fingerprint[:12]}), so its {results} would be meaningless. Restore "
            f"{' and '.join(TOKENIZER_FILES)}, or train again."
        )


def tokenizer_digest(tokenizer: PreTrainedTokenizerFast) -> str:
    """SHA-256 (hex) of all that decides a loaded tokenizer's tokens and texts."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if isinstance(backend, Tokenizer):
        state = {**json.loads(backend.to_str()), "padding": None, "truncation": None}
    else:  # one written in Python
        options = {k: str(v) for k, v in tokenizer.init_kwargs.items() if k != "name_or_path"}
        state = {"class": type(tokenizer).__name__, "vocabulary": tokenizer.get_vocab(), **options}
    special = {role: str(token) for role, token in tokenizer.special_tokens_map.items()}
    splits = bool(getattr(tokenizer, "split_special_tokens", False))
    return digest(canonical([state, special, splits]))


def _from_gguf(path: Path) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    values = metadata(path)
    kind = values.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise InputError(
            f"{path} has a tokenizer of type {kind!r}; in GGUF files only 'gpt2' (byte-level BPE) "
            "is supported. Use the model's safetensors directory."
        )
    tokens = listed(path, "tokenizer.ggml.tokens", str)
    types = listed(path, "tokenizer.ggml.token_type", int)
    merges = listed(path, "tokenizer.ggml.merges", str)
    if len(types) != len(tokens):
        raise InputError(f"{path}: {len(tokens)} tokens but {len(types)} token types.")
    added = [i for i, type_ in enumerate(types) if type_ in (_CONTROL, _USER_DEFINED)]
    if len(added) > MOST_ADDED:
        raise InputError(f"{path} has {len(added):,} control tokens, of at most {MOST_ADDED:,}.")
    backend = _byte_level_bpe(path, values.get("tokenizer.ggml.pre", "gpt-2"), tokens, merges)
    backend.add_tokens(
        [AddedToken(tokens[i], special=types[i] == _CONTROL, normalized=False) for i in added]
    )
    special = _special_tokens(values, tokens)
    if "bos_token" in special and values.get(
        "tokenizer.ggml.add_bos_token", values.get("tokenizer.ggml.pre") == "llama-bpe"
    ):
        bos = special["bos_token"]
        backend.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
            single=f"{bos} $A",
            pair=f"{bos} $A {bos} $B",
            special_tokens=[(bos, backend.token_to_id(bos))],
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=values.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        **special,
    )


def _byte_level_bpe(path: Path, family: str, tokens: list[str], merges: list[str]) -> Tokenizer:
    """A byte-level BPE with the pre-tokenization of the named family."""
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
            f"{path} has the pre-tokenization {family!r} (tokenizer.ggml.pre); supported are "
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
    """The special tokens by role, for those roles that the file assigns to a token."""
    roles = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    ids = {role: values.get(f"tokenizer.ggml.{key}_token_id") for role, key in roles.items()}
    return {
        f"{role}_token": tokens[i] for role, i in ids.items() if i is not None and i < len(tokens)
    }
