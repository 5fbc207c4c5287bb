"""Published vectors of Wikipedia, imported."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from jaxrag.retrieval.corpus.manifest import check_files, read_manifest
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.dense.exact import ExactIndex
from jaxrag.retrieval.dense.matrix import KIND
from jaxrag.retrieval.dense.scann import ScannIndex
from jaxrag.retrieval.dense.scann_training import ScannSettings
from jaxrag.retrieval.dense.settings import BiEncoder
from jaxrag.retrieval.retriever import Retriever, TextEncoder
from jaxrag.retrieval.wiki_dpr.published import (
    PASSAGES,
    VECTORS,
    PublishedIndex,
    PublishedVectors,
    import_published,
    trouble,
)
from jaxrag.types import InputError


def dpr_questions(
    checkpoint: str = "hub:facebook/dpr-question_encoder-single-nq-base",
) -> BiEncoder:
    """DPR's encoder of questions alone, for passages whose vectors were published."""
    return BiEncoder(checkpoint, pooling="cls", max_length=256, normalise=False)


@dataclasses.dataclass(frozen=True)
class WikiDpr:
    """WikiDPR, or other passages published with their vectors; see
    `jaxrag.retrieval.wiki_dpr.published`.

    The data set's own corpus is not searched.

    Attributes:
      source: folder of the published files; needed until they are imported.
      path: where the import lies; "" is "wiki_dpr" in the cache.
      encoder: of questions; the one that belongs to the vectors.
      metric: "l2" is the nearest, as in ERRR; "inner_product" what DPR was trained for.
      exact: whether every passage is scored for every query; otherwise ScaNN searches.
      leaves, leaves_to_search: as in `Scann`.
      dtype: what vectors are imported in.
      verify: whether to compare the hashes of all vectors when the index is opened; what is
        damaged is imported again where ``source`` is named.
    """

    source: str = ""
    path: str = ""
    encoder: BiEncoder = dpr_questions()
    metric: Literal["inner_product", "l2"] = "l2"
    exact: bool = False
    leaves: int = 0
    leaves_to_search: int = 0
    dtype: Literal["float16", "float32"] = "float16"
    verify: bool = False

    gives_vectors = True
    checkpoints = ()  # its encoder names neither directory nor state

    def __post_init__(self) -> None:
        if self.metric not in ("inner_product", "l2"):
            raise InputError(f"metric must be 'inner_product' or 'l2', not {self.metric!r}")

    @property
    def name(self) -> str:
        """For tables."""
        return f"WikiDPR, {'exact' if self.exact else 'ScaNN'}"

    def open(self, passages: Passages, cache: Path) -> Retriever:
        """Opens the index, importing and training on first use.

        Raises:
          InputError: nothing is imported and no ``source`` named, or see `import_published`.
        """
        directory, encoder = self.directory(passages, cache), self.encoder.load()
        if why := trouble(directory, verify=self.verify or None):
            if not self.source:
                raise InputError(
                    f"{directory} holds no sound import: {why}. Name the folder of the published "
                    "files: --config.index.source=FOLDER."
                )
            import_published(self.source, directory, dimension=encoder.dimension, dtype=self.dtype)
        return PublishedIndex(self._index(directory, encoder), encoder)

    def directory(self, passages: Passages, cache: Path) -> Path:
        """Where the import lies."""
        return Path(self.path).expanduser() if self.path else cache / "wiki_dpr"

    def state(self, passages: Passages, cache: Path) -> str:
        """What is there, told without importing."""
        directory = self.directory(passages, cache)
        if not directory.exists():
            return "not searched, but published ones, which are not imported yet"
        try:
            manifest = read_manifest(directory / VECTORS, KIND)
            if not manifest.complete:
                return f"not searched, but published ones, of which {len(manifest.files)} files are"
            check_files(directory / VECTORS, manifest, verify=False)
        except InputError as error:
            return str(error)
        return f"not searched, but {manifest.settings['passages']['count']:,} that are imported"

    def dimension(self) -> None:
        """Vectors are imported, not built."""

    def _index(self, directory: Path, questions: TextEncoder) -> Retriever:
        passages = Passages.open(directory / PASSAGES)
        encoder, where = PublishedVectors.of(directory, questions), directory / VECTORS
        if self.exact:
            return ExactIndex.open(where, encoder, passages, metric=self.metric, verify=False)
        return ScannIndex.build(
            where,
            encoder,
            passages,
            settings=ScannSettings(metric=self.metric, leaves=self.leaves or None),
            leaves_to_search=self.leaves_to_search or None,
            verify=False,
        )
