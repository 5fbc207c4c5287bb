"""Training a ScaNN index on a matrix, and where its files lie.

Training is not reproducible bit for bit: ScaNN 1.4.2 takes no seed for its first centres, and its
threads race. So an index's identity holds the hash of its files.
"""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from jaxrag.core import durable_files
from jaxrag.core.hashing import canonical, digest
from jaxrag.retrieval.corpus import manifest as manifests
from jaxrag.retrieval.corpus.manifest import Manifest
from jaxrag.retrieval.dense.matrix import Matrix
from jaxrag.retrieval.rescoring import Metric
from jaxrag.types import InputError

KIND = "scann"
_SMALL = 20_000  # up to here, scoring all rows is fast, and exact
_FEW = 16  # with fewer rows, ScaNN cannot train its codes


@dataclasses.dataclass(frozen=True)
class ScannSettings:
    """How an index is trained.

    Attributes:
      metric: how passages are scored, <q, p> or -|q - p|^2.
      leaves: partitions of the tree; None: 2 sqrt(n), or 0 up to 20,000 rows. 0 scores all
        rows, and so does any number below 16 rows.
      training_rows: how many rows the tree and the codes are trained on.
      block: how many dimensions share a code of 4 bits.
      anisotropy: threshold T of the paper's loss; for inner products only.
      reorder: how many of the best by code are scored by vector, unless k needs more.
    """

    metric: Metric = "inner_product"
    leaves: int | None = None
    training_rows: int = 250_000
    block: int = 2
    anisotropy: float = 0.2
    reorder: int = 64

    def resolved(self, rows: int) -> ScannSettings:
        """The same for a corpus of this size, with every choice made."""
        if self.metric not in ("inner_product", "l2"):
            raise InputError(f"metric must be 'inner_product' or 'l2', not {self.metric!r}")
        if (self.leaves or 0) < 0 or min(self.training_rows, self.block, self.reorder) < 1:
            raise InputError(f"leaves must be at least 0 and the other numbers at least 1: {self}")
        leaves = self.leaves
        if leaves is None:
            leaves = 0 if rows <= _SMALL else round(2 * math.sqrt(rows))
        leaves = 0 if rows < _FEW else min(leaves, rows)
        sizes = {"leaves": leaves, "training_rows": min(self.training_rows, rows)}
        return dataclasses.replace(self, **sizes)


def scann_library() -> Any:
    """ScaNN's Python interface, imported when it is needed."""
    try:
        from scann.scann_ops.py import scann_ops_pybind
    except ImportError as error:
        raise InputError(
            f"ScaNN cannot be loaded here ({error}); it runs on Linux on x86-64 (pip install "
            "scann). The exact index runs everywhere."
        ) from error
    return scann_ops_pybind


def source_of(matrix: Matrix, settings: ScannSettings) -> dict[str, Any]:
    """What an index is made from, for its manifest."""
    return {"matrix": matrix.manifest.content, "training": dataclasses.asdict(settings)}


def folder_of(matrix: Matrix, source: dict[str, Any]) -> Path:
    """Where the index made from this lies: a folder beside the matrix."""
    return matrix.directory / f"scann-{digest(canonical(source))[:8]}"


def is_sound(folder: Path) -> bool:
    """Whether a finished, undamaged index lies in the folder."""
    try:
        manifest = manifests.read_manifest(folder, KIND)
        manifests.check_files(folder, manifest, verify=None)
    except InputError:
        return False
    return True


def train(matrix: Matrix, settings: ScannSettings, source: dict[str, Any], folder: Path) -> None:
    """Trains an index; the folder appears, in place of an older one, when it is whole."""
    unfinished = folder.with_name(folder.name + ".new")
    for old in (folder, unfinished):
        shutil.rmtree(old, ignore_errors=True)
    searcher = _searcher(matrix, settings)
    with durable_files.explain_full_disk(matrix.directory):
        unfinished.mkdir()
        searcher.serialize(str(unfinished), relative_path=True)
        files = []
        for path in sorted(unfinished.iterdir()):
            durable_files.sync(path)
            files.append(manifests.finished(path))
        Manifest(KIND, source, tuple(files), complete=True).write(unfinished)
        durable_files.rename(unfinished, folder)


def _searcher(matrix: Matrix, settings: ScannSettings) -> Any:
    vectors = matrix[:].astype(np.float32)
    inner = settings.metric == "inner_product"
    builder = scann_library().builder(vectors, 10, "dot_product" if inner else "squared_l2")
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
