"""ScaNN: approximate search over a matrix, for corpora too large to score in full.

Guo et al. (2020), "Accelerating Large-Scale Inference with Anisotropic Vector Quantization": a tree
of partitions selects some leaves, asymmetric hashing scores their rows, and the best are scored
again with their vectors, which are read from the matrix on disk.

Training and codes depend on nothing but the matrix and the settings, as far as the machine's
float32 arithmetic does; an index's identity contains the hash of its files.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxrag.core.hashing import canonical, digest
from jaxrag.models.checkpoint.files import short_name
from jaxrag.retrieval.corpus import manifest as manifests
from jaxrag.retrieval.corpus.builds import (
    WHOLE,
    BuildPart,
    ShardedRows,
    build_arrays,
    build_folder,
    by_chunks,
)
from jaxrag.retrieval.corpus.manifest import Manifest, read_manifest, state_of
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.dense.exact import Exact, ExactIndex, MatrixIndex, encode_corpus
from jaxrag.retrieval.dense.matrix import KIND as MATRIX
from jaxrag.retrieval.dense.matrix import Matrix, Metric, open_matrix, rank
from jaxrag.retrieval.dense.scann import recall as recalls
from jaxrag.retrieval.dense.scann.recall import Recall
from jaxrag.retrieval.dense.scann.searchers import SPARE, Searchers
from jaxrag.retrieval.dense.scann.tree import ScannSettings, Tree, brute_force, library, train
from jaxrag.retrieval.retriever import QueryEncoder, Retriever, check_queries
from jaxrag.retrieval.settings import Footprint, IndexStatus
from jaxrag.types import InputError, Ranking

TREE, LEAVES, CODES = "tree", "leaves", "codes"
_log = logging.getLogger("jaxrag")
_DEFAULTS = ScannSettings()
_RECALL = 0.95
_EXACT_MEMORY = 1 << 30  # bytes of vectors on the devices while recall is measured


@dataclasses.dataclass(frozen=True)
class ScannIndex(MatrixIndex):
    """A ScaNN index beside the matrix that it was trained on.

    Attributes:
      content: hash of the index's files; "" if it has none, since every row is scored.
      searchers: ScaNN's.
      leaves_to_search: of the tree's leaves.
    """

    identity: str
    matrix: Matrix
    encoder: QueryEncoder
    passages: Passages
    settings: ScannSettings
    content: str
    searchers: Searchers
    leaves_to_search: int

    @classmethod
    def open(
        cls,
        directory: str | Path,
        encoder: QueryEncoder,
        passages: Passages,
        *,
        settings: ScannSettings = _DEFAULTS,
        leaves_to_search: int | None = None,
        recall: float = _RECALL,
        made_by: str | None = None,
        verify: bool | None = None,
    ) -> ScannIndex:
        """Opens the index of the matrix in ``directory``, building what is missing or damaged.

        The files go to a folder beside the matrix, one for each ``settings``: a tree trained on a
        sample, then each row's leaf and code. InputError as `open_matrix`, for settings out of
        range, or a full disk.

        Args:
          directory: see `open_matrix`, also of ``passages``, ``made_by`` and ``verify``; the last
            is of the index's own files, too.
          encoder: of queries.
          settings: of the training.
          leaves_to_search: trades speed for recall; None: the fewest that reach ``recall``.
          recall: recall@10 that the default number of leaves reaches, measured once, see
            `jaxrag.retrieval.dense.scann.recall`.
        """
        matrix = open_matrix(directory, passages, encoder, made_by=made_by, verify=verify)
        settings = settings.resolved(len(matrix))
        if leaves_to_search is not None and leaves_to_search < 1:
            raise InputError(f"leaves_to_search must be at least 1, not {leaves_to_search}")
        if not 0 < recall <= 1:
            raise InputError(f"recall must be above 0 and at most 1, not {recall}")
        parts = matrix, encoder, passages, settings
        if not settings.leaves:
            every_row = brute_force(matrix[:], settings.metric)
            searchers = Searchers((every_row,), (len(matrix),), settings.metric)
            return cls("", *parts, "", searchers, 1)._searching(1)
        files = _Files.beside(matrix.directory, matrix.manifest, settings)
        files.build(matrix, verify=verify)
        every = cls("", *parts, *files.searchers(), settings.leaves)
        if leaves_to_search is None:
            leaves_to_search = _fewest_leaves(every, files.folder, recall)
        return every._searching(min(leaves_to_search, settings.leaves))

    def _searching(self, leaves: int) -> ScannIndex:
        """The index that searches so many leaves."""
        identity = {
            "scann": dataclasses.asdict(self.settings),
            "leaves_to_search": leaves,
            "matrix": self.matrix.identity,
            "content": self.content,
            "version": importlib.metadata.version("scann"),
        }
        return dataclasses.replace(self, identity=canonical(identity), leaves_to_search=leaves)

    def search(self, vectors: Float[np.ndarray, "q d"], k: int) -> list[Ranking]:
        """Approximately the ``k`` best passages of each query; InputError as `check_queries`."""
        queries = check_queries(vectors, k, self.matrix.dimension)
        if not len(queries):
            return []
        k = min(k, len(self.matrix))
        count = max(self.settings.reorder - SPARE, 2 * k)
        rows = self.searchers.candidates(queries, count, self.leaves_to_search)
        few = np.flatnonzero((rows >= 0).sum(axis=1) < k)
        if few.size:  # the leaves held fewer than k rows
            more = self.searchers.candidates(queries[few], count, self.settings.leaves or 1)
            width = max(rows.shape[1], more.shape[1])
            rows, more = (
                np.pad(a, ((0, 0), (0, width - a.shape[1])), constant_values=-1)
                for a in (rows, more)
            )
            rows[few] = more
        return rank(self.matrix, queries, rows, metric=self.settings.metric).rankings(k)


@dataclasses.dataclass(frozen=True)
class _Files:
    """The files of an index: a tree, and the leaf and the code of every row.

    ``source``: manifest settings, of the matrix and of the training.
    """

    folder: Path
    source: dict[str, Any]
    rows: int
    settings: ScannSettings

    @classmethod
    def beside(cls, directory: Path, matrix: Manifest, settings: ScannSettings) -> _Files:
        source = {"matrix": matrix.content, "training": dataclasses.asdict(settings)}
        folder = directory / f"scann-{digest(canonical(source))[:8]}"
        return cls(folder, source, matrix.settings["passages"]["count"], settings)

    def state(self, *, verify: bool | None = None) -> str:
        """As `state_of`, of all files."""
        parts = (TREE, LEAVES, CODES)
        states = [state_of(self.folder / part, _kind(part), verify=verify) for part in parts]
        return next((state for state in states if state != "built"), "built")

    def _manifest(self, part: str) -> Manifest:
        """The manifest of some of the files; InputError as `open_manifest`."""
        return manifests.open_manifest(
            self.folder / part, _kind(part), self._source(part), verify=False
        )

    def _source(self, part: str) -> dict[str, Any]:
        if part == TREE:
            return self.source
        tree = read_manifest(self.folder / TREE, _kind(TREE)).content
        layout = {"shard_rows": self.settings.shard_rows, "passages": {"count": self.rows}}
        return self.source | {"tree": tree} | layout

    def build(self, matrix: Matrix, *, verify: bool | None) -> None:
        """Builds what is missing or damaged."""
        if self.state(verify=verify) == "built":
            return

        def save(unfinished: Path) -> None:
            for part in (LEAVES, CODES):  # of another tree
                shutil.rmtree(self.folder / part, ignore_errors=True)
            (self.folder / recalls.NAME).unlink(missing_ok=True)
            train(matrix, self.settings, unfinished)

        build_folder(self.folder / TREE, _kind(TREE), self.source, save)
        tree = Tree.open(self.folder / TREE, self.settings)
        self._rows(LEAVES, lambda rows: tree.leaves(matrix[rows.start : rows.stop]), 1, "int32")
        leaves = ShardedRows.open(self.folder / LEAVES, self._manifest(LEAVES))

        def codes(rows: range) -> np.ndarray:
            return tree.codes(matrix[rows.start : rows.stop], leaves.take(rows))

        self._rows(CODES, codes, len(tree.code_centers), "uint8")

    def _rows(self, part: str, make: Any, width: int, dtype: str) -> None:
        build_arrays(
            self.folder / part,
            self._source(part),
            by_chunks(make),
            kind=_kind(part),
            stem=part,
            width=width,
            dtype=dtype,
            label=f"computing {part}",
        )

    def searchers(self) -> tuple[str, Searchers]:
        """The hash of all files, and ScaNN's searchers of them."""
        parts = {part: self._manifest(part) for part in (TREE, LEAVES, CODES)}
        tree = Tree.open(self.folder / TREE, self.settings)
        names = [[file.name for file in sorted(parts[part].files)] for part in (LEAVES, CODES)]
        shards = tuple(
            tree.searcher(self.folder / LEAVES / leaves, self.folder / CODES / codes)
            for leaves, codes in zip(*names, strict=True)
        )
        size = self.settings.shard_rows
        sizes = tuple(min(size, self.rows - start) for start in range(0, self.rows, size))
        content = digest(*(manifest.content for manifest in parts.values()))
        return content, Searchers(shards, sizes, self.settings.metric)


