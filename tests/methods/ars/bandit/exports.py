"""Abstract arguments of the bandit's choice, for tests/test_export.py."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jaxrag.functional.bandits.networks import mlp
from jaxrag.methods.ars.bandit.trained import best_arms


def cases() -> Iterator[Any]:
    shape = jax.ShapeDtypeStruct
    params = jax.eval_shape(mlp(8, 3, hidden=(4,)).init, jax.random.key(0))
    arguments = (params, shape((24, 8), jnp.float32), shape((5, 24), jnp.float32))
    yield best_arms, arguments, {"arms": 3, "hidden": (4,), "shared": False}
