"""DRAGIN (Su et al. 2024): when to retrieve (RIND), and what to search for (QFS).

Attention is of one layer, [i j] from token i to token j. ``where`` marks the real tokens of
padded arrays.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def received(attention: Float[Array, "t t"], *, where: Bool[Array, " t"]) -> Float[Array, " t"]:
    """Largest attention from later tokens to each token i: max over j > i of A[j, i]; 0 at the end.

    It measures how much the following text depends on a token.
    """
    count = len(attention)
    later = jnp.arange(count)[:, None] > jnp.arange(count)
    counted = later & where[:, None] & where
    return jnp.max(jnp.where(counted, attention, 0.0), axis=0, initial=0.0)


def relative(
    values: Float[Array, " t"], sentences: Int[Array, " t"], *, where: Bool[Array, " t"]
) -> Float[Array, " t"]:
    """Values divided by their sentence's mean; 0 where that is 0.

    The released code applies it to the attention received: v_i * length / sum.

    Args:
      values: of the tokens, not negative.
      sentences: number of each token's sentence, at least 0 and below t.
      where: real tokens.
    """
    t = len(values)
    total = jax.ops.segment_sum(jnp.where(where, values, 0.0), sentences, t)
    count = jax.ops.segment_sum(where.astype(values.dtype), sentences, t)
    mean = (total / jnp.maximum(count, 1.0))[sentences]
    return jnp.where(where & (mean > 0), values / jnp.where(mean > 0, mean, 1.0), 0.0)


def rind(
    entropies: Float[Array, " t"], attention: Float[Array, " t"], content: Bool[Array, " t"]
) -> Float[Array, " t"]:
    """Real-time information need of each token: H_i * a_max(i) * s_i.

    Args:
      entropies: H_i, of the distributions that the tokens were sampled from, in nats.
      attention: a_max, `received` by each token, possibly `relative`.
      content: s_i, whether a token is not a stopword.
    """
    return jnp.where(content, entropies * attention, 0.0)


def first_above(
    scores: Float[Array, " t"], theta: float | Float[Array, ""], *, where: Bool[Array, " t"]
) -> Int[Array, ""]:
    """Position of the first score above ``theta``; -1 if no score is."""
    above = where & (scores > theta)
    return jnp.where(jnp.any(above), jnp.argmax(above), -1)


def word_weights(
    attention: Float[Array, " t"], words: Int[Array, " t"], *, count: int
) -> Float[Array, " w"]:
    """Attention from one token to each of ``count`` words: the sum over their tokens.

    Args:
      attention: from that token to each token.
      words: number of each token's word; negative for tokens outside words.
      count: number of words.
    """
    return jax.ops.segment_sum(attention, jnp.where(words >= 0, words, count), count + 1)[:count]


def heaviest(
    weights: Float[Array, " w"], n: int | Int[Array, ""], *, where: Bool[Array, " w"]
) -> Bool[Array, " w"]:
    """Mask of the ``n`` largest real weights; ties go to the first, NaN last."""
    order = jnp.lexsort((-weights, ~where))
    rank = jnp.zeros(len(weights), jnp.int32).at[order].set(jnp.arange(len(weights)))
    return where & (rank < n)
