"""ARS-RAG's ranker in use: a score of each rewrite for its question, from the text of both.

A ranker is a cross-encoder with another network, and so is what a `RerankerTool` takes: the
question is the query, the rewrite the passage.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from jaxrag.core.hashing import canonical, digest
from jaxrag.models.bert.rewrite_ranker import LoadedRanker, Pooling, load_ranker, untrained_ranker
from jaxrag.models.checkpoint.files import fingerprint, locate
from jaxrag.models.precision import compute_dtype
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.retrieval import buckets
from jaxrag.retrieval.rerank import CrossEncoderReranker
from jaxrag.types import InputError


def load(
    spec: str,
    *,
    dtype: str | None = None,
    batch_tokens: int | None = None,
    mesh: Mesh | None = None,
) -> CrossEncoderReranker:
    """A trained ranker; pairs are cut to the length that it was trained with.

    Args:
      spec: the directory that training wrote, as :func:`jaxrag.models.checkpoint.files.locate`
        takes it.
      dtype: "float32" or "bfloat16"; by default the first on CPU, the second elsewhere.
      batch_tokens: size of a batch; by default what suits the device.
      mesh: devices that share a batch's rows, along the mesh's "data" axis.

    Raises:
      InputError: there is no ranker, or its tokenizer is another.
    """
    path = locate(spec)
    loaded = load_ranker(path, dtype=compute_dtype(dtype))
    return _scorer(loaded, path, {"weights": fingerprint(path)}, batch_tokens, mesh)


def begin(
    spec: str,
    *,
    pooling: Pooling = "cls",
    max_length: int = 128,
    seed: int = 0,
    dtype: str | None = None,
    batch_tokens: int | None = None,
) -> CrossEncoderReranker:
    """A BERT checkpoint with a new head, with which a training begins.

    Args:
      spec: any BERT, as :func:`jaxrag.models.checkpoint.files.locate` takes it.
      pooling, max_length, seed: as in
      `jaxrag.models.bert.rewrite_ranker.untrained_ranker`. dtype, batch_tokens: as in
      `load`.

    Raises:
      InputError: for a checkpoint or setting that will not do.
    """
    path = locate(spec)
    loaded = untrained_ranker(
        path, dtype=compute_dtype(dtype), pooling=pooling, max_length=max_length, seed=seed
    )
    told = {"weights": fingerprint(path), "head": seed}
    return _scorer(loaded, path, told, batch_tokens, None)


def with_params(
    ranker: CrossEncoderReranker, params: dict[str, Any], name: str
) -> CrossEncoderReranker:
    """The same ranker with other parameters, which ``name`` tells from those of others."""
    identity = canonical({"ranker": {"begun": digest(ranker.identity), "params": name}})
    return dataclasses.replace(ranker, params=params, identity=identity)


def _scorer(
    loaded: LoadedRanker,
    path: Path,
    told: dict[str, Any],
    batch_tokens: int | None,
    mesh: Mesh | None,
) -> CrossEncoderReranker:
    module: Any = loaded.module  # a cross-encoder's in all that is asked of it
    tokenizer, rows = load_tokenizer(path), module.config.vocab_size
    if len(tokenizer) > rows:
        raise InputError(
            f"{path}: the tokenizer knows {len(tokenizer)} tokens, the network {rows}: they are "
            "not of one checkpoint."
        )
    settings = {
        **told,
        "pooling": module.pooling,
        "dtype": module.dtype.name,
        "max_length": loaded.max_length,
    }
    return CrossEncoderReranker(
        identity=canonical({"ranker": settings}),
        module=module,
        params=loaded.params if mesh is None else buckets.replicate(loaded.params, mesh),
        tokenizer=tokenizer,
        max_length=loaded.max_length,
        batch_tokens=buckets.batch_tokens(batch_tokens),
        mesh=mesh,
    )
