"""Programs of passage selection (AIS)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from benchmarks.tpu.chips import Place, Slice
from benchmarks.tpu.program import Ideal, Program
from jaxrag.functional.ais import select_passages

_POOL, _FEATURES = 32, 768


def _ais(where: Place) -> Any:
    vector = where.array((_FEATURES,), jnp.float32)
    return select_passages.trace(
        vector,
        vector,
        where.array((_POOL, _FEATURES), jnp.float32),
        where.array((_POOL,), jnp.int32),
        k=3,
        where=where.array((_POOL,), jnp.bool_),
    )


def programs() -> list[Program]:
    """AIS of a question."""
    ideal = Ideal(4.0 * _POOL * _FEATURES, 0.0)
    name = f"AIS: 3 of {_POOL} x {_FEATURES}"
    return [Program(name, Slice("v5e:2x4"), _ais, ideal, 1, "questions")]
