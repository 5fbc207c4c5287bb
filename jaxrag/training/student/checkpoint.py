"""Initial students, from checkpoints or random weights, and trained ones on disk."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxrag.core.hashing import canonical, digest
from jaxrag.engines.prompts import end_tokens
from jaxrag.models.checkpoint.files import fingerprint, locate, read_config, replace_directory
from jaxrag.models.decoder.checkpoint import load_decoder, save_decoder
from jaxrag.models.decoder.network import Decoder
from jaxrag.models.precision import compute_dtype
from jaxrag.models.t5.checkpoint import load_t5, random_t5, save_t5
from jaxrag.models.t5.config import T5Config, t5_json
from jaxrag.models.t5.network import T5
from jaxrag.models.tokenizer import learn_tokenizer, load_tokenizer
from jaxrag.training.student.student import Kind, NewT5, Student
from jaxrag.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

OPTIMIZER = "optimizer"
"""Name of a trained query writer in the directory of its job."""
_FLOAT32 = jnp.dtype("float32")


def load_student(
    spec: str, *, max_source: int, max_target: int, dtype: str | None = None
) -> Student:
    """A student from a checkpoint of a T5 or of a decoder (also a GGUF file).

    See `jaxrag.models.checkpoint.files.locate` and `Student`. It computes in float32 or bfloat16,
    by default the first on CPUs, the second elsewhere. InputError for no checkpoint, one of another
    architecture, or one with another model's tokenizer.
    """
    path, precision = locate(spec), compute_dtype(dtype)
    config, tokenizer = read_config(path), load_tokenizer(path)
    kind: Kind = "t5" if config.get("model_type") == "t5" else "decoder"
    load = load_t5 if kind == "t5" else load_decoder
    module, params = load(path, dtype=_FLOAT32)
    ends = end_tokens(path, tokenizer)
    if isinstance(module, T5):
        end = module.config.eos_token_id
    else:
        end = next(iter([*_tokens(tokenizer, "eos"), *ends]), -1)
    lengths = (max_source, max_target)
    begun = {"weights": fingerprint(path), "dtype": precision.name, "lengths": lengths}
    module, begun = module.clone(dtype=precision), canonical(begun)
    student = Student(module, params, tokenizer, kind, config, end, ends, *lengths, begun)
    return _checked(student, spec)


def new_t5(
    sizes: NewT5,
    *,
    max_source: int,
    max_target: int,
    dtype: str | None = None,
    texts: Iterable[str] = (),
) -> Student:
    """A T5 with random weights and the tokenizer of another checkpoint; see `load_student`.

    The end token is the tokenizer's, or else its separator; ``texts`` are for `NewT5.vocabulary`.
    """
    if sizes.vocabulary:
        tokenizer = learn_tokenizer(texts, sizes.vocabulary)
    else:
        tokenizer = load_tokenizer(locate(sizes.tokenizer, weights=False))
    precision = compute_dtype(dtype)
    end = next(iter(_tokens(tokenizer, "eos", "sep")), -1)
    shape = _shape(sizes, tokenizer, end)
    new = dataclasses.asdict(sizes) | {"tokenizer": digest(tokenizer.backend_tokenizer.to_str())}
    module, params = T5(shape, precision), random_t5(shape, jax.random.key(sizes.seed))
    lengths, config = (max_source, max_target), t5_json(shape)
    begun = canonical({"new": new, "dtype": precision.name, "lengths": lengths})
    student = Student(module, params, tokenizer, "t5", config, end, (end,), *lengths, begun)
    return _checked(student, sizes.tokenizer)


def _shape(sizes: NewT5, tokenizer: PreTrainedTokenizerFast, end: int) -> T5Config:
    # targets begin with the pad token, which should not be the end token
    pad = next((i for i in _tokens(tokenizer, "pad", "unk", "bos") if i != end), end)
    return T5Config(
        vocab_size=len(tokenizer),
        d_model=sizes.width,
        d_kv=sizes.head_width,
        d_ff=sizes.inner,
        num_layers=sizes.layers,
        num_decoder_layers=sizes.layers,
        num_heads=sizes.heads,
        dropout_rate=sizes.dropout,
        activation="gelu_new",
        gated=True,
        tied=sizes.tied,
        scaled=sizes.tied,
        pad_token_id=pad,
        eos_token_id=end,
        decoder_start_token_id=pad,
    )


def _tokens(tokenizer: PreTrainedTokenizerFast, *roles: str) -> list[int]:
    """The tokenizer's special tokens by role ("eos", "pad", ...), without missing roles."""
    ids = [getattr(tokenizer, f"{role}_token_id") for role in roles]
    return [token for token in ids if isinstance(token, int)]


def _checked(student: Student, spec: str) -> Student:
    if min(student.max_source, student.max_target) < 2:
        raise InputError(
            f"max_source is {student.max_source} and max_target {student.max_target}; each must be "
            "at least 2."
        )
    rows, tokens = student.module.config.vocab_size, len(student.tokenizer)
    if tokens > rows:
        raise InputError(
            f"{spec}: its tokenizer has {tokens} tokens, its network {rows}: they are of different "
            "models. Put the checkpoint's own tokenizer files beside its weights."
        )
    ends = _tokens(student.tokenizer, "eos")
    if student.end < 0 or (student.kind == "t5" and ends not in ([], [student.end])):
        raise InputError(
            f"{spec}: the end token is {ends or 'none'} in its tokenizer and "
            f"{student.end if student.end >= 0 else 'none'} in its config: both must have the same "
            "one. Put the checkpoint's own tokenizer files beside its weights."
        )
    if isinstance(student.module, Decoder):
        short = student.module.config.short_length
        if student.module.config.is_long(student.max_source + student.max_target):
            raise InputError(
                f"max_source {student.max_source} and max_target {student.max_target}: {spec} "
                f"rotates texts of more than {short} tokens differently (longrope), which is not "
                "supported in training."
            )
    room = getattr(student.module.config, "max_position_embeddings", None)
    if room is not None and student.max_source + student.max_target > room:
        raise InputError(
            f"max_source {student.max_source} and max_target {student.max_target} exceed the "
            f"{room} tokens of {spec}."
        )
    return student


def write_student(directory: str | Path, student: Student, params: Any) -> Path:
    """Writes a checkpoint of the student with these parameters, atomically, or raises InputError.

    `load_student` reads it; so do `Seq2Seq` (a T5) and `Local` (a decoder).
    """
    with replace_directory(directory) as partial:
        student.tokenizer.save_pretrained(partial)
        if student.kind == "t5":
            save_t5(partial, student.module.config, params)
        else:
            save_decoder(partial, student.config, params)
        ends = json.dumps({"eos_token_id": list(student.ends)})
        (partial / "generation_config.json").write_text(ends + "\n")
    return Path(directory).absolute()
