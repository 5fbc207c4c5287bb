"""SiDR's encoder: questions and passages as weights over the vocabulary.

docs/methods, "R3: SiDR"; Zhou et al., "Semi-parametric retrieval via binary bag-of-tokens index".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrag.core.hashing import canonical
from jaxrag.models.bert.sidr import (
    SidrNetwork,
    bag_of_tokens,
    is_trained,
    keep_top,
    load_sidr_tokenizer,
    load_towers,
    towers_fingerprint,
    write_sidr,
)
from jaxrag.models.bert.towers import Towers, tower
from jaxrag.models.checkpoint.files import locate
from jaxrag.models.precision import compute_dtype
from jaxrag.retrieval import buckets
from jaxrag.retrieval.corpus.builds import WHOLE, BuildPart
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.sidr.sparse import SparseIndex, write_sparse
from jaxrag.types import InputError, Passage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class Sparse(NamedTuple):
    """Vectors over the vocabulary as their entries above 0, largest first.

    Padding has the vocabulary's size as ``ids``, and 0 as ``values``.
    """

    ids: Int[np.ndarray, "n l"]
    values: Float[np.ndarray, "n l"]


@dataclasses.dataclass(frozen=True)
class SidrEncoder:
    """E(x) of questions and passages, with the largest entries only; made by `load`.

    A text's vector is bitwise the same whatever else is in the call.
    """

    identity: str
    module: SidrNetwork
    params: Towers
    tokenizer: PreTrainedTokenizerFast
    top: int
    own_tokens: bool
    query_length: int
    passage_length: int
    batching: buckets.Batching

    @classmethod
    def load(
        cls,
        spec: str,
        *,
        top: int = 768,
        own_tokens: bool = True,
        query_length: int = 128,
        passage_length: int = 256,
        shared: bool = False,
        first: int | None = None,
        scale: float = 1.0,
        dtype: str | None = None,
    ) -> SidrEncoder:
        """Loads a SiDR, or initialises an untrained one from a BERT.

        Args:
          spec: a checkpoint, or the directory of two towers.
          top: entries that a vector keeps.
          own_tokens: whether it also keeps those of the text's own tokens.
          query_length, passage_length: tokens, special ones included, that a text is cut to.
          shared, first, scale: see `jaxrag.models.bert.sidr.load_towers`.
          dtype: see `jaxrag.retrieval.dense.encoder.EncoderSettings`.

        InputError for an invalid checkpoint or setting.
        """
        path = Path(spec) if (Path(spec) / "query").is_dir() else locate(spec)
        in_dtype = compute_dtype(dtype)
        module, params = load_towers(path, dtype=in_dtype, shared=shared, first=first, scale=scale)
        size = module.config.vocab_size - module.first
        if not 1 <= top <= size:
            raise InputError(f"top is {top}; {spec} has 1 to {size} entries.")
        lengths = {"query_length": query_length, "passage_length": passage_length}
        for name, length in lengths.items():
            buckets.check_length(length, 3, module.config.max_tokens, source=spec, name=name)
        settings = {"top": top, "own_tokens": own_tokens, **lengths}
        weights = {"weights": towers_fingerprint(path), "first": module.first}
        weights |= {"dtype": in_dtype.name, "towers": sorted(params)}
        weights |= {} if scale == 1.0 or is_trained(path) else {"scale": scale}
        # earlier versions rounded logits to the dtype of computation
        weights |= {} if in_dtype == jnp.float32 else {"logits": "float32"}
        return cls(
            identity=canonical({"sidr": settings | weights}),
            module=module,
            params=params,
            tokenizer=load_sidr_tokenizer(path),
            batching=buckets.Batching(),
            **settings,
        )

    def with_params(self, params: Towers, name: str) -> SidrEncoder:
        """The encoder with other parameters, identified by ``name``."""
        identity = canonical({"of": self.identity, "params": name})
        return dataclasses.replace(self, params=params, identity=identity)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.module.config.vocab_size - self.module.first

    @property
    def entries(self) -> int:
        """Most entries above 0 of a passage's vector."""
        return min(self.top + self.passage_length * self.own_tokens, self.dimension)

    def embed(self, texts: Iterable[str]) -> Float[np.ndarray, "q v"]:
        """E(q) of questions, float32."""
        blocks = self._stream(texts, "query", self.query_length, self.dimension)
        return buckets.joined(blocks, self.dimension)

    def embed_passages(self, passages: Iterable[Passage]) -> Sparse:
        """E(d) of passages."""
        blocks = [*self.stream_passages(passages)]
        if not blocks:
            shape = (0, self.entries)
            return Sparse(np.zeros(shape, np.int32), np.zeros(shape, np.float32))
        return Sparse(*map(np.concatenate, zip(*blocks, strict=True)))

    def stream_passages(self, passages: Iterable[Passage]) -> Iterator[Sparse]:
        """E(d) of passages, which are read lazily, as blocks in their order."""
        texts = (self.passage_text(passage) for passage in passages)
        finish = partial(_entries, width=self.entries)
        for block in self._stream(texts, "passage", self.passage_length, 2 * self.entries, finish):
            values, ids = np.split(block, 2, axis=1)
            # ids share a float32 array with the values, which is exact below 2^24
            yield Sparse(ids.astype(np.int32), values)

    def index(self, passages: Passages, directory: Path) -> SparseIndex:
        """The vectors of a corpus in ``directory``, computed on first use."""
        self.write_index(passages, directory)
        return SparseIndex.open(directory, passages, self.identity, verify=False)

    def write_index(self, passages: Passages, directory: Path, part: BuildPart = WHOLE) -> None:
        """Computes the vectors of a corpus, or one process's part of them, as far as missing."""
        write_sparse(
            passages,
            self.stream_passages,
            self.identity,
            directory,
            vocabulary=self.dimension,
            length=self.entries,
            part=part,
        )

    def write(self, directory: Path, params: Towers, *, begun_with: Path) -> None:
        """Writes parameters as a checkpoint, see `jaxrag.models.bert.sidr.write_sidr`."""
        write_sidr(directory, self.module, params, begun_with=begun_with)

    def token_vectors(self, texts: Sequence[str]) -> Float[np.ndarray, "q v"]:
        """T(q) of questions."""
        return self._bags(texts, self.query_length).astype(np.float32)

    def passage_bags(self, passages: Sequence[Passage]) -> Bool[np.ndarray, "n v"]:
        """T(d) of passages, with the tokens that the network reads."""
        return self._bags([self.passage_text(p) for p in passages], self.passage_length)

    def _bags(self, texts: Sequence[str], limit: int) -> Bool[np.ndarray, "n v"]:
        bags = np.zeros((len(texts), self.dimension), np.bool_)
        tokens = buckets.tokenize(self.tokenizer, texts, limit=limit)
        for row, text in zip(bags, tokens, strict=True):
            row[[i - self.module.first for i in text.ids if i >= self.module.first]] = True
        return bags

    def passage_text(self, passage: Passage) -> str:
        """The text that is embedded: title, separator, text."""
        if not passage.title:
            return passage.text
        return f"{passage.title} {self.tokenizer.sep_token} {passage.text}"

    def _stream(
        self,
        texts: Iterable[str],
        side: Literal["query", "passage"],
        limit: int,
        features: int,
        finish: Callable[[Array], Array] | None = None,
    ) -> Iterator[np.ndarray]:
        return buckets.stream(
            embed_tokens,
            tower(self.params, side),
            texts,
            self,
            limit=limit,
            features=features,
            finish=finish,
            module=self.module,
            top=self.top,
            own_tokens=self.own_tokens,
        )


@partial(jax.jit, static_argnames=("module", "top", "own_tokens"))
def embed_tokens(
    params: dict[str, Any],
    ids: Int[Array, "b t"],
    lengths: Int[Array, " b"],
    *,
    module: SidrNetwork,
    top: int,
    own_tokens: bool,
) -> Float[Array, "b v"]:
    """E(x) of right-padded texts, sparsified."""
    where = jnp.arange(ids.shape[1]) < lengths[:, None]
    dense: Any = module.apply({"params": params}, ids, jnp.zeros_like(ids), where=where)
    bag = bag_of_tokens(ids, where=where, vocabulary=module.config.vocab_size, first=module.first)
    return keep_top(dense, top, tokens=bag if own_tokens else None)


@partial(jax.jit, static_argnames="width")
def _entries(vectors: Float[Array, "b v"], *, width: int) -> Float[Array, "b 2*width"]:
    """The entries above 0, then their token ids."""
    values, ids = jax.lax.top_k(vectors, width)
    ids = jnp.where(values > 0, ids, vectors.shape[1])
    return jnp.concatenate([values, ids.astype(jnp.float32)], axis=1)
