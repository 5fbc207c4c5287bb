"""A long run that is killed at intervals: memory, store and answers.

    python -m benchmarks.long_run --out runs/long --questions 5000 --kill 300 \\
        --config.method.gate.threshold=1.0

The questions of a config are answered through its engine, in a process that gets SIGKILL ``--kill``
seconds after its first answer and is started again, until all are answered. Another run, with a
store of its own, is never killed. Settings ``--config.NAME=VALUE`` are those of `jaxrag run`.
Printed are, for each process, its resident memory and how that has grown; whether the store is
whole; and whether both runs have the same answers, byte by byte. Exit code 1: a store is damaged or
answers differ.

Memory is sampled every second from the first answer on: models are loaded then. Growth compares the
last quarter of the samples with the second; in the first, programs for new shapes are compiled.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

CONFIG = "configs/dtr.py:dtr@factbook"


class Lived(NamedTuple):
    """A process of a run.

    Attributes:
      seconds: for which it lived.
      answered: questions answered when it ended.
      memory: resident bytes, one sample a second from its first answer on.
      code: its exit code; -9 where it was killed.
    """

    seconds: float
    answered: int
    memory: list[int]
    code: int

    @property
    def growth(self) -> float:
        """Median memory of the last quarter over that of the second, less one; 0 if too short."""
        quarter = len(self.memory) // 4
        if not quarter:
            return 0.0
        early = statistics.median(self.memory[quarter : 2 * quarter])
        return statistics.median(self.memory[-quarter:]) / early - 1


def live(command: Sequence[str], workdir: Path, kill: float | None) -> Lived:
    """Starts a process and kills it ``kill`` seconds after its first answer; None never does.

    Raises:
      RuntimeError: it ended by itself with an error.
    """
    began, before, first, memory = time.monotonic(), answered(workdir), None, []
    workdir.mkdir(parents=True, exist_ok=True)
    with (workdir.parent / f"{workdir.name}.log").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        while process.poll() is None:
            time.sleep(1.0)
            if first is None and answered(workdir) > before:
                first = time.monotonic()
            if first is not None and (found := resident(process.pid)):
                memory.append(found)
            if first is not None and kill is not None and time.monotonic() - first >= kill:
                process.send_signal(signal.SIGKILL)
                break
        code = process.wait()
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"{' '.join(command)} ended with {code}; see {log.name}")
    return Lived(time.monotonic() - began, answered(workdir), memory, code)


def resident(process: int) -> int:
    """Resident bytes of a process; 0 if it has ended."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def answered(workdir: Path) -> int:
    """Whole lines of answers.jsonl."""
    file = workdir / "answers.jsonl"
    return file.read_bytes().count(b"\n") if file.is_file() else 0


def run(given: argparse.Namespace, name: str, kill: float | None) -> list[Lived]:
    """All processes of a run, until one ends by itself."""
    workdir = given.out / name
    command = [
        sys.executable, "-m", "experiments.run", f"--config={given.config}",
        f"--config.limit={given.questions}", f"--config.store={given.out / name}.sqlite",
        f"--workdir={workdir}", *given.settings,
    ]  # fmt: skip
    lived: list[Lived] = []
    while not lived or lived[-1].code:
        lived.append(live(command, workdir, kill))
        one = lived[-1]
        sizes = one.memory or [0]
        print(
            f"{name}, process {len(lived)}: {one.seconds:.0f} s, "
            f"{'killed' if one.code else 'finished'} with {one.answered:,} answers; at most "
            f"{max(sizes) / 1e6:,.0f} MB, growth {100 * one.growth:+.1f} %; each minute: "
            f"{', '.join(f'{size / 1e6:,.0f}' for size in sizes[::60])} MB",
            flush=True,
        )
    return lived


def whole(store: Path) -> bool:
    """Whether every entry of a store is intact; prints what is not."""
    command = [sys.executable, "-m", "experiments.store", "verify", str(store)]
    done = subprocess.run(command, capture_output=True, text=True)
    print(f"{store}: {(done.stdout + done.stderr).strip()}")
    return done.returncode == 0


def main(argv: Sequence[str] | None = None) -> int:
    """Makes both runs and compares them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory of both runs")
    parser.add_argument("--config", default=CONFIG, help=f"FILE:VARIANT; default {CONFIG}")
    parser.add_argument("--questions", type=int, default=5000)
    parser.add_argument("--kill", type=float, default=300.0, help="seconds from answer to kill")
    given, settings = parser.parse_known_args(argv)
    if unknown := [one for one in settings if not one.startswith("--config.")]:
        parser.error(f"unknown: {' '.join(unknown)}")
    given.settings = settings
    if any((given.out / name).exists() for name in ("killed", "alone")):
        parser.error(f"{given.out} holds runs already: give another --out")
    killed = run(given, "killed", given.kill)
    run(given, "alone", None)
    stores = [whole(given.out / f"{name}.sqlite") for name in ("killed", "alone")]
    files = [given.out / name / "answers.jsonl" for name in ("killed", "alone")]
    same = files[0].read_bytes() == files[1].read_bytes()
    print(f"{len(killed) - 1} kills; answers {'equal' if same else 'DIFFER'}")
    return 0 if same and all(stores) else 1


if __name__ == "__main__":
    sys.exit(main())
