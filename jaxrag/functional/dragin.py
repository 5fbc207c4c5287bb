"""DRAGIN (Su et al. 2024): when to retrieve (RIND), and what to search for (QFS).

    >>> attention = jnp.array([[[0.0, 0.0], [0.5, 0.5]]])  # of one text of two tokens
    >>> a_max = jax.jit(jax.vmap(received))(attention, where=jnp.array([[True, True]]))
    >>> jax.jit(jax.vmap(rind))(jnp.array([[3.0, 1.0]]), a_max, jnp.array([[True, True]]))
    Array([[1.5, 0. ]], dtype=float32)

Symbols, for a text of t tokens: A_ji is one layer's attention from token j to token i (an array
[j i]), H_i the entropy in nats of the distribution that token i was sampled from, s_i is 1 for a
content word and 0 for a stopword. ``where`` marks the real tokens of padded arrays.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def received(attention: Float[Array, "t t"], *, where: Bool[Array, " t"]) -> Float[Array, " t"]:
    """a_max(i) = max over j > i of A_ji: how much later text depends on token i; 0 for the last."""
    count = len(attention)
    later = jnp.arange(count)[:, None] > jnp.arange(count)
    counted = later & where[:, None] & where
    return jnp.max(jnp.where(counted, attention, 0.0), axis=0, initial=0.0)


def relative(
    values: Float[Array, " t"], sentences: Int[Array, " t"], *, where: Bool[Array, " t"]
) -> Float[Array, " t"]:
    """v_i |S| / sum over j in S of v_j, S the sentence of token i: values relative to its mean.

    0 where the mean is 0. The released code applies it to a_max. ``values`` are v, not negative;
    ``sentences`` are the numbers of the tokens' sentences, at least 0 and below t.
    """
    t = len(values)
    total = jax.ops.segment_sum(jnp.where(where, values, 0.0), sentences, t)
    count = jax.ops.segment_sum(where.astype(values.dtype), sentences, t)
    mean = (total / jnp.maximum(count, 1.0))[sentences]
    return jnp.where(where & (mean > 0), values / jnp.where(mean > 0, mean, 1.0), 0.0)


def rind(
    entropies: Float[Array, " t"], attention: Float[Array, " t"], content: Bool[Array, " t"]
) -> Float[Array, " t"]:
    """S_i = H_i a_max(i) s_i: real-time information need of each token.

    ``entropies`` are H_i, ``content`` is s_i, and ``attention`` a_max(i) or its `relative` values.
    """
    return jnp.where(content, entropies * attention, 0.0)


def first_above(
    scores: Float[Array, " t"], theta: float | Float[Array, ""], *, where: Bool[Array, " t"]
) -> Int[Array, ""]:
    """min {i : S_i > theta}: position of the first score above ``theta``; -1 if there is none."""
    above = where & (scores > theta)
    return jnp.where(jnp.any(above), jnp.argmax(above), -1)


def word_weights(
    attention: Float[Array, " t"], words: Int[Array, " t"], *, count: int
) -> Float[Array, " w"]:
    """W_w = sum over tokens i of word w of A_ji: attention from one token j to each word.

    ``attention`` is A_ji of that token j; ``words`` are the numbers of the tokens' words, below
    ``count``, and negative for tokens outside words.
    """
    return jax.ops.segment_sum(attention, jnp.where(words >= 0, words, count), count + 1)[:count]


def heaviest(
    weights: Float[Array, " w"], n: int | Int[Array, ""], *, where: Bool[Array, " w"]
) -> Bool[Array, " w"]:
    """Mask of argtop-n over w of W_w among real weights; of equals the first, NaN is last."""
    order = jnp.lexsort((-weights, ~where))
    rank = jnp.zeros(len(weights), jnp.int32).at[order].set(jnp.arange(len(weights)))
    return where & (rank < n)