def _kind(part: str) -> str:
    return f"scann {part}"


def _fewest_leaves(index: ScannIndex, folder: Path, target: float) -> int:
    """The fewest leaves to search that reach a recall; all where none does.

    What is measured is kept in the index's folder.
    """
    before, every = Recall.read(folder), index.leaves_to_search
    if leaves := before.leaves(target):
        return leaves
    exact = ExactIndex.open(
        index.matrix.directory,
        index.encoder,
        index.passages,
        metric=index.settings.metric,
        memory=_EXACT_MEMORY,
        made_by=canonical(index.matrix.identity["encoder"]),
        verify=False,
    )

    def search(queries: np.ndarray, leaves: int) -> list[tuple[int, ...]]:
        few = dataclasses.replace(index, leaves_to_search=leaves)
        return [ranking.ids for ranking in few.search(queries, recalls.NEIGHBOURS)]

    measured = recalls.measure(exact, search, leaves=every, target=target, old=before)
    measured.write(folder)
    leaves = measured.leaves(target)
    if leaves is None:
        best = max(measured.of_leaves.values())
        _log.warning(
            "ScaNN's recall@10 reaches %.3f of %.3f with all %d leaves searched: set a larger "
            "reorder or a smaller recall",
            *(best, target, every),
        )
        return every
    return leaves


