"""Abstract arguments of the training's jitted functions, for tests/test_export.py."""

import jax
import jax.numpy as jnp

from jaxrag.training import grad_cache


def tree(rows: int):
    return {"x": jax.ShapeDtypeStruct((rows, 3), jnp.float32)}


CASES = {
    "jaxrag.training.grad_cache.add": lambda: (grad_cache.add, (tree(4), tree(4)), {}),
    "jaxrag.training.grad_cache._microbatch_rows": lambda: (
        grad_cache._microbatch_rows,
        (tree(16), jax.ShapeDtypeStruct((), jnp.int32)),
        {"count": 4},
    ),
    "jaxrag.training.grad_cache._without_last": lambda: (
        grad_cache._without_last,
        (tree(16),),
        {"count": 4},
    ),
    "jaxrag.training.grad_cache._with_zeros": lambda: (
        grad_cache._with_zeros,
        (tree(12),),
        {"count": 4},
    ),
}
