"""Published passage vectors as an index: imported once, searched with their own query encoder.

WikiDPR (Karpukhin et al. 2020): 21,015,300 passages of at most 100 words of the Wikipedia of 20
December 2018, each with a vector of 768 numbers made by DPR's passage encoder. FlashRAG (Jin et al.
2024) publishes the vectors that E5 (Wang et al. 2022) makes of its corpus wiki18_100w, 21,015,324
passages, as one IndexFlatIP of 64.6 GB. Only questions are encoded here.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrag.core.durable_files import exclusive_directory
from jaxrag.core.file_states import FileState, check_unchanged
from jaxrag.core.hashing import canonical
from jaxrag.core.progress import progress
from jaxrag.retrieval.corpus import manifest as manifests
from jaxrag.retrieval.corpus.builds import BuildPart, by_chunks
from jaxrag.retrieval.corpus.manifest import (
    Manifest,
    check_settings,
    read_manifest,
    source_of,
    state_of,
)
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.corpus.rows import is_complete
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.dense.exact import ExactIndex, exact_footprint, memory_of
from jaxrag.retrieval.dense.matrix import (
    KIND,
    Metric,
    StoredType,
    as_stored,
    check_metric,
    write_vectors,
)
from jaxrag.retrieval.dense.published_encoders import dpr_questions, e5
from jaxrag.retrieval.dense.scann.index import ScannIndex
from jaxrag.retrieval.dense.scann.tree import ScannSettings
from jaxrag.retrieval.retriever import QueryEncoder, Retriever, TextEncoder
from jaxrag.retrieval.settings import (
    Footprint,
    IndexSettings,
    IndexStatus,
    index_directory,
    refuse_parts,
)
from jaxrag.retrieval.wiki_dpr.sources import (
    FlatVectors,
    ParquetVectors,
    fingerprint,
    fingerprint_file,
)
from jaxrag.types import InputError, Passage

PASSAGES, VECTORS = "passages", "vectors"
_FOLDER = "wiki_dpr"  # of the cache
_IMPORT = "published vectors"
_COMPARED = 32  # passages that are encoded and compared with their vectors before an import
_LEAST = 0.95  # median cosine of a passage's vector and the published one


@dataclasses.dataclass(frozen=True)
class ImportedVectors:
    """Settings that indexes of published vectors share.

    Attributes:
      source: the published files; needed until they are imported.
      encoder: encoder of questions; must match the vectors.
      exact: whether every passage is scored for every query; otherwise ScaNN searches.
      memory_gb: as in `Exact`.
      dtype: stored precision of the vectors; float16 rounds by up to 2^-11 of a number's size.
    """

    source: str = ""
    encoder: BiEncoder = BiEncoder()
    exact: bool = False
    memory_gb: float = 0.0
    dtype: StoredType = "float16"

    gives_vectors = True

    def __post_init__(self) -> None:
        memory_of(self.memory_gb)

    def build(self: IndexSettings, passages: Passages, cache: Path, part: BuildPart) -> None:
        """Imports the vectors; not in parts."""
        refuse_parts(self.name, part)
        self.open(passages, cache)

    @property
    def _search(self) -> str:
        return "exact" if self.exact else "ScaNN"

    def _is_imported(self, directory: Path) -> bool:
        """Whether the vectors are there; InputError if not, and no ``source`` is given."""
        state = state_of(directory / VECTORS, KIND)
        if state != "built" and not self.source:
            raise InputError(
                f"{directory} holds no complete import ({state}). Give the published files, "
                "--config.index.source=PATH, or import them before: jaxrag index "
                "--config configs/errr.py:rag@paper-popqa --config.index=WikiDpr "
                "--config.index.exact=True --config.index.source=PATH."
            )
        return state == "built"

    def _open(
        self, directory: Path, passages: Passages, encoder: QueryEncoder, metric: Metric
    ) -> Retriever:
        """Opens imported vectors; InputError if there are none, or the encoder's length differs."""
        vectors = directory / VECTORS
        settings = read_manifest(vectors, KIND).settings
        check_dimension(vectors, settings["dimension"], encoder.dimension)
        options: Any = {"made_by": canonical(settings["encoder"]), "verify": False}
        if self.exact:
            options |= {"metric": metric, "memory": memory_of(self.memory_gb)}
            index = ExactIndex.open(vectors, encoder, passages, **options)
        else:
            options |= {"settings": ScannSettings(metric=metric)}
            index = ScannIndex.open(vectors, encoder, passages, **options)
        parts = {"index": json.loads(index.identity), "questions": json.loads(encoder.identity)}
        return dataclasses.replace(index, identity=canonical(parts))


