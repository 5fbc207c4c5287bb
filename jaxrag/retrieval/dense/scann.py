"""ScaNN: approximate search over a matrix, for corpora too large to score in full.

Guo et al. (2020), "Accelerating Large-Scale Inference with Anisotropic Vector Quantization": a
tree of partitions selects some leaves, asymmetric hashing scores their rows, and the best are
scored again with their vectors. Final scores are those of `jaxrag.retrieval.dense.matrix.rank`.

Training is not reproducible bit for bit: ScaNN 1.4.2 takes no seed for its first centres, and its
threads race. So an index's identity contains the hash of its files.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxrag.core.hashing import canonical, digest
from jaxrag.models.checkpoint.files import short_name
from jaxrag.retrieval.corpus import manifest as manifests
from jaxrag.retrieval.corpus.builds import WHOLE, BuildPart, build_folder
from jaxrag.retrieval.corpus.manifest import Manifest, read_manifest, state_of
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.dense.exact import Exact, encode_corpus, encoded_corpus
from jaxrag.retrieval.dense.matrix import KIND as MATRIX
from jaxrag.retrieval.dense.matrix import Matrix, Metric, check_metric, open_matrix, rank
from jaxrag.retrieval.retriever import Retriever, TextEncoder, check_queries
from jaxrag.retrieval.settings import Footprint, IndexStatus
from jaxrag.types import InputError, Ranking

KIND = "scann"
_SMALL = 20_000  # up to so many rows, scoring all of them is fast
_FEW = 16  # with fewer rows, ScaNN cannot train its codes
_SHARE = 1 / 8  # of the leaves are searched by default,
_SCANNED = 8_000  # and at least as many as hold about so many rows
_BLOCK = 32  # queries that ScaNN gets together: see `ScannIndex._candidates`


@dataclasses.dataclass(frozen=True)
class ScannSettings:
    """Settings of an index's training.

    Attributes:
      metric: how passages are scored, <q, p> or -|q - p|^2.
      leaves: partitions of the tree; None: 2 sqrt(n), or 0 up to 20,000 rows. 0 scores all
        rows, as does any number with fewer than 16 rows.
      training_rows: number of rows that the tree and the codes are trained on.
      block: dimensions that share a code of 4 bits.
      anisotropy: threshold T of the paper's loss; for inner products only.
      reorder: number of the best by code that are scored by vector, unless k needs more.
    """

    metric: Metric = "inner_product"
    leaves: int | None = None
    training_rows: int = 250_000
    block: int = 2
    anisotropy: float = 0.2
    reorder: int = 64

    def resolved(self, rows: int) -> ScannSettings:
        """The settings for a corpus of this size, without None; InputError for invalid ones."""
        check_metric(self.metric)
        if (self.leaves or 0) < 0 or min(self.training_rows, self.block, self.reorder) < 1:
            raise InputError(f"leaves must be at least 0 and the other numbers at least 1: {self}")
        leaves = self.leaves
        if leaves is None:
            leaves = 0 if rows <= _SMALL else round(2 * math.sqrt(rows))
        leaves = 0 if rows < _FEW else min(leaves, rows)
        sizes = {"leaves": leaves, "training_rows": min(self.training_rows, rows)}
        return dataclasses.replace(self, **sizes)


_DEFAULTS = ScannSettings()


@dataclasses.dataclass(frozen=True)
class ScannIndex:
    """A ScaNN index beside the matrix that it was trained on."""

    identity: str
    matrix: Matrix
    encoder: TextEncoder
    passages: Passages
    settings: ScannSettings
    manifest: Manifest
    searcher: Any
    leaves_to_search: int

    @classmethod
    def build(
        cls,
        directory: str | Path,
        encoder: TextEncoder,
        passages: Passages,
        *,
        settings: ScannSettings = _DEFAULTS,
        leaves_to_search: int | None = None,
        verify: bool | None = None,
    ) -> ScannIndex:
        """Trains an index on the matrix in ``directory``, unless one is there, and opens it.

        The files go to a folder beside the matrix, one for each ``settings``. Training holds the
        matrix in memory in float32. ``leaves_to_search``: see `open`; ``verify``: see
        `open_matrix`.

        Raises:
          InputError: see `open_matrix`; settings out of range; a full disk.
        """
        matrix = open_matrix(directory, passages, encoder, verify=verify)
        settings = settings.resolved(len(matrix))
        folder, source = _place(matrix.directory, matrix.manifest, settings)

        def save(unfinished: Path) -> None:
            searcher = _train(matrix, settings)
            unfinished.mkdir()
            searcher.serialize(str(unfinished), relative_path=True)

        build_folder(folder, KIND, source, save)
        return cls.open(
            directory,
            encoder,
            passages,
            settings=settings,
            leaves_to_search=leaves_to_search,
            verify=False,  # both were verified above
        )

    @classmethod
    def open(
        cls,
        directory: str | Path,
        encoder: TextEncoder,
        passages: Passages,
        *,
        settings: ScannSettings = _DEFAULTS,
        leaves_to_search: int | None = None,
        verify: bool | None = None,
    ) -> ScannIndex:
        """Opens an index that `build` trained with the same settings.

        ``leaves_to_search`` trades speed for recall; None searches an eighth of the leaves, or more
        if those hold fewer than about 8,000 rows. The recall depends on the data: where neighbours
        are close it is 0.98 and more, but on questions to 9,000 Wikipedia passages most of which
        held no answer (all-MiniLM-L6-v2), 8 % of the leaves held 0.74 of the 10 best and half of
        them 0.97. So compare with `ExactIndex` on some of your queries.

        Raises:
          InputError: see `open_matrix`; no such index, or it is damaged or belongs to a matrix
            that has changed.
        """
        matrix = open_matrix(directory, passages, encoder, verify=verify)
        settings = settings.resolved(len(matrix))
        folder, source = _place(matrix.directory, matrix.manifest, settings)
        manifest = manifests.open_manifest(folder, KIND, source, verify=verify)
        known = {manifests.NAME, *(file.name for file in manifest.files)}
        surplus = sorted({path.name for path in folder.iterdir()} - known)
        if surplus:  # ScaNN would unpickle some
            raise InputError(f"{folder} holds files that are not the index's: {surplus}")
        if leaves_to_search is not None and leaves_to_search < 1:
            raise InputError(f"leaves_to_search must be at least 1, not {leaves_to_search}")
        leaves = min(leaves_to_search or len(matrix), settings.leaves or 1)
        if leaves_to_search is None:
            share = min(1.0, max(_SHARE, _SCANNED / len(matrix)))
            leaves = max(1, math.ceil(leaves * share))
        # an absolute path: ScaNN 1.4.2 doubles a relative one
        searcher = _library().load_searcher(str(folder))
        identity = {
            "scann": dataclasses.asdict(settings),
            "leaves_to_search": leaves,
            "matrix": matrix.identity,
            "content": manifest.content,
            "version": importlib.metadata.version("scann"),
        }
        return cls(
            canonical(identity), matrix, encoder, passages, settings, manifest, searcher, leaves
        )

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "q d"]:
        """Vectors of queries, float32."""
        return self.encoder.embed(texts)

    def vectors(self, rows: Sequence[int]) -> Float[np.ndarray, "n d"]:
        """Stored vectors of passages, float32."""
        return self.matrix.stored(rows).astype(np.float32)

    def search(self, vectors: Float[np.ndarray, "q d"], k: int) -> list[Ranking]:
        """Approximately the ``k`` best passages of each query (at most all).

        Raises:
          InputError: queries of the wrong shape or not finite, or ``k`` below 1.
        """
        queries = check_queries(vectors, k, self.matrix.dimension)
        search = functools.partial(self._search, k=min(k, len(self.matrix)))
        blocks = [queries[start : start + _BLOCK] for start in range(0, len(queries), _BLOCK)]
        if len(blocks) < 2:
            return [ranking for block in blocks for ranking in search(block)]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            return [ranking for found in threads.map(search, blocks) for ranking in found]

    def _search(self, queries: Float[np.ndarray, "q d"], k: int) -> list[Ranking]:
        rows = self._candidates(queries, k, self.leaves_to_search)
        few = np.flatnonzero((rows < 0).any(axis=1))
        if few.size:  # the leaves held fewer than k rows
            rows[few] = self._candidates(queries[few], k, self.settings.leaves or 1)
        return rank(self.matrix, queries, rows, metric=self.settings.metric).rankings(k)

    def _candidates(self, queries: Float[np.ndarray, "q d"], k: int, leaves: int) -> Any:
        """Rows that ScaNN finds for each query [q k]; -1 fills up where it finds fewer.

        Above some number of queries (18 in one index, 40 in another), ScaNN 1.4.2 visits leaves in
        another order, which decides ties between equal codes. So it always gets a full block.
        """
        padded = np.pad(queries, ((0, _BLOCK - len(queries)), (0, 0)), mode="edge")
        reorder = max(self.settings.reorder, 2 * k)
        rows, distances = self.searcher.search_batched(padded, k, reorder, leaves)
        return np.where(np.isnan(distances), -1, rows.astype(np.int64))[: len(queries)]


def is_trained(directory: Path, manifest: Manifest, settings: ScannSettings) -> bool:
    """Whether an undamaged index of the matrix in a directory is there."""
    settings = settings.resolved(manifest.settings["passages"]["count"])
    return state_of(_place(directory, manifest, settings)[0], KIND) == "built"


def _place(
    directory: Path, matrix: Manifest, settings: ScannSettings
) -> tuple[Path, dict[str, Any]]:
    """The folder of the index beside its matrix, and the manifest's settings of the index."""
    source = {"matrix": matrix.content, "training": dataclasses.asdict(settings)}
    return directory / f"scann-{digest(canonical(source))[:8]}", source


