"""DRAGIN (Su et al. 2024): when to retrieve (RIND), and what to search for (QFS).

Attentions are of one layer, [i j] from token i to token j. ``where`` marks the real tokens of an
array that was padded to a fixed size.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def received(attention: Float[Array, "t t"], *, where: Bool[Array, " t"]) -> Float[Array, " t"]:
    """The most attention that a later token pays to each one: max over j > i of A[j, i].

    How much the text goes on to depend on a token. The last one's is 0: nothing follows it.
    """
    count = len(attention)
    later = jnp.arange(count)[:, None] > jnp.arange(count)
    seen = later & where[:, None] & where
    return jnp.max(jnp.where(seen, attention, 0.0), axis=0, initial=0.0)


def relative(
    values: Float[Array, " t"], sentences: Int[Array, " t"], *, where: Bool[Array, " t"]
) -> Float[Array, " t"]:
    """Values divided by the mean of their sentence's; 0 where that is 0.

    The released code does so with the attention received: v_i * length / sum.

    Args:
      values: of the tokens, none negative.
      sentences: the number of each token's sentence, from 0 and below the number of tokens.
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
    """How much each token needs information from outside: H_i * a_max(i) * s_i.

    Args:
      entropies: of the predictions that the tokens were drawn from, in nats.
      attention: `received` by each, perhaps made `relative`.
      content: s_i, whether a token carries meaning (is no stopword).
    """
    return jnp.where(content, entropies * attention, 0.0)


def first_above(
    scores: Float[Array, " t"], theta: float | Float[Array, ""], *, where: Bool[Array, " t"]
) -> Int[Array, ""]:
    """The first token whose score is above ``theta``; -1 where there is none."""
    above = where & (scores > theta)
    return jnp.where(jnp.any(above), jnp.argmax(above), -1)


def word_weights(
    attention: Float[Array, " t"], words: Int[Array, " t"], *, count: int
) -> Float[Array, " w"]:
    """What one token pays to each of ``count`` words: the sum over their tokens.

    Args:
      attention: a row, to each token.
      words: the number of each token's word; below 0 for tokens of none.
      count: of words.
    """
    own = jnp.where(words >= 0, attention, 0.0)
    return jax.ops.segment_sum(own, jnp.where(words >= 0, words, 0), count)


def heaviest(
    weights: Float[Array, " w"], n: int | Int[Array, ""], *, where: Bool[Array, " w"]
) -> Bool[Array, " w"]:
    """Which are the ``n`` heaviest of the real ones; of equal ones the first."""
    order = jnp.argsort(jnp.where(where, -weights, jnp.inf), stable=True)
    rank = jnp.zeros(len(weights), jnp.int32).at[order].set(jnp.arange(len(weights)))
    return where & (rank < n)
