"""A published FAISS index of a corpus's vectors, imported instead of encoding the corpus.

FlashRAG (Jin et al. 2024) publishes the vectors that E5 (Wang et al. 2022) makes of its corpus
wiki18_100w, 21,015,324 passages, as one IndexFlatIP of 64.6 GB.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from jaxrag.core.hashing import canonical
from jaxrag.retrieval.corpus.manifest import read_manifest, state_of
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.dense.exact import exact_footprint
from jaxrag.retrieval.dense.matrix import KIND, StoredType
from jaxrag.retrieval.dense.published_encoders import e5
from jaxrag.retrieval.retriever import Retriever, TextEncoder
from jaxrag.retrieval.settings import Footprint, IndexStatus, index_directory
from jaxrag.retrieval.wiki_dpr.index import (
    VECTORS,
    ImportedVectors,
    check_dimension,
    import_vectors,
)
from jaxrag.retrieval.wiki_dpr.sources import FlatVectors, fingerprint_file
from jaxrag.types import InputError, Passage

_LEAST = 0.95  # median cosine of a passage's vector and the published one


@dataclasses.dataclass(frozen=True)
class FaissFlat(ImportedVectors):
    """Vectors of the run's corpus from a file of FAISS's IndexFlatIP, in the corpus's order.

    The default is E5's index of FlashRAG, for the corpus wiki18_100w.

    Attributes:
      source: the file, or the folder that has it; needed until it is imported.
      encoder: of the vectors; also encodes queries.
      compared: passages that are encoded and compared with their vectors before the import.
    """

    encoder: BiEncoder = e5()
    compared: int = 32

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Checkpoints of the encoder."""
        return self.encoder.checkpoints

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"published vectors, {self._search}"

    def open(self, passages: Passages, cache: Path) -> Retriever:
        """Opens the index, importing and training on first use.

        Raises:
          InputError: nothing is imported and no ``source`` given; see `import_flat`.
        """
        directory, encoder = self._directory(passages, cache), self.encoder.load()
        if not self._is_imported(directory):
            options: Any = {"dtype": self.dtype, "compared": self.compared}
            import_flat(self.source, directory, passages, encoder, **options)
        return self._open(directory, passages, encoder, "inner_product")

    def footprint(self, passages: Passages) -> Footprint:
        """Stored vectors; memory is known for exact search."""
        cells = len(passages) * self.encoder.describe().dimension
        exact = exact_footprint(cells, self.memory_gb)
        return exact if self.exact else Footprint(disk=exact.disk, note="without ScaNN's own files")

    def status(self, passages: Passages, cache: Path) -> IndexStatus:
        """Whether the vectors are imported."""
        directory = self._directory(passages, cache)
        state = state_of(directory / VECTORS, KIND, verify=False)
        if state != "built":
            return IndexStatus(directory, state.replace("not built yet", "not imported yet"))
        settings = read_manifest(directory / VECTORS, KIND).settings
        return IndexStatus(directory, state, settings["dimension"])

    def _directory(self, passages: Passages, cache: Path) -> Path:
        made_by = canonical(dataclasses.asdict(self.encoder))
        return index_directory(
            cache, "published flat index", made_by, self.dtype, passages.identity
        )


def import_flat(
    source: str | Path,
    directory: Path,
    passages: Passages,
    encoder: TextEncoder,
    *,
    dtype: StoredType = "float16",
    compared: int = 32,
    shard_rows: int = 50_000,
) -> None:
    """Imports the vectors of a corpus, see `import_vectors`; the source is not needed afterwards.

    Args:
      source: see `FlatVectors.open`.
      directory, passages, dtype, shard_rows: see `import_vectors`.
      encoder: of the vectors.
      compared: passages, spread over the corpus, that are encoded and compared with their vectors.

    Raises:
      InputError: an invalid file, another number or length of vectors than of the corpus and the
        encoder, vectors of other passages or of another encoder, a vector that is not finite, a
        directory with something else, or a full disk.
    """
    flat = FlatVectors.open(source)
    if flat.count != len(passages):
        raise InputError(
            f"{flat.path} has {flat.count:,} vectors and the corpus {len(passages):,} passages: "
            "they do not belong together. E5's index of FlashRAG is of the corpus wiki18_100w "
            "(jaxrag data wiki18_100w)."
        )
    check_dimension(flat.path, flat.dimension, encoder.dimension)
    if compared > 0:
        _compare(flat, passages, encoder, compared)
    described = {"published": [fingerprint_file(flat.path)], "count": flat.count}
    import_vectors(flat, described, directory, passages, dtype=dtype, shard_rows=shard_rows)


def _compare(flat: FlatVectors, passages: Passages, encoder: TextEncoder, count: int) -> None:
    """Refuses vectors that are not those of the passages, by some that are encoded again."""
    rows = np.unique(np.linspace(0, flat.count - 1, count).astype(int)).tolist()
    ours = np.concatenate([*encoder.stream_passages(map(_as_published, passages.get(rows)))])
    theirs = np.concatenate([flat.vectors(range(row, row + 1)) for row in rows])
    with np.errstate(invalid="ignore"):  # `as_stored` reports numbers that are not finite
        sizes = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
        cosines = (ours * theirs).sum(axis=1) / np.maximum(sizes, 1e-30)
    if np.median(cosines) < _LEAST:
        raise InputError(
            f"the vectors in {flat.path} are not what this encoder makes of the corpus: of "
            f"{len(rows)} passages the median cosine is {np.median(cosines):.3f}, below {_LEAST}. "
            "They are of another model, or of passages in another order."
        )


def _as_published(passage: Passage) -> Passage:
    """A passage's text as FlashRAG encodes it: its title in quotes, then its text in a new line."""
    if not passage.title:
        return passage
    return Passage(passage.id, "", f'"{passage.title}"\n{passage.text}')