def scann_footprint(rows: int, dimension: int, settings: ScannSettings) -> Footprint:
    """Vectors in float16 on disk, and codes: on disk a byte each, in memory half a byte.

    While an index is opened, memory also holds the codes of a shard as on disk.
    """
    settings = settings.resolved(rows)
    if not settings.leaves:
        return Footprint(disk=2 * rows * dimension, memory=4 * rows * dimension)
    codes = -(-dimension // settings.block)
    coded = rows * codes // 2 + min(rows, settings.shard_rows) * codes
    return Footprint(
        disk=rows * (2 * dimension + codes + 4),
        memory=coded + settings.leaves * dimension * 8,
        note="each search reads some vectors from disk",
    )


@dataclasses.dataclass(frozen=True)
class Scann:
    """A ScaNN index, trained on first use.

    Attributes:
      encoder: encoder of queries and passages.
      metric: similarity of query and passage.
      leaves: number of partitions; 0 chooses by the corpus's size.
      leaves_to_search: number of partitions searched for a query; 0 chooses by ``recall``.
      recall: share of the 10 nearest passages that the default number of partitions finds, see
        `jaxrag.retrieval.dense.scann.recall`.
    """

    encoder: BiEncoder = BiEncoder()
    metric: Metric = "inner_product"
    leaves: int = 0
    leaves_to_search: int = 0
    recall: float = _RECALL

    gives_vectors = True

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Checkpoints of the encoder."""
        return self.encoder.checkpoints

    @property
    def name(self) -> str:
        """Encoder and kind of index, for tables."""
        return f"{short_name(self.encoder.checkpoint)}, ScaNN"

    def require(self) -> None:
        """Raises InputError if ScaNN cannot be loaded on this machine."""
        library()

    def open(self, passages: Passages, cache: Path) -> Retriever:
        """Opens the index, encoding the corpus and training on first use."""
        directory, encoder = encode_corpus(self.encoder, passages, cache)
        return ScannIndex.open(
            directory,
            encoder,
            passages,
            settings=self._settings(),
            leaves_to_search=self.leaves_to_search or None,
            recall=self.recall,
        )

    def build(self, passages: Passages, cache: Path, part: BuildPart) -> None:
        """Encodes the corpus, or one process's part of it, and trains once it is whole."""
        if part == WHOLE:
            self.open(passages, cache)
        else:
            encode_corpus(self.encoder, passages, cache, part)

    def footprint(self, passages: Passages) -> Footprint:
        """What the index takes, see `scann_footprint`."""
        return scann_footprint(len(passages), self.encoder.dimension, self._settings())

    def status(self, passages: Passages, cache: Path) -> IndexStatus:
        """Whether the vectors are there and the index is trained on them."""
        vectors = Exact(self.encoder).status(passages, cache)
        directory = vectors.directory.absolute()
        settings = self._settings().resolved(len(passages))
        if vectors.state == "built" and settings.leaves:
            files = _Files.beside(directory, read_manifest(directory, MATRIX), settings)
            if files.state() != "built":
                return vectors._replace(state="its vectors are there; the run trains on them")
        return vectors

    def _settings(self) -> ScannSettings:
        return ScannSettings(metric=self.metric, leaves=self.leaves or None)
