"""Compares programs' figures with recorded ones, and writes them as a table."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax

from benchmarks.tpu.program import Figures, Program

SLACK = 1.1
"""A program may move this many times the recorded bytes of HBM."""


@dataclasses.dataclass(frozen=True)
class Result:
    """A program's figures, or why there are none; and what is wrong with them."""

    program: Program
    figures: Figures | None
    faults: tuple[str, ...]


def check(
    program: Program, recorded: Mapping[str, Any], measure: Callable[[Program], Figures]
) -> Result:
    """Measures a program and compares it with its recorded figures.

    Args:
      program: to compile.
      recorded: figures by `Program.key`, as `dump` writes them.
      measure: `benchmarks.tpu.program.measure`.
    """
    try:
        figures = measure(program)
    except jax.errors.JaxRuntimeError as error:
        first = str(error).splitlines()[0]
        kind = "does not fit" if "RESOURCE_EXHAUSTED" in first else "does not compile"
        return Result(program, None, (f"{kind}: {first}",))
    return Result(program, figures, tuple(faults(program, figures, recorded.get(program.key))))


def faults(program: Program, figures: Figures, before: Mapping[str, Any] | None) -> Iterable[str]:
    """What is wrong with a compiled program."""
    memory = program.on.chip.memory
    if figures.peak > memory:
        yield f"does not fit: {figures.peak / 2**30:.2f} of {memory / 2**30:.2f} GiB"
    if before is None:
        yield "has no recorded figures: run with --record"
    elif figures.hbm > SLACK * before["hbm"]:
        yield (
            f"moves {figures.hbm / 1e9:.2f} GB, {figures.hbm / before['hbm']:.2f} times the "
            f"recorded {before['hbm'] / 1e9:.2f} GB"
        )


def load(path: Path) -> dict[str, Any]:
    """Recorded figures by program; none if there is no file."""
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def record(path: Path, recorded: Mapping[str, Any], result: Result) -> dict[str, Any]:
    """Writes the recorded figures with those of ``result`` in their place, and returns them."""
    kept = {key: value for key, value in recorded.items() if key != result.program.key}
    if result.figures:
        kept[result.program.key] = dataclasses.asdict(result.figures)
    path.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n", "utf-8")
    return kept


def figures_of(recorded: Mapping[str, Any]) -> dict[str, Figures]:
    """Recorded figures by program."""
    return {key: Figures(**values) for key, values in recorded.items()}


HEADER = (
    "| program | arguments GiB | temporaries GiB | peak, of HBM | TFLOP | HBM GB | sent GB "
    "| compute ms | memory ms | ideal GB | bytes / ideal | ideal time / roofline "
    "| a second, all chips |"
)


def table(programs: Iterable[Program], figures: Mapping[str, Figures | None]) -> list[str]:
    """Lines of Markdown, a table for each slice; figures are a chip's."""
    lines, by_slice = [], {}
    for program in programs:
        by_slice.setdefault(program.on.name, []).append(program)
    for name, some in by_slice.items():
        lines += ["", f"**{name}**", "", HEADER, "| --- |" + " ---: |" * 12]
        lines += [_row(program, figures.get(program.key)) for program in some]
    return lines


def _row(program: Program, f: Figures | None) -> str:
    if f is None:
        return f"| {program.name} | does not fit or compile |" + " |" * 11
    on, ideal = program.on, program.ideal
    least = ideal.bytes / on.chips
    share = ideal.seconds(on) / f.roofline(on) if f.roofline(on) else 1.0
    cells = (
        f"{f.arguments / 2**30:.2f}",
        f"{f.temporaries / 2**30:.2f}",
        f"{f.peak / on.chip.memory:.0%}",
        f"{f.flops / 1e12:.3g}",
        f"{f.hbm / 1e9:.3g}",
        f"{f.sent / 1e9:.2g}",
        f"{1e3 * f.compute_time(on):.3g}",
        f"{1e3 * f.memory_time(on):.3g}",
        f"{least / 1e9:.3g}",
        f"{f.hbm / least:.2f}",
        f"{share:.2f}",
        f"{program.units / f.roofline(on):,.0f} {program.unit}" if f.roofline(on) else "",
    )
    return f"| {program.name} | {' | '.join(cells)} |"
