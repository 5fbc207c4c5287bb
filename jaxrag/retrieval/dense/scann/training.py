"""Training of a tree on a sample of the rows: k-means of its leaves, then of its codes.

ScaNN's own holds the distances of all sampled rows to all leaves (43 GB for 21 million passages),
takes no seed for its first centers and lets threads race.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrag.core.progress import progress
from jaxrag.functional.quantization import block_sums, center_sums
from jaxrag.retrieval.dense.matrix import Matrix

BATCH = 4096  # rows on the device at a time
_ROUNDS, _LAST = 12, 3  # of k-means; in the last, small leaves stay
_SMALL = 1 / 8  # of the mean number of rows: smaller leaves begin anew
_CODE_ROWS, _CODE_ROUNDS, _CODES = 8 * BATCH, 12, 16

Sums = Callable[[Array, Array, Array], tuple[Array, Array]]
"""Sums and counts of the weighted rows of a batch by center."""


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
    least = _SMALL * len(vectors) / leaves
    with progress(_ROUNDS, "training leaves, rounds") as advance:
        for number in range(_ROUNDS):
            sums, counts = _total(center_sums, vectors, centers)
            wanted = least if number < _ROUNDS - _LAST else 1
            centers = np.where(counts[:, None] > 0, sums / counts.clip(1)[:, None], centers)
            small = np.flatnonzero(counts < wanted)
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
    centers = targets[rng.choice(len(targets), _CODES, replace=False)].swapaxes(0, 1)
    for _ in range(_CODE_ROUNDS):
        sums, counts = _total(block_sums, targets, centers)
        centers = np.where(counts[..., None] > 0, sums / counts.clip(1)[..., None], centers)
    return centers.astype(np.float32)


def _total(
    sums_of: Sums, rows: Float[np.ndarray, "n ..."], centers: Float[np.ndarray, "... d"]
) -> tuple[np.ndarray, np.ndarray]:
    """Sums and counts of all rows by center."""
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
