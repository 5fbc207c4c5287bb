"""Abstract arguments of the training's jitted functions, for tests/test_export.py."""

import jax
import jax.numpy as jnp

from jaxrag.training.checkpoints import checksums

CASES = {
    "jaxrag.training.checkpoints.checksums": lambda: (
        checksums,
        ({"x": jax.ShapeDtypeStruct((4, 3), jnp.float32)},),
        {},
    ),
}
