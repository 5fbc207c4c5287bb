"""Time that JAX spends on compiling programs, by its own events."""

from __future__ import annotations

import functools
import time

import jax

_EVENTS = "/jax/core/compile/"  # tracing, lowering, compiling or reading the compilation cache


@functools.cache
def _spans() -> list[tuple[float, float]]:
    """Disjoint spans of time, since the first call, in which a program was compiled."""
    spans: list[tuple[float, float]] = []

    def note(event: str, duration_secs: float, **_: str | int) -> None:
        end = time.perf_counter()
        start = end - duration_secs
        if event.startswith(_EVENTS):
            while spans and spans[-1][1] > start:  # tracing inside tracing is reported first
                start = min(start, spans.pop()[0])
            spans.append((start, end))

    jax.monitoring.register_event_duration_secs_listener(note)
    return spans


def compilation_seconds() -> float:
    """Seconds of compilation in this process since the first call."""
    return sum(end - start for start, end in _spans())
