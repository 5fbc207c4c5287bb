"""The trained part of a ScaNN index: centers of the leaves and of the codes.

Both come from k-means on a sample of the rows. ScaNN's own training holds the distances of all
sampled rows to all leaves (43 GB for 21 million passages), takes no seed for its first centers and
lets threads race. Rows are assigned to leaves and coded chunk by chunk, so a corpus never is in
memory. All is written as ScaNN 1.4.2 writes it, which searches it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxrag.core.progress import progress
from jaxrag.functional.quantization import (
    anisotropic_codes,
    anisotropic_weight,
    block_sums,
    center_sums,
    nearest_center,
)
from jaxrag.retrieval.dense.matrix import Matrix, Metric, check_metric
from jaxrag.types import InputError

_CONFIG, _LEAVES, _CODES = "scann_config.pb", "serialized_partitioner.pb", "ah_codebook.pb"
BATCH = 4096  # rows on the device at a time
_ROUNDS, _LAST = 12, 3  # of k-means; in the last, small leaves stay
_SMALL_LEAF = 1 / 8  # of the mean number of rows: smaller leaves begin anew
_CODE_ROWS, _CODE_ROUNDS, _CENTERS = 8 * BATCH, 12, 16
_SMALL = 20_000  # up to so many rows, scoring all of them is fast
_FEW = 16  # with fewer rows, ScaNN cannot train its codes


@dataclasses.dataclass(frozen=True)
class ScannSettings:
    """Settings of an index's training.

    Attributes:
      leaves: partitions of the tree; None: 4 sqrt(n), or 0 up to 20,000 rows. 0 scores all rows in
        float32, held in memory, as does any number with fewer than 16 rows.
      training_rows: number of rows that the tree and the codes are trained on, held in memory; None
        is 32 a leaf, at least 250,000.
      block: dimensions that share a code of 4 bits.
      anisotropy: threshold T of the paper's loss; for inner products only.
      reorder: number of the best by code that are scored by vector, unless k needs more.
      shard_rows: rows of one file of codes, which is one searcher of ScaNN's.
    """

    metric: Metric = "inner_product"
    leaves: int | None = None
    training_rows: int | None = None
    block: int = 2
    anisotropy: float = 0.2
    reorder: int = 64
    shard_rows: int = 4_000_000

    def resolved(self, rows: int) -> ScannSettings:
        """The settings for a corpus of this size, without None; InputError for invalid ones."""
        check_metric(self.metric)
        numbers = (self.training_rows or 1, self.block, self.reorder, self.shard_rows)
        if (self.leaves or 0) < 0 or min(numbers) < 1 or self.training_rows == 0:
            raise InputError(f"leaves must be at least 0 and the other numbers at least 1: {self}")
        leaves = self.leaves
        if leaves is None:
            leaves = 0 if rows <= _SMALL else round(4 * math.sqrt(rows))
        leaves = 0 if rows < _FEW else min(leaves, rows)
        training = min(self.training_rows or max(250_000, 32 * leaves), rows)
        return dataclasses.replace(self, leaves=leaves, training_rows=max(training, leaves))


@dataclasses.dataclass(frozen=True)
class Tree:
    """A trained tree with the centers of its codes, 16 of each block of dimensions."""

    directory: Path
    settings: ScannSettings
    leaf_centers: Float[np.ndarray, "l d"]
    code_centers: Float[np.ndarray, "m 16 s"]

    @classmethod
    def open(cls, directory: Path, settings: ScannSettings) -> Tree:
        """Reads the files of `write_tree`."""
        partitioner_pb2, centers_pb2, _ = _messages()
        partitioner = partitioner_pb2.SerializedPartitioner()
        partitioner.ParseFromString((directory / _LEAVES).read_bytes())
        leaves = [center.dimension for center in partitioner.kmeans.kmeans_tree.root.centers]
        books = centers_pb2.CentersForAllSubspaces()
        books.ParseFromString((directory / _CODES).read_bytes())
        codes = [[c.feature_value_float for c in book.center] for book in books.subspace_centers]
        width = len(codes[0][0])
        for center in codes[-1]:  # the last block may have fewer dimensions
            center.extend([0.0] * (width - len(center)))
        return cls(directory, settings, np.array(leaves, np.float32), np.array(codes, np.float32))

    def leaves(self, vectors: Float[np.ndarray, "n d"]) -> Int[np.ndarray, "n 1"]:
        """The leaf of each vector, that with the nearest center."""
        leaves = _in_batches(_leaves, (vectors,), self._centers[0])
        return leaves.astype(np.int32)[:, None]

    def codes(
        self, vectors: Float[np.ndarray, "n d"], leaves: Int[np.ndarray, "n 1"]
    ) -> Int[np.ndarray, "n m"]:
        """The codes of vectors in their leaves, uint8, each below 16."""
        inner = self.settings.metric == "inner_product"
        code = functools.partial(_codes, threshold=self.settings.anisotropy, residual=inner)
        return _in_batches(code, (vectors, leaves[:, 0]), *self._centers).astype(np.uint8)

    @functools.cached_property
    def _centers(self) -> tuple[Array, Array]:
        return jnp.asarray(self.leaf_centers), jnp.asarray(self.code_centers)

    def searcher(self, leaves: Path, codes: Path) -> Any:
        """ScaNN's searcher of the rows whose leaves and codes are in two files."""
        assets = {
            "AH_CENTERS": self.directory / _CODES,
            "PARTITIONER": self.directory / _LEAVES,
            "TOKENIZATION_NPY": leaves,
            "AH_DATASET_NPY": codes,
        }
        text = "".join(
            f'assets {{ asset_type: {kind} asset_path: "{path}" }}\n'
            for kind, path in assets.items()
        )
        # ScaNN's own load_searcher would unpickle what lies beside the files
        return library().scann_pybind.ScannNumpy(str(self.directory), text)


