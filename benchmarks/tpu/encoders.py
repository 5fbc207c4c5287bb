"""Programs of the encoders that index a corpus and embed queries, and of a reranker."""

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
    NOMIC,
    RERANKER,
    bert,
    bert_flops,
    bert_parameters,
    bert_weights,
)
from benchmarks.tpu.program import Ideal, Program
from jaxrag.models.bert.network import BertClassifier, BertEncoder
from jaxrag.models.bert.nomic import NomicEncoder, read_nomic_config
from jaxrag.models.bert.sidr import SidrNetwork
from jaxrag.retrieval.dense import encoder as dense
from jaxrag.retrieval.rerank import score_tokens
from jaxrag.retrieval.sidr import encoder as sidr

PASSAGE = 160
"""Padded width of a passage of 100 words."""
_TOKENS = 16384  # of a chip's batch, see `jaxrag.retrieval.buckets.Batching`
_PAIR = 192
"""Padded width of such a passage with a question."""
_TOP, _OWN = 768, 256


def _texts(rows: int, width: int, where: Place) -> tuple[Any, Any]:
    ids = where.array((rows, width), jnp.int32, P("data"))
    return ids, where.array((rows,), jnp.int32, P("data"))


def _encode(module: Any, rows: int, width: int, settings: dict[str, Any], where: Place) -> Any:
    return dense.embed_tokens.trace(
        bert_parameters(module, where, BFLOAT16),
        *_texts(rows, width, where),
        module=module,
        **settings,
    )


def _program(
    name: str, does: str, trace: Any, on: Slice, width: int, weights: int, flops: Any, unit: str
) -> Program:
    """A batch of 16,384 tokens a chip; ``flops`` are those of (rows, width)."""
    rows = _TOKENS // width * on.chips
    return Program(
        f"{name}: {does} {rows} x {width}",
        on,
        partial(trace, rows, width),
        Ideal(2.0 * weights * on.chips, flops(rows, width)),
        rows,
        unit,
    )


def encoding(
    name: str,
    shape: dict[str, Any],
    on: Slice,
    width: int,
    *,
    pooling: str,
    normalise: bool = True,
) -> Program:
    """A batch of texts through a BERT."""
    config = bert(shape)
    module: Any = BertEncoder(config, BFLOAT16)

    def trace(rows: int, width: int, where: Place) -> Any:
        settings = {"pooling": pooling, "normalise": normalise}
        return _encode(module, rows, width, settings, where)

    flops = partial(bert_flops, config)
    return _program(name, "encode", trace, on, width, bert_weights(config), flops, "texts")


def nomic_encoding(on: Slice, width: int) -> Program:
    """A batch of texts through nomic-embed-text-v1.5, as its vectors of 768 numbers."""
    module: Any = NomicEncoder(read_nomic_config(NOMIC, source="benchmarks.tpu"), BFLOAT16)
    d, inner, layers = (NOMIC[name] for name in ("n_embd", "n_inner", "n_layer"))
    each = 4 * d * d + 3 * d * inner  # weights of a layer

    def trace(rows: int, width: int, where: Place) -> Any:
        settings = {"pooling": "mean", "normalise": True}
        return _encode(module, rows, width, settings, where)

    def flops(rows: int, width: int) -> float:
        return float(rows * width * layers * (2 * each + 4 * width * d))

    weights = NOMIC["vocab_size"] * d + layers * each
    return _program("Nomic", "encode", trace, on, width, weights, flops, "texts")


def reranking(on: Slice, width: int) -> Program:
    """A batch of pairs through bge-reranker-base, a RoBERTa with one label."""
    config = bert(RERANKER)
    module: Any = BertClassifier(config, BFLOAT16)

    def trace(rows: int, width: int, where: Place) -> Any:
        ids, lengths = _texts(rows, width, where)
        parameters = bert_parameters(module, where, BFLOAT16)
        return score_tokens.trace(parameters, ids, ids, lengths, module=module)

    flops = partial(bert_flops, config)
    name = "bge-reranker-base"
    return _program(name, "score", trace, on, width, bert_weights(config), flops, "pairs")


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
        nomic_encoding(one, PASSAGE),
        *sidr_encoding(one, PASSAGE),
        reranking(one, _PAIR),
    ]
