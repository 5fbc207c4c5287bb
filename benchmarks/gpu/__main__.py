"""Times jaxrag's programs on a GPU, beside the least time by datasheet, and compares with a CPU.

    python -m benchmarks.gpu                    all programs
    python -m benchmarks.gpu --only decode      those whose name contains this
    python -m benchmarks.gpu --write FILE       also writes the table to a file, row by row

Arguments are random arrays of a run's sizes, so no checkpoint is needed. The least time is that of
the bytes and operations that a program cannot do without, at the datasheet's rates. Small programs
run on the CPU as well, in another process meanwhile, and their results are compared.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax

from benchmarks.gpu.cards import Card, card
from benchmarks.gpu.programs import Timed, programs
from benchmarks.gpu.timing import (
    Ready,
    Times,
    difference,
    measure,
    prepare,
    read_reference,
    write_reference,
)
from jaxrag.models.device_memory import is_out_of_memory

HEADER = (
    "| program | GiB | ms, median [range] | least ms | least / measured | a second | compiled in |",
    "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
)


def main() -> int:
    """Exit status: 1 if a program fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--rounds", type=int, default=10, help="measurements of each program")
    parser.add_argument("--threads", type=int, default=8, help="programs compiled at once")
    parser.add_argument("--write", type=Path, help="file for the table")
    parser.add_argument("--reference", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reference:
        return _write_references(options.only, options.reference)
    if jax.default_backend() != "gpu":
        sys.exit("JAX finds no GPU: pip install 'jaxrag[cuda13]', and check nvidia-smi.")
    on = card(jax.devices()[0].device_kind)
    chosen = _chosen(on, options.only)
    with tempfile.TemporaryDirectory() as folder:
        reference = _start_reference(options.only, Path(folder))
        try:
            return _run(chosen, on, options, Path(folder), reference)
        finally:
            reference.kill()


def _chosen(on: Card, only: str) -> list[Timed]:
    return [timed for timed in programs(on) if only in timed.program.name]


def _run(chosen: list[Timed], on: Card, options: Any, folder: Path, reference: Any) -> int:
    failed, kept = 0, {}

    def say(line: str) -> None:
        print(line, flush=True)
        if options.write:
            with options.write.open("a") as file:
                file.write(f"{line}\n")

    say(f"{jax.devices()[0].device_kind}, jax {jax.__version__}")
    for line in HEADER:
        say(line)
    # all are compiled before the first is timed, which other compilations would disturb
    compiled = []
    with ThreadPoolExecutor(options.threads) as pool:
        for timed, ready in zip(chosen, pool.map(_prepared, chosen), strict=True):
            compiled.append(ready)
            name = timed.program.name
            print(f"compiled {len(compiled)} of {len(chosen)}: {name}", file=sys.stderr, flush=True)
    for timed, ready in zip(chosen, compiled, strict=True):
        try:
            if isinstance(ready, Exception):
                raise ready
            times, made = measure(ready, options.rounds)
        except jax.errors.JaxRuntimeError as error:
            failed += not is_out_of_memory(error)
            said = "does not fit" if is_out_of_memory(error) else str(error).splitlines()[0]
            say(f"| {timed.program.name} | {said} |")
            continue
        if made is not None:
            kept[timed.program.name] = made
        say(_row(ready, times, on))
    if reference.wait():
        say("The CPU's results are incomplete: its process failed.")
        failed += 1
    for i, timed in enumerate(chosen):
        path = folder / f"{i}.npz"
        if (made := kept.get(timed.program.name)) is None or not path.exists():
            continue
        apart, same = difference(made, read_reference(path))
        say(f"as on a CPU: {timed.program.name}: numbers {apart:.1e}, integers {same:.4f}")
    return 1 if failed else 0


def _prepared(timed: Timed) -> Ready | Exception:
    """The compiled program, or why there is none."""
    try:
        return prepare(timed)
    except jax.errors.JaxRuntimeError as error:
        return error


def _row(ready: Ready, times: Times, on: Card) -> str:
    program, memory = ready.timed.program, ready.compiled.memory_analysis()
    held = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    held += memory.output_size_in_bytes - memory.alias_size_in_bytes
    least, took = program.ideal.seconds(on), times.median
    low, high = min(times.seconds), max(times.seconds)
    rate = program.units / took
    cells = (
        program.name,
        f"{held / 2**30:.2f}",
        f"{1e3 * took:.3g} [{1e3 * low:.3g}, {1e3 * high:.3g}]",
        f"{1e3 * least:.3g}",
        f"{least / took:.2f}",
        f"{rate:,.0f} {program.unit}",
        f"{ready.seconds:.0f} s",
    )
    return f"| {' | '.join(cells)} |"


def _start_reference(only: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.gpu", f"--reference={folder}", f"--only={only}"]
    return subprocess.Popen(command, env={**os.environ, "JAX_PLATFORMS": "cpu"})


def _write_references(only: str, folder: Path) -> int:
    for i, timed in enumerate(_chosen(Card("H100"), only)):
        if timed.compared:
            write_reference(timed, folder / f"{i}.npz")
    return 0


if __name__ == "__main__":
    sys.exit(main())
