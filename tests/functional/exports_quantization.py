"""Abstract arguments of product quantization, for tests/test_export.py."""

import jax
import jax.numpy as jnp

from jaxrag.functional import quantization
from jaxrag.retrieval.dense.scann import tree

ROWS, LEAVES, BLOCKS, CODES, WIDTH = 64, 12, 10, 16, 2
DIMENSION = BLOCKS * WIDTH


def array(*shape: int, dtype: type = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


WEIGHTS = array(ROWS)
VECTORS, CENTERS = array(ROWS, DIMENSION), array(LEAVES, DIMENSION)
TARGETS, BOOK = array(ROWS, BLOCKS, WIDTH), array(BLOCKS, CODES, WIDTH)
STORED = array(ROWS, DIMENSION, dtype=jnp.float16)
OF_LEAF = array(ROWS, dtype=jnp.int32)

CASES = {
    "jaxrag.functional.quantization.nearest_center": lambda: (
        quantization.nearest_center,
        (VECTORS, CENTERS),
        {},
    ),
    "jaxrag.functional.quantization.center_sums": lambda: (
        quantization.center_sums,
        (VECTORS, WEIGHTS, CENTERS),
        {},
    ),
    "jaxrag.functional.quantization.block_sums": lambda: (
        quantization.block_sums,
        (TARGETS, WEIGHTS, BOOK),
        {},
    ),
    "jaxrag.functional.quantization.anisotropic_codes": lambda: (
        quantization.anisotropic_codes,
        (TARGETS, TARGETS, WEIGHTS, BOOK),
        {},
    ),
    "jaxrag.retrieval.dense.scann.tree._leaves": lambda: (tree._leaves, (STORED, CENTERS), {}),
    "jaxrag.retrieval.dense.scann.tree._codes": lambda: (
        tree._codes,
        (STORED, OF_LEAF, CENTERS, BOOK),
        {"threshold": 0.2, "residual": True},
    ),
}
