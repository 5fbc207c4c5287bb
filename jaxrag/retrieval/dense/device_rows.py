"""The rows of a matrix on the devices: all at once where they fit a budget, else slab by slab.

A slab is a number of consecutive rows, sharded over the devices. While one is searched, the next is
read from the memory map and copied, so that a search of a matrix larger than memory takes as long
as the slower of reading and scoring it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

from jaxrag.functional import topk
from jaxrag.models.device_memory import Devices
from jaxrag.retrieval.dense.matrix import Matrix

AXIS = "rows"
_LARGEST_SLAB = 1 << 30
_SLABS = 3  # in memory at once: searched, ready, and its copy on the host
_PIECE = 1 << 16  # rows read at a time
_SHARE = 0.5


class Slab(NamedTuple):
    """Consecutive rows on the devices from ``first`` on, padded to the size of all slabs.

    ``bias`` is added to the scores: -inf for padding and, for distances, -|p|^2 / 2; None: nothing.
    """

    first: int
    vectors: Float[Array, "n d"]
    bias: Float[Array, " n"] | None


@dataclasses.dataclass
class DeviceRows:
    """Iterates over the slabs of a matrix; a matrix that fits the budget is one slab, kept.

    Attributes:
      distances: whether the biases order rows by distance.
      dtype, slab: of the rows on the devices, and how many a slab has.
      longest: the largest norm of a row's vector; known once all slabs were seen.
    """

    matrix: Matrix
    mesh: Mesh
    distances: bool
    dtype: str
    slab: int
    longest: float = 0.0

    def __post_init__(self) -> None:
        self._half_norms: dict[int, np.ndarray] = {}
        self._held = self._load(0) if self.resident else None

    @classmethod
    def place(
        cls, matrix: Matrix, mesh: Mesh, *, distances: bool, budget: int | None = None
    ) -> DeviceRows:
        """Holds the matrix on the devices if it takes at most ``budget`` bytes of their memory.

        On CPU it is held in float32, which is fastest, if that fits, else in the stored precision.
        ``budget`` None: see `device_budget`.
        """
        devices = mesh.devices.size
        if budget is None:
            budget = device_budget(Devices.of(list(mesh.devices.flat)))
        stored = matrix.manifest.settings["dtype"]
        everything = -(-len(matrix) // devices) * devices
        for dtype in ("float32", stored) if on_cpus(mesh) else (stored,):
            if everything * matrix.dimension * np.dtype(dtype).itemsize <= budget:
                return cls(matrix, mesh, distances, dtype, everything)
        row = matrix.dimension * np.dtype(stored).itemsize
        rows = min(budget // _SLABS, _LARGEST_SLAB * devices) // row
        return cls(matrix, mesh, distances, stored, max(rows // devices, 1) * devices)

    @property
    def resident(self) -> bool:
        """Whether all rows stay on the devices."""
        return self.slab >= len(self.matrix)

    def __iter__(self) -> Iterator[Slab]:
        """The slabs in the order of their rows; the next is loaded in the background.

        Wait for the results of a slab before taking the next, or more slabs will be in memory.
        """
        if self._held is not None:
            yield self._held
            return
        with ThreadPoolExecutor(1, "slabs") as loader:
            coming = loader.submit(self._load, 0)
            for first in range(0, len(self.matrix), self.slab):
                slab = coming.result()
                if first + self.slab < len(self.matrix):
                    coming = loader.submit(self._load, first + self.slab)
                yield slab
                del slab

    def _load(self, first: int) -> Slab:
        count = min(self.slab, len(self.matrix) - first)
        vectors = self._sharded(first, count)
        if first not in self._half_norms:
            half_norms = np.asarray(topk.sharded_l2_bias(vectors, mesh=self.mesh, axis=AXIS))
            self.longest = max(self.longest, float((-2 * half_norms.min()) ** 0.5))
            self._half_norms[first] = half_norms if self.distances else half_norms[:0]
        if count == self.slab and not self.distances:
            return Slab(first, vectors, None)
        bias = np.where(np.arange(self.slab) < count, 0.0, -np.inf).astype(np.float32)
        if self.distances:
            bias += self._half_norms[first]
        return Slab(first, vectors, jax.device_put(bias, NamedSharding(self.mesh, P(AXIS))))

    def _sharded(self, first: int, count: int) -> Float[Array, "n d"]:
        def rows(index: Any) -> np.ndarray:
            start, stop, _ = index[0].indices(self.slab)
            block = _aligned((stop - start, self.matrix.dimension), self.dtype)
            real = max(min(stop, count) - start, 0)
            for at in range(0, real, _PIECE):
                part = slice(at, min(at + _PIECE, real))
                block[part] = self.matrix[first + start + part.start : first + start + part.stop]
            block[real:] = 0
            return block

        shape = (self.slab, self.matrix.dimension)
        return jax.make_array_from_callback(shape, NamedSharding(self.mesh, P(AXIS)), rows)


def _aligned(shape: tuple[int, int], dtype: str) -> np.ndarray:
    """An array that a CPU device takes over without copying it: at a multiple of 64 bytes."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def device_budget(devices: Devices) -> int:
    """Bytes that vectors may take on some devices, all together: half of what is free."""
    return int(_SHARE * devices.memory * devices.count)


def slab_bytes(devices: int) -> int:
    """Most bytes of slabs in memory at once, on all devices."""
    return _SLABS * _LARGEST_SLAB * devices


def on_cpus(mesh: Mesh) -> bool:
    """Whether the devices of the mesh are CPUs."""
    return mesh.devices.flat[0].platform == "cpu"


def fast_type(mesh: Mesh, *, few: bool = False) -> Any:
    """Float type of the first pass of a search, of ``few`` queries or many.

    bfloat16 is fast on accelerators and, for many queries, on CPUs with its matrix instructions
    (AMX).
    """
    fast = matrix_instructions() and not few if on_cpus(mesh) else True
    return jnp.bfloat16 if fast else jnp.float32


@functools.cache
def matrix_instructions() -> bool:
    """Whether this machine's processor multiplies matrices of bfloat16 (Linux)."""
    processor = Path("/proc/cpuinfo")
    return processor.is_file() and "amx_bf16" in processor.read_text().split()
