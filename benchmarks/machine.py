"""Timing that accounts for processor time lost to other virtual machines."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")
ROUNDS = 7


class Taken(NamedTuple):
    """Duration of a call.

    Attributes:
      seconds: wall-clock time.
      stolen: share of processor time that the host gave to other machines meanwhile; 0 if unknown.
    """

    seconds: float
    stolen: float

    @property
    def had(self) -> float:
        """Wall-clock seconds without the stolen share."""
        return self.seconds * (1 - self.stolen)


def timed(run: Callable[[], T]) -> tuple[T, Taken]:
    """The result of ``run()``, and how long it took."""
    before, start = _ticks(), time.perf_counter()
    made = run()
    seconds, after = time.perf_counter() - start, _ticks()
    whole = sum(after) - sum(before)
    return made, Taken(seconds, (after[-1] - before[-1]) / whole if whole else 0.0)


def medians(contestants: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of each function, run in turns; the first turn warms up."""
    seconds = {name: [] for name in contestants}
    for turn in range(ROUNDS + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def _ticks() -> list[int]:
    """Processor time since boot by kind, stolen time last; one 0 on systems other than Linux."""
    stat = Path("/proc/stat")
    return [int(n) for n in stat.read_text().split()[1:9]] if stat.exists() else [0]
