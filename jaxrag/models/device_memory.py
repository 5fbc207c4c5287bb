"""Free memory of devices, and errors of a device whose memory is used up."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Devices(NamedTuple):
    """Devices of one kind.

    Attributes:
      count: of this process.
      memory: bytes of each that are free for JAX; CPU devices share the host's memory evenly.
      cpu: whether they are CPUs.
      share: fraction of a device's memory that JAX may use.
    """

    count: int
    memory: float
    cpu: bool = False
    share: float = 1.0

    @classmethod
    def of(cls, devices: Sequence[Any]) -> Devices:
        """Some devices of JAX; an accelerator without memory statistics counts as 8 GB."""
        if devices[0].platform == "cpu":
            return cls(len(devices), host_memory() / len(devices), cpu=True)
        free = (free_bytes(device) for device in devices)
        memory = min(8e9 if size is None else size for size in free)
        fractions = (os.environ.get(f"XLA_{name}CLIENT_MEM_FRACTION") for name in ("", "PYTHON_"))
        fraction = float(next(filter(None, fractions), "0.75"))  # as jaxlib reads it, for GPUs
        share = fraction if devices[0].platform == "gpu" else 1.0
        return cls(len(devices), memory, share=share)


def host_memory() -> int:
    """Bytes of this machine's memory, or of this process's control group if that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    group = limit.read_text().strip() if limit.is_file() else "max"
    return min(machine, int(group)) if group.isdigit() else machine


def free_bytes(device: Any) -> int | None:
    """Free bytes of a device; None if it does not tell, as CPUs."""
    stats = device.memory_stats()
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0) if stats else None


def free_memory(devices: Iterable[Any]) -> list[int] | None:
    """Free bytes of each device; None if one of them does not tell."""
    sizes = [*map(free_bytes, devices)]
    told = [size for size in sizes if size is not None]
    return told if len(told) == len(sizes) else None


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error of JAX says that a device's memory did not suffice."""
    return "RESOURCE_EXHAUSTED" in str(error)
