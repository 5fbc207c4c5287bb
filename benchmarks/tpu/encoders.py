"""Programs of the encoders that index a corpus and embed queries."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from benchmarks.tpu.chips import Place, Slice
from benchmarks.tpu.networks import (
    BASE,
    BFLOAT16,
    FLOAT32,
    LARGE,
    bert,
    bert_flops,
    bert_parameters,
    bert_weights,
)
from benchmarks.tpu.program import Ideal, Program
from jaxrag.models.bert.network import BertEncoder
from jaxrag.models.bert.sidr import SidrNetwork
from jaxrag.retrieval.dense import encoder as dense
from jaxrag.retrieval.sidr import encoder as sidr

PASSAGE = 160
"""Padded width of a passage of 100 words."""
_TOKENS = 16384  # of a chip's batch, see `jaxrag.retrieval.buckets.Batching`
_TOP, _OWN = 768, 256


def _texts(rows: int, width: int, where: Place) -> tuple[Any, Any]:
    ids = where.array((rows, width), jnp.int32, P("data"))
    return ids, where.array((rows,), jnp.int32, P("data"))


def _encode(
    shape: dict[str, Any],
    pooling: dense.Pooling,
    normalise: bool,
    rows: int,
    width: int,
    where: Place,
) -> Any:
    module = BertEncoder(bert(shape), BFLOAT16)
    return dense.embed_tokens.trace(
        bert_parameters(module, where, BFLOAT16),
        *_texts(rows, width, where),
        module=module,
        pooling=pooling,
        normalise=normalise,
    )


def encoding(
    name: str,
    shape: dict[str, Any],
    on: Slice,
    width: int,
    *,
    pooling: dense.Pooling,
    normalise: bool = True,
) -> Program:
    """A batch of texts, 16,384 tokens a chip."""
    rows = _TOKENS // width * on.chips
    config = bert(shape)
    weights = 2.0 * bert_weights(config)
    return Program(
        f"{name}: encode {rows} x {width}",
        on,
        partial(_encode, shape, pooling, normalise, rows, width),
        Ideal(weights * on.chips, bert_flops(config, rows, width)),
        rows,
        "texts",
    )


def _sidr(rows: int, width: int, where: Place) -> Any:
    module = SidrNetwork(bert(BASE), BFLOAT16)
    return sidr.embed_tokens.trace(
        bert_parameters(module, where, FLOAT32),
        *_texts(rows, width, where),
        module=module,
        top=_TOP,
        own_tokens=True,
    )


def _sidr_entries(rows: int, where: Place) -> Any:
    module = SidrNetwork(bert(BASE))
    vectors = where.array((rows, module.config.vocab_size - module.first), jnp.float32, P("data"))
    return sidr._entries.trace(vectors, width=_TOP + _OWN)


def sidr_encoding(on: Slice, width: int) -> list[Program]:
    """SiDR's vectors of a batch of passages, and their entries above 0."""
    rows = _TOKENS // width * on.chips
    config = bert(BASE)
    words = config.vocab_size - SidrNetwork.first
    weights = 4.0 * bert_weights(config)
    vectors = 4.0 * rows * words
    flops = bert_flops(config, rows, width) + 2.0 * rows * width * words * config.hidden_size
    return [
        Program(
            f"SiDR: encode {rows} x {width}",
            on,
            partial(_sidr, rows, width),
            Ideal(weights * on.chips + vectors, flops),
            rows,
            "texts",
        ),
        Program(
            f"SiDR: {_TOP + _OWN} entries of {rows} vectors",
            on,
            partial(_sidr_entries, rows),
            Ideal(vectors, 0.0),
            rows,
            "texts",
        ),
    ]


def programs() -> list[Program]:
    """All of them, on one chip: others encode other texts, and nothing is sent."""
    one = Slice("v5e:2x4")
    return [
        encoding("bge-large", LARGE, one, PASSAGE, pooling="cls"),
        encoding("E5-base", BASE, one, PASSAGE, pooling="mean"),
        encoding("DPR", BASE, one, PASSAGE, pooling="cls", normalise=False),
        *sidr_encoding(one, PASSAGE),
    ]
