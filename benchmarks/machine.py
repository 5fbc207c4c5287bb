"""How much of the machine a measurement had."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Taken(NamedTuple):
    """Time that something took.

    Attributes:
      seconds: by the clock.
      stolen: share of the processors' time that the host gave to other machines meanwhile; 0 where
        the system does not tell.
    """

    seconds: float
    stolen: float

    @property
    def had(self) -> float:
        """Seconds that this machine had."""
        return self.seconds * (1 - self.stolen)


def timed(run: Callable[[], T]) -> tuple[T, Taken]:
    """Runs, and tells how long it took."""
    before, start = _ticks(), time.perf_counter()
    made = run()
    seconds, after = time.perf_counter() - start, _ticks()
    whole = sum(after) - sum(before)
    return made, Taken(seconds, (after[-1] - before[-1]) / whole if whole else 0.0)


def _ticks() -> list[int]:
    """Processor time since the start by kind, the stolen last (Linux; else nothing)."""
    stat = Path("/proc/stat")
    return [int(n) for n in stat.read_text().split()[1:9]] if stat.exists() else [0]
