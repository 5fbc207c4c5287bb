"""Random blocks of token sets, and what a selection of them must be."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrag.functional.bag_of_tokens import BLOCK, Selected


def unpacked(blocks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Best bounds, their lanes and second bounds, as the docstring of `bags.Blocks` has it."""
    packed = np.asarray(blocks).astype(int)
    best = packed >> 16
    return best, 15 - (packed >> 12 & 15), best - (4095 - (packed & 4095))


def random_blocks(rows: int, q: int = 3) -> jax.Array:
    rng = np.random.default_rng(rows)
    best = rng.integers(0, 50, (rows, q))  # many ties
    lanes = np.where(best > 0, rng.integers(0, BLOCK, (rows, q)), 0)
    lead = rng.integers(0, best + 2)
    packed = best << 16 | 15 - lanes << 12 | 4095 - lead
    return jnp.array(np.where(rng.random((rows, q)) < 0.1, 0, packed), jnp.uint32)


def check_selected(found: Selected, blocks: jax.Array, wanted: int) -> None:
    packed, (best, lanes, second) = np.asarray(blocks), unpacked(blocks)
    for query in range(packed.shape[1]):
        real = np.flatnonzero(packed[:, query])
        expected = np.sort(packed[real, query] >> 12)[::-1][:wanted]  # by bound, then lane
        number = len(expected)
        blocks_, *columns = (np.asarray(x)[query] for x in found)
        at = blocks_[:number]
        assert len(blocks_) == wanted and len({*at}) == number
        assert (packed[at, query] >> 12).tolist() == expected.tolist()
        for column, of_all in zip(columns, (lanes, best, second), strict=True):
            assert column[:number].tolist() == of_all[at, query].tolist()
        assert all((x[number:] == -1).all() for x in (blocks_, *columns))