@dataclasses.dataclass(frozen=True)
class WikiDpr(ImportedVectors):
    """WikiDPR, or other passages published with their vectors.

    The data set's own corpus is not searched.

    Attributes:
      source: folder of the published files; needed until they are imported.
      metric: "l2", as in ERRR, or "inner_product", for which DPR was trained.
    """

    encoder: BiEncoder = dpr_questions()
    metric: Metric = "l2"

    checkpoints = ()  # its encoder names neither directory nor state

    def __post_init__(self) -> None:
        check_metric(self.metric)
        super().__post_init__()

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"WikiDPR, {self._search}"

    def open(self, passages: Passages, cache: Path) -> Retriever:
        """Opens the index, made on first use; InputError as `import_published` or for no source."""
        directory, encoder = cache / _FOLDER, self.encoder.load()
        if not self.is_imported(cache):
            import_published(self.source, directory, dimension=encoder.dimension, dtype=self.dtype)
        return self._open(directory, Passages.open(directory / PASSAGES), encoder, self.metric)

    def is_imported(self, cache: Path) -> bool:
        """Whether the vectors are imported; InputError if not, and no ``source`` is given."""
        return self._is_imported(cache / _FOLDER)

    def footprint(self, passages: Passages) -> Footprint:
        """Not known here: the corpus is the published one."""
        return Footprint(note="of the published passages, not of the data's")

    def status(self, passages: Passages, cache: Path) -> IndexStatus:
        """Whether the vectors are imported; none are built."""
        directory = cache / _FOLDER
        state, settings = _imported_state(directory)
        if settings:
            state = f"{settings['passages']['count']:,} that are imported"
        else:
            state = f"published ones: {state}"
        return IndexStatus(directory, f"not searched, but {state}")


