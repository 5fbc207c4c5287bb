"""Errors of a device whose memory is used up."""

from __future__ import annotations


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error of JAX says that a device's memory did not suffice."""
    return "RESOURCE_EXHAUSTED" in str(error)
