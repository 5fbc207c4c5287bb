"""Encoders: texts to vectors by a BERT-like network, the dense half of retrieval."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from jaxrag.core.hashing import canonical
from jaxrag.models.bert.checkpoint import load_encoder, read_bert_config
from jaxrag.models.bert.network import BertEncoder, cls_pool, mean_pool
from jaxrag.models.checkpoint.files import fingerprint, locate, read_config
from jaxrag.models.precision import compute_dtype
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.retrieval import buckets
from jaxrag.types import InputError, Passage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Pooling = Literal["mean", "cls"]


@dataclasses.dataclass(frozen=True)
class Description:
    """What determines an encoder's vectors, told without reading its weights into memory.

    Attributes:
      identity: as `Encoder.identity`.
      dimension: length of a vector.
      settings: the arguments of `describe`, with every choice made.
    """

    identity: str
    dimension: int
    settings: dict[str, Any]


def describe(
    path: Path,
    *,
    pooling: Pooling = "mean",
    query_prefix: str = "",
    passage_prefix: str = "",
    embed_title: bool = True,
    title_pair: bool = False,
    max_length: int | None = None,
    normalise: bool = True,
    dtype: str | None = None,
) -> Description:
    """Describes the encoder that `Encoder.load` makes of the checkpoint at ``path``.

    Raises:
      InputError: for a checkpoint or setting that will not do.
    """
    if pooling not in ("mean", "cls"):
        raise InputError(f"pooling is {pooling!r}; allowed are 'mean' and 'cls'.")
    if title_pair and not embed_title:
        raise InputError("title_pair says how titles are embedded, but embed_title is off.")
    config = read_bert_config(read_config(path), source=path)
    least, limit = 5 if title_pair else 3, config.max_tokens  # special tokens, and some of a text
    max_length = limit if max_length is None else max_length
    if not least <= max_length <= limit:
        raise InputError(f"max_length is {max_length}; {path} allows {least} to {limit} tokens.")
    settings = {
        "pooling": pooling,
        "query_prefix": query_prefix,
        "passage_prefix": passage_prefix,
        "embed_title": embed_title,
        "max_length": max_length,
        "normalise": normalise,
    }
    weights = {"weights": fingerprint(path), "dtype": compute_dtype(dtype).name}
    # Told only where it is on, so that indexes from before there was this setting stay valid.
    pair = {"title_pair": True} if title_pair else {}
    identity = canonical({"encoder": settings | weights | pair})
    return Description(identity, config.hidden_size, settings | {"title_pair": title_pair})


@dataclasses.dataclass(frozen=True)
class Encoder:
    """Turns queries and passages into vectors; made by :meth:`load`.

    A text's vector is bitwise the same whatever else is in the call (see
    :mod:`jaxrag.retrieval.buckets`).
    """

    identity: str
    module: BertEncoder
    params: dict[str, Any]
    tokenizer: PreTrainedTokenizerFast
    pooling: Pooling
    query_prefix: str
    passage_prefix: str
    embed_title: bool
    title_pair: bool
    max_length: int
    normalise: bool
    batch_tokens: int
    mesh: Mesh | None

    @classmethod
    def load(
        cls,
        spec: str,
        *,
        pooling: Pooling = "mean",
        query_prefix: str = "",
        passage_prefix: str = "",
        embed_title: bool = True,
        title_pair: bool = False,
        max_length: int | None = None,
        normalise: bool = True,
        dtype: str | None = None,
        batch_tokens: int | None = None,
        mesh: Mesh | None = None,
    ) -> Encoder:
        """Reads an encoder and its tokenizer.

        Args:
          spec: a checkpoint, as :func:`jaxrag.models.checkpoint.files.locate` takes it.
          pooling: "mean" of all tokens' states, or the first token's ("cls").
          query_prefix: put before a query, such as E5's "query: ".
          passage_prefix: put before a passage, and before its title.
          embed_title: whether a passage is embedded as "title text" or as its text alone.
          title_pair: whether title and text go as a pair, [CLS] title [SEP] text [SEP] of one
            segment, as DPR's (a passage without title goes alone); of a pair too long, the longer
            part is cut.
          max_length: tokens, special ones included, that a text is cut to; by default as many as
            the network has positions.
          normalise: whether vectors get unit length.
          dtype: "float32" or "bfloat16"; by default the first on CPU, the second elsewhere.
          batch_tokens: size of a batch; by default what suits the device.
          mesh: devices that share a batch's rows, along the mesh's "data" axis.

        Raises:
          InputError: for a checkpoint or setting that will not do.
        """
        path = locate(spec)
        described = describe(
            path,
            pooling=pooling,
            query_prefix=query_prefix,
            passage_prefix=passage_prefix,
            embed_title=embed_title,
            title_pair=title_pair,
            max_length=max_length,
            normalise=normalise,
            dtype=dtype,
        )
        module, params = load_encoder(path, dtype=compute_dtype(dtype))
        return cls(
            identity=described.identity,
            module=module,
            params=params if mesh is None else buckets.replicate(params, mesh),
            tokenizer=load_tokenizer(path),
            batch_tokens=buckets.batch_tokens(batch_tokens),
            mesh=mesh,
            **described.settings,
        )

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.module.config.hidden_size

    def embed(self, texts: Iterable[str]) -> Float[np.ndarray, "q d"]:
        """Vectors of queries."""
        return self._embed(self.query_prefix + text for text in texts)

    def embed_passages(self, passages: Iterable[Passage]) -> Float[np.ndarray, "n d"]:
        """Vectors of passages, which are read as they are needed."""
        return self._embed(self._text(passage) for passage in passages)

    def _text(self, passage: Passage) -> buckets.Text:
        if not (self.embed_title and passage.title):
            return self.passage_prefix + passage.text
        title = self.passage_prefix + passage.title
        return (title, passage.text) if self.title_pair else f"{title} {passage.text}"

    def _embed(self, texts: Iterable[buckets.Text]) -> Float[np.ndarray, "n d"]:
        return buckets.through(
            texts,
            self._compute,
            tokenizer=self.tokenizer,
            limit=self.max_length,
            batch_tokens=self.batch_tokens,
            pad_id=self.module.config.pad_token_id,
            mesh=self.mesh,
            features=self.dimension,
        )

    def _compute(self, batch: buckets.TokenBatch) -> Float[Array, "b d"]:
        return embed_tokens(
            self.params,
            batch.ids,
            batch.lengths,
            module=self.module,
            pooling=self.pooling,
            normalise=self.normalise,
        )


@partial(jax.jit, static_argnames=("module", "pooling", "normalise"))
def embed_tokens(
    params: dict[str, Any],
    ids: Int[Array, "b t"],
    lengths: Int[Array, " b"],
    *,
    module: BertEncoder,
    pooling: Pooling,
    normalise: bool,
) -> Float[Array, "b d"]:
    """Pooled hidden states of right-padded texts, float32."""
    where = jnp.arange(ids.shape[1]) < lengths[:, None]
    hidden: Any = module.apply({"params": params}, ids, jnp.zeros_like(ids), where=where)
    vectors = mean_pool(hidden, where=where) if pooling == "mean" else cls_pool(hidden)
    if not normalise:
        return vectors
    return vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
