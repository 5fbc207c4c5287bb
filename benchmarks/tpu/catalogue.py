"""All programs of the check."""

from __future__ import annotations

from benchmarks.tpu import decoders
from benchmarks.tpu.program import Program


def programs() -> list[Program]:
    """Of the language models."""
    return decoders.programs()
