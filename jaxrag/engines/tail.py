"""Whether a matrix product's rows are the same to the bit however many there are.

On CPUs they mostly are, for matrices of a real model's size and from two rows on; nothing promises
it, so it is tried out. Where it holds, few answers can be written in few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_TRIED = 2  # random matrices a shape


@jax.jit
def product(x: Float[Array, "b i"], weight: Float[Array, "o i"]) -> Float[Array, "b o"]:
    """What each linear layer and the output layer do."""
    return jnp.einsum("bi,oi->bo", x, weight.astype(x.dtype))


def same_bits(params: Any, counts: Sequence[int], dtype: Any) -> bool:
    """Whether products with the matrices of ``params`` are equal in all these numbers of rows."""
    matrices = {leaf.shape: leaf for leaf in jax.tree.leaves(params) if leaf.ndim == 2}
    random = np.random.default_rng(0)
    for (_, features), weight in matrices.items():
        for _ in range(_TRIED):
            x = jnp.asarray(random.normal(size=(max(counts), features)), dtype)
            whole = np.asarray(product(x, weight))
            for count in counts:
                if not np.array_equal(np.asarray(product(x[:count], weight)), whole[:count]):
                    return False
    return True


def tail_rows(params: Any, rows: int, few: int, dtype: Any) -> int:
    """``few`` if that many rows give the same bits as ``rows`` and its halves; else ``rows``."""
    counts = [few]
    while counts[-1] * 2 <= rows:
        counts.append(counts[-1] * 2)
    return few if same_bits(params, [*counts, rows], dtype) else rows
