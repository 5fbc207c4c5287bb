"""Time of a compiled program, and its results beside those of a CPU."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.inputs import arguments, copies
from benchmarks.gpu.programs import Timed
from benchmarks.tpu.chips import Place

_LEAST, _MOST = 0.02, 3.0  # seconds of one measurement at least, and of all at most
_FEWEST = 3  # measurements
_MOST_CALLS = 200  # of a measurement


class Ready(NamedTuple):
    """A program compiled for JAX's default device."""

    timed: Timed
    traced: Any
    compiled: Any
    seconds: float


class Times(NamedTuple):
    """Seconds of a call, by measurement; of a part of it if the program has several."""

    seconds: list[float]

    @property
    def median(self) -> float:
        """Of the measurements."""
        return statistics.median(self.seconds)


def prepare(timed: Timed, where: Place | None = None) -> Ready:
    """Traces and compiles a program."""
    start = time.perf_counter()
    traced = timed.program.trace(where or Place())
    compiled = traced.lower().compile()
    return Ready(timed, traced, compiled, time.perf_counter() - start)


def measure(ready: Ready, rounds: int) -> tuple[Times, Any]:
    """Times of ``rounds`` measurements after a first call, and the results of that.

    There are fewer where they take seconds. Short programs are called several times a measurement,
    unless they take over their arguments.
    """
    given = arguments(ready.traced, ready.timed.rules, jax.devices()[0])
    # what a call takes over is copied before it, outside of the measurement
    again = any(info.donated for info in jax.tree.leaves(ready.traced.args_info))

    def once(calls: int) -> tuple[float, Any]:
        args, kwargs = jax.block_until_ready(copies(ready.traced, given)) if again else given
        start, made = time.perf_counter(), None
        for _ in range(calls):
            made = ready.compiled(*args, **kwargs)
        jax.block_until_ready(made)
        return (time.perf_counter() - start) / calls, made

    _, first = once(1)
    kept = leaves(first) if ready.timed.compared else None
    del first
    took, _ = once(1)
    calls = 1 if again else max(1, min(int(_LEAST / took), _MOST_CALLS))
    parts = ready.timed.program.parts
    rounds = max(_FEWEST, min(rounds, int(_MOST / (calls * took))))
    return Times([once(calls)[0] / parts for _ in range(rounds)]), kept


def leaves(tree: Any) -> list[np.ndarray]:
    """Results as NumPy arrays; floating-point numbers in float32."""

    def one(leaf: Any) -> np.ndarray:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        real = jnp.issubdtype(leaf.dtype, jnp.floating)
        return np.asarray(leaf.astype(jnp.float32) if real else leaf)

    return [one(leaf) for leaf in jax.tree.leaves(tree)]


def difference(found: Iterable[np.ndarray], expected: Iterable[np.ndarray]) -> tuple[float, float]:
    """How far results are from expected ones.

    Returns:
      Of floating-point arrays ||a - b|| / ||b||, the largest of all arrays; of others, the smallest
      share of equal entries.
    """
    furthest, same = 0.0, 1.0
    for a, b in zip(found, expected, strict=True):
        if np.issubdtype(b.dtype, np.floating):
            norm = float(np.linalg.norm(b.astype(np.float64)))
            apart = float(np.linalg.norm(a.astype(np.float64) - b.astype(np.float64)))
            relative = apart / norm if norm else apart
            furthest = max(furthest, math.inf if math.isnan(relative) else relative)
        elif b.size:
            same = min(same, float((a == b).mean()))
    return furthest, same


def write_reference(timed: Timed, path: Path) -> None:
    """Writes a program's results on the CPU."""
    cpu = jax.devices("cpu")[0]
    ready = prepare(timed, Place(device=cpu))
    args, kwargs = arguments(ready.traced, timed.rules, cpu)
    made = leaves(ready.compiled(*args, **kwargs))
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, *made)
    partial.rename(path)


def read_reference(path: Path) -> list[np.ndarray]:
    """What `write_reference` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        return [stored[f"arr_{i}"] for i in range(len(stored.files))]
