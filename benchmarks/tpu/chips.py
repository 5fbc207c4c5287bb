"""TPU slices that programs are compiled for, without a TPU.

Figures of a chip are those of its maker's pages (Google Cloud, "TPU v5e", "TPU v6e", "TPU v5p",
2026-11): bfloat16 operations a second, bandwidth of HBM and of the links between chips. The memory
is what the compiler lets a program use.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from jaxrag.models.sharding import divisible_sharding

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # two checks at a time, which share no device
}
"""What libtpu needs to be told where there is no TPU."""


@dataclasses.dataclass(frozen=True)
class Chip:
    """A kind of TPU; flops, bytes and link bytes are a second's."""

    flops: float
    bandwidth: float
    links: float
    memory: int


CHIPS = {
    "v5e": Chip(197e12, 819e9, 200e9, int(15.75 * 2**30)),
    "v6e": Chip(918e12, 1640e9, 448e9, int(31.25 * 2**30)),
    "v5p": Chip(459e12, 2765e9, 600e9, int(95.74 * 2**30)),
}


@dataclasses.dataclass(frozen=True)
class Slice:
    """Chips of a topology, as a mesh of data x model; a slice of one chip has no mesh.

    Attributes:
      topology: as libtpu names it; of two hosts for "v5e:2x4".
      data, model: sizes of the mesh's axes; together at most the topology's chips.
    """

    topology: str
    data: int = 1
    model: int = 1

    @property
    def chip(self) -> Chip:
        """The kind of its chips."""
        return CHIPS[self.topology.partition(":")[0]]

    @property
    def chips(self) -> int:
        """Number of chips that a program runs on."""
        return self.data * self.model

    @property
    def name(self) -> str:
        """For tables."""
        kind, _, shape = self.topology.partition(":")
        return f"{kind}, 1 chip" if self.chips == 1 else f"{kind} {shape}, {self.mesh_name}"

    @property
    def mesh_name(self) -> str:
        """The axes that are used."""
        parts = (f"data {self.data}" * (self.data > 1), f"model {self.model}" * (self.model > 1))
        return " x ".join(part for part in parts if part)

    def place(self) -> Place:
        """The slice's devices, as far as the compiler knows them."""
        devices = np.array(_topology(self.topology).devices)[: self.chips]
        if self.chips == 1:
            return Place(None, devices[0])
        axes = (AxisType.Auto, AxisType.Auto)
        mesh = Mesh(devices.reshape(self.data, self.model), ("data", "model"), axis_types=axes)
        return Place(mesh, None)


_WHOLE = P()


@functools.cache
def _topology(name: str) -> Any:
    if missing := [key for key, value in ENVIRONMENT.items() if os.environ.get(key) != value]:
        raise RuntimeError(f"set {missing} before JAX is imported, as `python -m benchmarks.tpu`")
    return topologies.get_topology_desc(platform="tpu", topology_name=name)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the arrays of a program are; without mesh and device, on JAX's default device."""

    mesh: Mesh | None = None
    device: Any = None

    def array(self, shape: tuple[int, ...], dtype: Any, spec: P = _WHOLE) -> Any:
        """An array's shape, sharded as far as ``spec`` divides it."""
        if self.mesh is not None:
            return self.shaped(shape, dtype, divisible_sharding(spec, shape, self.mesh))
        return self.shaped(shape, dtype, None)

    def shaped(
        self, shape: tuple[int, ...], dtype: Any, sharding: NamedSharding | None
    ) -> jax.ShapeDtypeStruct:
        """An array's shape with a sharding; without one, whole on each device."""
        found: Any = sharding
        if found is None and self.mesh is not None:
            found = NamedSharding(self.mesh, P())
        elif found is None and self.device is not None:
            found = SingleDeviceSharding(self.device)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=found)
