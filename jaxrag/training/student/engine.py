"""A student as a language model, with the parameters of any step of its training."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from jaxrag.core.hashing import canonical
from jaxrag.engines import seq2seq
from jaxrag.engines.language_model import LanguageModel
from jaxrag.engines.local.engine import LocalModel, plain_cpu
from jaxrag.engines.local.prefill import DecoderNetwork, Sizes
from jaxrag.engines.prompts import PromptEncoder
from jaxrag.training.checkpoints import values_name
from jaxrag.training.student.student import Student

_SHARED = 1 << 26  # bytes of cached prefixes that prompts share, such as an instruction
_T5_LENGTH = 512  # tokens of a source, as in T5's pre-training and in the settings `Seq2Seq`
_ENGINE = "jaxrag-student-1"  # goes into the identity; raise it when results change


def engine(student: Student, params: Any, name: str = "student") -> LanguageModel:
    """A language model with these parameters, in the dtype of the student's network.

    A T5 reads sources of up to 512 tokens, or ``max_source`` where that is more; a decoder as many
    as its checkpoint allows. ``params`` are on one device; ``name`` is part of the identity, beside
    a checksum of them.
    """
    dtype = student.module.dtype
    cast = jax.tree.map(lambda array: array.astype(dtype), params)
    decoder = DecoderNetwork(student.module, cast, None, _SHARED)
    sizes = Sizes.fixed(packed=student.kind != "t5" and plain_cpu(decoder))
    identity = canonical(
        {
            "engine": _ENGINE,
            "name": name,
            "kind": student.kind,
            "weights": values_name(params),
            "dtype": dtype.name,
            "backend": jax.default_backend(),
            "sizes": list(dataclasses.astuple(sizes)),
        }
    )
    if student.kind == "t5":
        return seq2seq.Seq2SeqModel(
            seq2seq.Seq2SeqNetwork(student.module, cast, None),
            student.tokenizer,
            ends=student.ends,
            identity=identity,
            beams=1,
            rows=sizes.prefill_rows,
            max_length=max(_T5_LENGTH, student.max_source),
        )
    limit = student.module.config.max_position_embeddings
    return LocalModel(
        decoder,
        PromptEncoder(student.tokenizer, template_options={}, max_length=limit),
        ends=student.ends,
        identity=identity,
        sizes=sizes,
    )