@dataclasses.dataclass(frozen=True)
class FaissFlat(ImportedVectors):
    """Vectors of the run's corpus from a file of FAISS's IndexFlatIP, in the corpus's order.

    The default is E5's index of FlashRAG, for the corpus wiki18_100w.

    Attributes:
      source: the file, or the folder that has it; needed until it is imported.
      encoder: of the vectors; also encodes queries.
    """

    encoder: BiEncoder = e5()

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Checkpoints of the encoder."""
        return self.encoder.checkpoints

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"published vectors, {self._search}"

    def open(self, passages: Passages, cache: Path) -> Retriever:
        """Opens the index, made on first use; InputError as `import_flat` or without a source."""
        directory, encoder = self._directory(passages, cache), self.encoder.load()
        if not self._is_imported(directory):
            import_flat(self.source, directory, passages, encoder, dtype=self.dtype)
        return self._open(directory, passages, encoder, "inner_product")

    def footprint(self, passages: Passages) -> Footprint:
        """Stored vectors; memory is known for exact search."""
        cells = len(passages) * self.encoder.describe().dimension
        exact = exact_footprint(cells, self.memory_gb)
        return exact if self.exact else Footprint(disk=exact.disk, note="without ScaNN's own files")

    def status(self, passages: Passages, cache: Path) -> IndexStatus:
        """Whether the vectors are imported."""
        directory = self._directory(passages, cache)
        state, settings = _imported_state(directory)
        return IndexStatus(directory, state, settings.get("dimension"))

    def _directory(self, passages: Passages, cache: Path) -> Path:
        # a setting of earlier versions, whose imports go on
        made_by = canonical(dataclasses.asdict(self.encoder) | {"layer_norm": False})
        return index_directory(
            cache, "published flat index", made_by, self.dtype, passages.identity
        )


def _imported_state(directory: Path) -> tuple[str, Mapping[str, Any]]:
    """The state of imported vectors, and the settings of complete ones."""
    state = state_of(directory / VECTORS, KIND, verify=False)
    if state != "built":
        return state.replace("not built yet", "not imported yet"), {}
    return state, read_manifest(directory / VECTORS, KIND).settings


def import_published(
    source: str | Path,
    directory: str | Path,
    *,
    dimension: int,
    dtype: StoredType = "float16",
    shard_rows: int = 50_000,
) -> None:
    """Imports passages and vectors of length ``dimension``, or finishes an interrupted import.

    The passages of the folder ``source`` (see `ParquetVectors.open`) go to ``directory/passages``
    (all or nothing), then the vectors to ``directory/vectors``. Memory holds a chunk of vectors
    and, while the passages are written, about 20 bytes for each. InputError for invalid files, a
    vector that is not finite or of another length, a directory with something else, or a full disk.
    """
    directory = Path(directory).expanduser().absolute()
    states = [FileState.of(path) for path in Path(source).expanduser().glob("*") if path.is_file()]
    published = ParquetVectors.open(source)
    check_dimension(source, published.dimension, dimension)
    described = {"published": fingerprint(source), "count": published.count}
    with exclusive_directory(directory):
        if (directory / manifests.NAME).exists():
            check_settings(directory, read_manifest(directory, _IMPORT).settings, described)
        elif {path.name for path in directory.iterdir()} - {".lock", f"{manifests.NAME}.new"}:
            raise InputError(f"{directory} holds something else; give a directory for the import")
        else:
            Manifest(_IMPORT, described).write(directory)
        passages = _passages(published, directory / PASSAGES, states)
        import_vectors(
            published,
            described,
            directory,
            passages,
            dtype=dtype,
            shard_rows=shard_rows,
            states=states,
        )


def import_flat(
    source: str | Path,
    directory: Path,
    passages: Passages,
    encoder: TextEncoder,
    *,
    dtype: StoredType = "float16",
) -> None:
    """Imports the vectors of a corpus from a ``source`` as of `FlatVectors.open`.

    Some passages, spread over the corpus, are encoded and compared with their vectors before.
    InputError for an invalid file, another number or length of vectors than of the corpus and the
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
    _compare(flat, passages, encoder)
    described = {"published": [fingerprint_file(flat.path)], "count": flat.count}
    import_vectors(flat, described, directory, passages, dtype=dtype)


def _compare(flat: FlatVectors, passages: Passages, encoder: TextEncoder) -> None:
    """Refuses vectors that are not those of the passages, by some that are encoded again."""
    rows = np.unique(np.linspace(0, flat.count - 1, _COMPARED).astype(int)).tolist()
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


def check_dimension(place: object, dimension: int, of_questions: int) -> None:
    """InputError unless vectors in a ``place`` are as long as those of questions."""
    if dimension != of_questions:
        raise InputError(
            f"the vectors in {place} have {dimension} numbers, and the encoder of questions makes "
            f"{of_questions}: they are of different models"
        )


def import_vectors(
    published: ParquetVectors | FlatVectors,
    described: Mapping[str, Any],
    directory: Path,
    passages: Passages,
    *,
    dtype: StoredType,
    shard_rows: int = 50_000,
    states: Sequence[FileState] = (),
) -> None:
    """Writes published vectors to ``directory/vectors``, a matrix as `write_matrix` writes it.

    ``described`` is plain JSON that tells the files from others; they must remain in ``states``.
    InputError as `import_published`.
    """

    def convert(rows: range) -> np.ndarray:
        hint = "get its file again, or import in float32"
        stored = as_stored(published.vectors(rows), dtype, rows, passages, hint=hint)
        check_unchanged(states)
        return stored

    layout = {"dimension": published.dimension, "dtype": dtype, "shard_rows": shard_rows}
    write_vectors(
        directory.expanduser().absolute() / VECTORS,
        source_of(passages, encoder=canonical(described)) | layout,
        by_chunks(convert),
        label="importing vectors",
    )


def _passages(published: ParquetVectors, directory: Path, states: list[FileState]) -> Passages:
    if is_complete(directory):
        return Passages.open(directory)
    with progress(published.count, "importing passages") as advance:

        def counted() -> Iterator[Passage]:
            for number, passage in enumerate(published.passages(), start=1):
                yield passage
                if not number % 1000:
                    advance(1000)
            check_unchanged(states)

        return write_passages(directory, counted())
