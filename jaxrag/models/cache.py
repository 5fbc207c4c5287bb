"""Key-value caches of attention layers, shared by the decoder and T5.

Axes besides those of jaxrag.types: ``g`` key-value head, ``e`` feature of a head, ``c`` slot,
``l`` layer.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

LayerCache = tuple[Float[Array, "b g e c"], Float[Array, "b g c e"]]
"""Keys and values of a layer. Each has the layout of its matrix product, so that a decoding step
transposes neither; on a CPU a transpose takes half of the step's time."""

Cache = tuple[LayerCache, ...]
"""One entry for each layer; for stacked layers a single entry with the layers as first axis."""


class CachedConfig(Protocol):
    """A network's config that determines the shape of its cache."""

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Number of layers, key-value heads of a layer, and features of a head."""
        ...


def empty_cache(
    config: CachedConfig,
    rows: int,
    slots: int,
    dtype: Any,
    *,
    stacked: bool = False,
    device: Any = None,
) -> Cache:
    """A cache of zeros for ``rows`` sequences of up to ``slots`` tokens."""
    layers, g, e = config.cache_shape
    stack = (layers,) if stacked else ()

    def zeros(*shape: int) -> Array:
        return jnp.zeros((*stack, rows, g, *shape), dtype, device=device)

    return tuple((zeros(e, slots), zeros(slots, e)) for _ in range(1 if stacked else layers))


def put(
    cache: LayerCache,
    k: Float[Array, "b t g e"],
    v: Float[Array, "b t g e"],
    slot: Int[Array, "*b"],
    rows: Int[Array, " b"] | None = None,
) -> LayerCache:
    """Writes keys and values of new tokens from ``slot`` on: one slot, or one for each row.

    ``rows`` are the cache's rows of the entries of ``k`` and ``v``, with a slot of their own each;
    None is the row of the same index.
    """
    keys, values = cache
    update = jax.lax.dynamic_update_slice
    new_keys, new_values = k.transpose(0, 2, 3, 1), v.swapaxes(1, 2)
    if rows is not None:
        for i in range(len(rows)):
            keys = update(keys, new_keys[i : i + 1], (rows[i], 0, 0, slot[i]))
            values = update(values, new_values[i : i + 1], (rows[i], 0, slot[i], 0))
        return keys, values
    if not slot.ndim:
        keys = update(keys, new_keys, (0, 0, 0, slot))
        return keys, update(values, new_values, (0, 0, slot, 0))
    update_rows = jax.vmap(lambda row, new, at: update(row, new, (0, 0, at)))
    keys = update_rows(keys, new_keys, slot)
    update_rows = jax.vmap(lambda row, new, at: update(row, new, (0, at, 0)))
    return keys, update_rows(values, new_values, slot)


NewEntries = tuple[Float[Array, "*l b t g e"], Float[Array, "*l b t g e"]]
"""Keys and values of new tokens."""


def put_stacked(cache: LayerCache, new: NewEntries, slot: Int[Array, "*b"]) -> LayerCache:
    """`put` for all layers at once; every array has the layers as first axis."""
    keys, values = new[0].transpose(0, 1, 3, 4, 2), new[1].swapaxes(2, 3)
    update = jax.lax.dynamic_update_slice
    if not slot.ndim:
        old_keys, old_values = cache
        first = (0, 0, 0)
        return update(old_keys, keys, (*first, 0, slot)), update(
            old_values, values, (*first, slot, 0)
        )
    rows = partial(jax.vmap, in_axes=(1, 1, 0), out_axes=1)
    write_keys = rows(lambda row, new, at: update(row, new, (0, 0, 0, at)))
    write_values = rows(lambda row, new, at: update(row, new, (0, 0, at, 0)))
    return write_keys(cache[0], keys, slot), write_values(cache[1], values, slot)


@partial(jax.jit, static_argnames="length")
def copy_out(
    cache: Cache, row: Int[Array, ""], start: Int[Array, ""], *, length: int
) -> Float[Array, "l 2 g t e"]:
    """A block of one row: keys and values of all layers in ``length`` slots from ``start`` on."""

    def cut(array: Float[Array, "*l b g c e"]) -> Float[Array, "*l g t e"]:
        whole_row = jax.lax.dynamic_index_in_dim(array, row, axis=-4, keepdims=False)
        return jax.lax.dynamic_slice_in_dim(whole_row, start, length, axis=-2)

    pairs = [jnp.stack([cut(k.swapaxes(-1, -2)), cut(v)], axis=-4) for k, v in cache]
    return jnp.concatenate([pair.reshape(-1, *pair.shape[-4:]) for pair in pairs])


@partial(jax.jit, donate_argnames="cache")
def copy_in(
    cache: Cache, block: Float[Array, "l 2 g t e"], row: Int[Array, ""], start: Int[Array, ""]
) -> Cache:
    """Writes a block of `copy_out` into a row, from slot ``start`` on."""
    per_entry = block.reshape(len(cache), -1, *block.shape[1:])

    def write(
        array: Float[Array, "*l b g s t"], new: Float[Array, "l g u v"], at: tuple[Any, Any]
    ) -> Float[Array, "*l b g s t"]:
        new = new.reshape(*array.shape[:-4], 1, *new.shape[-3:])
        first = (*(0 for _ in array.shape[:-4]), row, 0, *at)
        return jax.lax.dynamic_update_slice(array, new, first)

    def filled(pair: LayerCache, new: Float[Array, "l 2 g t e"]) -> LayerCache:
        keys, values = pair
        keys = write(keys, new[:, 0].swapaxes(-1, -2), (0, start))
        return keys, write(values, new[:, 1], (start, 0))

    return tuple(map(filled, cache, per_entry))


@jax.jit
def take(cache: Cache, numbers: Int[Array, " n"]) -> Cache:
    """The cache of the rows with these numbers."""
    return jax.tree.map(lambda array: jnp.take(array, numbers, axis=-4), cache)


@partial(jax.jit, donate_argnames="cache")
def place(
    cache: Cache,
    rows: Cache,
    sources: Int[Array, " n"],
    numbers: Int[Array, " n"],
    count: Int[Array, ""],
) -> Cache:
    """Copies the first ``count`` of the rows ``sources`` of another cache to rows ``numbers``.

    The other cache may have more slots; those beyond this cache's are dropped.
    """

    def copy(i: Int[Array, ""], cache: Cache) -> Cache:
        def write(
            array: Float[Array, "*l b g s t"], source: Float[Array, "*l n g u v"]
        ) -> Float[Array, "*l b g s t"]:
            stack = array.shape[:-4]
            first = (*(0 for _ in stack), sources[i], 0, 0, 0)
            row = jax.lax.dynamic_slice(source, first, (*stack, 1, *array.shape[-3:]))
            return jax.lax.dynamic_update_slice_in_dim(array, row, numbers[i], axis=len(stack))

        return jax.tree.map(write, cache, rows)

    return jax.lax.fori_loop(0, count, copy, cache)
