"""Free memory of devices, and errors of a device whose memory is used up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def free_memory(devices: Iterable[Any]) -> list[int] | None:
    """Bytes that are free on each device; None where a device does not tell, as CPUs."""
    stats = [device.memory_stats() for device in devices]
    if not all(stats):
        return None
    return [one["bytes_limit"] - one.get("bytes_in_use", 0) for one in stats]


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error of JAX says that a device's memory did not suffice."""
    return "RESOURCE_EXHAUSTED" in str(error)
