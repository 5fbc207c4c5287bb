"""Keys and values of tokens that a decoder has seen, and how rows of them are written and moved.

Axes besides those of jaxrag.types: ``g`` key-value head, ``e`` feature of a head, ``c`` slot.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxrag.models.decoder.config import DecoderConfig

LayerCache = tuple[Float[Array, "b g e c"], Float[Array, "b g c e"]]
"""Keys and values. Each lies as its matrix product wants it, so that neither is transposed in a
step; on a CPU that is half of a step's time."""

Cache = tuple[LayerCache, ...]
"""Keys and values of each layer; of stacked layers one entry, its arrays with the layers first."""


def empty_cache(
    config: DecoderConfig,
    rows: int,
    slots: int,
    dtype: Any,
    *,
    stacked: bool = False,
    device: Any = None,
) -> Cache:
    """A cache of zeros for ``rows`` sequences of up to ``slots`` tokens."""
    g, e, layers = config.num_key_value_heads, config.head_dim, config.num_hidden_layers
    stack = (layers,) if stacked else ()

    def zeros(*shape: int) -> Array:
        return jnp.zeros((*stack, rows, g, *shape), dtype, device=device)

    return tuple((zeros(e, slots), zeros(slots, e)) for _ in range(1 if stacked else layers))


def put(
    cache: LayerCache,
    k: Float[Array, "b t g e"],
    v: Float[Array, "b t g e"],
    slot: Int[Array, "*b"],
) -> LayerCache:
    """The cache with keys and values of new tokens from ``slot`` on, one slot or each row's own."""
    keys, values = cache
    update = jax.lax.dynamic_update_slice
    if not slot.ndim:
        keys = update(keys, k.transpose(0, 2, 3, 1), (0, 0, 0, slot))
        return keys, update(values, v.swapaxes(1, 2), (0, 0, slot, 0))
    rows = jax.vmap(lambda row, new, at: update(row, new, (0, 0, at)))
    keys = rows(keys, k.transpose(0, 2, 3, 1), slot)
    rows = jax.vmap(lambda row, new, at: update(row, new, (0, at, 0)))
    return keys, rows(values, v.swapaxes(1, 2), slot)


@partial(jax.jit, static_argnames="length")
def copy_out(
    cache: Cache, row: Int[Array, ""], start: Int[Array, ""], *, length: int
) -> Float[Array, "l 2 g t e"]:
    """Keys and values of ``length`` slots of one row, all layers together."""

    def cut(array: Float[Array, "*l b g c e"]) -> Float[Array, "*l g t e"]:
        found = jax.lax.dynamic_index_in_dim(array, row, axis=-4, keepdims=False)
        return jax.lax.dynamic_slice_in_dim(found, start, length, axis=-2)

    pairs = [jnp.stack([cut(k.swapaxes(-1, -2)), cut(v)], axis=-4) for k, v in cache]
    return jnp.concatenate([pair.reshape(-1, *pair.shape[-4:]) for pair in pairs])


@partial(jax.jit, donate_argnames="cache")
def copy_in(
    cache: Cache, block: Float[Array, "l 2 g t e"], row: Int[Array, ""], start: Int[Array, ""]
) -> Cache:
    """Puts one of `copy_out`'s blocks into a row, at ``start``."""
    per_entry = block.reshape(len(cache), -1, *block.shape[1:])

    def put(
        to: Float[Array, "*l b g s t"], new: Float[Array, "l g u v"], at: tuple[Any, Any]
    ) -> Float[Array, "*l b g s t"]:
        new = new.reshape(*to.shape[:-4], 1, *new.shape[-3:])
        first = (*(0 for _ in to.shape[:-4]), row, 0, *at)
        return jax.lax.dynamic_update_slice(to, new, first)

    def filled(pair: LayerCache, new: Float[Array, "l 2 g t e"]) -> LayerCache:
        keys, values = pair
        return (
            put(keys, new[:, 0].swapaxes(-1, -2), (0, start)),
            put(values, new[:, 1], (start, 0)),
        )

    return tuple(map(filled, cache, per_entry))


@jax.jit
def take(cache: Cache, numbers: Int[Array, " n"]) -> Cache:
    """The rows of a cache with these numbers, as a cache."""
    return jax.tree.map(lambda array: jnp.take(array, numbers, axis=-4), cache)


@partial(jax.jit, donate_argnames="cache")
def place(
    cache: Cache,
    rows: Cache,
    sources: Int[Array, " n"],
    numbers: Int[Array, " n"],
    count: Int[Array, ""],
) -> Cache:
    """The cache with the first ``count`` of the rows ``sources`` of another one at ``numbers``.

    That one may have more slots; those that there is no place for are left out.
    """

    def one(i: Int[Array, ""], cache: Cache) -> Cache:
        def put(
            to: Float[Array, "*l b g s t"], source: Float[Array, "*l n g u v"]
        ) -> Float[Array, "*l b g s t"]:
            stack = to.shape[:-4]
            first = (*(0 for _ in stack), sources[i], 0, 0, 0)
            row = jax.lax.dynamic_slice(source, first, (*stack, 1, *to.shape[-3:]))
            return jax.lax.dynamic_update_slice_in_dim(to, row, numbers[i], axis=len(stack))

        return jax.tree.map(put, cache, rows)

    return jax.lax.fori_loop(0, count, one, cache)


def row_of(cache: Cache, row: Int[Array, ""]) -> Cache:
    """One row of a cache, as a cache."""
    return jax.tree.map(
        lambda array: jax.lax.dynamic_slice_in_dim(array, row, 1, axis=array.ndim - 4), cache
    )


def with_row(cache: Cache, one: Cache, row: Int[Array, ""]) -> Cache:
    """The cache with a row replaced."""

    def put(to: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(to, new, row, axis=to.ndim - 4)

    return jax.tree.map(put, cache, one)