def library() -> Any:
    """ScaNN's Python interface, imported lazily."""
    try:
        from scann.scann_ops.py import scann_ops_pybind
    except ImportError as error:
        raise InputError(
            f"ScaNN cannot be loaded here ({error}); it runs on Linux on x86-64 (pip install "
            "scann). The exact index runs everywhere."
        ) from error
    return scann_ops_pybind


def _messages() -> tuple[Any, Any, Any]:
    """The modules of ScaNN's messages: of leaves, of codes and of settings."""
    from scann.partitioning import partitioner_pb2
    from scann.proto import centers_pb2, scann_pb2

    return partitioner_pb2, centers_pb2, scann_pb2


def train(matrix: Matrix, settings: ScannSettings, directory: Path) -> None:
    """Trains a tree on a sample of the rows and writes its files into a new directory.

    Memory: the sample in float32, twice.
    """
    vectors = sample(matrix, settings.training_rows or len(matrix))
    spherical = bool(np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-2)
    leaves = train_leaves(vectors, settings.leaves or 1, spherical=spherical)
    if settings.metric == "inner_product":
        nearest = _in_batches(_leaves, (vectors,), jnp.asarray(leaves))
        vectors -= leaves[nearest]
    codes = train_codes(_blocks(vectors, settings.block))
    write_tree(directory, settings, leaves, codes, spherical=spherical)


def sample(matrix: Matrix, rows: int) -> Float[np.ndarray, "n d"]:
    """Rows drawn by a fixed seed, in their order; float32."""
    if rows >= len(matrix):
        return matrix[:].astype(np.float32)
    drawn = np.sort(np.random.default_rng(0).choice(len(matrix), rows, replace=False))
    vectors = np.empty((rows, matrix.dimension), np.float32)
    for start in range(0, rows, BATCH):
        vectors[start : start + BATCH] = matrix.stored(drawn[start : start + BATCH])
    return vectors


def train_leaves(
    vectors: Float[np.ndarray, "n d"], leaves: int, *, spherical: bool
) -> Float[np.ndarray, "l d"]:
    """Centers of ``leaves`` clusters, at most as many as vectors; unit length if ``spherical``."""
    rng = np.random.default_rng(1)
    centers = vectors[rng.choice(len(vectors), leaves, replace=False)]
    least = _SMALL_LEAF * len(vectors) / leaves
    with progress(_ROUNDS, "training leaves, rounds") as advance:
        for number in range(_ROUNDS):
            sums, counts = _total(center_sums, vectors, centers)
            fewest = least if number < _ROUNDS - _LAST else 1
            centers = np.where(counts[:, None] > 0, sums / counts.clip(1)[:, None], centers)
            small = np.flatnonzero(counts < fewest)
            if number < _ROUNDS - _LAST:
                centers[small] = vectors[rng.choice(len(vectors), small.size)]
            if spherical:
                lengths = np.linalg.norm(centers, axis=1, keepdims=True)
                centers = np.where(lengths > 0, centers / np.where(lengths > 0, lengths, 1), 0)
            advance(1)
    return centers.astype(np.float32)


def train_codes(targets: Float[np.ndarray, "n m s"]) -> Float[np.ndarray, "m 16 s"]:
    """16 centers of each block of dimensions, from at most 32,768 of the targets."""
    rng = np.random.default_rng(2)
    if len(targets) > _CODE_ROWS:
        targets = targets[np.sort(rng.choice(len(targets), _CODE_ROWS, replace=False))]
    centers = targets[rng.choice(len(targets), _CENTERS, replace=False)].swapaxes(0, 1)
    for _ in range(_CODE_ROUNDS):
        sums, counts = _total(block_sums, targets, centers)
        centers = np.where(counts[..., None] > 0, sums / counts.clip(1)[..., None], centers)
    return centers.astype(np.float32)


