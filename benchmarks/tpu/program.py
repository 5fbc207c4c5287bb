"""A jitted program of jaxrag, compiled for a slice of TPUs and measured."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from benchmarks.tpu.chips import Place, Slice
from benchmarks.tpu.hlo import program_cost


@dataclasses.dataclass(frozen=True)
class Ideal:
    """What a program cannot do without, over all chips: bytes of memory, operations."""

    bytes: float
    flops: float

    def seconds(self, on: Slice) -> float:
        """Its time at the roofline, evenly cut over the chips."""
        chip = on.chip
        return max(self.bytes / chip.bandwidth, self.flops / chip.flops) / on.chips


@dataclasses.dataclass(frozen=True)
class Program:
    """A program at the size of a paper's run.

    Attributes:
      name: with its sizes.
      on: the slice.
      trace: `jax.stages.Traced` of jaxrag's own function, with arrays where it is given.
      ideal: see there.
      units: tokens, passages or steps of a call.
      unit: what ``units`` counts.
      rounds: of its loops without a constant number of rounds, such as a decoding loop's.
      parts: figures are those of one of so many equal parts of a call, such as a step of a loop.
      held: bytes that a run holds on each chip beside this program's arguments.
    """

    name: str
    on: Slice
    trace: Callable[[Place], Any]
    ideal: Ideal
    units: float
    unit: str
    rounds: int = 1
    parts: int = 1
    held: int = 0

    @property
    def key(self) -> str:
        """Name and slice."""
        return f"{self.name} | {self.on.name}"


@dataclasses.dataclass(frozen=True)
class Figures:
    """What the compiler says of a program, for one chip.

    Attributes:
      arguments, temporaries: bytes.
      peak: bytes of arguments, results and temporaries, less what they share, with what else the
        run holds on the chip.
      hbm: bytes read from and written to HBM (`benchmarks.tpu.hlo`).
      flops: operations of matrix products.
      sent: bytes of results of collectives.
      seconds: that compiling took.
    """

    arguments: int
    temporaries: int
    peak: int
    hbm: float
    flops: float
    sent: float
    seconds: float

    def compute_time(self, on: Slice) -> float:
        """Seconds at the chip's peak."""
        return self.flops / on.chip.flops

    def memory_time(self, on: Slice) -> float:
        """Seconds at the chip's bandwidth."""
        return self.hbm / on.chip.bandwidth

    def roofline(self, on: Slice) -> float:
        """Seconds, the longer of the two."""
        return max(self.compute_time(on), self.memory_time(on))


def measure(program: Program) -> Figures:
    """Compiles a program for its slice.

    Raises:
      jax.errors.JaxRuntimeError: it does not compile, or does not fit ("RESOURCE_EXHAUSTED").
    """
    start = time.perf_counter()
    compiled = program.trace(program.on.place()).lower().compile()
    memory = compiled.memory_analysis()
    cost = program_cost(compiled.as_text(), steps=program.rounds).times(1 / program.parts)
    return Figures(
        arguments=memory.argument_size_in_bytes,
        temporaries=memory.temp_size_in_bytes,
        peak=memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
        + program.held,
        hbm=cost.hbm,
        flops=cost.flops,
        sent=cost.sent,
        seconds=round(time.perf_counter() - start, 1),
    )


def lower_for_gpu(program: Program) -> None:
    """Lowers a program for an NVIDIA GPU, which needs none; raises what JAX raises."""
    program.trace(Place()).lower(lowering_platforms=("cuda",))
