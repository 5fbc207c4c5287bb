"""Abstract arguments of the training's jitted functions, for tests/test_export.py."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jaxrag.training.checkpoints import checksums


def cases() -> Iterator[Any]:
    yield checksums, ({"x": jax.ShapeDtypeStruct((4, 3), jnp.float32)},), {}