def _total(
    sums_of: Callable[[Array, Array, Array], tuple[Array, Array]],
    rows: Float[np.ndarray, "n ..."],
    centers: Float[np.ndarray, "... d"],
) -> tuple[np.ndarray, np.ndarray]:
    """Sums and counts of all rows by center; ``sums_of`` gives those of a weighted batch."""
    on_device = jnp.asarray(centers, jnp.float32)
    sums, counts = np.zeros(centers.shape), np.zeros(centers.shape[:-1])
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        weights = np.zeros(BATCH, np.float32)
        weights[: len(batch)] = 1
        padded = np.zeros((BATCH, *rows.shape[1:]), np.float32)
        padded[: len(batch)] = batch
        added = sums_of(jnp.asarray(padded), jnp.asarray(weights), on_device)
        sums += np.asarray(added[0])
        counts += np.asarray(added[1])
    return sums, counts


def write_tree(
    directory: Path,
    settings: ScannSettings,
    leaf_centers: Float[np.ndarray, "l d"],
    code_centers: Float[np.ndarray, "m c s"],
    *,
    spherical: bool,
) -> None:
    """Writes a tree into a new directory in ScaNN's form."""
    from google.protobuf import text_format

    partitioner_pb2, centers_pb2, scann_pb2 = _messages()
    inner, dimension = settings.metric == "inner_product", leaf_centers.shape[1]
    builder = library().builder(leaf_centers, 10, "dot_product" if inner else "squared_l2")
    builder = builder.tree(len(leaf_centers), 1, spherical=spherical)
    threshold = settings.anisotropy if inner else math.nan
    builder = builder.score_ah(settings.block, anisotropic_quantization_threshold=threshold)
    config = text_format.Parse(builder.create_config(), scann_pb2.ScannConfig())
    partitioner = partitioner_pb2.SerializedPartitioner(n_tokens=len(leaf_centers))
    root = partitioner.kmeans.kmeans_tree.root
    root.leaf_id, root.learned_spilling_threshold = -1, math.nan
    for number, center in enumerate(leaf_centers):
        root.centers.add().dimension.extend(center.tolist())
        root.children.add(leaf_id=number, learned_spilling_threshold=math.nan)
    partitioner.kmeans.kmeans_tree.learned_spilling_type = 0
    books = centers_pb2.CentersForAllSubspaces(quantization_scheme=0)
    for number, block in enumerate(code_centers):
        book = books.subspace_centers.add()
        width = min(settings.block, dimension - number * settings.block)
        for center in block[:, :width].tolist():
            book.center.add(feature_type=2).feature_value_float.extend(center)
    directory.mkdir()
    for name, message in ((_CONFIG, config), (_LEAVES, partitioner), (_CODES, books)):
        (directory / name).write_bytes(message.SerializeToString(deterministic=True))


def brute_force(vectors: Float[np.ndarray, "n d"], metric: Metric) -> Any:
    """ScaNN's searcher that scores every row in float32."""
    distance = "dot_product" if metric == "inner_product" else "squared_l2"
    builder = library().builder(vectors.astype(np.float32), 10, distance)
    return builder.score_brute_force().build().searcher


def _blocks(vectors: Float[np.ndarray, "n d"], width: int) -> Float[np.ndarray, "n m s"]:
    """The vectors cut into blocks of dimensions, with zeros after the last."""
    short = -vectors.shape[1] % width
    return np.pad(vectors, ((0, 0), (0, short))).reshape(len(vectors), -1, width)


def _in_batches(function: Any, arrays: tuple[np.ndarray, ...], *centers: Array) -> np.ndarray:
    """A function of rows, applied to padded batches of one size: results do not depend on it."""
    parts = []
    for start in range(0, len(arrays[0]), BATCH):
        batch = [array[start : start + BATCH] for array in arrays]
        rows = len(batch[0])
        padded = [np.pad(b, [(0, BATCH - rows)] + [(0, 0)] * (b.ndim - 1)) for b in batch]
        parts.append(np.asarray(function(*padded, *centers))[:rows])
    return np.concatenate(parts)


@jax.jit
def _leaves(vectors: Float[Array, "n d"], centers: Float[Array, "l d"]) -> Int[Array, " n"]:
    return nearest_center(vectors.astype(jnp.float32), centers)


@functools.partial(jax.jit, static_argnames=("threshold", "residual"))
def _codes(
    vectors: Float[Array, "n d"],
    leaves: Int[Array, " n"],
    leaf_centers: Float[Array, "l d"],
    code_centers: Float[Array, "m c s"],
    *,
    threshold: float,
    residual: bool,
) -> Int[Array, "n m"]:
    """Codes of the vectors' differences from their leaves' centers, or of the vectors."""
    vectors = vectors.astype(jnp.float32)
    squares = jnp.sum(vectors**2, axis=1)
    directions = vectors / jnp.where(squares > 0, jnp.sqrt(squares), 1)[:, None]
    if residual:
        targets, weights = (
            vectors - leaf_centers[leaves],
            anisotropic_weight(squares, vectors.shape[1], threshold),
        )
    else:
        targets, weights = vectors, jnp.zeros_like(squares)
    blocks, _, width = code_centers.shape
    tail = ((0, 0), (0, blocks * width - vectors.shape[1]))
    targets, directions = (
        jnp.pad(array, tail).reshape(-1, blocks, width) for array in (targets, directions)
    )
    return anisotropic_codes(targets, directions, weights, code_centers)
