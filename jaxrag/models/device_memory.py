"""Free memory of devices, and errors of a device whose memory is used up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def free_bytes(device: Any) -> int | None:
    """Free bytes of a device; None if it does not tell, as CPUs."""
    stats = device.memory_stats()
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0) if stats else None


def free_memory(devices: Iterable[Any]) -> list[int] | None:
    """Free bytes of each device; None if one of them does not tell."""
    free = []
    for device in devices:
        if (size := free_bytes(device)) is None:
            return None
        free.append(size)
    return free


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error of JAX says that a device's memory did not suffice."""
    return "RESOURCE_EXHAUSTED" in str(error)
