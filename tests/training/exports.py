"""Abstract arguments of the training's jitted functions, for tests/test_export.py."""

import jax
import jax.numpy as jnp

from jaxrag.training import pieces


def tree(rows: int):
    return {"x": jax.ShapeDtypeStruct((rows, 3), jnp.float32)}


CASES = {
    "jaxrag.training.pieces.add": lambda: (pieces.add, (tree(4), tree(4)), {}),
    "jaxrag.training.pieces._rows": lambda: (
        pieces._rows,
        (tree(16), jax.ShapeDtypeStruct((), jnp.int32)),
        {"part": 4},
    ),
}