def _library() -> Any:
    """ScaNN's Python interface, imported lazily."""
    try:
        from scann.scann_ops.py import scann_ops_pybind
    except ImportError as error:
        raise InputError(
            f"ScaNN cannot be loaded here ({error}); it runs on Linux on x86-64 (pip install "
            "scann). The exact index runs everywhere."
        ) from error
    return scann_ops_pybind


def _train(matrix: Matrix, settings: ScannSettings) -> Any:
    vectors = matrix[:].astype(np.float32)
    inner = settings.metric == "inner_product"
    builder = _library().builder(vectors, 10, "dot_product" if inner else "squared_l2")
    builder = builder.set_n_training_threads(os.cpu_count() or 1)
    if not settings.leaves:
        return builder.score_brute_force().build()
    norms = np.linalg.norm(vectors, axis=1)
    builder = builder.tree(
        settings.leaves,
        max(1, settings.leaves // 10),
        training_sample_size=settings.training_rows,
        spherical=bool(np.abs(norms - 1).max() < 1e-2),
    )
    builder = builder.score_ah(
        settings.block,
        anisotropic_quantization_threshold=settings.anisotropy if inner else math.nan,
        training_sample_size=settings.training_rows,
    )
    return builder.reorder(settings.reorder).build()


@dataclasses.dataclass(frozen=True)
class Scann:
    """A ScaNN index, trained on first use.

    Attributes:
      encoder: encoder of queries and passages.
      metric: similarity of query and passage.
      leaves: number of partitions; 0 chooses by the corpus's size.
      leaves_to_search: number of partitions searched for a query; 0 chooses.
    """

    encoder: BiEncoder = BiEncoder()
    metric: Metric = "inner_product"
    leaves: int = 0
    leaves_to_search: int = 0

    gives_vectors = True

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Checkpoints of the encoder."""
        return self.encoder.checkpoints

    @property
    def name(self) -> str:
        """Encoder and kind of index, for tables."""
        return f"{short_name(self.encoder.checkpoint)}, ScaNN"

    def open(self, passages: Passages, cache: Path) -> Retriever:
        """Opens the index, encoding the corpus and training on first use."""
        directory, encoder = encoded_corpus(self.encoder, passages, cache)
        return ScannIndex.build(
            directory,
            encoder,
            passages,
            settings=self._settings(),
            leaves_to_search=self.leaves_to_search or None,
        )

    def build(self, passages: Passages, cache: Path, part: BuildPart) -> None:
        """Encodes the corpus, or one process's part of it, and trains once it is whole."""
        if part == WHOLE:
            self.open(passages, cache)
        else:
            encode_corpus(self.encoder, passages, cache, part)

    def footprint(self, passages: Passages) -> Footprint:
        """Vectors in float16, and the index: vectors in float32 and codes of a byte for four."""
        cells = len(passages) * self.encoder.dimension
        return Footprint(disk=13 * cells // 2, memory=17 * cells // 4)

    def status(self, passages: Passages, cache: Path) -> IndexStatus:
        """Whether the vectors are there and the index is trained on them."""
        vectors = Exact(self.encoder).status(passages, cache)
        directory = vectors.directory.absolute()
        if vectors.state == "built" and not is_trained(
            directory, read_manifest(directory, MATRIX), self._settings()
        ):
            return vectors._replace(state="its vectors are there; the run trains on them")
        return vectors

    def _settings(self) -> ScannSettings:
        return ScannSettings(metric=self.metric, leaves=self.leaves or None)
