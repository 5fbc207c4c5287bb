"""ARS-RAG's ranker in use: S(q_i, Q), a score of each rewrite for its question.

A ranker is a cross-encoder with another network, so a `RerankerTool` can wrap it: the question
is the query, the rewrite the passage.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from jaxrag.core.hashing import canonical, digest
from jaxrag.core.json_text import parse_json
from jaxrag.models.bert.rewrite_ranker import LoadedRanker, Pooling, load_ranker, untrained_ranker
from jaxrag.models.checkpoint.files import fingerprint, locate
from jaxrag.models.precision import compute_dtype
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.retrieval import buckets
from jaxrag.retrieval.rerank import CrossEncoderReranker
from jaxrag.types import InputError

SOURCE = "source.json"
"""File of the labels' provenance, beside labels.jsonl and in a trained ranker's checkpoint."""


def load(spec: str, *, dtype: str | None = None) -> CrossEncoderReranker:
    """A trained ranker; pairs are cut to the length that it was trained with.

    ``dtype`` is by default float32 on CPUs and bfloat16 elsewhere. InputError where there is no
    ranker, or its tokenizer has changed.
    """
    path = locate(spec)
    loaded = load_ranker(path, dtype=compute_dtype(dtype))
    return _scorer(loaded, path, {"weights": fingerprint(path)})


def begin(
    spec: str,
    *,
    pooling: Pooling = "cls",
    max_length: int = 128,
    seed: int = 0,
    dtype: str | None = None,
) -> CrossEncoderReranker:
    """A BERT checkpoint with a new head, from which a training starts.

    See `jaxrag.models.checkpoint.files.locate` and
    `jaxrag.models.bert.rewrite_ranker.untrained_ranker`; InputError for an invalid one or setting.
    """
    path = locate(spec)
    loaded = untrained_ranker(
        path, dtype=compute_dtype(dtype), pooling=pooling, max_length=max_length, seed=seed
    )
    return _scorer(loaded, path, {"weights": fingerprint(path), "head": seed})


def with_params(
    ranker: CrossEncoderReranker, params: dict[str, Any], name: str
) -> CrossEncoderReranker:
    """The same ranker with other parameters; ``name`` identifies them."""
    identity = canonical({"ranker": {"begun": digest(ranker.identity), "params": name}})
    return dataclasses.replace(ranker, params=params, identity=identity)


def read_source(directory: str | Path) -> dict[str, Any]:
    """Provenance of the labels in a directory, or of a trained ranker's labels; {} if unknown.

    InputError where the record is damaged.
    """
    file = Path(directory) / SOURCE
    try:
        source = parse_json(file.read_text("utf-8")) if file.exists() else {}
    except ValueError as error:
        raise InputError(f"{file} is damaged ({error}); write it again, or delete it.") from error
    return source


def _scorer(loaded: LoadedRanker, path: Path, start: dict[str, Any]) -> CrossEncoderReranker:
    module: Any = loaded.module  # has all that `CrossEncoderReranker` uses of its network
    tokenizer, rows = load_tokenizer(path), module.config.vocab_size
    if len(tokenizer) > rows:
        raise InputError(
            f"{path}: the tokenizer knows {len(tokenizer)} tokens, the network {rows}: they are "
            "not of one checkpoint."
        )
    settings = {
        **start,
        "pooling": module.pooling,
        "dtype": module.dtype.name,
        "max_length": loaded.max_length,
    }
    return CrossEncoderReranker(
        identity=canonical({"ranker": settings}),
        module=module,
        params=loaded.params,
        tokenizer=tokenizer,
        max_length=loaded.max_length,
        batching=buckets.Batching(),
    )
