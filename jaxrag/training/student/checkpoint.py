"""Students to begin with, from checkpoints or random weights, and trained ones on disk."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict
from transformers import PreTrainedTokenizerFast

from jaxrag.engines.prompts import end_tokens
from jaxrag.engines.store import canonical, digest
from jaxrag.models.checkpoint import fingerprint, locate, read_config, write_checkpoint
from jaxrag.models.decoder_checkpoint import load_decoder
from jaxrag.models.precision import compute_dtype
from jaxrag.models.t5 import T5
from jaxrag.models.t5_checkpoint import load_t5, random_t5, save_t5
from jaxrag.models.t5_config import T5Config, t5_json
from jaxrag.models.tokenizer import learn_tokenizer, load_tokenizer
from jaxrag.training.students_kinds import Kind, NewT5, Student
from jaxrag.types import InputError

_FLOAT32 = jnp.dtype("float32")


def load_student(
    spec: str, *, max_source: int, max_target: int, dtype: str | None = None
) -> Student:
    """A student that begins with a checkpoint: of a T5, or of a decoder (also a GGUF file).

    Args:
      spec: what `jaxrag.models.checkpoint.locate` takes.
      max_source, max_target: see `Student`.
      dtype: what is computed in, "float32" or "bfloat16"; by default the first on CPUs, the second
        elsewhere.

    Raises:
      InputError: there is no checkpoint, it is of neither kind, or its tokenizer is another's.
    """
    path, precision = locate(spec), compute_dtype(dtype)
    config, tokenizer = read_config(path), load_tokenizer(path)
    kind: Kind = "t5" if config.get("model_type") == "t5" else "decoder"
    read = load_t5 if kind == "t5" else load_decoder
    module, params = read(path, dtype=_FLOAT32)
    ends = end_tokens(path, tokenizer)
    if isinstance(module, T5):
        end = module.config.eos_token_id
    else:
        end = next(iter([*_tokens(tokenizer, "eos"), *ends]), -1)
    begun = {"weights": fingerprint(path), "dtype": precision.name}
    student = Student(
        module=module.clone(dtype=precision),
        params=params,
        tokenizer=tokenizer,
        kind=kind,
        config=config,
        end=end,
        ends=ends,
        max_source=max_source,
        max_target=max_target,
        identity=canonical({**begun, "lengths": [max_source, max_target]}),
    )
    _check(student, spec)
    return student


def new_t5(
    sizes: NewT5,
    *,
    max_source: int,
    max_target: int,
    dtype: str | None = None,
    texts: Iterable[str] = (),
) -> Student:
    """A T5 with random weights and the tokenizer of another checkpoint; see `load_student`.

    Its end token is the tokenizer's own, or else what separates two texts. A vocabulary of its own
    is learned from ``texts``.
    """
    if sizes.vocabulary:
        tokenizer = learn_tokenizer(texts, sizes.vocabulary)
    else:
        tokenizer = load_tokenizer(locate(sizes.tokenizer, weights=False))
    precision = compute_dtype(dtype)
    end = next(iter(_tokens(tokenizer, "eos", "sep")), -1)
    shape = _shape(sizes, tokenizer, end)
    told = dataclasses.asdict(sizes) | {"tokenizer": digest(tokenizer.backend_tokenizer.to_str())}
    begun = {"new": told, "dtype": precision.name}
    student = Student(
        module=T5(shape, precision),
        params=random_t5(shape, jax.random.key(sizes.seed)),
        tokenizer=tokenizer,
        kind="t5",
        config=t5_json(shape),
        end=end,
        ends=(end,),
        max_source=max_source,
        max_target=max_target,
        identity=canonical({**begun, "lengths": [max_source, max_target]}),
    )
    _check(student, sizes.tokenizer)
    return student


def _shape(sizes: NewT5, tokenizer: PreTrainedTokenizerFast, end: int) -> T5Config:
    # answers begin with the pad token, which is best not the one that ends them
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
    """The tokens of these roles that the tokenizer has."""
    found = [getattr(tokenizer, f"{role}_token_id") for role in roles]
    return [token for token in found if isinstance(token, int)]


def _check(student: Student, spec: str) -> None:
    if min(student.max_source, student.max_target) < 2:
        raise InputError(
            f"max_source is {student.max_source} and max_target {student.max_target}; each is to "
            "be at least 2."
        )
    rows, known = student.module.config.vocab_size, len(student.tokenizer)
    if known > rows:
        raise InputError(
            f"{spec}: its tokenizer has {known} tokens, its network {rows}: they do not belong "
            "together. Put the checkpoint's own tokenizer files beside its weights."
        )
    own = _tokens(student.tokenizer, "eos")
    if student.end < 0 or (student.kind == "t5" and own not in ([], [student.end])):
        raise InputError(
            f"{spec}: its tokenizer ends a text with token {own or 'none'}, its config with "
            f"{student.end if student.end >= 0 else 'none'}: one token, the same in both, is "
            "needed. Put the checkpoint's own tokenizer files beside its weights."
        )
    room = getattr(student.module.config, "max_position_embeddings", None)
    if room is not None and student.max_source + student.max_target > room:
        raise InputError(
            f"max_source {student.max_source} and max_target {student.max_target} exceed the "
            f"{room} tokens of {spec}."
        )


def write_student(directory: str | Path, student: Student, params: Any) -> Path:
    """Writes a checkpoint of the student with these parameters, all or nothing.

    `load_student`, and by the student's kind `jaxrag.settings` Seq2Seq or Local, read it.

    Args:
      directory: replaced if it is there.
      student: whose config and tokenizer are taken over.
      params: float32.

    Raises:
      InputError: it cannot be written, such as on a full disk.
    """
    directory = Path(directory).absolute()
    arrays: dict[str, Any] = dict(flatten_dict(params, sep="."))
    tensors = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    partial: Path | None = None
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
        student.tokenizer.save_pretrained(partial)
        if student.kind == "t5":
            save_t5(partial, student.module.config, params)
        else:
            write_checkpoint(partial, student.config, tensors)
        ends = json.dumps({"eos_token_id": list(student.ends)})
        (partial / "generation_config.json").write_text(ends + "\n")
        shutil.rmtree(directory, ignore_errors=True)
        partial.rename(directory)
    except OSError as error:
        raise InputError(f"{directory} cannot be written: {error}") from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
    return directory
