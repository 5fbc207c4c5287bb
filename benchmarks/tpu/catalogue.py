"""All programs of the check."""

from __future__ import annotations

from benchmarks.tpu import decoders, encoders, search, selection, training
from benchmarks.tpu.program import Program


def programs() -> list[Program]:
    """Of language models, encoders, trainings, searches and selection."""
    parts = (decoders, encoders, training, search, selection)
    return [program for part in parts for program in part.programs()]
