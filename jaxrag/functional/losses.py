"""Losses that train a retriever: SiDR's and R3's contrastive one, and KL divergence.

docs/methods.md, "R3: loss"; Zhou et al. (SiDR), R3. A batch has n questions, each with a positive
passage and hard negatives; all passages of the batch are candidates for each question. Relevance is
the inner product of two vectors over the vocabulary, at temperature 1. Over a mesh, arrays that are
sharded along their first axis give the loss of the whole batch, like any jitted function.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrag.types import InputError

Form = Literal["paper", "released"]


class Embedded(NamedTuple):
    """What SiDR makes of n texts.

    Attributes:
      dense: E(x), every entry above 0.
      sparse: E(x) with all but its largest entries zero, the text's own tokens kept.
      tokens: T(x), 1 at the tokens of the text.
    """

    dense: Float[Array, "n v"]
    sparse: Float[Array, "n v"]
    tokens: Float[Array, "n v"]


def symmetric_contrastive(
    queries: Float[Array, "n v"], passages: Float[Array, "m v"]
) -> Float[Array, " n"]:
    """-log P(passage i | query i) - log P(query i | passage i) of each question, in nats.

    The first probability is among all m passages, the second among all n queries (R3 eq for
    L(q, d); the released code's two cross-entropies).

    Args:
      queries: vectors of the questions.
      passages: of the positives, in the order of the questions, then of any hard negatives.
    """
    if len(passages) < len(queries):
        raise InputError(
            f"{len(passages)} passages for {len(queries)} questions: each needs its positive, "
            "in the same order, before any hard negatives."
        )
    scores = jnp.matmul(queries, passages.T, precision=jax.lax.Precision.HIGHEST)
    among_passages = jnp.diagonal(jax.nn.log_softmax(scores, axis=1))
    among_queries = jnp.diagonal(jax.nn.log_softmax(scores, axis=0))
    return -among_passages - among_queries


def sidr_loss(queries: Embedded, passages: Embedded, *, form: Form = "paper") -> Float[Array, ""]:
    """The loss of a batch over SiDR's channels.

    "paper": L(E(q), E(d)) + L(E(q), T(d)) / 2 + L(T(q), E(d)) / 2, summed over the batch, with E
    sparsified, as the paper defines E. (It does not say whether that holds in the loss, too; who
    wants dense vectors there gives them as sparse ones.)
    "released": a quarter each of L(Ek(q), E(d)), L(E(q), Ek(d)), L(T(q), E(d)) and L(E(q), T(d)),
    with Ek sparsified and E not, averaged over the batch.

    Args:
      queries: of n questions.
      passages: as in `symmetric_contrastive`.
    """
    of = symmetric_contrastive
    if form == "paper":
        q, d = queries.sparse, passages.sparse
        return jnp.sum(of(q, d) + of(q, passages.tokens) / 2 + of(queries.tokens, d) / 2)
    if form == "released":
        parametric = of(queries.sparse, passages.dense) + of(queries.dense, passages.sparse)
        semi = of(queries.dense, passages.tokens) + of(queries.tokens, passages.dense)
        return jnp.mean(parametric + semi) / 4
    raise InputError(f"form is {form!r}; allowed are 'paper' and 'released'.")


def distillation(
    scores: Float[Array, "n m"], targets: Float[Array, "n m"], *, temperature: float = 1.0
) -> Float[Array, ""]:
    """Mean KL(P || R) over questions in nats: RePlug's loss, R3's ablation (Shi et al., 2023).

    P is the softmax over a question's m passages of ``targets`` by ``temperature``, what the
    language model says of them (log P(y|q,d)), and constant; R that of the retriever's ``scores``.
    A passage of target -inf has probability 0.
    """
    wanted = jax.nn.log_softmax(jax.lax.stop_gradient(targets) / temperature, axis=1)
    found = jax.nn.log_softmax(scores, axis=1)
    weight = jnp.exp(wanted)
    apart = jnp.where(weight > 0, weight * (jnp.where(weight > 0, wanted, 0.0) - found), 0.0)
    return apart.sum(axis=1).mean()
