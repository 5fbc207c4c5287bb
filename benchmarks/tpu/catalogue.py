"""All programs of the check."""

from __future__ import annotations

from benchmarks.tpu import ars, decoders, encoders, search, selection, t5, training
from benchmarks.tpu.program import Program


def programs() -> list[Program]:
    """Of language models, encoders, trainings, searches and selection."""
    parts = (decoders, t5, encoders, training, search, selection, ars)
    return [program for part in parts for program in part.programs()]
