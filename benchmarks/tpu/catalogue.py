"""All programs of the check."""

from __future__ import annotations

from benchmarks.tpu import ars, decoders, encoders, search, selection, t5, training
from benchmarks.tpu.program import Program

FAST = (
    "Qwen2.5-7B: decode 128 x 1, 1,024 slots | v5e 2x4, data 2 x model 4",
    "Qwen2.5-7B: decode 128 x 1, 1,024 slots | v5e 2x4, model 8",
    "Qwen2.5-7B: prefill 16 x 128, 1,024 slots | v5e 2x4, model 8",
    "Qwen2.5-7B: decode 64 x 1, 1,024 slots | v5e 2x4, data 8",
    "Llama-3-8B: score 64 tokens | v5e 2x4, model 8",
    "Gemma-2-9B: decode 128 x 1, 1,024 slots | v5e 2x4, model 8",
    "SiDR: 1024 entries of 102 vectors | v5e, 1 chip",
    "bag of tokens: table of 64 queries | v5e 2x4, data 8",
    "AIS: 3 of 32 x 768 | v5e, 1 chip",
)
"""Programs of the fast check: one of each part that compiles within about half a minute."""


def programs() -> list[Program]:
    """Of language models, encoders, trainings, searches and selection."""
    parts = (decoders, t5, encoders, training, search, selection, ars)
    return [program for part in parts for program in part.programs()]
