"""Compiles jaxrag's programs for TPUs, without one, and compares them with recorded figures.

    python -m benchmarks.tpu             all programs
    python -m benchmarks.tpu --fast      those that take at most 6 minutes on two cores
    python -m benchmarks.tpu --only decode
    python -m benchmarks.tpu --record    writes recorded.json and the table in docs/results/tpu.md;
                                         a program's rows as soon as it has been compiled

It fails where a program does not compile, does not fit its chips, or moves 10 % more bytes of HBM
than recorded, and where one cannot be lowered for CUDA. `make tpu` runs it in an environment of its
own, with the TPU compiler.
"""

from __future__ import annotations

import os

from benchmarks.tpu.chips import ENVIRONMENT

if __name__ == "__main__":
    os.environ.update(ENVIRONMENT)  # before JAX is used

import argparse
import datetime
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks.tpu import catalogue, check
from benchmarks.tpu.program import lower_for_gpu, measure

FOLDER = Path(__file__).parent
RECORDED = FOLDER / "recorded.json"
PAGE = FOLDER.parent.parent / "docs" / "results" / "tpu.md"
_START, _END = "<!-- table: begin -->", "<!-- table: end -->"


def main() -> int:
    """Exit status: 1 if a program fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tpu", description=__doc__)
    parser.add_argument("--fast", action="store_true", help="only the fast part")
    parser.add_argument("--record", action="store_true", help="record the figures")
    parser.add_argument("--only", default="", help="programs whose name and slice contain this")
    options = parser.parse_args()
    everything, recorded = catalogue.programs(), check.load(RECORDED)
    some = catalogue.FAST if options.fast else [program.key for program in everything]
    chosen = [p for p in everything if options.only in p.key and p.key in some]
    results, failed = [], 0
    for program in chosen:
        result = check.check(program, {} if options.record else recorded, measure)
        faults = [f for f in result.faults if not (options.record and "no recorded" in f)]
        faults += _gpu_faults(program)
        took = f"{result.figures.seconds:.0f} s" if result.figures else "-"
        print(f"{'FAIL' if faults else 'ok':4} {took:>5}  {program.key}", flush=True)
        for fault in faults:
            print(f"      {fault}", flush=True)
        results.append(result)
        failed += bool(faults)
        if options.record:
            recorded = check.record(RECORDED, recorded, result)
            known = [one for one in everything if one.key in recorded]
            _write_page(check.table(known, check.figures_of(recorded)))
    print("\n".join(check.table(chosen, {r.program.key: r.figures for r in results})))
    print(f"{failed} of {len(chosen)} programs fail" if failed else f"all {len(chosen)} pass")
    return 1 if failed else 0


def _gpu_faults(program: check.Program) -> list[str]:
    """Why a program cannot be lowered for CUDA, if it cannot."""
    try:
        lower_for_gpu(program)
    except Exception as error:  # whatever JAX raises is a fault of the program
        return [f"does not lower for CUDA: {str(error).splitlines()[0]}"]
    return []


def _write_page(table: list[str]) -> None:
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(_START)
    _, _, after = rest.partition(_END)
    made = ", ".join(f"{name} {version(name)}" for name in ("jax", "libtpu"))
    date = datetime.date.today().isoformat()
    head = f"{_START}\nWritten by `python -m benchmarks.tpu --record` on {date}; {made}."
    PAGE.write_text("\n".join([f"{before}{head}", *table, f"{_END}{after}"]), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
