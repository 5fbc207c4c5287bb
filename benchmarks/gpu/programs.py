"""jaxrag's programs at the sizes of the papers' runs, for one GPU.

They are those of `benchmarks.tpu`, with other numbers of rows where a GPU holds more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from benchmarks.gpu.cards import Card
from benchmarks.gpu.inputs import Value
from benchmarks.tpu import ars, decoders, encoders, search, selection, t5, training
from benchmarks.tpu.networks import BASE, LARGE
from benchmarks.tpu.program import Program
from jaxrag.methods.ars.bandit.settings import BanditTraining
from jaxrag.methods.r3.settings import Update

_MODEL = "Qwen2.5-7B"
_SLOTS, _CHUNK = 1024, 128
_PAIR = 192  # padded width of a question with a passage


@dataclasses.dataclass(frozen=True)
class Timed:
    """A program with the arguments that it is timed with.

    Attributes:
      program: at the size of a run.
      rules: see `benchmarks.gpu.inputs.arguments`.
      compared: whether its results are compared with a CPU's: it is small enough for one.
    """

    program: Program
    rules: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    compared: bool = False


_ANSWERS: dict[str, Value] = {
    ".position": _SLOTS - 24, ".made": 0, ".finished": 0, ".ends": 0, ".count": 10**6,
    ".steps": 8, ".enough": 10**6, ".temperature": 0,
}  # fmt: skip
"""Answers at temperature 0 that do not end."""

_T5: dict[str, Value] = {
    ".made": 0, ".finished": 0, ".step": 0, ".least": 0, ".most": 128, ".ends": 0,
    ".temperature": 0, "[0][2]": 128,
}  # fmt: skip
"""The same of a T5, whose third argument is a number of steps."""


def language_models(on: Card) -> Iterable[Timed]:
    """Qwen2.5-7B in bfloat16 and with weights of eight bits; T5-large."""
    for quantization in ("", "int8"):
        for stacked in (False, True):  # as on TPUs, for comparison
            kind: Any = {"quantization": quantization, "stacked": stacked}
            yield Timed(decoders.decoding(_MODEL, on, rows=128, slots=_SLOTS, **kind), _ANSWERS)
    yield Timed(decoders.decoding(_MODEL, on, rows=256, slots=_SLOTS, stacked=False), _ANSWERS)
    for slots in (_SLOTS, 4096):
        sizes: Any = {"rows": 16, "chunk": _CHUNK, "slots": slots}
        reading = decoders.prefill(_MODEL, on, stacked=False, **sizes)
        yield Timed(reading, {"[0][3]": slots - _CHUNK})
    small = decoders.rest(_MODEL, on, rows=128, few=16, chunk=_CHUNK, slots=_SLOTS)
    for program in small[:2]:  # scores and first tokens
        yield Timed(program, {".temperature": 0})
    encode, decode, *_ = t5.answers(on)
    yield Timed(encode)
    yield Timed(decode, _T5)


def texts(on: Card) -> Iterable[Timed]:
    """Encoders of passages, and the rerankers."""
    width = encoders.PASSAGE
    large = encoders.encoding("bge-large", LARGE, on, width, pooling="cls")
    base = encoders.encoding("E5-base", BASE, on, width, pooling="mean")
    yield Timed(large, {"[0][2]": width})
    yield Timed(base, {"[0][2]": width}, compared=True)
    sidr, entries = encoders.sidr_encoding(on, width)
    yield Timed(sidr, {"[0][2]": width}, compared=True)
    yield Timed(entries, compared=True)
    yield Timed(encoders.reranking(on, _PAIR), {"[0][2]": 0, "[0][3]": _PAIR}, compared=True)
    yield Timed(ars.scoring(on), {"[0][2]": (0, 2), "[0][3]": 64}, compared=True)


def trainings(on: Card) -> Iterable[Timed]:
    """Steps of R3, of ARS-RAG's ranker, its bandit, and of ERRR's T5-large."""
    r3 = training.towers("R3, batch 128, 1 + 1 passages", on, Update(), passages=2, microbatch=8)
    yield Timed(r3.program(), {"queries.lengths": 32, "passages.lengths": 256})
    pairs: dict[str, Value] = {".segments": (0, 2), ".lengths": 64, ".labels": (0, 2)}
    yield Timed(ars.ranking(on).program(), pairs)
    yield Timed(ars.neural_ucb(on, BanditTraining().batch))
    yield Timed(t5.distillation(on).program(), {".source_length": 512, ".target_length": 128})


def searches(on: Card) -> Iterable[Timed]:
    """Exact searches of Wikipedia: vectors of 768 numbers, and token sets; AIS."""
    slab = (1 << 30) // (2 * 768)
    yield Timed(search.exact(on, slab, 768, 512), {"offset": 0}, compared=True)
    yield Timed(search.exact(on, search.PASSAGES, 768, 512), {"offset": 0})
    yield from (Timed(program, _TILES) for program in search.token_sets(on, 64))
    yield Timed(dataclasses.replace(selection.programs()[0], on=on), compared=True)


def _starts(shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(search.WIDTH * np.arange(shape[1]), shape)


_TILES: dict[str, Value] = {
    ".slots": (0, 29_522), ".starts": _starts, ".widths": search.WIDTH, ".count": search.MOST_ROWS,
}  # fmt: skip
"""Files of full tiles of equal width."""


def programs(on: Card) -> list[Timed]:
    """All of them."""
    return [timed for part in (texts, searches, trainings, language_models) for timed in part(on)]
