"""ScaNN: approximate search over a matrix, for corpora too large to score in full.

Guo et al. (2020), "Accelerating Large-Scale Inference with Anisotropic Vector Quantization": a
tree of partitions picks some leaves, asymmetric hashing scores what is in them, and the best are
scored again. What is found gets its final score from the stored vectors (see `ranking`).
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
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from jaxrag.core import durable_files
from jaxrag.core.hashing import canonical
from jaxrag.retrieval.corpus import manifest as manifests
from jaxrag.retrieval.corpus.manifest import Manifest
from jaxrag.retrieval.dense.matrix import Matrix, open_matrix
from jaxrag.retrieval.dense.scann_training import (
    KIND,
    ScannSettings,
    folder_of,
    is_sound,
    scann_library,
    source_of,
    train,
)
from jaxrag.retrieval.rescoring import check_query, rank
from jaxrag.retrieval.retriever import TextEncoder
from jaxrag.types import InputError, Ranking

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages

_DEFAULTS = ScannSettings()
_SHARE = 1 / 8  # of the leaves are searched by default,
_SCANNED = 8_000  # and so many that they hold about as many rows
_BLOCK = 32  # queries that ScaNN gets together: see `ScannIndex._found`


@dataclasses.dataclass(frozen=True)
class ScannIndex:
    """A ScaNN index beside the matrix that it was trained on."""

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
        """Trains an index on the matrix in ``directory``, unless a sound one is there; opens it.

        The files go to a folder beside the matrix, one for each ``settings``; the folder appears
        when it is whole. Holds the matrix in float32 in memory while it trains.

        Args:
          directory: where ``build_matrix`` wrote the matrix.
          encoder: the encoder the matrix was made with.
          passages: the corpus it was made from.
          settings: how to train.
          leaves_to_search: see `open`.
          verify: see `open_matrix`.

        Raises:
          InputError: see `open_matrix`; settings out of range; a full disk.
        """
        matrix = open_matrix(directory, passages, encoder, verify=verify)
        settings = settings.resolved(len(matrix))
        source = source_of(matrix, settings)
        folder = folder_of(matrix, source)
        with durable_files.exclusive_directory(matrix.directory):
            if not is_sound(folder):
                train(matrix, settings, source, folder)
        return cls.open(
            directory,
            encoder,
            passages,
            settings=settings,
            leaves_to_search=leaves_to_search,
            verify=verify,
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
        """Opens what ``build`` trained with the same settings.

        ``leaves_to_search`` trades speed for recall; None searches an eighth of the leaves, more
        where that would be under 8,000 rows. The recall depends on the data: where neighbours
        are close it is 0.98 and more, but on questions to 9,000 Wikipedia passages that mostly
        held no answer (all-MiniLM-L6-v2), 8 % of the leaves held 0.74 of the 10 best and
        half of them 0.97. So compare with `ExactIndex` on some queries of yours.

        Raises:
          InputError: see `open_matrix`; no such index, or it is damaged or belongs to a matrix
            that has changed.
        """
        matrix = open_matrix(directory, passages, encoder, verify=verify)
        settings = settings.resolved(len(matrix))
        source = source_of(matrix, settings)
        folder = folder_of(matrix, source)
        manifest = manifests.read_manifest(folder, KIND)
        manifests.check_settings(folder, manifest.settings, source)
        manifests.check_files(folder, manifest, verify=verify)
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
        searcher = scann_library().load_searcher(
            str(folder)
        )  # absolute: 1.4.2 doubles a relative path
        return cls(matrix, encoder, passages, settings, manifest, searcher, leaves)

    @property
    def identity(self) -> str:
        """Canonical JSON of settings, matrix, and the hash of the trained files."""
        return canonical(
            {
                "scann": dataclasses.asdict(self.settings),
                "leaves_to_search": self.leaves_to_search,
                "matrix": self.matrix.identity,
                "content": self.manifest.content,
                "version": importlib.metadata.version("scann"),
            }
        )

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "q d"]:
        """Vectors of queries, float32."""
        return self.encoder.embed(texts)

    def vectors(self, rows: Sequence[int]) -> Float[np.ndarray, "n d"]:
        """Stored vectors of passages, float32."""
        return self.matrix.stored(rows).astype(np.float32)

    def search(self, vectors: Float[np.ndarray, "q d"], k: int) -> list[Ranking]:
        """About the ``k`` best passages of each query (all where ``k`` exceeds the corpus).

        Raises:
          InputError: queries of the wrong shape or not finite, or ``k`` below 1.
        """
        queries = check_query(vectors, k, self.matrix.dimension)
        search = functools.partial(self._search, k=min(k, len(self.matrix)))
        blocks = [queries[start : start + _BLOCK] for start in range(0, len(queries), _BLOCK)]
        if len(blocks) < 2:
            return [ranking for block in blocks for ranking in search(block)]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            return [ranking for found in threads.map(search, blocks) for ranking in found]

    def _search(self, queries: Float[np.ndarray, "q d"], k: int) -> list[Ranking]:
        rows = self._found(queries, k, self.leaves_to_search)
        few = np.flatnonzero((rows < 0).any(axis=1))
        if few.size:  # the leaves held fewer than k rows
            rows[few] = self._found(queries[few], k, self.settings.leaves or 1)
        return rank(self.matrix, queries, rows, metric=self.settings.metric).rankings(k)

    def _found(self, queries: Float[np.ndarray, "q d"], k: int, leaves: int) -> Any:
        """Rows that ScaNN finds for each query [q k], -1 where it finds fewer.

        From some number of queries on (18 in one index, 40 in another), ScaNN 1.4.2 visits leaves
        in another order, which settles ties between equal codes. So it always gets a full block.
        """
        padded = np.pad(queries, ((0, _BLOCK - len(queries)), (0, 0)), mode="edge")
        reorder = max(self.settings.reorder, 2 * k)
        rows, distances = self.searcher.search_batched(padded, k, reorder, leaves)
        return np.where(np.isnan(distances), -1, rows.astype(np.int64))[: len(queries)]
